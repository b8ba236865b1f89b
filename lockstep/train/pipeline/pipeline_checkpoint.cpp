// A pipeline's checkpoint: rank 0 puts the whole model and one optimizer for it together, and has them written or read as of any
// other model.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/in_process.h"
#include "lockstep/group/outcome.h"
#include "lockstep/train/checkpoint/checkpoint_load.h"
#include "lockstep/train/checkpoint/optimizer_copy.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/pipeline/pipeline_parts.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/replicas/state_storage.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using torch::Tensor;
using torch::optim::Optimizer;

/// Modules within modules, as the names of their tensors say.
struct NamedTree : torch::nn::Module {
  void put(const std::string& name, const Tensor& tensor, bool is_parameter) {
    const auto dot = name.find('.');
    if (dot != std::string::npos) {
      const std::string child = name.substr(0, dot);
      const auto known = named_children();
      const auto* const found = known.find(child);
      const auto module = found != nullptr ? std::static_pointer_cast<NamedTree>(*found)
                                           : register_module(child, std::make_shared<NamedTree>());
      module->put(name.substr(dot + 1), tensor, is_parameter);
    } else if (is_parameter) {
      register_parameter(name, tensor, tensor.requires_grad());
    } else {
      register_buffer(name, tensor);
    }
  }
};

/// A parameter in a rank's optimizer, and what is kept for it.
struct KeptParameter {
  std::string name;
  int rank = 0;
  std::size_t group = 0;
  std::uint64_t steps = 0;
  torch::ScalarType type = torch::kFloat32;  ///< of the arrays
  std::size_t arrays = 0;
};

/// The pipeline's name of each parameter in `optimizer`'s groups, in their order.
std::vector<std::pair<std::string, std::size_t>> names_in_groups(const Pipeline& pipeline,
                                                                 const Optimizer& optimizer) {
  std::map<const void*, std::string> names;
  for (const auto& item : pipeline.named_parameters())
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::vector<std::pair<std::string, std::size_t>> found;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const Tensor& parameter : optimizer.param_groups()[group].params()) {
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      if (name == names.end())
        throw_invalid_argument("the optimizer has a parameter, " + describe(parameter) +
                               ", that is none of the pipeline's; make it for parameters() of the pipeline");
      found.emplace_back(name->second, group);
    }
  }
  return found;
}

