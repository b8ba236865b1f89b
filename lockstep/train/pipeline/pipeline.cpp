#include "lockstep/train/pipeline/pipeline.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/outcome.h"
#include "lockstep/pipeline/cut.h"
#include "lockstep/pipeline/schedules.h"
#include "lockstep/train/pipeline/pipeline_parts.h"
#include "lockstep/train/pipeline/pipeline_step.h"
#include "lockstep/train/pipeline/stage_links.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/gradient_norm.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/parameter_drift.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/replicas/sliced_module.h"
#include "lockstep/train/tensor/device.h"
#include "lockstep/train/tensor/random_numbers.h"
#include "lockstep/train/tensor/shared_heap.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using torch::Tensor;

/// Of who builds layers with libtorch's generator, which ranks that are threads have in common.
std::mutex building;

std::vector<std::size_t> even_cut(std::size_t layers, std::size_t stages) {
  return pipeline::cut_by_time(std::vector<double>(layers, 1.0), stages);
}

/// Seconds of a forward and a backward: the least of a few, because others only make them longer.
double seconds_of(const BuiltLayer& layer, torch::Device device, const std::vector<Tensor>& inputs,
                  std::vector<Tensor>& outputs) {
  double least = 0;
  for (int round = 0; round < 4; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    outputs = layer.forward(inputs);
    std::vector<Tensor> roots, gradients;
    for (const Tensor& output : outputs) {
      if (!output.requires_grad()) continue;
      roots.push_back(output);
      gradients.push_back(torch::ones_like(output));
    }
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
    await_device(device);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (round == 1 || (round > 1 && took.count() < least)) least = took.count();
  }
  return least;
}

/// The type and the sizes: ranks may have their stages on different devices.
std::string describe_anywhere(const Tensor& tensor) {
  return type_name(tensor.scalar_type()) + " " + shape_text(tensor.sizes());
}

std::vector<Tensor> as_inputs(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> inputs;
  for (const Tensor& tensor : tensors)
    inputs.push_back(tensor.detach().set_requires_grad(tensor.is_floating_point()));
  return inputs;
}

}  // namespace

Pipeline::Pipeline(const Layers& layers, const Group& group, const PipelineOptions& options)
    : group_(group), options_(options), module_(std::make_shared<StageModule>()) {
  for (const Layers::Layer& layer : layers.layers()) names_.push_back(layer.name);
  if (options_.shared_heap && group_.size() > 1) heap_ = SharedHeap::unless_there_is_one(group_);
  require_alike(layers);
  const pipeline::Shape shape{.ranks = group.size(),
                              .stages = group.size() * std::max(options.stages_per_rank, 0),
                              .micro_batches = options.micro_batches};
  plan_ = pipeline::plan_of(pipeline::schedule_named(options.schedule), shape);
  if (options.non_finite == NonFinite::skip)
    throw_invalid_argument("Pipeline: NonFinite::skip is not supported; take stop or ignore");
  links_ = std::make_unique<StageLinks>(group_, plan_.shape, options_.device);
  options_.device = links_->device();
  seed_ = static_cast<std::uint64_t>(
      torch::randint(std::numeric_limits<std::int64_t>::max(), {1}, torch::kInt64).item<std::int64_t>());
  broadcast(group_, std::span(&seed_, 1), 0).wait();
  for (const auto& others : {options_.replicas, options_.tensor}) {
    if (others) broadcast(*others, std::span(&seed_, 1), 0).wait();
  }
  decide_cut(layers);
  build_stages(layers);
  on_every_rank(group_, [&] { require_known_parts(); });
  make_ties(layers);
  if (options_.replicas && options_.replicas->size() > 1)
    drift_ = std::make_unique<ParameterDrift>(distinct_parameters(tensors_of(*module_), true));
}

Pipeline::~Pipeline() = default;

void Pipeline::require_alike(const Layers& layers) const {
  std::vector<Fact> facts = {{"number of layers", std::to_string(layers.size())},
                             {"schedule", options_.schedule},
                             {"micro_batches", std::to_string(options_.micro_batches)},
                             {"stages_per_rank", std::to_string(options_.stages_per_rank)}};
  std::string cut;
  for (const std::size_t count : options_.cut) cut.append(" ").append(std::to_string(count));
  facts.push_back({"cut", cut.empty() ? " none" : cut});
  for (std::size_t i = 0; i < names_.size(); ++i) facts.push_back({c10::str("layer ", i), names_[i]});
  for (const TiedParameters& tie : layers.tied()) facts.push_back({"tie", tie.first + " and " + tie.second});
  constexpr const char* remedy = "Make the same pipeline on every rank";
  require_same_facts(group_, facts, remedy);
  // Who averages or adds up with others does so in one kind of memory.
  facts.push_back({"kind of device", c10::DeviceTypeName(options_.device.type(), /*lower_case=*/true)});
  on_every_rank(group_, [&] {
    for (const auto& others : {options_.replicas, options_.tensor}) {
      if (others) require_same_facts(*others, facts, remedy);
    }
  });
}

