#include "lockstep/train/data_parallel/reducer.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/keep_for_ever.h"
#include "lockstep/base/log.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/shared_memory.h"
#include "lockstep/train/data_parallel/sparse_average.h"
#include "lockstep/train/replicas/exposed_time.h"
#include "lockstep/train/replicas/finite_gradients.h"
#include "lockstep/train/replicas/missing_gradients.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// Whether no other tensor sees its memory, which might be another parameter's gradient, but the one that it was made of as a view.
bool has_memory_alone(const torch::Tensor& gradient) {
  const std::size_t tensors = gradient.is_view() && gradient._base().use_count() == 1 ? 2 : 1;
  return gradient.unsafeGetTensorImpl()->unsafe_storage().use_count() <= tensors;
}

}  // namespace

Reducer::Reducer(Group group, std::vector<NamedTensor> parameters, std::vector<char> sparse,
                 ReducerOptions options)
    : group_(std::move(group)),
      options_(std::move(options)),
      buckets_(group_, std::move(parameters), sparse, options_.limits,
               averages_in_place(group_, options_.hook)),
      exchange_(make_exchange(group_, buckets_, options_.hook)),
      arrivals_(buckets_.parameters().size()),
      record_(group_) {}

Reducer::~Reducer() {
  if (under_way_) abandon();
}

void Reducer::rebuild_buckets() {
  std::vector<std::uint32_t> order(order_.begin(), order_.end());
  for (const std::size_t parameter : backward_order(arrivals_.size())) {
    if (arrivals_[parameter].visits == 0) order.push_back(static_cast<std::uint32_t>(parameter));
  }
  broadcast(group_, order, 0).wait();
  const std::vector<std::size_t> wanted(order.begin(), order.end());
  if (wanted == backward_order(arrivals_.size())) return;
  exchange_.reset();  // it keeps the old ones alive, or refers to them
  buckets_.rebuild(wanted);
  exchange_ = make_exchange(group_, buckets_, options_.hook);
  exchange_->forget();
}

void Reducer::begin(std::uint64_t forward_ns, int contributors) {
  if (!exchange_) throw Error(ErrorCode::aborted, "its buckets could not be made anew; wrap the model again");
  buckets_.wait_for_taken_out();
  under_way_ = true;
  all_ranks_threw_ = misses_some_ = false;
  arrived_ = ready_ = 0;
  contributors_ = contributors;
  for (Arrival& arrival : arrivals_) {
    arrival.visits = 0;
    arrival.is_ready = false;
    arrival.lendable = nullptr;
    arrival.lent = torch::Tensor();
  }
  status_.begin(options_.find_unused || options_.static_graph ? arrivals_.size() : 0);
  first_non_finite_ = arrivals_.size();
  order_.clear();
  pending_.clear();
  for (const auto& filled : buckets_.all()) pending_.push_back(filled.plan.slots.size());
  exchange_->begin(contributors);
  record_.begin();
  step_ = {.step = steps_,
           .begin_ns = forward_ns,
           .last_gradient_ns = 0,
           .end_ns = 0,
           .exposed_work_ns = 0,
           .exposed_wait_ns = 0,
           .buckets = static_cast<std::uint32_t>(buckets_.size()),
           .buckets_complete_at_last_gradient = 0,
           .gradient_bytes = buckets_.bytes()};
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (arrivals_[i].expected == 0) make_ready(i);
  }
}

torch::Tensor Reducer::place(std::size_t parameter, const torch::Tensor& gradient) {
  const std::uint64_t begin = trace::now_ns();
  if (!buckets_.takes(parameter, gradient)) return {};
  if (buckets_.is_laid_out_as_place(parameter, gradient) && has_memory_alone(gradient) &&
      exchange_->can_lend(gradient)) {
    arrivals_[parameter].lendable = gradient.const_data_ptr();
    return {};
  }
  buckets_.put(parameter, gradient);
  torch::Tensor placed = buckets_.tensor_of(parameter).detach();
  step_.exposed_work_ns += trace::now_ns() - begin;
  return placed;
}

