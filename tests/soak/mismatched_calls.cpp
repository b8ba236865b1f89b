#include "tests/soak/mismatched_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <regex>

#include "lockstep/group/grouped.h"
#include "lockstep/kernel/reduce.h"
#include "tests/fault/probe_buffer.h"

namespace soak {
namespace {

using lockstep::Dtype;
using lockstep::ReduceOp;
using Kind = DrawnCall::Kind;
using Bytes = std::span<std::byte>;

constexpr std::array dtypes = {Dtype::f32, Dtype::f64, Dtype::i32, Dtype::u8, Dtype::bf16, Dtype::f16};
constexpr std::array ops = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product,
                            ReduceOp::average};
constexpr std::array<std::size_t, 8> sizes = {0, 1, 2, 33, 1000, 4097, 30'000, 200'000};
constexpr std::array custom_names = {"left", "right"};
constexpr int kinds = static_cast<int>(Kind::barrier) + 1;

bool reduces(Kind kind) { return kind <= Kind::reduce_scatter_v && kind != Kind::custom; }
bool has_root(Kind kind) {
  return kind == Kind::reduce || (kind >= Kind::broadcast && kind <= Kind::gather_v);
}
bool has_counts(Kind kind) {
  return kind == Kind::grouped || kind == Kind::reduce_scatter_v || kind == Kind::scatter_v ||
         kind == Kind::gather_v || kind == Kind::all_gather_v || kind == Kind::all_to_all_v;
}
bool has_elements(Kind kind) { return kind != Kind::barrier && !has_counts(kind); }

std::size_t pick(std::mt19937_64& dice, std::size_t from) { return dice() % from; }

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void make_sensible(DrawnCall& call) {
  const bool can_scale = reduces(call.kind) && lockstep::kernel::supports(call.dtype, ReduceOp::average) &&
                         (call.op == ReduceOp::sum || call.op == ReduceOp::average);
  if (!lockstep::kernel::supports(call.dtype, call.op)) call.op = ReduceOp::sum;
  if (!can_scale) call.prescale = 1.0F;
  if (!reduces(call.kind)) call.op = ReduceOp::sum;
  if (call.kind == Kind::custom) call.op = call.op == ReduceOp::sum ? ReduceOp::sum : ReduceOp::min;
  if (!has_root(call.kind)) call.root = 0;
}

std::vector<std::size_t> draw_counts(std::mt19937_64& dice, Kind kind, int ranks) {
  // Buffers of a group that are not small are calls of their own, with other numbers.
  const std::size_t most = kind == Kind::grouped ? 4 : sizes.size();
  std::vector<std::size_t> counts(kind == Kind::grouped ? 2 + pick(dice, 3)
                                                        : static_cast<std::size_t>(ranks));
  for (std::size_t& count : counts) count = sizes[pick(dice, most)];
  return counts;
}

DrawnCall draw_call(std::mt19937_64& dice, int ranks) {
  DrawnCall call;
  call.kind = static_cast<Kind>(pick(dice, kinds));
  call.dtype = dtypes[pick(dice, dtypes.size())];
  call.op = ops[pick(dice, ops.size())];
  call.prescale = pick(dice, 4) == 0 ? 0.5F : 1.0F;
  call.root = static_cast<int>(pick(dice, static_cast<std::size_t>(ranks)));
  call.elements = has_elements(call.kind) ? sizes[pick(dice, sizes.size())] : 0;
  if (has_counts(call.kind)) call.counts = draw_counts(dice, call.kind, ranks);
  make_sensible(call);
  return call;
}

struct Change {
  const char* what;
  std::function<void(DrawnCall&, std::mt19937_64&, int ranks)> apply;
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"operation", [](DrawnCall& call, std::mt19937_64& dice, int ranks) { call = draw_call(dice, ranks); }},
      {"dtype",
       [](DrawnCall& call, std::mt19937_64& dice, int) { call.dtype = dtypes[pick(dice, dtypes.size())]; }},
      {"op", [](DrawnCall& call, std::mt19937_64& dice, int) { call.op = ops[pick(dice, ops.size())]; }},
      {"elements",
       [](DrawnCall& call, std::mt19937_64& dice, int) {
         if (has_elements(call.kind)) call.elements += 1 + pick(dice, 3) * 1000;
       }},
      {"root", [](DrawnCall& call, std::mt19937_64& dice,
                  int ranks) { call.root = static_cast<int>(pick(dice, static_cast<std::size_t>(ranks))); }},
      {"prescale", [](DrawnCall& call, std::mt19937_64&, int) { call.prescale *= 0.5F; }},
      {"counts",
       [](DrawnCall& call, std::mt19937_64& dice, int) {
         if (call.counts.empty()) return;
         if (pick(dice, 2) == 0) call.counts[pick(dice, call.counts.size())] += 1;
         std::swap(call.counts.front(), call.counts.back());
       }},
      {"grouping",
       [](DrawnCall& call, std::mt19937_64& dice, int) {
         if (call.kind != Kind::grouped) return;
         call.counts.insert(call.counts.begin() + static_cast<std::ptrdiff_t>(pick(dice, 2)), pick(dice, 2));
       }},
  };
  return all;
}

}  // namespace