void Pipeline::decide_cut(const Layers& layers) {
  const auto stages = static_cast<std::size_t>(plan_.shape.stages);
  if (layers.size() < stages)
    throw_invalid_argument(
        c10::str("Pipeline: ", layers.size(), " layers for ", stages,
                 " stages; each has to have one at least: start fewer ranks, or split layers"));
  if (!options_.cut.empty()) {
    const std::size_t sum = std::accumulate(options_.cut.begin(), options_.cut.end(), std::size_t{0});
    if (options_.cut.size() != stages || sum != layers.size() || std::ranges::count(options_.cut, 0U) > 0)
      throw_invalid_argument(c10::str("Pipeline: the cut has ", options_.cut.size(), " stages with ", sum,
                                      " layers in all; there are ", stages, " stages and ", layers.size(),
                                      " layers, and each stage has one at least"));
    cut_ = options_.cut;
    return;
  }
  std::uint8_t is_measured = options_.sample.has_value() ? 1 : 0;  // rank 0's
  broadcast(group_, std::span(&is_measured, 1), 0).wait();
  if (options_.tensor) {  // who builds a layer does so with the others
    std::vector<std::uint8_t> all(static_cast<std::size_t>(options_.tensor->size()));
    all_gather(*options_.tensor, std::span(&is_measured, 1), all).wait();
    if (std::ranges::count(all, is_measured) != std::ssize(all))
      throw_invalid_argument(
          "Pipeline: of pipelines whose layers are spread over `tensor` all have a sample, each on its "
          "rank 0, or none has");
  }
  if (is_measured == 0) {
    cut_ = even_cut(layers.size(), stages);
  } else {
    layer_seconds_.assign(layers.size(), 0);
    on_rank_0(group_, [&] { measure(layers); });
    broadcast(group_, std::span(layer_seconds_), 0).wait();
    cut_ = pipeline::cut_by_time(layer_seconds_, stages);
  }
  for (const auto& others : {options_.replicas, options_.tensor}) {  // which may have measured otherwise
    if (others) broadcast(*others, std::span(cut_), 0).wait();
  }
}

void Pipeline::require_known_parts() const {
  const auto parts = sliced_in(*module_);
  if (!parts.empty() && !options_.tensor)
    throw_invalid_argument("Pipeline: of " + parts.begin()->first +
                           " each rank of a group has a part: PipelineOptions::tensor is to be that group");
}

BuiltLayer Pipeline::build_layer(const Layers& layers, std::size_t index) const {
  seed_cpu_generator(mixed(seed_, index));
  BuiltLayer layer = layers.layers()[index].build();
  if (layer.module && !options_.device.is_cpu()) layer.module->to(options_.device);
  return layer;
}

void Pipeline::measure(const Layers& layers) {
  const std::lock_guard lock(building);
  const KeepsGenerator keep;
  std::vector<Tensor> inputs = {options_.sample->detach().to(options_.device)};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto failure = failure_in([&] {
      std::vector<Tensor> outputs;
      layer_seconds_[i] = seconds_of(build_layer(layers, i), options_.device, inputs, outputs);
      inputs = as_inputs(outputs);
    });
    if (failure)
      throw_invalid_argument(
          c10::str("Pipeline: layer ", i, " (\"", names_[i], "\") with the sample: ", failure->what()));
  }
}

void Pipeline::build_stages(const Layers& layers) {
  const std::lock_guard lock(building);
  const KeepsGenerator keep;
  std::size_t first = 0;
  for (int number = 0; number < plan_.shape.stages; ++number) {
    const std::size_t count = cut_[static_cast<std::size_t>(number)];
    if (plan_.shape.rank_of(number) == group_.rank()) {
      Stage& stage = stages_.emplace_back(Stage{.number = number});
      for (std::size_t i = first; i < first + count; ++i) {
        stage.layers.push_back(build_layer(layers, i));
        stage.names.push_back(names_[i]);
        if (stage.layers.back().module)
          static_cast<StageModule&>(*module_).add(names_[i], stage.layers.back().module);
      }
    }
    first += count;
  }
}

std::size_t Pipeline::layer_of(const std::string& parameter) const {
  const std::size_t place = place_of_layer(parameter, names_);
  if (place == names_.size())
    throw_invalid_argument("Pipeline: \"" + parameter + "\" is a parameter of no layer");
  return place;
}