/// What is in grad() into its bucket, or zeros if this pass left it out.
void Reducer::collect(std::size_t parameter) {
  if (buckets_.lies_in_place(parameter)) {
    // What no rank has used stays as it is, so the average may not come there by itself.
    torch::Tensor& in_place = parameters()[parameter].tensor.mutable_grad();
    if (!arrivals_[parameter].is_used) in_place = in_place.clone();
    return;
  }
  const auto& [name, tensor, is_parameter] = parameters()[parameter];
  const torch::Tensor& gradient = tensor.grad();
  Arrival& arrival = arrivals_[parameter];
  const bool is_sparse = buckets_.is_sparse(parameter);
  if (!gradient.defined() && arrival.visits > 0) {
    throw_invalid_argument("a hook has taken the gradient of parameter " + name +
                           " away before it was averaged; update parameters after backward() only");
  }
  if (gradient.defined() && is_sparse != (gradient.layout() == torch::kSparse)) {
    throw Error(ErrorCode::unsupported,
                "the gradient of parameter " + name + " is " + describe(gradient) +
                    "; only Embedding and EmbeddingBag with sparse(true) in their options have sparse "
                    "gradients that are averaged, and only while nothing else uses their weights: set "
                    "sparse(false)");
  }
  if (is_sparse) return;
  if (!gradient.defined()) {
    buckets_.tensor_of(parameter).zero_();
    return;
  }
  // Of a new one autograd has a tensor yet. What has a history is needed by backward of backward, and what no rank has used stays as it is.
  const bool is_alone = gradient.const_data_ptr() == arrival.lendable || has_memory_alone(gradient);
  const bool may_change = arrival.is_used && gradient.use_count() == 1 && !gradient.requires_grad();
  if (is_alone && may_change && buckets_.is_laid_out_as_place(parameter, gradient) &&
      exchange_->lend(buckets_.place_of(parameter), gradient)) {
    arrival.lent = gradient;
  } else {
    buckets_.put(parameter, gradient);
  }
}

void Reducer::make_ready(std::size_t parameter) {
  collect(parameter);
  arrivals_[parameter].is_ready = true;
  ++ready_;
  if (arrivals_[parameter].is_used) status_.note_use(parameter);
  if (!buckets_.is_sparse(parameter)) --pending_[buckets_.place_of(parameter).bucket];
}

void Reducer::refuse_another(std::size_t parameter) const {
  const std::string& name = parameters()[parameter].name;
  if (options_.static_graph) {
    throw_invalid_argument(
        "parameter " + name + " got more gradients in this backward pass than in the first (" +
        std::to_string(arrivals_[parameter].expected) +
        "); with static_graph all passes are alike: switch it off, or build the same graph "
        "each time");
  }
  throw_invalid_argument("parameter " + name +
                         " got its gradient twice in one backward pass; where checkpointed parts of a module "
                         "share parameters, and each pass is like the first, set static_graph");
}

void Reducer::refuse_unforeseen(std::size_t parameter) const {
  throw_invalid_argument("parameter " + parameters()[parameter].name +
                         " got a gradient although nothing in this backward's graph leads to it; where it is "
                         "recomputed, and each pass is like the first, set static_graph");
}

void Reducer::add(std::size_t parameter) try {
  const trace::WithinStep step;
  const std::uint64_t begin = trace::now_ns();
  const torch::NoGradGuard no_grad;
  Arrival& arrival = arrivals_[parameter];
  arrival.is_used = true;
  ++arrived_;
  if (++arrival.visits == 1) order_.push_back(parameter);
  if (!is_first_of_static_graph()) {
    if (arrival.visits > arrival.expected) refuse_another(parameter);
    if (arrival.visits == arrival.expected) {
      if (arrival.is_ready) refuse_unforeseen(parameter);
      make_ready(parameter);
      if (ready_ == arrivals_.size()) {
        step_.last_gradient_ns = begin;
        step_.buckets_complete_at_last_gradient = static_cast<std::uint32_t>(exchange_->completed());
      }
      send_ready();
    }
  }
  exchange_->progress();
  step_.exposed_work_ns += trace::now_ns() - begin;
} catch (const Error& error) {
  throw told_where(error, where());
}

