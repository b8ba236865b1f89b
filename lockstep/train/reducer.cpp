#include "lockstep/train/reducer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor_bytes.h"

namespace lockstep {
namespace {

std::vector<BucketPlan> plan_for(const std::vector<NamedTensor>& parameters, const BucketLimits& limits) {
  std::vector<GradientSize> sizes;
  for (const auto& item : parameters) {
    sizes.push_back(
        {static_cast<std::size_t>(item.tensor.numel()), reducible_dtype(item.tensor.scalar_type()).value()});
  }
  return plan_buckets(sizes, limits);
}

/// Autograd takes a gradient as it is only if it is laid out like its parameter.
torch::Tensor make_slot(const Bucket& bucket, const BucketPlan::Slot& slot, const torch::Tensor& like) {
  const auto keep_alive = [memory = bucket.keep_alive()](void*) {};
  void* const data = bucket.slot_data(slot);
  if (like.is_non_overlapping_and_dense()) {
    return torch::from_blob(data, like.sizes(), like.strides(), keep_alive,
                            like.options().requires_grad(false));
  }
  return torch::from_blob(data, like.sizes(), keep_alive, like.options().requires_grad(false));
}

/// Destroys works as an exception would: without waiting, closing the group in this rank's name.
void abandon_all(std::vector<Work>& works) noexcept {
  struct ClearWhileUnwinding {
    std::vector<Work>& works;
    ~ClearWhileUnwinding() { works.clear(); }
  };
  try {
    const ClearWhileUnwinding clear{works};
    throw std::exception();
  } catch (const std::exception&) {
    return;  // it was thrown for its unwinding only
  }
}

}  // namespace

Work average_bucket(const Group& group, const Bucket& bucket, std::size_t) {
  return all_reduce_bytes(group, bucket.bytes(), bucket.bytes(),
                          {.dtype = bucket.plan().dtype, .op = ReduceOp::average});
}

Reducer::Reducer(Group group, std::vector<NamedTensor> parameters, const BucketLimits& limits,
                 ReduceBucket reduce)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      reduce_(std::move(reduce)),
      bucket_of_(parameters_.size()),
      slots_(parameters_.size()) {
  for (auto& plan : plan_for(parameters_, limits)) {
    const Bucket& bucket = buckets_.emplace_back(group_, std::move(plan));
    for (const auto& slot : bucket.plan().slots) {
      bucket_of_[slot.parameter] = buckets_.size() - 1;
      slots_[slot.parameter] = make_slot(bucket, slot, parameters_[slot.parameter].tensor);
    }
  }
}

Reducer::~Reducer() {
  if (under_way_) abandon();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    try {
      if (lies_in_slot(i)) parameters_[i].tensor.mutable_grad() = slots_[i].clone();
    } catch (const std::exception&) {
      continue;  // no memory: the gradient stays where it is, and keeps its bucket alive
    }
  }
}

bool Reducer::fits(std::size_t parameter) const {
  const torch::Tensor& tensor = parameters_[parameter].tensor;
  return tensor.requires_grad() && tensor.dtype() == slots_[parameter].dtype() && tensor.device().is_cpu() &&
         tensor.sizes() == slots_[parameter].sizes();
}

void Reducer::begin(std::uint64_t forward_ns) {
  under_way_ = true;
  ready_.assign(parameters_.size(), 0);
  pending_.clear();
  std::uint64_t bytes = 0;
  for (const auto& bucket : buckets_) {
    pending_.push_back(bucket.plan().slots.size());
    bytes += bucket.bytes().size();
  }
  works_.clear();
  added_ = completed_ = 0;
  if (!buckets_.empty()) buckets_.back().set_flag(false);
  step_ = {.step = steps_,
           .begin_ns = forward_ns,
           .last_gradient_ns = 0,
           .end_ns = 0,
           .exposed_work_ns = 0,
           .exposed_wait_ns = 0,
           .buckets = static_cast<std::uint32_t>(buckets_.size()),
           .buckets_complete_at_last_gradient = 0,
           .gradient_bytes = bytes};
}

bool Reducer::lies_in_slot(std::size_t parameter) const {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();
  const torch::Tensor& slot = slots_[parameter];
  return gradient.defined() && gradient.layout() == torch::kStrided &&
         gradient.data_ptr() == slot.data_ptr() && gradient.dtype() == slot.dtype() &&
         gradient.sizes() == slot.sizes() && gradient.strides() == slot.strides();
}

torch::Tensor Reducer::place(std::size_t parameter, const torch::Tensor& gradient) {
  const std::uint64_t begin = trace::now_ns();
  const torch::Tensor& slot = slots_[parameter];
  if (gradient.layout() != torch::kStrided || gradient.dtype() != slot.dtype() ||
      gradient.sizes() != slot.sizes())
    return {};
  slot.copy_(gradient);
  torch::Tensor placed = slot.detach();
  step_.exposed_work_ns += trace::now_ns() - begin;
  return placed;
}