std::string DrawnCall::text() const {
  const std::string version = counts.empty() || kind == Kind::grouped ? "" : "_v";
  const std::string bytes =
      std::to_string((counts.empty() ? elements : sum(counts)) * lockstep::size_of(dtype)) + " bytes";
  const std::string scaled = prescale == 1.0F ? "" : fmt::format(", prescaled by {}", prescale);
  const std::string reduced = std::string(to_string(op)) + " of " + std::string(to_string(dtype)) + " x " +
                              std::to_string(counts.empty() ? elements : sum(counts)) + scaled;
  const std::string where = std::to_string(root);
  switch (kind) {
    case Kind::all_reduce: return "all_reduce (" + reduced + ")";
    case Kind::grouped: return "all_reduce_grouped (" + reduced + ")";
    case Kind::custom: return "all_reduce (custom of u8 x " + std::to_string(elements) + ")";
    case Kind::reduce: return "reduce (" + reduced + " to rank " + where + ")";
    case Kind::reduce_scatter:
    case Kind::reduce_scatter_v: return "reduce_scatter" + version + " (" + reduced + ")";
    case Kind::broadcast: return "broadcast (" + bytes + " from rank " + where + ")";
    case Kind::scatter:
    case Kind::scatter_v: return "scatter" + version + " (" + bytes + " from rank " + where + ")";
    case Kind::gather:
    case Kind::gather_v: return "gather" + version + " (" + bytes + " to rank " + where + ")";
    case Kind::all_gather:
    case Kind::all_gather_v: return "all_gather" + version + " (" + bytes + ")";
    case Kind::all_to_all: return "all_to_all (" + bytes + ")";
    case Kind::all_to_all_v: return "all_to_all_v";
    case Kind::barrier: break;
  }
  return "barrier";
}

bool DrawnCall::fits(const DrawnCall& other) const {
  if (kind != other.kind || prescale != other.prescale || op != other.op || root != other.root) return false;
  const bool is_same_type = reduces(kind) || kind == Kind::custom;
  const std::size_t own_size = is_same_type ? 1 : lockstep::size_of(dtype);
  const std::size_t other_size = is_same_type ? 1 : lockstep::size_of(other.dtype);
  if (reduces(kind) && dtype != other.dtype) return false;
  if (kind == Kind::custom && lockstep::size_of(dtype) != lockstep::size_of(other.dtype)) return false;
  return elements * own_size == other.elements * other_size &&
         std::equal(counts.begin(), counts.end(), other.counts.begin(), other.counts.end(),
                    [&](std::size_t a, std::size_t b) { return a * own_size == b * other_size; });
}