int Pipeline::rank_of_layer(std::size_t layer) const {
  std::size_t end = 0;
  for (int stage = 0;; ++stage) {
    end += cut_[static_cast<std::size_t>(stage)];
    if (layer < end) return plan_.shape.rank_of(stage);
  }
}

void Pipeline::make_ties(const Layers& layers) {
  const auto parameters = module_->named_parameters();
  const auto mine = [&](const std::string& name) {
    const Tensor* const found = parameters.find(name);
    return found == nullptr ? Tensor() : *found;
  };
  std::vector<std::string> names;
  on_every_rank(group_, [&] {
    for (const TiedParameters& tied : layers.tied()) {
      for (const std::string& name : {tied.first, tied.second}) {
        if (std::ranges::find(names, name) != names.end())
          throw_invalid_argument("Pipeline: \"" + name +
                                 "\" is tied twice; two parameters are one, not three");
        names.push_back(name);
        if (rank_of_layer(layer_of(name)) == group_.rank() && !mine(name).defined())
          throw_invalid_argument("Pipeline: there is no parameter \"" + name + "\" to tie");
      }
    }
  });
  const torch::NoGradGuard no_grad;
  for (const TiedParameters& tied : layers.tied()) {
    Tie tie{.names = tied,
            .ranks = {rank_of_layer(layer_of(tied.first)), rank_of_layer(layer_of(tied.second))}};
    tie.tensors = {mine(tied.first), mine(tied.second)};
    // Their sizes first: a message of another size would be a mismatch that names no parameter.
    std::string sizes = tie.tensors[0].defined() ? describe_anywhere(tie.tensors[0]) : "";
    sizes = broadcast_text(group_, std::move(sizes), tie.ranks[0]);
    on_every_rank(group_, [&] {
      if (tie.tensors[1].defined() && describe_anywhere(tie.tensors[1]) != sizes)
        throw_invalid_argument("Pipeline: " + tied.second + " is " + describe_anywhere(tie.tensors[1]) +
                               ", " + tied.first + " is " + sizes + ": they cannot be tied");
    });
    if (tie.ranks[0] == tie.ranks[1]) {
      if (tie.tensors[0].defined()) tie.tensors[1].copy_(tie.tensors[0]);
    } else if (tie.tensors[0].defined()) {
      send(group_, tie.tensors[0].detach().contiguous(), tie.ranks[1], tie_tag).wait();
    } else if (tie.tensors[1].defined()) {
      recv(group_, tie.tensors[1].detach(), tie.ranks[0], tie_tag).wait();
    }
    ties_.push_back(std::move(tie));
  }
}

double Pipeline::step(const Tensor& input, const Tensor& target, const PipelineLoss& loss) {
  Step step(group_, plan_, stages_, *links_, options_, loss);
  std::vector<Work> averages;
  const auto tied_before = set_tied_gradients_aside();
  try {
    step.run(plan_.ranks[static_cast<std::size_t>(group_.rank())], input, target);
    add_up_ties(tied_before);
    if (drift_) {
      compare_replicas();
      average_over_replicas(averages);
    }
    double mean = step.loss();
    broadcast(group_, std::span(&mean, 1), plan_.shape.rank_of(plan_.shape.stages - 1)).wait();
    return mean;
  } catch (const std::exception& error) {
    give_up(error);  // before what is under way, in `step` and `averages`, says that it was given up
    throw;
  }
}

void Pipeline::give_up(const std::exception& why) {
  group_.abort(why);
  links_->abort(why);
  for (const auto& others : {options_.replicas, options_.tensor}) {
    if (others) others->abort(why);
  }
}

Tensor Pipeline::evaluate(const Tensor& input) {
  const torch::NoGradGuard no_grad;
  Step step(group_, plan_, stages_, *links_, options_, nullptr);
  try {
    return step.evaluate(input);
  } catch (const std::exception& error) {
    give_up(error);
    throw;
  }
}

/// What both sides of a tie have from earlier steps is the same sum: it is not to be added up again.
std::vector<std::array<Tensor, 2>> Pipeline::set_tied_gradients_aside() {
  std::vector<std::array<Tensor, 2>> before;
  for (Tie& tie : ties_) {
    auto& both = before.emplace_back();
    for (std::size_t side = 0; side < both.size(); ++side) {
      if (tie.tensors[side].defined()) std::swap(both[side], tie.tensors[side].mutable_grad());
    }
  }
  return before;
}