void Reducer::collect(std::size_t parameter) {
  if (lies_in_slot(parameter)) return;
  const auto& [name, tensor, is_parameter] = parameters_[parameter];
  const torch::Tensor& gradient = tensor.grad();
  if (!gradient.defined()) {
    throw_invalid_argument("a hook has taken the gradient of parameter " + name +
                           " away before it was averaged; update parameters after backward() only");
  }
  if (gradient.layout() != torch::kStrided) {
    throw Error(ErrorCode::unsupported,
                "the gradient of parameter " + name + " is " + describe(gradient) +
                    "; DistributedDataParallel averages dense gradients: switch sparse "
                    "gradients off in its module (EmbeddingOptions.sparse(false))");
  } else {
    slots_[parameter].copy_(gradient);
  }
}

void Reducer::add(std::size_t parameter) {
  const std::uint64_t begin = trace::now_ns();
  const torch::NoGradGuard no_grad;
  if (ready_[parameter] != 0) {
    throw_invalid_argument(
        "parameter " + parameters_[parameter].name +
        " got its gradient twice in one backward pass; a module whose parts are checkpointed may "
        "use each parameter in one part only");
  }
  collect(parameter);
  ready_[parameter] = 1;
  if (++added_ == parameters_.size()) {
    step_.last_gradient_ns = begin;
    step_.buckets_complete_at_last_gradient = static_cast<std::uint32_t>(completed_);
  }
  --pending_[bucket_of_[parameter]];
  send_ready();
  progress();
  step_.exposed_work_ns += trace::now_ns() - begin;
}

void Reducer::send_ready() {
  while (works_.size() < buckets_.size() && pending_[works_.size()] == 0) {
    const std::size_t next = works_.size();
    works_.push_back(reduce_(group_, buckets_[next], next));
  }
}

void Reducer::progress() {
  if (completed_ == works_.size()) group_.poll();
  while (completed_ < works_.size() && works_[completed_].test()) ++completed_;
}

void Reducer::finalize() {
  const std::uint64_t begin = trace::now_ns();
  const torch::NoGradGuard no_grad;
  const std::uint64_t waited_before = step_.exposed_wait_ns;
  if (added_ < parameters_.size()) {  // the others wait for all buckets, whatever is in them
    pending_.assign(pending_.size(), 0);
    buckets_.back().set_flag(true);
  }
  try {
    wait_for_all();
  } catch (...) {
    abandon();
    throw;
  }
  under_way_ = false;
  if (!buckets_.empty() && buckets_.back().flag_is_set()) throw_missing();
  copy_back();
  step_.end_ns = trace::now_ns();
  step_.exposed_work_ns += step_.end_ns - begin - (step_.exposed_wait_ns - waited_before);
  group_.recorder().record(step_);
  ++steps_;
}

void Reducer::wait_for_all() {
  send_ready();
  const std::uint64_t begin = trace::now_ns();
  const auto own_work = group_.progress_times().own_work;
  for (auto& work : works_) work.wait();
  const auto waited = std::chrono::nanoseconds(trace::now_ns() - begin);
  const auto worked = std::min(waited, group_.progress_times().own_work - own_work);
  step_.exposed_wait_ns += static_cast<std::uint64_t>((waited - worked).count());
  works_.clear();
}

void Reducer::copy_back() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (lies_in_slot(i)) continue;
    torch::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined()) {
      gradient.copy_(slots_[i]);
    } else {
      gradient = slots_[i].detach();
    }
  }
}

void Reducer::throw_missing() const {
  struct Report {
    std::uint64_t missing, first;
  };
  Report mine{static_cast<std::uint64_t>(std::ranges::count(ready_, 0)),
              static_cast<std::uint64_t>(std::ranges::find(ready_, 0) - ready_.begin())};
  std::vector<Report> reports(static_cast<std::size_t>(group_.size()));
  all_gather(group_, std::span(&mine, 1), reports).wait();
  std::string texts;
  bool same = true;
  std::optional<int> culprit;
  int culprits = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto [missing, first] = reports[rank];
    same = same && missing == reports[0].missing && first == reports[0].first;
    if (missing == 0) continue;
    ++culprits;
    culprit = group_.world_rank(static_cast<int>(rank));
    texts += (texts.empty() ? "" : "; ") + std::string("on rank ") + std::to_string(rank) + " parameter " +
             parameters_[first].name + (missing > 1 ? " and " + std::to_string(missing - 1) + " more" : "");
  }
  throw Error(
      same ? ErrorCode::invalid_argument : ErrorCode::mismatch,
      "backward #" + std::to_string(steps_) + " left parameters without a gradient: " + texts +
          ". Every trainable parameter must take part in every forward, on every rank; freeze those that do "
          "not (requires_grad_(false)) before the model is wrapped",
      culprits == 1 ? culprit : std::nullopt);
}

void Reducer::abandon() noexcept {
  if (!std::exchange(under_way_, false) || buckets_.empty()) return;
  try {
    // The buckets sent so far may be complete, and their works no longer close anything. This one is not:
    // nobody sends to it.
    const int other = (group_.rank() + 1) % group_.size();
    works_.push_back(recv(group_, nothing_, other));
  } catch (const std::exception&) {
    // The group is closed already.
  }
  abandon_all(works_);
}

}  // namespace lockstep