void Reducer::leave_out(std::size_t parameter) {
  const torch::NoGradGuard no_grad;
  if (!arrivals_[parameter].is_ready) make_ready(parameter);
}

std::string Reducer::where() const { return "backward " + std::to_string(steps_) + " of a wrapped model"; }

void Reducer::send_ready() {
  for (std::size_t next = exchange_->sent();
       next < buckets_.size() && pending_[next] == 0 && buckets_.has_arrived(next); ++next) {
    if (options_.non_finite != NonFinite::ignore && !misses_some_) look_for_non_finite(next);
    exchange_->send_next();
  }
}

void Reducer::look_for_non_finite(std::size_t bucket) {
  for (const auto& slot : buckets_.all()[bucket].plan.slots) {
    if (is_finite(averaged(slot.parameter))) continue;
    first_non_finite_ = std::min(first_non_finite_, slot.parameter);
    status_.note_non_finite();
  }
}

/// Nobody has gradients after this pass, so that no optimizer changes anything.
void Reducer::take_no_gradients() {
  ++steps_;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    arrivals_[i].lent.reset();
    parameters()[i].tensor.mutable_grad().reset();
  }
  exchange_->forget();
  take_non_finite(group_, options_.non_finite, steps_ - 1, first_non_finite_, parameters());
  ++skipped_;
}

/// Whatever has no gradient by now gets none.
void Reducer::bring_to_an_end() {
  const bool is_first = is_first_of_static_graph();
  if (is_first) {
    for (Arrival& arrival : arrivals_) arrival.expected = arrival.visits;
    knows_passes_ = true;
  }
  if (is_first || options_.find_unused) {
    for (std::size_t i = 0; i < arrivals_.size(); ++i) leave_out(i);
  }
  if (ready_ == arrivals_.size()) return;
  misses_some_ = true;
  status_.note_missing();
  pending_.assign(pending_.size(), 0);  // the others wait for all buckets, whatever is in them
}

void Reducer::finalize() {
  const trace::WithinStep step;
  const std::uint64_t begin = trace::now_ns();
  const torch::NoGradGuard no_grad;
  std::uint64_t waited_ns = 0;
  try {
    bring_to_an_end();
    waited_ns = wait_for_all(true);
    average_sparse_ones(true);
  } catch (const Error& error) {
    abandon();
    throw told_where(error, where());
  } catch (...) {
    abandon();
    throw;
  }
  take_over_averages(true);
  step_.end_ns = trace::now_ns();
  step_.exposed_work_ns += step_.end_ns - begin - waited_ns;
  if (!buckets_.are_on_gpu()) step_.exposed_wait_ns = waited_ns;
  record_.put(step_);
}

void Reducer::shadow(int contributors) {
  const torch::NoGradGuard no_grad;
  forget_uses();
  for (const auto& item : parameters()) item.tensor.mutable_grad().reset();
  try {
    begin(trace::now_ns(), contributors);
    buckets_.clear();
    for (Arrival& arrival : arrivals_) arrival.is_ready = true;
    ready_ = arrivals_.size();
    pending_.assign(pending_.size(), 0);
    wait_for_all(false);
    average_sparse_ones(false);
  } catch (...) {
    abandon();
    throw;
  }
  take_over_averages(false);
}

void Reducer::take_over_averages(bool has_gradients) {
  forget_uses();
  under_way_ = false;
  all_ranks_threw_ = true;  // if one does
  if (status_.misses_some()) throw_missing();
  if (!status_.agrees()) options_.agreement->compare(group_, steps_, has_gradients);
  if (status_.is_non_finite() || !is_average_finite()) return take_no_gradients();
  all_ranks_threw_ = false;
  if (has_gradients) copy_back();
  ++steps_;
  if (std::exchange(follows_order_, true)) return;
  try {
    rebuild_buckets();
  } catch (...) {
    under_way_ = true;  // some may have been able to
    abandon();
    throw;
  }
}

void Reducer::forget_uses() {
  for (Arrival& arrival : arrivals_) arrival.is_used = false;
}

