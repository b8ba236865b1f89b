#include "lockstep/train/pipeline/pipeline_step.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/group/outcome.h"
#include "lockstep/train/replicas/finite_gradients.h"

namespace lockstep {

using pipeline::Action;
using pipeline::ActionKind;
using pipeline::Payload;
using torch::Tensor;

namespace {

/// As even as can be, the first ones one sample more.
std::vector<Tensor> micro_batches(const Tensor& batch, int count, const char* what, torch::Device device) {
  if (!batch.defined() || batch.dim() == 0)
    throw_invalid_argument(
        c10::str("the ", what, " is ", batch.defined() ? "a number, no batch" : "an undefined tensor"));
  if (batch.size(0) < count)
    throw_invalid_argument(c10::str("the ", what, " has ", batch.size(0), " samples for ", count,
                                    " micro-batches; each has to have one at least"));
  return batch.to(device).tensor_split(count);
}

/// Whether an error is of this rank's own making, and not what the group was closed with.
bool is_own(const Error& error) {
  return error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported ||
         error.code() == ErrorCode::system;
}

}  // namespace

std::vector<Tensor> Pipeline::Stage::forward(std::vector<Tensor> inputs) const {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto failure = failure_in([&] { inputs = layers[i].forward(inputs); });
    if (!failure) continue;
    // A tensor-parallel layer's may be another rank's.
    const ErrorCode code = is_own(*failure) ? ErrorCode::invalid_argument : failure->code();
    throw Error(code, c10::str("layer \"", names[i], "\": ", failure->what()), failure->peer());
  }
  return inputs;
}

Pipeline::Step::Step(const Group& group, const pipeline::Plan& plan, const std::vector<Stage>& stages,
                     const StageLinks& links, const PipelineOptions& options, PipelineLoss loss)
    : group_(group),
      plan_(plan),
      stages_(stages),
      options_(options),
      loss_of_(std::move(loss)),
      messages_(group, links) {}

const Pipeline::Stage& Pipeline::Step::stage_at(int number) const {
  return stages_[static_cast<std::size_t>(number / plan_.shape.ranks)];
}

template <class Work>
void Pipeline::Step::named(const std::string& where, const Work& work) {
  const std::optional<Error> failure = failure_in(work);
  if (!failure) return;
  if (!is_own(*failure)) throw Error(*failure);
  const std::string text = c10::str("pipeline, ", where, ": ", failure->what());
  group_.abort(text);
  throw Error(failure->code(), c10::str("rank ", group_.world_rank(group_.rank()), ": ", text));
}

void Pipeline::Step::run(const pipeline::Actions& actions, const Tensor& input, const Tensor& target) {
  named("before the first micro-batch", [&] { deal_out(input, target); });
  for (const Action& action : actions)
    named(c10::str("stage ", action.stage, ", micro-batch ", action.micro_batch), [&] { act(action); });
  messages_.finish();
}

void Pipeline::Step::deal_out(const Tensor& input, const Tensor& target) {
  const int count = plan_.shape.micro_batches;
  if (is_here(0)) inputs_ = micro_batches(input, count, "input", options_.device);
  if (!is_here(plan_.shape.stages - 1)) return;
  targets_ = micro_batches(target, count, "target", options_.device);
  samples_ = target.size(0);
}

void Pipeline::Step::act(const Action& action) {
  const Cell cell{action.stage, action.micro_batch};
  const bool is_activation = action.payload == Payload::activation;
  switch (action.kind) {
    case ActionKind::forward: forward(action); break;
    case ActionKind::backward: backward(action); break;
    case ActionKind::send:
      if (is_activation) {
        messages_.send_activation(activations_.at(cell), action.peer);
        activations_.erase(cell);
      } else {
        const auto gradients = gradients_.extract(cell);
        messages_.send_gradient(gradients.mapped(), kept_.at(cell).inputs, action.peer);
        kept_.erase(cell);
      }
      break;
    case ActionKind::receive:
      if (is_activation) {
        activations_[cell] = messages_.receive_activation(action.peer);
      } else {
        gradients_[cell] =
            messages_.receive_gradient(kept_.at({action.stage - 1, action.micro_batch}).outputs, action.peer);
      }
      break;
  }
}

