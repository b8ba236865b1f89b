#include "lockstep/train/replicas.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/host_array.h"
#include "lockstep/train/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{4} << 20;
constexpr std::size_t crosses_alone_bytes = std::size_t{1} << 20;

// FNV-1a. Two different texts of one length that share it would go unnoticed here; nobody chooses them to.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string pack(std::span<const Fact> facts) {
  std::string text;
  for (const auto& fact : facts) text.append(fact.name).append(1, '\0').append(fact.value).append(1, '\0');
  return text;
}

std::vector<Fact> unpack(const std::string& text) {
  std::istringstream in(text);
  std::vector<Fact> facts;
  for (Fact fact; std::getline(in, fact.name, '\0') && std::getline(in, fact.value, '\0');)
    facts.push_back(fact);
  return facts;
}

/// One sentence for each difference between what `rank` says and what rank 0 says.
std::vector<std::string> differences(int rank, const std::vector<Fact>& found,
                                     const std::vector<Fact>& expected) {
  const std::string who = "rank " + std::to_string(rank);
  std::map<std::string, std::string> left;
  for (const auto& fact : found) left.emplace(fact.name, fact.value);
  std::vector<std::string> texts;
  for (const auto& fact : expected) {
    const auto same_name = left.extract(fact.name);
    if (same_name.empty()) {
      texts.push_back(who + " has no " + fact.name + ", rank 0's is " + fact.value);
    } else if (same_name.mapped() != fact.value) {
      texts.push_back(who + "'s " + fact.name + " is " + same_name.mapped() + ", rank 0's is " + fact.value);
    }
  }
  for (const auto& [name, value] : left) {
    texts.push_back(who + "'s " + name + " is " + value + ", rank 0 has none");
  }
  if (!texts.empty()) return texts;
  const auto [here, there] = std::ranges::mismatch(found, expected, {}, &Fact::name, &Fact::name);
  if (here == found.end() || there == expected.end())
    return {who + " names something twice that rank 0 does not"};
  return {who + " has " + here->name + " where rank 0 has " + there->name + ", in another order"};
}

[[noreturn]] void throw_difference(int rank, std::vector<std::string> texts, const std::string& remedy) {
  constexpr std::size_t shown = 3;
  std::string message = texts.front();
  for (std::size_t i = 1; i < std::min(texts.size(), shown); ++i) message += "; " + texts[i];
  if (texts.size() > shown) message += "; and " + std::to_string(texts.size() - shown) + " more differences";
  throw Error(ErrorCode::mismatch, message + ". " + remedy, rank);
}

/// Everybody's text, cut or filled up to `bytes`.
std::vector<std::string> gather(const Group& group, std::string text, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(group.size());
  text.resize(bytes, '\0');
  std::string all(bytes * ranks, '\0');
  all_gather(group, text, all).wait();
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) texts.push_back(all.substr(rank * bytes, bytes));
  return texts;
}

}  // namespace

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value(), true});
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value(), false});
  }
  return tensors;
}

std::vector<char> sparse_gradients(const torch::nn::Module& module, std::span<const NamedTensor> tensors) {
  std::set<const void*> weights;
  const auto look_at = [&](const torch::nn::Module& part) {
    if (const auto* embedding = part.as<torch::nn::EmbeddingImpl>()) {
      if (embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = part.as<torch::nn::EmbeddingBagImpl>()) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  };
  look_at(module);  // modules() would want it in a shared_ptr
  for (const auto& part : module.modules(/*include_self=*/false)) look_at(*part);
  std::vector<char> are_sparse;
  for (const auto& item : tensors) are_sparse.push_back(weights.contains(item.tensor.unsafeGetTensorImpl()));
  return are_sparse;
}

std::vector<Fact> facts_of(std::span<const NamedTensor> tensors, const std::string& wrapper) {
  std::vector<Fact> facts;
  if (!wrapper.empty()) facts.push_back({"wrapper", wrapper});
  for (const auto& item : tensors) {
    const bool frozen = item.is_parameter && !item.tensor.requires_grad();
    facts.push_back({item.label(), describe_for_all_ranks(item.tensor) + (frozen ? " (frozen)" : "")});
  }
  return facts;
}

void require_averageable(const NamedTensor& item) {
  require_array(item.tensor, item.label());
  if (at::has_internal_overlap(item.tensor) == at::MemOverlap::Yes) {
    throw Error(ErrorCode::unsupported,
                item.label() + " is " + describe(item.tensor) +
                    ", elements of which are one in memory (an expanded view?), so that "
                    "they cannot change each on its own; register its .clone()");
  }
  if (!item.is_parameter || !item.tensor.requires_grad()) return;
  if (item.tensor.is_floating_point() && reducible_dtype(item.tensor.scalar_type())) return;
  throw Error(ErrorCode::unsupported,
              item.label() + " is " + describe(item.tensor) +
                  "; only gradients of type f16, bf16, f32 and f64 have an average here");
}

std::vector<NamedTensor> distinct_parameters(std::span<const NamedTensor> tensors, bool trainable) {
  std::set<const void*> seen;
  std::vector<NamedTensor> distinct;
  for (const auto& item : tensors) {
    if (!item.is_parameter || item.tensor.requires_grad() != trainable) continue;
    if (seen.insert(item.tensor.unsafeGetTensorImpl()).second) distinct.push_back(item);
  }
  return distinct;
}

void require_same_facts(const Group& group, std::span<const Fact> facts, const std::string& remedy) {
  if (group.size() == 1) return;
  const std::string mine = pack(facts);
  struct Digest {
    std::uint64_t what = 0x7366616374735f21, size = 0, hash = 0;
  };
  const Digest digest{.size = mine.size(), .hash = hash_of(mine)};
  std::vector<Digest> digests(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&digest, 1), digests).wait();
  std::size_t longest = 0;
  bool same = true;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank].what != digest.what) {
      const int culprit = group.world_rank(static_cast<int>(rank));
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(culprit) +
                      " calls something else where this rank compares models; " + remedy,
                  culprit);
    }
    longest = std::max(longest, static_cast<std::size_t>(digests[rank].size));
    same = same && digests[rank].size == digests[0].size && digests[rank].hash == digests[0].hash;
  }
  if (same) return;
  auto texts = gather(group, mine, longest);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) texts[rank].resize(digests[rank].size);
  const auto expected = unpack(texts[0]);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    throw_difference(group.world_rank(static_cast<int>(rank)),
                     differences(static_cast<int>(rank), unpack(texts[rank]), expected), remedy);
  }
}