/// nullptr: the optimizer keeps nothing for it yet.
const ParameterState* state_for(const Optimizer& optimizer, const Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

std::vector<Tensor> kept_arrays(const Optimizer& optimizer, const Tensor& parameter,
                                const ParameterOptions& options) {
  const ParameterState* const state = state_for(optimizer, parameter);
  if (state == nullptr) return {};
  std::vector<Tensor> arrays;
  for (const Tensor& array : arrays_of(*state, options)) {
    if (array.defined()) arrays.push_back(array.detach().contiguous());
  }
  return arrays;
}

void require_supported(const Optimizer& optimizer) {
  if (storage_of(optimizer).is_sharded())
    throw_invalid_argument(
        "a pipeline's checkpoint takes no ShardedOptimizer; take SGD, Adam or AdamW on each rank");
  for (const auto& group : optimizer.param_groups()) require_known(group.options());
  if (optimizer_like(optimizer, {}) == nullptr && !optimizer.param_groups().empty())
    throw Error(
        ErrorCode::unsupported,
        "a pipeline's checkpoint takes SGD, Adam and AdamW, and no optimizer " + optimizer_kind(optimizer));
}

/// Collective. Of all ranks' optimizers, in the layers' order, once it is known that together they are one.
std::vector<KeptParameter> kept_parameters(const Pipeline& pipeline, const Optimizer& optimizer) {
  c10::List<c10::IValue> mine(c10::AnyType::get());
  on_every_rank(pipeline.group(), [&] {
    require_supported(optimizer);
    const auto parameters = pipeline.named_parameters();
    for (const auto& [name, group] : names_in_groups(pipeline, optimizer)) {
      const ParameterOptions& options = optimizer.param_groups()[group].options();
      const ParameterState* const state = state_for(optimizer, parameters[name]);
      const auto arrays = kept_arrays(optimizer, parameters[name], options);
      mine.push_back(name);
      mine.push_back(static_cast<std::int64_t>(group));
      mine.push_back(static_cast<std::int64_t>(state == nullptr ? 0 : steps_of(*state, options)));
      mine.push_back(static_cast<std::int64_t>(arrays.empty() ? torch::kFloat32 : arrays[0].scalar_type()));
      mine.push_back(static_cast<std::int64_t>(arrays.size()));
    }
  });
  require_same_options(pipeline.group(), optimizer);
  const auto of_ranks = all_gather_object(pipeline.group(), mine);
  std::vector<KeptParameter> kept;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto list = of_ranks[rank].toListRef();
    for (std::size_t i = 0; i + 4 < list.size(); i += 5)
      kept.push_back({.name = list[i].toStringRef(),
                      .rank = static_cast<int>(rank),
                      .group = static_cast<std::size_t>(list[i + 1].toInt()),
                      .steps = static_cast<std::uint64_t>(list[i + 2].toInt()),
                      .type = static_cast<torch::ScalarType>(list[i + 3].toInt()),
                      .arrays = static_cast<std::size_t>(list[i + 4].toInt())});
  }
  std::ranges::stable_sort(
      kept, {}, [&](const KeptParameter& each) { return place_of_layer(each.name, pipeline.layer_names()); });
  return kept;
}

/// What rank 0 puts together.
struct Whole {
  std::shared_ptr<NamedTree> module = std::make_shared<NamedTree>();
  std::unique_ptr<Optimizer> optimizer;  ///< of the class and options of this rank's
  torch::OrderedDict<std::string, Tensor> tensors;
};

/// `tensors` has them all, under these names.
Whole put_together(const StateDict& tensors, const std::vector<WholeTensor>& all,
                   const std::vector<KeptParameter>& kept, const Optimizer& optimizer) {
  Whole whole;
  for (const WholeTensor& item : all) {
    whole.module->put(item.name, tensors[item.name], item.is_parameter);
    whole.tensors.insert(item.name, tensors[item.name]);
  }
  std::vector<std::vector<Tensor>> members(optimizer.param_groups().size());
  for (const KeptParameter& each : kept) members[each.group].push_back(tensors[each.name]);
  ParameterGroups groups;
  for (auto& parameters : members) groups.emplace_back(std::move(parameters));
  whole.optimizer = optimizer_like(optimizer, groups);
  return whole;
}

/// Collective. Into `whole`, which rank 0 has.
void gather_kept(const Pipeline& pipeline, const Optimizer& optimizer, const std::vector<KeptParameter>& kept,
                 Whole& whole) {
  const Group& group = pipeline.group();
  const auto parameters = pipeline.named_parameters();
  for (const KeptParameter& each : kept) {
    if (each.arrays == 0) continue;
    const ParameterOptions& options = optimizer.param_groups()[each.group].options();
    StateArrays arrays;
    if (each.rank == group.rank()) {
      const auto mine = kept_arrays(optimizer, parameters[each.name], options);
      std::ranges::copy(mine, arrays.begin());
    }
    for (std::size_t i = 0; i < each.arrays; ++i) {
      if (group.rank() == 0 && each.rank != 0)
        arrays[i] = torch::empty(whole.tensors[each.name].sizes(), each.type);
      hand_over(group, arrays[i], each.rank, 0);
    }
    if (group.rank() != 0) continue;
    whole.optimizer->state()[whole.tensors[each.name].unsafeGetTensorImpl()] =
        make_state(options, arrays, each.steps);
  }
}