void Pipeline::Step::forward(const Action& action) {
  const int i = action.micro_batch;
  Activation given;
  if (action.stage == 0) {
    const Tensor& input = inputs_[static_cast<std::size_t>(i)];
    given = {.samples = input.size(0), .tensors = {input}};
  } else {
    given = std::move(activations_.extract({action.stage - 1, i}).mapped());
  }
  Kept kept{.inputs = given.tensors, .outputs = stage_at(action.stage).forward(std::move(given.tensors))};
  if (options_.non_finite == NonFinite::stop) require_finite(kept.outputs, "what it hands on");
  if (is_last(action.stage)) {
    take_loss(i, given.samples, kept);
  } else {
    Activation& made = activations_[{action.stage, i}];
    made.samples = given.samples;
    for (const Tensor& output : kept.outputs) {
      if (!output.defined()) throw_invalid_argument("a stage hands on an undefined tensor");
      // What the next stage gets: for the rank itself a leaf, for another what the message says of it.
      made.tensors.push_back(output.detach().set_requires_grad(output.requires_grad()));
    }
  }
  kept_[{action.stage, i}] = std::move(kept);
}

void Pipeline::Step::take_loss(int micro_batch, std::int64_t samples, Kept& kept) {
  const Tensor& target = targets_[static_cast<std::size_t>(micro_batch)];
  if (target.size(0) != samples)
    throw_invalid_argument(
        c10::str("the micro-batch has ", samples, " samples of input and ", target.size(0), " of target"));
  if (kept.outputs.size() != 1)
    throw_invalid_argument(
        c10::str("the last stage returns ", kept.outputs.size(), " tensors; the loss takes one"));
  Tensor loss = loss_of_(kept.outputs[0], target);
  if (!loss.defined() || loss.numel() != 1) throw_invalid_argument("the loss is no number");
  if (options_.non_finite == NonFinite::stop) require_finite({loss}, "the loss");
  const double share = static_cast<double>(samples) / static_cast<double>(samples_);
  loss_ += share * loss.item<double>();
  const torch::NoGradGuard no_grad;
  gradients_[{plan_.shape.stages, micro_batch}] = {torch::full_like(loss, share)};
  kept.outputs = {std::move(loss)};
}

void Pipeline::Step::backward(const Action& action) {
  const Cell cell{action.stage, action.micro_batch};
  Kept& kept = kept_.at(cell);
  const Tensors given = std::move(gradients_.extract({action.stage + 1, action.micro_batch}).mapped());
  Tensors roots, gradients;
  for (std::size_t i = 0; i < kept.outputs.size(); ++i) {
    if (!kept.outputs[i].requires_grad() || !given[i].defined()) continue;
    roots.push_back(kept.outputs[i]);
    gradients.push_back(given[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  kept.outputs.clear();
  if (action.stage == 0) {
    kept_.erase(cell);
    return;
  }
  Tensors& made = gradients_[cell];
  for (const Tensor& input : kept.inputs) made.push_back(input.grad());
  if (is_here(action.stage - 1)) kept_.erase(cell);
}

void Pipeline::Step::require_finite(const Tensors& tensors, const std::string& what) const {
  const torch::NoGradGuard no_grad;
  for (const Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.is_floating_point() && !is_finite(tensor))
      throw_invalid_argument(what + " is infinite or no number");
  }
}

Tensor Pipeline::Step::evaluate(const Tensor& input) {
  Activation activation;
  if (is_here(0)) {
    named("before the first stage",
          [&] { activation = {.samples = 1, .tensors = micro_batches(input, 1, "input", options_.device)}; });
  }
  for (int stage = 0; stage < plan_.shape.stages; ++stage) {
    if (!is_here(stage)) continue;
    named(c10::str("stage ", stage, ", evaluating"), [&] {
      if (stage > 0 && !is_here(stage - 1))
        activation = messages_.receive_activation(plan_.shape.rank_of(stage - 1));
      activation.tensors = stage_at(stage).forward(std::move(activation.tensors));
      if (is_last(stage) || is_here(stage + 1)) return;
      messages_.send_activation(activation, plan_.shape.rank_of(stage + 1));
    });
  }
  messages_.finish();
  return is_here(plan_.shape.stages - 1) ? activation.tensors.at(0) : Tensor();
}

}  // namespace lockstep