void broadcast_spans(const Group& group, std::span<const std::span<std::byte>> spans, int root) {
  if (group.size() == 1) return;
  std::size_t total = 0;
  for (const auto& span : spans) total += span.size();
  if (total == 0) return;
  const auto piece = group.allocate<std::byte>(std::min(total, piece_bytes));
  std::vector<std::span<std::byte>> parts;  // of `spans`, lying in the piece one after the other
  std::size_t filled = 0;
  const auto flush = [&] {
    broadcast(group, piece.span().first(filled), root).wait();
    const std::byte* from = piece.data();
    for (const auto& part : parts) {
      if (group.rank() != root) std::memcpy(part.data(), from, part.size());
      from += part.size();
    }
    parts.clear();
    filled = 0;
  };
  for (auto span : spans) {
    while (!span.empty()) {
      const auto part = span.first(std::min(span.size(), piece.size() - filled));
      if (group.rank() == root) std::memcpy(piece.data() + filled, part.data(), part.size());
      parts.push_back(part);
      filled += part.size();
      span = span.subspan(part.size());
      if (filled == piece.size()) flush();
    }
  }
  if (filled > 0) flush();
}

namespace {

/// Tensors of one type on one device in one array there: they cross to main memory together, since every
/// crossing waits for the device.
struct Together {
  std::vector<std::size_t> numbers;  // of the tensors
  torch::Tensor flat;
};

bool crosses_with_others(const torch::Tensor& tensor) {
  return !tensor.device().is_cpu() && !tensor.is_meta() && tensor.layout() == torch::kStrided &&
         tensor.nbytes() <= crosses_alone_bytes;
}

std::vector<Together> put_together(std::span<const NamedTensor> tensors, bool is_read) {
  std::map<std::pair<std::string, torch::ScalarType>, Together> by_place;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor& tensor = tensors[i].tensor;
    if (crosses_with_others(tensor))
      by_place[{tensor.device().str(), tensor.scalar_type()}].numbers.push_back(i);
  }
  std::vector<Together> all;
  for (auto& [place, together] : by_place) {
    std::vector<torch::Tensor> parts;
    std::int64_t elements = 0;
    for (const std::size_t i : together.numbers) {
      if (is_read) parts.push_back(tensors[i].tensor.detach().reshape(-1));
      elements += tensors[i].tensor.numel();
    }
    const auto options = tensors[together.numbers.front()].tensor.options().requires_grad(false);
    together.flat = is_read ? torch::cat(parts) : torch::empty({elements}, options);
    all.push_back(std::move(together));
  }
  return all;
}

void take_apart(const Together& together, std::span<const NamedTensor> tensors) {
  std::int64_t begin = 0;
  for (const std::size_t i : together.numbers) {
    const torch::Tensor tensor = tensors[i].tensor.detach();
    tensor.copy_(together.flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

}  // namespace

void broadcast_tensors(const Group& group, std::span<const NamedTensor> tensors, int root) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  const bool is_root = group.rank() == root;
  const auto use = is_root ? HostArray::Use::both : HostArray::Use::write;
  std::vector<HostArray> arrays;
  std::vector<std::span<std::byte>> spans(tensors.size());
  const auto all_together = put_together(tensors, is_root);
  for (const auto& [numbers, flat] : all_together) {
    auto bytes = arrays.emplace_back(flat, "tensors on " + flat.device().str(), use).bytes();
    for (const std::size_t i : numbers) {
      spans[i] = bytes.first(tensors[i].tensor.nbytes());
      bytes = bytes.subspan(spans[i].size());
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!crosses_with_others(tensors[i].tensor))
      spans[i] = arrays.emplace_back(tensors[i].tensor, tensors[i].label(), use).bytes();
  }
  broadcast_spans(group, spans, root);
  if (is_root) return;
  for (const HostArray& array : arrays) array.put_back();
  for (const Together& together : all_together) take_apart(together, tensors);
}

std::string broadcast_text(const Group& group, std::string text, int root) {
  std::array<std::uint64_t, 1> bytes = {text.size()};
  broadcast(group, bytes, root).wait();
  text.resize(bytes[0]);
  const std::array spans = {std::as_writable_bytes(std::span(text))};
  broadcast_spans(group, spans, root);
  return text;
}

}  // namespace lockstep
