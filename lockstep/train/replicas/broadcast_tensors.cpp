#include "lockstep/train/replicas/broadcast_tensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/host_array.h"

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{4} << 20;
constexpr std::size_t crosses_alone_bytes = std::size_t{1} << 20;

}  // namespace

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
  for (const NamedTensor& item : tensors)
    say_leaves_gpu(group, item.tensor.device(), "models and states of optimizers are handed round there");
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
