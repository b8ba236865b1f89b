#include "lockstep/train/data_parallel/reducer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/train/data_parallel/sparse_average.h"
#include "lockstep/train/replicas/exposed_time.h"
#include "lockstep/train/replicas/missing_gradients.h"
#include "lockstep/train/replicas/told_where.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

// What ranks tell each other beside their gradients, a bit each.
constexpr std::size_t word_bits = 64;
constexpr std::uint64_t misses_some_bit = 1, non_finite_bit = 2;
constexpr std::size_t first_used_bit = 2;  // of parameter 0

/// Autograd takes a gradient as it is only if it is laid out like its parameter.
torch::Tensor make_place(const Bucket& bucket, const BucketPlan::Slot& slot, const torch::Tensor& like) {
  const auto keep_alive = [memory = bucket.keep_alive()](void*) {};
  void* const data = bucket.slot_data(slot);
  const auto options = torch::dtype(like.scalar_type());
  if (like.is_non_overlapping_and_dense())
    return torch::from_blob(data, like.sizes(), like.strides(), keep_alive, options);
  return torch::from_blob(data, like.sizes(), keep_alive, options);
}

/// Whether elements lie in `gradient` as they do in `place`.
bool is_laid_out_as(const torch::Tensor& gradient, const torch::Tensor& place) {
  return gradient.layout() == torch::kStrided && gradient.device().is_cpu() &&
         gradient.dtype() == place.dtype() && gradient.sizes() == place.sizes() &&
         gradient.strides() == place.strides();
}

torch::Tensor flat_view(const Bucket& bucket, torch::ScalarType type) {
  return torch::from_blob(
      bucket.bytes().data(), {static_cast<std::int64_t>(bucket.plan().elements)},
      [memory = bucket.keep_alive()](void*) {}, type);
}

}  // namespace

Reducer::Reducer(Group group, std::vector<NamedTensor> parameters, std::vector<char> sparse,
                 ReducerOptions options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      sparse_(std::move(sparse)),
      options_(std::move(options)),
      used_(parameters_.size()) {
  for (const auto& [name, tensor, is_parameter] : parameters_)
    shapes_.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.device()});
  make_buckets(backward_order(parameters_.size()));
}

Reducer::~Reducer() {
  if (under_way_) abandon();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    try {
      if (lies_in_place(i)) parameters_[i].tensor.mutable_grad() = slots_[i].place.clone();
    } catch (const std::exception&) {
      continue;  // no memory: the gradient stays where it is, and keeps its bucket alive
    }
  }
}

void Reducer::make_buckets(std::span<const std::size_t> order) {
  std::vector<GradientSize> sizes;
  for (const auto& [type, shape, device] : shapes_)
    sizes.push_back({static_cast<std::size_t>(c10::multiply_integers(shape)), reducible_dtype(type).value()});
  std::vector<std::size_t> dense;
  for (const std::size_t parameter : order) {
    if (sparse_[parameter] == 0) dense.push_back(parameter);
  }
  going_.wait();
  page_locked_.clear();
  coming_.clear();
  buckets_.clear();
  views_.clear();
  slots_.assign(parameters_.size(), {});
  const bool has_devices =
      std::ranges::any_of(shapes_, [](const Shape& shape) { return !shape.device.is_cpu(); });
  for (auto& plan : plan_buckets(sizes, dense, options_.limits)) {
    const std::size_t number = buckets_.size();
    const Bucket& bucket = buckets_.emplace_back(group_, std::move(plan), has_devices);
    if (has_devices) page_locked_.emplace_back(bucket.bytes());
    GradientBucket& view = views_.emplace_back();
    view.group = group_;
    view.number = number;
    view.flat = flat_view(bucket, shapes_[bucket.plan().slots.front().parameter].type);
    for (const auto& slot : bucket.plan().slots) {
      const auto& [name, tensor, is_parameter] = parameters_[slot.parameter];
      slots_[slot.parameter].place = make_place(bucket, slot, tensor);
      slots_[slot.parameter].bucket = number;
      view.gradients.push_back(slots_[slot.parameter].place);
      view.names.push_back(name);
    }
  }
  coming_.resize(buckets_.size());
  if (!options_.hook && shares_memory(group_)) {
    average_.emplace(group_, buckets_);
    for (const Bucket& bucket : buckets_) {
      for (const auto& slot : bucket.plan().slots)
        slots_[slot.parameter].home = average_->place_of({bucket.slot_data(slot), 0}).value();
    }
  } else if (!options_.hook) {
    options_.hook = std::make_shared<AllReduceHook>();
  }
}

