#include "lockstep/train/tensor_parallel/parallel_layers.h"

#include <c10/util/StringUtil.h>

#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/outcome.h"
#include "lockstep/train/replicas/gradient_norm.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"
#include "lockstep/train/tensor_parallel/differentiable.h"

namespace lockstep {
namespace {

using torch::Tensor;

/// The part of `length` that is this rank's: as even as can be, the first ones one more.
std::pair<std::int64_t, std::int64_t> first_and_count(std::int64_t length, int rank, int ranks) {
  const std::int64_t each = length / ranks, more = length % ranks;
  return {rank * each + std::min<std::int64_t>(rank, more), each + (rank < more ? 1 : 0)};
}

Tensor part_of(const Group& group, const Tensor& whole, std::int64_t dim) {
  const auto [first, count] = first_and_count(whole.size(dim), group.rank(), group.size());
  return whole.narrow(dim, first, count).clone(torch::MemoryFormat::Contiguous);
}

/// Rank 0's values of a tensor that all ranks have made.
Tensor rank_0s(const Group& group, const Tensor& tensor) {
  const Tensor whole = tensor.detach().contiguous();
  broadcast(group, whole, 0).wait();
  return whole;
}

void require_divided(const char* layer, const char* what, std::int64_t length, const Group& group) {
  if (length % group.size() == 0) return;
  throw_invalid_argument(
      c10::str(layer, ": ", what, " is ", length, ", which ", group.size(), " ranks do not divide"));
}

std::vector<std::int64_t> whole_sizes(const Tensor& mine, const SlicedParameter& cut) {
  auto sizes = mine.sizes().vec();
  sizes[static_cast<std::size_t>(cut.dim)] = cut.length;
  return sizes;
}

constexpr int part_tag = 0;

/// Of all ranks' parts, on rank 0.
Tensor gathered(const Group& group, const Tensor& mine, const SlicedParameter& cut) {
  if (group.rank() != 0) {
    if (mine.numel() > 0) send(group, mine.detach().contiguous(), 0, part_tag).wait();
    return {};
  }
  std::vector<Tensor> parts = {mine.detach()};
  for (int rank = 1; rank < group.size(); ++rank) {
    auto sizes = mine.sizes().vec();
    sizes[static_cast<std::size_t>(cut.dim)] = first_and_count(cut.length, rank, group.size()).second;
    parts.push_back(torch::empty(sizes, mine.options().requires_grad(false)));
    if (parts.back().numel() > 0) recv(group, parts.back(), rank, part_tag).wait();
  }
  return torch::cat(parts, cut.dim);
}

void deal_out(const Group& group, const Tensor& whole, const Tensor& mine, const SlicedParameter& cut) {
  if (group.rank() != 0) {
    const Tensor part = torch::empty(mine.sizes(), mine.options().requires_grad(false));
    if (part.numel() > 0) recv(group, part, 0, part_tag).wait();
    mine.detach().copy_(part);
    return;
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto [first, count] = first_and_count(cut.length, rank, group.size());
    const Tensor part = whole.narrow(cut.dim, first, count).contiguous();
    if (rank == 0) {
      mine.detach().copy_(part);
    } else if (part.numel() > 0) {
      send(group, part, rank, part_tag).wait();
    }
  }
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(std::int64_t in, std::int64_t out, const Group& group,
                                                   const ColumnParallelOptions& options)
    : SlicedModule(group), out_(out), gather_output_(options.gather_output) {
  require_divided("ColumnParallelLinear", "out", out, group);
  const torch::nn::Linear serial(torch::nn::LinearOptions(in, out).bias(options.bias));
  weight = register_parameter("weight", part_of(group, rank_0s(group, serial->weight), 0));
  if (options.bias) bias = register_parameter("bias", part_of(group, rank_0s(group, serial->bias), 0));
}

Tensor ColumnParallelLinearImpl::forward(const Tensor& x) {
  const Tensor mine = torch::linear(differentiable::copy(group(), x), weight, bias);
  return gather_output_ ? differentiable::gather(group(), mine) : mine;
}

std::vector<SlicedParameter> ColumnParallelLinearImpl::sliced() const {
  std::vector<SlicedParameter> all = {{"weight", 0, out_}};
  if (bias.defined()) all.push_back({"bias", 0, out_});
  return all;
}

RowParallelLinearImpl::RowParallelLinearImpl(std::int64_t in, std::int64_t out, const Group& group,
                                             const RowParallelOptions& options)
    : SlicedModule(group), in_(in), input_is_parallel_(options.input_is_parallel) {
  require_divided("RowParallelLinear", "in", in, group);
  const torch::nn::Linear serial(torch::nn::LinearOptions(in, out).bias(options.bias));
  weight = register_parameter("weight", part_of(group, rank_0s(group, serial->weight), 1));
  if (options.bias) bias = register_parameter("bias", rank_0s(group, serial->bias).clone());
}

Tensor RowParallelLinearImpl::forward(const Tensor& x) {
  const Tensor mine = input_is_parallel_ ? x : differentiable::scatter(group(), x);
  const Tensor sum = differentiable::reduce(group(), torch::linear(mine, weight));
  return bias.defined() ? sum + bias : sum;
}

std::vector<SlicedParameter> RowParallelLinearImpl::sliced() const { return {{"weight", 1, in_}}; }

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(std::int64_t words, std::int64_t width,
                                                       const Group& group)
    : SlicedModule(group), words_(words), first_(first_and_count(words, group.rank(), group.size()).first) {
  if (words < group.size())
    throw_invalid_argument(c10::str("VocabParallelEmbedding: ", words, " words on ", group.size(),
                                    " ranks; each has one at least"));
  const torch::nn::Embedding serial(words, width);
  weight = register_parameter("weight", part_of(group, rank_0s(group, serial->weight), 0));
}

Tensor VocabParallelEmbeddingImpl::forward(const Tensor& indices) {
  if (indices.numel() > 0 &&
      (indices.min().item<std::int64_t>() < 0 || indices.max().item<std::int64_t>() >= words_))
    throw_invalid_argument(c10::str("VocabParallelEmbedding: an index is not from 0 to ", words_ - 1));
  const Tensor here = (indices >= first_).logical_and(indices < first_ + weight.size(0));
  const Tensor found =
      torch::embedding(weight, torch::where(here, indices - first_, torch::zeros_like(indices)));
  return differentiable::reduce(group(), found * here.unsqueeze(-1).to(found.scalar_type()));
}

std::vector<SlicedParameter> VocabParallelEmbeddingImpl::sliced() const { return {{"weight", 0, words_}}; }

double clip_grad_norm(const Group& group, const torch::nn::Module& module, double max_norm) {
  const auto cuts = sliced_in(module);
  double of_parts = 0, of_whole = 0;
  for (const auto& item : module.named_parameters())
    (cuts.contains(item.key()) ? of_parts : of_whole) += gradient_squares(item.value());
  all_reduce(group, std::span(&of_parts, 1)).wait();
  const double norm = std::sqrt(of_parts + of_whole);
  clip_gradients(module.parameters(), norm, max_norm);
  return norm;
}

void save_whole_state_dict(const std::filesystem::path& path, const Group& group,
                           const torch::nn::Module& module) {
  const auto sliced = sliced_in(module);
  StateDict whole;
  for (const auto& item : state_dict(module)) {
    const auto cut = sliced.find(item.key());
    Tensor tensor = cut == sliced.end() ? item.value() : gathered(group, item.value(), cut->second);
    if (group.rank() == 0) whole.insert(item.key(), std::move(tensor));
  }
  on_rank_0(group, [&] { write_pth(path, whole); });
}

void load_whole_state_dict(const std::filesystem::path& path, const Group& group,
                           const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  const auto sliced = sliced_in(module);
  const StateDict mine = state_dict(module);
  StateDict whole;
  on_rank_0(group, [&] {
    whole = read_pth(path);
    const std::string other = "the state dict " + path.string() + " is of another model: ";
    for (const auto& item : mine) {
      const Tensor* const found = whole.find(item.key());
      if (found == nullptr) throw_invalid_argument(other + "\"" + item.key() + "\" is missing");
      const auto cut = sliced.find(item.key());
      const auto sizes =
          cut == sliced.end() ? item.value().sizes().vec() : whole_sizes(item.value(), cut->second);
      if (found->sizes() != sizes || found->scalar_type() != item.value().scalar_type())
        throw_invalid_argument(c10::str(other, "\"", item.key(), "\" is ", describe(*found), " there and ",
                                        shape_text(sizes), " here"));
    }
    for (const auto& item : whole) {
      if (!mine.contains(item.key())) throw_invalid_argument(other + "\"" + item.key() + "\" is unexpected");
    }
  });
  for (const auto& item : mine) {
    const auto cut = sliced.find(item.key());
    const Tensor found = group.rank() == 0 ? whole[item.key()] : Tensor();
    if (cut != sliced.end()) {
      deal_out(group, found, item.value(), cut->second);
      continue;
    }
    const Tensor dense =
        group.rank() == 0 ? found.to(item.value().device()).contiguous()
                          : torch::empty(item.value().sizes(), item.value().options().requires_grad(false));
    broadcast(group, dense, 0).wait();
    item.value().detach().copy_(dense);
  }
}

}  // namespace lockstep
