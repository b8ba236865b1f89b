#include "lockstep/train/horovod/gradient_tape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/grouped.h"
#include "lockstep/train/horovod/adasum.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// The type in which it travels.
torch::ScalarType type_on_the_way(torch::ScalarType type, Compression compression) {
  if (compression == Compression::none || (type != torch::kFloat && type != torch::kDouble)) return type;
  return half_of(compression);
}

}  // namespace

DistributedGradientTape::DistributedGradientTape(const Group& group,
                                                 const DistributedGradientTapeOptions& options)
    : group_(group), options_(options) {
  require_compressible(options.op, options.compression);
}

std::vector<torch::Tensor> DistributedGradientTape::gradient(const torch::Tensor& loss,
                                                             const std::vector<torch::Tensor>& sources) {
  if (sources.empty())
    throw_invalid_argument("DistributedGradientTape: there is nothing to take gradients of");
  auto gradients = torch::autograd::grad({loss}, sources, {}, c10::nullopt, false, /*allow_unused=*/true);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto& gradient = gradients[i];
    if (!gradient.defined()) gradient = torch::zeros_like(sources[i]);
    gradient = gradient.contiguous();
    if (gradient.is_view()) gradient = gradient.clone();  // which zero_grad() cannot work with
    require_host_array(gradients[i], "the gradient of source " + std::to_string(i));
  }
  if (options_.non_finite != NonFinite::ignore) return bring_together_if_finite(std::move(gradients));
  bring_together(gradients);
  return gradients;
}

/// None, for NonFinite::skip, where they are not.
std::vector<torch::Tensor> DistributedGradientTape::bring_together_if_finite(
    std::vector<torch::Tensor> gradients) {
  const std::vector<torch::Tensor> none(gradients.size());
  const auto step = taken_++;
  std::vector<NamedTensor> named;
  for (const auto& gradient : gradients)
    named.push_back({std::string("#").append(std::to_string(named.size())), gradient});
  if (!are_all_finite(group_, options_.non_finite, step, named)) return none;
  bring_together(gradients);
  // Sums too large, or too large for a half: the same on all ranks.
  if (group_.size() == 1 || std::ranges::all_of(gradients, is_finite)) return gradients;
  take_non_finite(group_, options_.non_finite, step, named.size(), named);
  return none;
}

void DistributedGradientTape::bring_together(std::vector<torch::Tensor>& gradients) const {
  if (group_.size() == 1) return;
  if (options_.op == GradientOp::adasum) return adasum(group_, gradients);
  std::vector<torch::Tensor> sent;
  std::map<Dtype, std::vector<std::span<std::byte>>> buffers;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto what = "the gradient of source " + std::to_string(i);
    sent.push_back(gradients[i].to(type_on_the_way(gradients[i].scalar_type(), options_.compression)));
    const auto dtype = reducible_dtype(sent.back().scalar_type());
    if (!dtype)
      throw Error(ErrorCode::unsupported, what + " is " + describe(gradients[i]) + ", which cannot be added");
    buffers[*dtype].push_back(writable_bytes(sent.back(), what));
  }
  const auto op = options_.op == GradientOp::average ? ReduceOp::average : ReduceOp::sum;
  std::vector<Work> works;
  for (const auto& [dtype, spans] : buffers)
    works.push_back(all_reduce_grouped_bytes(group_, spans, {.dtype = dtype, .op = op}));
  Work::all(std::move(works)).wait();
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = sent[i].to(gradients[i].scalar_type());
}

void apply_gradients(torch::optim::Optimizer& optimizer, const std::vector<torch::Tensor>& parameters,
                     const std::vector<torch::Tensor>& gradients) {
  if (parameters.size() != gradients.size()) {
    throw_invalid_argument("apply_gradients: " + std::to_string(gradients.size()) + " gradients for " +
                           std::to_string(parameters.size()) + " parameters");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor parameter = parameters[i];
    parameter.mutable_grad() = gradients[i];
  }
  optimizer.step();
}

}  // namespace lockstep
