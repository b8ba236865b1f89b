#include "lockstep/train/data_parallel/gradient_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstring>
#include <typeinfo>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/trace/clock.h"

namespace lockstep {

namespace autograd = torch::autograd;

/// A tensor has room for one such hook, so this one calls the one that was there before.
struct GradientHooks::Accumulated : autograd::PostAccumulateGradHook {
  Accumulated(std::weak_ptr<GradientHooks> owner, std::size_t parameter,
              std::unique_ptr<autograd::PostAccumulateGradHook> before)
      : owner(std::move(owner)), parameter(parameter), before(std::move(before)) {}

  void operator()(const torch::Tensor& tensor) override {
    if (before) (*before)(tensor);
    if (const auto hooks = owner.lock()) hooks->accumulated(parameter);
  }

  std::weak_ptr<GradientHooks> owner;
  std::size_t parameter;
  std::unique_ptr<autograd::PostAccumulateGradHook> before;
};

/// Lives in the engine's list of final callbacks. If the pass ends with an exception, the callback is
/// destroyed without having been called.
struct GradientHooks::Pass {
  explicit Pass(std::shared_ptr<GradientHooks> hooks) : hooks(std::move(hooks)) {}
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  ~Pass() {
    if (hooks) hooks->give_up();
  }
  std::shared_ptr<GradientHooks> hooks;
};

GradientHooks::GradientHooks(std::unique_ptr<Reducer> reducer, Options options)
    : reducer_(std::move(reducer)),
      options_(std::move(options)),
      claim_(reducer_->parameters(), options_.owner),
      early_(reducer_->parameters().size(), -1),
      contributors_(reducer_->group().size()) {}

std::shared_ptr<GradientHooks> GradientHooks::attach(std::unique_ptr<Reducer> reducer, Options options) {
  std::shared_ptr<GradientHooks> hooks(new GradientHooks(std::move(reducer), std::move(options)));
  for (std::size_t i = 0; i < hooks->reducer_->parameters().size(); ++i) hooks->attach_to(i);
  return hooks;
}

GradientHooks::~GradientHooks() {
  for (std::size_t i = 0; i < leaf_hooks_.size(); ++i) detach_from(i);
}

void GradientHooks::attach_to(std::size_t parameter) {
  const torch::Tensor& tensor = reducer_->parameters()[parameter].tensor;
  const std::weak_ptr<GradientHooks> weak = weak_from_this();
  leaf_hooks_.push_back(tensor.register_hook([weak, parameter](const torch::Tensor& gradient) {
    const auto hooks = weak.lock();
    return hooks ? hooks->new_gradient(parameter, gradient) : torch::Tensor();
  }));
  auto before = std::move(autograd::impl::post_acc_grad_hooks(tensor));
  autograd::impl::set_post_acc_grad_hooks(tensor,
                                          std::make_unique<Accumulated>(weak, parameter, std::move(before)));
}

void GradientHooks::detach_from(std::size_t parameter) {
  const torch::Tensor& tensor = reducer_->parameters()[parameter].tensor;
  try {
    tensor.remove_hook(leaf_hooks_[parameter]);
  } catch (const std::exception&) {
    // Somebody has cleared the tensor's hooks.
  }
  auto& hook = autograd::impl::post_acc_grad_hooks(tensor);
  auto* const ours = dynamic_cast<Accumulated*>(hook.get());
  if (ours != nullptr) hook = std::move(ours->before);
}

bool GradientHooks::fit() const {
  for (std::size_t i = 0; i < reducer_->parameters().size(); ++i) {
    if (!reducer_->fits(i)) return false;
  }
  return std::ranges::none_of(options_.frozen,
                              [](const NamedTensor& item) { return item.tensor.requires_grad(); });
}

bool GradientHooks::watch(const torch::Tensor& output, std::uint64_t forward_ns) {
  if (!output.defined() || !output.requires_grad() || output.is_leaf()) return false;
  output.register_hook([weak = weak_from_this(), forward_ns](const torch::Tensor&) {
    if (const auto hooks = weak.lock()) hooks->begin_backward(forward_ns);
  });
  return true;
}

void GradientHooks::note_pass() {
  const int now = autograd::get_current_graph_task_id();
  if (options_.passes_per_average == 0 || std::exchange(last_pass_, now) == now) return;
  if (++passes_ == options_.passes_per_average) expect_backward(trace::now_ns());
}

void GradientHooks::average_now() {
  const std::lock_guard lock(mutex_);
  reducer_->begin(trace::now_ns(), contributors_);
  reducer_->finalize();
}

void GradientHooks::begin_expected() {
  --expected_;
  begin_backward(expected_forward_ns_);
  was_expected_ = true;
}

void GradientHooks::cancel() {
  if (was_expected_) ++expected_;
  reducer_->cancel();
}

void GradientHooks::begin_backward(std::uint64_t forward_ns) {
  const std::lock_guard lock(mutex_);
  if (reducer_->under_way()) return;
  was_expected_ = false;
  const auto* const only = autograd::get_current_graph_task_exec_info();
  partial_ = only != nullptr && !only->empty();
  auto pass = std::make_shared<Pass>(shared_from_this());
  autograd::Engine::get_default_engine().queue_callback(
      [pass] { std::exchange(pass->hooks, nullptr)->end_backward(); });
  reducer_->begin(forward_ns, contributors_);
  const int now = autograd::get_current_graph_task_id();
  for (std::size_t i = 0; i < early_.size(); ++i) {
    if (early_[i] == now) reducer_->add(i);
  }
  if (reducer_->finds_unused() && !partial_) leave_out_unreachable();
}

/// Those that nothing in this backward's graph leads to need not be waited for. Where a function of the
/// user's own is in the graph, it may compute parts of it again only while it runs: then nobody knows until
/// the end.
void GradientHooks::leave_out_unreachable() {
  const auto* const graph = autograd::get_current_graph_task_nodes_in_graph();
  if (graph == nullptr) return;
  const auto is_own_function = [](const autograd::Node* node) {
    return std::strstr(typeid(*node).name(), "CppNode") != nullptr;
  };
  if (std::any_of(graph->begin(), graph->end(), is_own_function)) return;
  for (std::size_t i = 0; i < early_.size(); ++i) {
    const auto leaf = autograd::impl::try_get_grad_accumulator(reducer_->parameters()[i].tensor);
    if (!leaf || !graph->contains(leaf.get())) reducer_->leave_out(i);
  }
}

torch::Tensor GradientHooks::new_gradient(std::size_t parameter, const torch::Tensor& gradient) {
  const std::lock_guard lock(mutex_);
  note_pass();
  if (!reducer_->under_way() && expected_ > 0) begin_expected();
  const bool in_use = reducer_->parameters()[parameter].tensor.grad().defined();
  // With create_graph the gradient itself is wanted: it has a history.
  if (!reducer_->under_way() || in_use || partial_ || torch::GradMode::is_enabled()) return {};
  return reducer_->place(parameter, gradient);
}

void GradientHooks::accumulated(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (reducer_->under_way()) {
    reducer_->add(parameter);
  } else {
    reducer_->note_use(parameter);
    early_[parameter] = autograd::get_current_graph_task_id();
  }
}

void GradientHooks::end_backward() {
  const std::lock_guard lock(mutex_);
  // autograd::grad() of other things than parameters has nothing to average: a gradient penalty, say.
  if (partial_ && reducer_->arrived() == 0) return cancel();
  reducer_->finalize();
}

void GradientHooks::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  if (partial_ && reducer_->arrived() == 0) return cancel();
  reducer_->abandon();
}

}  // namespace lockstep