void DrawnCall::run(const lockstep::Group& group) const {
  const auto ranks = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  const std::size_t size = lockstep::size_of(dtype);
  const std::size_t block = (has_counts(kind) && kind != Kind::grouped ? counts[me] : elements) * size;
  const std::size_t all = counts.empty() ? block * ranks : sum(counts) * size;
  const probe::Buffer<std::byte> buffer(group, block + all + 64, memory);
  const Bytes one = buffer.span().first(block);
  const Bytes whole = buffer.span().subspan((block + 15) / 16 * 16, all);
  const Bytes at_root = group.rank() == root ? whole : Bytes();
  const lockstep::Reduction how{.dtype = dtype, .op = op, .prescale = prescale};
  switch (kind) {
    case Kind::all_reduce: return lockstep::all_reduce_bytes(group, one, one, how).wait();
    case Kind::grouped: {
      std::vector<Bytes> buffers;
      std::size_t begin = 0;
      for (const std::size_t count : counts) {
        buffers.push_back(whole.subspan(begin, count * size));
        begin += count * size;
      }
      return lockstep::all_reduce_grouped_bytes(group, buffers, how).wait();
    }
    case Kind::custom: {
      const auto ignore = [](std::byte*, const std::byte*, std::size_t) {};
      const char* const name = custom_names[op == ReduceOp::sum ? 0 : 1];
      const auto custom = std::make_shared<const lockstep::CustomReduction>(name, size, ignore);
      return lockstep::all_reduce_bytes(group, one, one, {.op = ReduceOp::custom, .custom = custom}).wait();
    }
    case Kind::reduce: return lockstep::reduce_bytes(group, one, one, root, how).wait();
    case Kind::reduce_scatter:
    case Kind::reduce_scatter_v: return lockstep::reduce_scatter_bytes(group, whole, one, how, counts).wait();
    case Kind::broadcast: return lockstep::broadcast_bytes(group, one, root).wait();
    case Kind::scatter: return lockstep::scatter_bytes(group, at_root, one, root).wait();
    case Kind::scatter_v: return lockstep::scatter_bytes(group, at_root, one, root, size, counts).wait();
    case Kind::gather: return lockstep::gather_bytes(group, one, at_root, root).wait();
    case Kind::gather_v: return lockstep::gather_bytes(group, one, at_root, root, size, counts).wait();
    case Kind::all_gather: return lockstep::all_gather_bytes(group, one, whole).wait();
    case Kind::all_gather_v: return lockstep::all_gather_bytes(group, one, whole, size, counts).wait();
    case Kind::all_to_all: {
      std::vector<std::byte> output(all);
      return lockstep::all_to_all_bytes(group, whole, output, size).wait();
    }
    case Kind::all_to_all_v: {
      const std::vector<std::size_t> received(ranks, counts[me]);
      std::vector<std::byte> output(block * ranks);
      return lockstep::all_to_all_v_bytes(group, whole, counts, output, received, size).wait();
    }
    case Kind::barrier: return lockstep::barrier(group).wait();
  }
}

DrawnMismatch draw_mismatch(std::mt19937_64& dice, int world_size) {
  DrawnMismatch drawn;
  drawn.ranks.resize(static_cast<std::size_t>(world_size));
  std::iota(drawn.ranks.begin(), drawn.ranks.end(), 0);
  std::shuffle(drawn.ranks.begin(), drawn.ranks.end(), dice);
  drawn.is_other.resize(drawn.ranks.size());
  while (std::count(drawn.is_other.begin(), drawn.is_other.end(), true) % world_size == 0) {
    for (std::size_t rank = 0; rank < drawn.ranks.size(); ++rank) drawn.is_other[rank] = pick(dice, 2) == 0;
  }
  drawn.number = pick(dice, 4);
  for (std::size_t before = 0; before < drawn.number; ++before) {
    drawn.ones.push_back(draw_call(dice, world_size));
    drawn.others.push_back(drawn.ones.back());
  }
  DrawnCall one, other;
  while (one.fits(other)) {
    const std::size_t index = pick(dice, changes().size() + 1);
    other = one = draw_call(dice, world_size);
    if (index == changes().size()) {
      other = draw_call(dice, world_size);
      drawn.what = "order";
    } else {
      changes()[index].apply(other, dice, world_size);
      make_sensible(other);
      drawn.what = changes()[index].what;
    }
  }
  drawn.ones.push_back(one);
  drawn.others.push_back(other);
  if (drawn.what == "order") {
    drawn.ones.push_back(other);
    drawn.others.push_back(one);
  }
  for (auto* calls : {&drawn.ones, &drawn.others}) {
    for (DrawnCall& call : *calls) call.memory = probe::all_memories[pick(dice, probe::all_memories.size())];
  }
  return drawn;
}

std::string fault_in(const std::string& text, const DrawnMismatch& drawn) {
  static const std::regex both(
      "ranks called different operations: rank (\\d+) called (.+) as #(\\d+), rank (\\d+) called (.+) as "
      "#(\\d+)(?: \\(they differ in .+\\))?; ");
  std::smatch found;
  if (!std::regex_search(text, found, both)) return "it does not name both ranks and both calls";
  std::array<bool, 2> is_other{};
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    const auto rank = std::find(drawn.ranks.begin(), drawn.ranks.end(), std::stoi(found[3 * side + 1])) -
                      drawn.ranks.begin();
    if (rank == static_cast<std::ptrdiff_t>(drawn.ranks.size())) return "it names a rank that there is not";
    is_other[side] = drawn.is_other[static_cast<std::size_t>(rank)];
    const DrawnCall& call = (is_other[side] ? drawn.others : drawn.ones)[drawn.number];
    if (found[3 * side + 2] != call.text())
      return "rank " + found[3 * side + 1].str() + " called " + call.text();
    if (found[3 * side + 3] != std::to_string(drawn.number)) return "it was #" + std::to_string(drawn.number);
  }
  return is_other[0] == is_other[1] ? "it names two ranks that called the same" : "";
}

}  // namespace soak