/// Collective. What rank 0's `whole` has for each parameter, to the rank that has it, in place of what was there.
void scatter_kept(const Pipeline& pipeline, Optimizer& optimizer, const std::vector<KeptParameter>& known,
                  const Whole& whole) {
  const Group& group = pipeline.group();
  struct Loaded {
    std::uint64_t steps, arrays, type;
  };
  std::vector<Loaded> loaded(known.size());
  for (std::size_t i = 0; i < known.size() && group.rank() == 0; ++i) {
    const Tensor& parameter = whole.tensors[known[i].name];
    const ParameterOptions& options = whole.optimizer->param_groups()[known[i].group].options();
    const ParameterState* const state = state_for(*whole.optimizer, parameter);
    const auto arrays = kept_arrays(*whole.optimizer, parameter, options);
    if (state != nullptr) loaded[i].steps = steps_of(*state, options);
    loaded[i].arrays = arrays.size();
    if (!arrays.empty()) loaded[i].type = static_cast<std::uint64_t>(arrays[0].scalar_type());
  }
  broadcast(group, std::as_writable_bytes(std::span(loaded)), 0).wait();
  const auto parameters = pipeline.named_parameters();
  optimizer.state().clear();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const KeptParameter& each = known[i];
    const std::size_t count = loaded[i].arrays;
    if (count == 0 || (group.rank() != 0 && group.rank() != each.rank)) continue;
    const ParameterOptions& options = optimizer.param_groups()[each.group].options();
    StateArrays arrays;
    if (group.rank() == 0)
      std::ranges::copy(kept_arrays(*whole.optimizer, whole.tensors[each.name], options), arrays.begin());
    for (std::size_t k = 0; k < count; ++k) {
      if (group.rank() != 0)
        arrays[k] =
            torch::empty(parameters[each.name].sizes(), static_cast<torch::ScalarType>(loaded[i].type));
      hand_over(group, arrays[k], 0, each.rank);
    }
    if (each.rank != group.rank()) continue;
    const Tensor& parameter = parameters[each.name];
    for (std::size_t k = 0; k < count; ++k) arrays[k] = arrays[k].to(parameter.device());
    optimizer.state()[parameter.unsafeGetTensorImpl()] = make_state(options, arrays, loaded[i].steps);
  }
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Pipeline& pipeline, const Optimizer& optimizer,
                     const CheckpointInfo& info) {
  const torch::NoGradGuard no_grad;
  const Group& group = pipeline.group();
  const auto kept = kept_parameters(pipeline, optimizer);
  const auto all = whole_tensors(pipeline);
  const StateDict tensors = pipeline.gather_state();
  Whole whole;
  on_rank_0(group, [&] { whole = put_together(tensors, all, kept, optimizer); });
  gather_kept(pipeline, optimizer, kept, whole);
  const bool has_whole = group.rank() == 0;
  save_checkpoint(path, group, has_whole ? *whole.module : *pipeline.module(),
                  has_whole ? whole.optimizer.get() : &optimizer, info, CheckpointOptions{});
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, Pipeline& pipeline, Optimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  const Group& group = pipeline.group();
  const auto known = kept_parameters(pipeline, optimizer);
  const auto all = whole_tensors(pipeline);
  Whole whole;
  std::string contents, options;
  on_rank_0(group, [&] {
    StateDict tensors;
    for (const WholeTensor& item : all) tensors.insert(item.name, torch::empty(item.sizes, item.type));
    whole = put_together(tensors, all, known, optimizer);
    contents = load_contents(path, in_process_world(1).front(), *whole.module, whole.optimizer.get());
    options = optimizer_options(*whole.optimizer);
  });
  pipeline.scatter_state(whole.tensors);
  restore_options(optimizer, broadcast_text(group, std::move(options)));
  scatter_kept(pipeline, optimizer, known, whole);
  return info_of(broadcast_text(group, std::move(contents)), group.rank());
}

}  // namespace lockstep