/// What ranks have in common is the same on all of them: sums too large, or for a hook's type.
bool Reducer::is_average_finite() {
  if (options_.non_finite == NonFinite::ignore) return true;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (!buckets_.is_sparse(i) && !is_finite(averaged(i))) return false;
  }
  return true;
}

/// Where the parameter's average comes to be in this pass.
const torch::Tensor& Reducer::averaged(std::size_t parameter) {
  const torch::Tensor& lent = arrivals_[parameter].lent;
  return lent.defined() ? lent : buckets_.tensor_of(parameter);
}

/// With them is said what needs no gradients: the others do not follow an optimizer's schedule. Returns how long the host waited.
std::uint64_t Reducer::wait_for_all(bool has_gradients) {
  for (; exchange_->sent() < buckets_.size(); send_ready()) buckets_.wait_for(exchange_->sent());
  const ExposedTime exposed(group_);
  record_.begin_wait(buckets_.device());
  exchange_->complete_before_status();
  if (options_.agreement && has_gradients) {
    if (const auto digest = options_.agreement->digest(steps_)) status_.note_digest(*digest);
  }
  Work status = all_reduce(group_, status_.words(), ReduceOp::bor);
  exchange_->complete_after_status();
  record_.end_wait();
  status.wait();
  const std::uint64_t waited_ns = exposed.waited_ns();
  exchange_->end();
  return waited_ns;
}

/// Unless the pass fails on all ranks anyway.
void Reducer::average_sparse_ones(bool has_gradients) {
  if (status_.misses_some() || status_.is_non_finite()) return;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (buckets_.is_sparse(i) && status_.is_used(i))
      average_sparse(group_, parameters()[i].tensor, has_gradients, contributors_);
  }
}

void Reducer::copy_back() {
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (arrivals_[i].lent.defined()) {
      // Also where a hook has taken it away meanwhile.
      parameters()[i].tensor.mutable_grad() = std::exchange(arrivals_[i].lent, torch::Tensor());
    } else if (!buckets_.is_sparse(i) && !buckets_.lies_in_place(i) && status_.is_used(i)) {
      buckets_.take_out(i, arrivals_[i].lendable != nullptr);
    }
  }
}

void Reducer::throw_missing() const {
  const std::string remedy =
      options_.static_graph ? "With static_graph each pass is like the first: switch it off, or build the "
                              "same graph each time"
                            : "Every trainable parameter must take part in every forward, on every rank; "
                              "freeze those that do not (requires_grad_(false)), or set "
                              "find_unused_parameters";
  std::vector<char> are_ready;
  for (const Arrival& arrival : arrivals_) are_ready.push_back(arrival.is_ready ? 1 : 0);
  throw_missing_gradients(group_, parameters(), are_ready, "backward #" + std::to_string(steps_), remedy);
}

void Reducer::abandon() noexcept {
  if (!std::exchange(under_way_, false)) return;
  // The buckets sent so far may be complete, and their works no longer close anything.
  group_.abort("an exception ended " + where() + " early");
  if (!exchange_) return;  // buckets are being made anew
  exchange_->abandon();
  if (exchange_->is_in_place()) forget_gradients();
}

/// A rank that was stopped may write there when it goes on.
void Reducer::forget_gradients() noexcept try {
  for (const auto& filled : buckets_.all()) {
    if (filled.flat.defined()) keep_from_reuse(group_, elements_of(filled.flat));
  }
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    torch::Tensor lent = std::exchange(arrivals_[i].lent, torch::Tensor());
    torch::Tensor& gradient = parameters()[i].tensor.mutable_grad();
    if (lent.defined()) {
      keep_from_reuse(group_, elements_of(lent));
      // Ranks that are threads have one heap, in the arena of one of them.
      if (lockstep::place_of(group_, elements_of(lent)).value().rank != group_.rank())
        base::keep_for_ever(lent);
    }
    if (lent.defined() || buckets_.lies_in_place(i)) gradient.reset();
  }
} catch (const std::exception& error) {
  log::debug(error.what());
}

}  // namespace lockstep
