#include "lockstep/train/horovod/gradient_tape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/grouped.h"
#include "lockstep/train/horovod/adasum.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/replicas/parameter_drift.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

/// The type in which it travels.
torch::ScalarType type_on_the_way(torch::ScalarType type, Compression compression) {
  if (compression == Compression::none || (type != torch::kFloat && type != torch::kDouble)) return type;
  return half_of(compression);
}

/// REQUIRES: not adasum, which is no reduction.
ReduceOp reduce_op_of(GradientOp op) { return op == GradientOp::average ? ReduceOp::average : ReduceOp::sum; }

std::vector<NamedTensor> named_sources(const std::vector<torch::Tensor>& sources) {
  std::vector<NamedTensor> named;
  for (const auto& source : sources)
    named.push_back({std::string("#").append(std::to_string(named.size())), source});
  return named;
}

}  // namespace

DistributedGradientTape::DistributedGradientTape(const Group& group,
                                                 const DistributedGradientTapeOptions& options)
    : group_(group), options_(options) {
  require_compressible(options.op, options.compression);
}

DistributedGradientTape::DistributedGradientTape(DistributedGradientTape&&) noexcept = default;
DistributedGradientTape& DistributedGradientTape::operator=(DistributedGradientTape&&) noexcept = default;
DistributedGradientTape::~DistributedGradientTape() = default;

/// Collective in some calls. Sources may also be what each rank has of its own, its inputs: these are never
/// equal.
void DistributedGradientTape::compare(const std::vector<torch::Tensor>& sources) {
  if (group_.size() == 1) return;
  const auto is_same = [](const torch::Tensor& a, const torch::Tensor& b) { return a.is_same(b); };
  if (!std::ranges::equal(sources, sources_, is_same)) {
    calls_ = 0;
    sources_ = sources;
    drift_.reset();
  }
  const std::uint64_t call = calls_++;
  if (!is_step_to_compare(call)) return;
  auto drift = drift_ ? nullptr : std::make_unique<ParameterDrift>(named_sources(sources));
  ParameterDrift& looking = drift_ ? *drift_ : *drift;
  const bool are_equal = have_the_same(group_, looking.digest(call));
  if (drift_ && !are_equal) drift_->compare(group_, call, true);
  if (drift && are_equal) drift_ = std::move(drift);
}

std::vector<torch::Tensor> DistributedGradientTape::gradient(const torch::Tensor& loss,
                                                             const std::vector<torch::Tensor>& sources) {
  if (sources.empty())
    throw_invalid_argument("DistributedGradientTape: there is nothing to take gradients of");
  compare(sources);
  auto gradients = torch::autograd::grad({loss}, sources, {}, c10::nullopt, false, /*allow_unused=*/true);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    auto& gradient = gradients[i];
    if (!gradient.defined()) gradient = torch::zeros_like(sources[i]);
    gradient = gradient.contiguous();
    if (gradient.is_view()) gradient = gradient.clone();  // which zero_grad() cannot work with
    require_possible(gradient, "the gradient of source " + std::to_string(i));
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
  const auto named = named_sources(gradients);
  if (!are_all_finite(group_, options_.non_finite, step, named)) return none;
  bring_together(gradients);
  // Sums too large, or too large for a half: the same on all ranks.
  if (group_.size() == 1 || std::ranges::all_of(gradients, is_finite)) return gradients;
  take_non_finite(group_, options_.non_finite, step, named.size(), named);
  return none;
}

/// Adasum is computed in main memory.
void DistributedGradientTape::require_possible(const torch::Tensor& gradient, const std::string& what) const {
  if (options_.op == GradientOp::adasum) {
    require_host_array(gradient, what);
  } else {
    require_array(gradient, what);
  }
}

/// Those of one device and type travel as one tensor.
void DistributedGradientTape::bring_together_on_devices(std::vector<torch::Tensor>& gradients) const {
  struct Flat {
    torch::Device device;
    torch::ScalarType type;
    std::vector<std::size_t> which{};
    torch::Tensor all{};
  };
  if (calls_ == 1)  // of these sources; later they are the same
    require_same_facts(group_, facts_of(named_sources(gradients)),
                       "all ranks take gradients of the same sources");
  std::vector<Flat> flats;  // in the order of the gradients, which is the same on all ranks
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto type = type_on_the_way(gradients[i].scalar_type(), options_.compression);
    const auto device = gradients[i].device();
    const auto fits = [&](const Flat& flat) { return flat.device == device && flat.type == type; };
    auto found = std::ranges::find_if(flats, fits);
    if (found == flats.end()) found = flats.insert(flats.end(), {device, type});
    found->which.push_back(i);
  }
  const ReduceOp op = reduce_op_of(options_.op);
  std::vector<Work> works;
  for (Flat& flat : flats) {
    std::vector<torch::Tensor> parts;
    for (const std::size_t i : flat.which) parts.push_back(gradients[i].reshape({-1}).to(flat.type));
    flat.all = torch::cat(parts);
    works.push_back(all_reduce(group_, flat.all, op));
  }
  Work::all(std::move(works)).wait();
  for (const Flat& flat : flats) {
    std::int64_t begin = 0;
    for (const std::size_t i : flat.which) {
      torch::Tensor& gradient = gradients[i];
      const auto part = flat.all.narrow(0, begin, gradient.numel()).view(gradient.sizes());
      begin += gradient.numel();
      gradient.copy_(part);
    }
  }
}

void DistributedGradientTape::bring_together(std::vector<torch::Tensor>& gradients) const {
  if (group_.size() == 1) return;
  if (options_.op == GradientOp::adasum) return adasum(group_, gradients);
  const auto is_here = [](const torch::Tensor& gradient) { return gradient.device().is_cpu(); };
  if (!std::ranges::all_of(gradients, is_here)) return bring_together_on_devices(gradients);
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
  const ReduceOp op = reduce_op_of(options_.op);
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