void Pipeline::add_up_ties(const std::vector<std::array<Tensor, 2>>& before) {
  const torch::NoGradGuard no_grad;
  const auto has_gradient = [](const Tensor& parameter) {
    return static_cast<std::uint8_t>(parameter.defined() && parameter.grad().defined() ? 1 : 0);
  };
  const auto gradient = [](const Tensor& parameter) {
    const Tensor& found = parameter.grad();
    if (!found.defined()) return torch::zeros_like(parameter);
    return found.is_sparse() ? found.to_dense() : found.contiguous();
  };
  const auto add = [](const Tensor& parameter, const Tensor& sum, const Tensor& earlier) {
    if (!parameter.requires_grad()) return;
    const Tensor here = sum.to(parameter.device());
    parameter.mutable_grad() = earlier.defined() ? earlier + here : here.clone();
  };
  for (std::size_t i = 0; i < ties_.size(); ++i) {
    Tie& tie = ties_[i];
    const std::size_t own = tie.tensors[0].defined() ? 0 : 1;
    if (!tie.tensors[own].defined()) continue;  // neither is here
    const bool are_here = tie.tensors[1 - own].defined();
    std::array has{has_gradient(tie.tensors[0]), has_gradient(tie.tensors[1])};
    if (!are_here) {
      sendrecv(group_, std::span(&has[own], 1), tie.ranks[1 - own], std::span(&has[1 - own], 1),
               tie.ranks[1 - own], tie_tag, tie_tag)
          .wait();
    }
    if (has[0] == 0 && has[1] == 0) {  // nor has the one parameter that they are
      for (std::size_t side = 0; side < has.size(); ++side) {
        if (tie.tensors[side].defined()) tie.tensors[side].mutable_grad() = before[i][side];
      }
    } else if (are_here) {
      const Tensor sum = gradient(tie.tensors[0]) + gradient(tie.tensors[1]);
      for (std::size_t side = 0; side < tie.tensors.size(); ++side)
        add(tie.tensors[side], sum, before[i][side]);
    } else {
      const Tensor mine = gradient(tie.tensors[own]).cpu(), theirs = torch::empty_like(mine);
      const std::span sent = elements_of(mine);
      sendrecv(group_, sent, tie.ranks[1 - own], writable_bytes(theirs, "a tied gradient"),
               tie.ranks[1 - own], tie_tag, tie_tag)
          .wait();
      // Both add up in one order.
      add(tie.tensors[own], own == 0 ? mine + theirs : theirs + mine, before[i][own]);
    }
  }
}

void Pipeline::compare_replicas() {
  const std::uint64_t step = steps_++;
  if (!is_step_to_compare(step) || have_the_same(*options_.replicas, drift_->digest(step))) return;
  drift_->compare(*options_.replicas, step, true);
}

void Pipeline::average_over_replicas(std::vector<Work>& works) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> parameters = module_->parameters();
  std::erase_if(parameters, [](const Tensor& parameter) { return !parameter.requires_grad(); });
  std::vector<std::uint8_t> have;  // a gradient; where no replica has one, as in one process
  for (const Tensor& parameter : parameters) have.push_back(parameter.grad().defined() ? 1 : 0);
  all_reduce(*options_.replicas, std::span(have), ReduceOp::max).wait();
  std::vector<std::pair<Tensor, Tensor>> copies;  // a gradient with gaps, and what is averaged in its place
  std::map<std::pair<std::string, torch::ScalarType>, std::vector<Tensor>> together;  // by device and type
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (have[i] == 0) continue;
    Tensor& gradient = parameters[i].mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(parameters[i]);
    if (gradient.is_sparse()) gradient = gradient.to_dense();  // whose rows differ from replica to replica
    const Tensor dense = gradient.contiguous();
    together[{dense.device().str(), dense.scalar_type()}].push_back(dense);
    if (!dense.is_same(gradient)) copies.emplace_back(gradient, dense);
  }
  for (const auto& [place, gradients] : together)
    works.push_back(all_reduce_grouped(*options_.replicas, gradients, ReduceOp::average));
  for (Work& work : works) work.synchronize();  // so that none fails when an optimizer has stepped
  for (auto& [gradient, dense] : copies) gradient.copy_(dense);
}

double Pipeline::clip_grad_norm(double max_norm) {
  std::array<double, 2> squares{};  // of what all of `tensor` have, and of parts
  const auto parts = sliced_in(*module_);
  const auto is_counted_elsewhere = [&](const std::string& name) {
    return std::ranges::any_of(ties_, [&](const Tie& tie) { return tie.names.second == name; });
  };
  for (const auto& item : module_->named_parameters()) {
    if (!is_counted_elsewhere(item.key()))
      squares[parts.contains(item.key()) ? 1 : 0] += gradient_squares(item.value());
  }
  try {
    all_reduce(group_, squares).wait();
    if (options_.tensor) all_reduce(*options_.tensor, std::span(&squares[1], 1)).wait();
  } catch (const std::exception& error) {
    give_up(error);
    throw;
  }
  const double norm = std::sqrt(squares[0] + squares[1]);
  clip_gradients(module_->parameters(), norm, max_norm);
  return norm;
}

}  // namespace lockstep