void Reducer::rebuild_buckets() {
  std::vector<std::uint32_t> order(order_.begin(), order_.end());
  for (const std::size_t parameter : backward_order(parameters_.size())) {
    if (visits_[parameter] == 0) order.push_back(static_cast<std::uint32_t>(parameter));
  }
  broadcast(group_, order, 0).wait();
  const std::vector<std::size_t> wanted(order.begin(), order.end());
  if (wanted == backward_order(parameters_.size())) return;
  std::vector<char> has_moved;
  for (std::size_t i = 0; i < parameters_.size(); ++i) has_moved.push_back(lies_in_place(i));
  make_buckets(wanted);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!has_moved[i]) continue;
    torch::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    slots_[i].place.copy_(gradient);
    gradient = slots_[i].place.detach();
  }
  if (options_.hook) options_.hook->forget();
}

bool Reducer::fits(std::size_t parameter) const {
  const torch::Tensor& tensor = parameters_[parameter].tensor;
  const auto& [type, sizes, device] = shapes_[parameter];
  return tensor.requires_grad() && tensor.scalar_type() == type && tensor.device() == device &&
         tensor.sizes() == torch::IntArrayRef(sizes);
}

void Reducer::begin(std::uint64_t forward_ns, int contributors) {
  going_.wait();
  under_way_ = true;
  all_ranks_threw_ = misses_some_ = false;
  arrived_ = 0;
  contributors_ = contributors;
  visits_.assign(parameters_.size(), 0);
  ready_.assign(parameters_.size(), 0);
  status_.assign(says_who_is_used() ? (first_used_bit + parameters_.size()) / word_bits + 1 : 1, 0);
  first_non_finite_ = parameters_.size();
  order_.clear();
  pending_.clear();
  std::uint64_t bytes = 0;
  for (const auto& bucket : buckets_) {
    pending_.push_back(bucket.plan().slots.size());
    bytes += bucket.bytes().size();
  }
  for (auto& view : views_) view.contributors = contributors;
  for (auto& slot : slots_) {
    slot.source = slot.home;
    slot.is_lent = slot.is_new = false;
  }
  works_.clear();
  added_ = completed_ = 0;
  step_ = {.step = steps_,
           .begin_ns = forward_ns,
           .last_gradient_ns = 0,
           .end_ns = 0,
           .exposed_work_ns = 0,
           .exposed_wait_ns = 0,
           .buckets = static_cast<std::uint32_t>(buckets_.size()),
           .buckets_complete_at_last_gradient = 0,
           .gradient_bytes = bytes};
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (expected_[i] == 0) make_ready(i);
  }
}

bool Reducer::lies_in_place(std::size_t parameter) const {
  const torch::Tensor& gradient = parameters_[parameter].tensor.grad();
  const torch::Tensor& place = slots_[parameter].place;
  return place.defined() && gradient.defined() && is_laid_out_as(gradient, place) &&
         gradient.data_ptr() == place.data_ptr();
}

torch::Tensor Reducer::place(std::size_t parameter, const torch::Tensor& gradient) {
  const std::uint64_t begin = trace::now_ns();
  const torch::Tensor& place = slots_[parameter].place;
  if (!place.defined() || gradient.layout() != torch::kStrided || !gradient.device().is_cpu() ||
      gradient.dtype() != place.dtype() || gradient.sizes() != place.sizes())
    return {};
  if (place_for_all(parameter, gradient)) {
    slots_[parameter].is_new = true;
    return {};
  }
  place.copy_(gradient);
  torch::Tensor placed = place.detach();
  step_.exposed_work_ns += trace::now_ns() - begin;
  return placed;
}

