#include "lockstep/schedule/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ostream>

namespace lockstep {
namespace {

Range packed(const std::vector<std::size_t>& counts, std::size_t elements, int index) {
  const auto position = static_cast<std::size_t>(index);
  if (counts.empty()) return {position * elements, elements};
  const auto here = counts.begin() + index;
  return {std::accumulate(counts.begin(), here, std::size_t{0}), *here};
}

std::size_t total(const std::vector<std::size_t>& counts, std::size_t elements, int ranks) {
  return packed(counts, elements, ranks - 1).begin + packed(counts, elements, ranks - 1).count;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << to_string(call.operation);
  if (!call.counts.empty()) {
    out << "_v of";
    for (const std::size_t count : call.counts) out << ' ' << count;
  } else {
    out << " of " << call.elements;
  }
  out << " elements, rank " << call.rank << " of " << call.ranks << ", root " << call.root << ", segments of "
      << call.segment_elements;
  if (call.window_elements > 0) out << ", pieces of " << call.window_elements;
  return out << (call.buffers == BufferClass::arena ? ", arena" : ", private")
             << (call.ranks_per_node > 0 ? fmt::format(", nodes of {}", call.ranks_per_node) : "")
             << (call.host_of.empty() ? "" : fmt::format(", hosts {}", fmt::join(call.host_of, " ")))
             << (call.in_place ? ", in place" : "") << (call.keeps_order ? ", in rank order" : "")
             << (call.narrow_wire ? ", narrow between hosts" : "");
}

namespace schedule {

bool share_a_host(const Call& call, int one, int other) {
  if (call.host_of.empty()) return true;
  return call.host_of[static_cast<std::size_t>(one)] == call.host_of[static_cast<std::size_t>(other)];
}

Range chunk_of(std::size_t elements, int index, int parts) {
  const auto position = static_cast<std::size_t>(index);
  const auto shares = static_cast<std::size_t>(parts);
  const std::size_t least = elements / shares;
  const std::size_t larger = elements % shares;  // the first `larger` chunks hold one more
  return {position * least + std::min(position, larger), least + (position < larger ? 1 : 0)};
}

Range block_of(const Call& call, int rank) { return packed(call.counts, call.elements, rank); }

Range sent_block(const Call& call, int peer) { return packed(call.counts, call.elements, peer); }

Range received_block(const Call& call, int peer) { return packed(call.receive_counts, call.elements, peer); }

std::size_t largest_block(const Call& call) {
  return call.counts.empty() ? call.elements : *std::max_element(call.counts.begin(), call.counts.end());
}

std::size_t slot_elements(const Call& call) {
  switch (call.operation) {
    case Operation::scatter:
    case Operation::reduce_scatter:
    case Operation::all_to_all: return total(call.counts, call.elements, call.ranks);
    case Operation::gather:
    case Operation::all_gather: return largest_block(call);
    default: return call.elements;
  }
}

std::size_t input_elements(const Call& call) {
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::reduce: return call.elements;
    case Operation::gather:
    case Operation::all_gather: return block_of(call, call.rank).count;
    case Operation::scatter:
      return call.rank == call.root ? total(call.counts, call.elements, call.ranks) : 0;
    case Operation::reduce_scatter:
    case Operation::all_to_all: return total(call.counts, call.elements, call.ranks);
    default: return 0;
  }
}

std::size_t output_elements(const Call& call) {
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::broadcast: return call.elements;
    case Operation::reduce: return call.rank == call.root ? call.elements : 0;
    case Operation::scatter:
    case Operation::reduce_scatter: return block_of(call, call.rank).count;
    case Operation::gather: return call.rank == call.root ? total(call.counts, call.elements, call.ranks) : 0;
    case Operation::all_gather: return total(call.counts, call.elements, call.ranks);
    case Operation::all_to_all: return total(call.receive_counts, call.elements, call.ranks);
    default: return 0;
  }
}

std::size_t in_place_offset(const Call& call) {
  switch (call.operation) {
    case Operation::scatter:
    case Operation::reduce_scatter:
    case Operation::gather:
    case Operation::all_gather: return block_of(call, call.rank).begin;
    default: return 0;
  }
}

SharedBuffers shared_buffers(Operation operation, int rank, int root) {
  switch (operation) {
    case Operation::all_reduce: return {.input = true, .output = true};
    case Operation::reduce:
    case Operation::gather: return {.input = true, .output = rank == root};
    case Operation::broadcast: return {.output = true};
    case Operation::scatter: return {.input = rank == root, .output = true};
    case Operation::all_gather: return {.input = true, .output = true};
    case Operation::reduce_scatter:
    case Operation::all_to_all: return {.input = true};
    default: return {};
  }
}

std::vector<Range> segments_of(Range range, std::size_t most) {
  std::vector<Range> segments;
  for (std::size_t done = 0; done < range.count; done += most) {
    segments.push_back({range.begin + done, std::min(most, range.count - done)});
  }
  return segments;
}

int wrapped(int rank, int ranks) { return ((rank % ranks) + ranks) % ranks; }

}  // namespace schedule
}  // namespace lockstep