/// What is in grad() into its bucket, or zeros if this pass left it out.
void Reducer::collect(std::size_t parameter) {
  if (lies_in_place(parameter)) return;
  const auto& [name, tensor, is_parameter] = parameters_[parameter];
  const torch::Tensor& gradient = tensor.grad();
  const bool is_sparse = sparse_[parameter] != 0;
  if (!gradient.defined() && visits_[parameter] > 0) {
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
  Slot& slot = slots_[parameter];
  if (!gradient.defined()) {
    slot.place.zero_();
  } else if (const auto place = place_for_all(parameter, gradient)) {
    slot.source = *place;
    slot.is_lent = true;
  } else {
    coming_[slot.bucket].copy(slot.place, gradient);
  }
}

/// Where the others can read the gradient; none if it has to be copied for them.
std::optional<ArenaPlace> Reducer::place_for_all(std::size_t parameter, const torch::Tensor& gradient) const {
  if (!average_ || !is_laid_out_as(gradient, slots_[parameter].place)) return std::nullopt;
  return average_->place_of(elements_of(gradient));
}

void Reducer::make_ready(std::size_t parameter) {
  collect(parameter);
  ready_[parameter] = 1;
  ++added_;
  if (used_[parameter] != 0 && says_who_is_used())
    status_[(first_used_bit + parameter) / word_bits] |= std::uint64_t{1}
                                                         << (first_used_bit + parameter) % word_bits;
  if (sparse_[parameter] == 0) --pending_[slots_[parameter].bucket];
}

void Reducer::add(std::size_t parameter) try {
  const std::uint64_t begin = trace::now_ns();
  const torch::NoGradGuard no_grad;
  const std::string& name = parameters_[parameter].name;
  used_[parameter] = 1;
  ++arrived_;
  const unsigned visits = ++visits_[parameter];
  if (visits == 1) order_.push_back(parameter);
  const unsigned expected = expected_.empty() ? 1 : expected_[parameter];
  if (visits > expected && options_.static_graph && !expected_.empty()) {
    throw_invalid_argument(
        "parameter " + name + " got more gradients in this backward pass than in the first (" +
        std::to_string(expected) +
        "); with static_graph all passes are alike: switch it off, or build the same graph "
        "each time");
  }
  if (visits > expected && !options_.static_graph) {
    throw_invalid_argument(
        "parameter " + name +
        " got its gradient twice in one backward pass; where checkpointed parts of a module "
        "share parameters, and each pass is like the first, set static_graph");
  }
  if (visits == expected && !is_first_of_static_graph()) {
    if (ready_[parameter] != 0) {
      throw_invalid_argument(
          "parameter " + name +
          " got a gradient although nothing in this backward's graph leads to it; where it is "
          "recomputed, and each pass is like the first, set static_graph");
    }
    make_ready(parameter);
    if (added_ == parameters_.size()) {
      step_.last_gradient_ns = begin;
      step_.buckets_complete_at_last_gradient = static_cast<std::uint32_t>(completed_);
    }
    send_ready();
  }
  progress();
  step_.exposed_work_ns += trace::now_ns() - begin;
} catch (const Error& error) {
  throw told_where(error, where());
}

void Reducer::leave_out(std::size_t parameter) {
  const torch::NoGradGuard no_grad;
  if (ready_[parameter] == 0) make_ready(parameter);
}

std::string Reducer::where() const { return "backward " + std::to_string(steps_) + " of a wrapped model"; }

void Reducer::send_ready() {
  while (works_.size() < buckets_.size() && pending_[works_.size()] == 0 &&
         coming_[works_.size()].are_over()) {
    const std::size_t next = works_.size();
    if (options_.non_finite != NonFinite::ignore && !misses_some_) look_for_non_finite(next);
    works_.push_back(send(next));
  }
}

Work Reducer::send(std::size_t bucket) {
  if (!average_) return options_.hook->begin(views_[bucket]);
  std::vector<std::uint64_t> places;
  for (const auto& slot : buckets_[bucket].plan().slots)
    places.push_back(to_word(slots_[slot.parameter].source));
  return average_->tell(bucket, places);
}

void Reducer::look_for_non_finite(std::size_t bucket) {
  for (const auto& slot : buckets_[bucket].plan().slots) {
    const Slot& here = slots_[slot.parameter];
    const torch::Tensor& gradient = here.is_lent ? parameters_[slot.parameter].tensor.grad() : here.place;
    if (is_finite(gradient)) continue;
    first_non_finite_ = std::min(first_non_finite_, slot.parameter);
    status_[0] |= non_finite_bit;
  }
}

/// Nobody has gradients after this pass, so that no optimizer changes anything.
void Reducer::take_no_gradients() {
  ++steps_;
  for (auto& item : parameters_) item.tensor.mutable_grad().reset();
  if (options_.hook) options_.hook->forget();
  take_non_finite(group_, options_.non_finite, steps_ - 1, first_non_finite_, parameters_);
  ++skipped_;
}

void Reducer::progress() {
  if (completed_ == works_.size()) group_.poll();
  while (completed_ < works_.size() && works_[completed_].test()) {
    if (average_) average_->add_up(completed_, 1.0 / contributors_);
    ++completed_;
  }
}

/// Whatever has no gradient by now gets none.
void Reducer::bring_to_an_end() {
  const bool is_first = is_first_of_static_graph();
  if (is_first) expected_ = visits_;
  if (is_first || options_.find_unused) {
    for (std::size_t i = 0; i < ready_.size(); ++i) leave_out(i);
  }
  if (added_ == parameters_.size()) return;
  misses_some_ = true;
  status_[0] |= misses_some_bit;
  pending_.assign(pending_.size(), 0);  // the others wait for all buckets, whatever is in them
}

void Reducer::finalize() {
  const std::uint64_t begin = trace::now_ns();
  const torch::NoGradGuard no_grad;
  const std::uint64_t waited_before = step_.exposed_wait_ns;
  try {
    bring_to_an_end();
    wait_for_all();
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
  step_.exposed_work_ns += step_.end_ns - begin - (step_.exposed_wait_ns - waited_before);
  group_.recorder().record(step_);
}

void Reducer::shadow(int contributors) {
  const torch::NoGradGuard no_grad;
  used_.assign(used_.size(), 0);
  begin(trace::now_ns(), contributors);
  for (const auto& view : views_) view.flat.zero_();
  ready_.assign(ready_.size(), 1);
  added_ = parameters_.size();
  pending_.assign(pending_.size(), 0);
  try {
    wait_for_all();
    average_sparse_ones(false);
  } catch (...) {
    abandon();
    throw;
  }
  take_over_averages(false);
}

void Reducer::take_over_averages(bool has_gradients) {
  used_.assign(used_.size(), 0);
  under_way_ = false;
  all_ranks_threw_ = true;  // if one does
  if ((status_[0] & misses_some_bit) != 0) throw_missing();
  if ((status_[0] & non_finite_bit) != 0 || !is_average_finite()) return take_no_gradients();
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

/// What ranks have in common is the same on all of them: sums too large, or for a hook's type.
bool Reducer::is_average_finite() const {
  return options_.non_finite == NonFinite::ignore ||
         std::ranges::all_of(views_, is_finite, &GradientBucket::flat);
}

void Reducer::wait_for_all() {
  for (; works_.size() < buckets_.size(); send_ready()) coming_[works_.size()].wait();
  const ExposedTime exposed(group_);
  // Only now is the order of calls the same on all ranks, where several wrappers share a backward. Who shares
  // memory meets the others by the status: it has added up its shares before.
  for (; average_ && completed_ < buckets_.size(); ++completed_) {
    works_[completed_].wait();
    average_->add_up(completed_, 1.0 / contributors_);
  }
  Work status = all_reduce(group_, status_, ReduceOp::bor);
  std::vector<std::size_t> open(options_.hook ? buckets_.size() : 0);
  std::iota(open.begin(), open.end(), std::size_t{0});
  const auto is_over = [this](std::size_t bucket) {
    works_[bucket].wait();
    auto next = options_.hook->proceed(views_[bucket]);
    if (next) works_[bucket] = std::move(*next);
    return !next;
  };
  while (!open.empty()) {
    std::vector<std::size_t> still_open;
    for (const std::size_t bucket : open) {
      if (!is_over(bucket)) still_open.push_back(bucket);
    }
    open = std::move(still_open);
  }
  status.wait();
  step_.exposed_wait_ns += exposed.waited_ns();
  works_.clear();
}

bool Reducer::is_used_anywhere(std::size_t parameter) const {
  return !says_who_is_used() ||
         (status_[(first_used_bit + parameter) / word_bits] >> (first_used_bit + parameter) % word_bits &
          1) != 0;
}

/// Unless the pass fails on all ranks anyway.
void Reducer::average_sparse_ones(bool has_gradients) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (sparse_[i] != 0 && is_used_anywhere(i) && (status_[0] & (misses_some_bit | non_finite_bit)) == 0)
      average_sparse(group_, parameters_[i].tensor, has_gradients, contributors_);
  }
}

void Reducer::copy_back() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (sparse_[i] != 0 || lies_in_place(i) || !is_used_anywhere(i)) continue;
    torch::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (gradient.defined() && !slots_[i].is_new) {
      going_.copy(gradient, slots_[i].place);
    } else {
      gradient =
          going_.copied_to(shapes_[i].device, slots_[i].place.detach());  // in main memory the place itself
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
  throw_missing_gradients(group_, parameters_, ready_, "backward #" + std::to_string(steps_), remedy);
}

void Reducer::abandon() noexcept {
  if (!std::exchange(under_way_, false)) return;
  // The buckets sent so far may be complete, and their works no longer close anything.
  group_.abort("an exception ended " + where() + " early");
  for (Work& work : works_) work.abandon();
  works_.clear();
}

}  // namespace lockstep
