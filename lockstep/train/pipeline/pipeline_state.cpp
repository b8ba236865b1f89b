// The whole model of a pipeline, gathered on rank 0 and dealt out from there, so that files know nothing of the cut.
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/group/outcome.h"
#include "lockstep/train/pipeline/pipeline_parts.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/tensor/tensor_bytes.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using torch::Tensor;

c10::IValue described(const torch::nn::Module& module) {
  const auto parameters = module.named_parameters();
  c10::List<c10::IValue> list(c10::AnyType::get());
  for (const auto& item : state_dict(module)) {
    list.push_back(item.key());
    list.push_back(static_cast<std::int64_t>(item.value().scalar_type()));
    list.push_back(item.value().sizes().vec());
    list.push_back(parameters.contains(item.key()));
  }
  return list;
}

}  // namespace

std::size_t place_of_layer(const std::string& tensor, const std::vector<std::string>& layers) {
  return static_cast<std::size_t>(std::ranges::find(layers, tensor.substr(0, tensor.find('.'))) -
                                  layers.begin());
}

std::vector<WholeTensor> whole_tensors(const Pipeline& pipeline) {
  if (pipeline.has_parts())
    throw Error(ErrorCode::unsupported,
                "Pipeline: layers that are tensor-parallel, too, have no file of the whole model: "
                "save_whole_state_dict(path, grid.tensor, *pipe.module()) makes one of each stage");
  const auto of_ranks = all_gather_object(pipeline.group(), described(*pipeline.module()));
  std::vector<WholeTensor> items;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto list = of_ranks[rank].toListRef();
    for (std::size_t i = 0; i + 3 < list.size(); i += 4)
      items.push_back({.name = list[i].toStringRef(),
                       .rank = static_cast<int>(rank),
                       .sizes = list[i + 2].toIntVector(),
                       .type = static_cast<torch::ScalarType>(list[i + 1].toInt()),
                       .is_parameter = list[i + 3].toBool()});
  }
  std::ranges::stable_sort(
      items, {}, [&](const WholeTensor& item) { return place_of_layer(item.name, pipeline.layer_names()); });
  return items;
}

void hand_over(const Group& group, const Tensor& tensor, int from, int to) {
  if (from == to || (group.rank() != from && group.rank() != to) || tensor.numel() == 0) return;
  if (group.rank() == from) {
    send(group, tensor.detach().contiguous(), to, state_tag).wait();
  } else {
    recv(group, tensor, from, state_tag).wait();
  }
}

StateDict Pipeline::gather_state() const {
  const torch::NoGradGuard no_grad;
  const StateDict mine = state_dict(*module_);
  StateDict whole;
  for (const WholeTensor& item : whole_tensors(*this)) {
    Tensor tensor;
    if (item.rank == group_.rank()) {
      tensor = mine[item.name].cpu();
    } else if (group_.rank() == 0) {
      tensor = torch::empty(item.sizes, item.type);
    }
    hand_over(group_, tensor, item.rank, 0);
    if (group_.rank() == 0) whole.insert(item.name, std::move(tensor));
  }
  return whole;
}

void Pipeline::scatter_state(const StateDict& tensors) {
  const torch::NoGradGuard no_grad;
  StateDict mine = state_dict(*module_);
  const std::vector<WholeTensor> items = whole_tensors(*this);
  on_rank_0(group_, [&] {
    for (const WholeTensor& item : items) {
      const Tensor* const found = tensors.find(item.name);
      if (found == nullptr)
        throw_invalid_argument("the state dict is of another model: \"" + item.name + "\" is missing");
      if (found->sizes() != item.sizes || found->scalar_type() != item.type)
        throw_invalid_argument("the state dict is of another model: \"" + item.name + "\" is " +
                               describe(*found) + " there and has the shape " + shape_text(item.sizes) +
                               " here");
    }
    for (const auto& item : tensors) {
      if (std::ranges::find(items, item.key(), &WholeTensor::name) == items.end())
        throw_invalid_argument("the state dict is of another model: \"" + item.key() + "\" is unexpected");
    }
  });
  for (const WholeTensor& item : items) {
    Tensor tensor;
    if (group_.rank() == 0) {
      tensor = tensors[item.name];
    } else if (item.rank == group_.rank()) {
      tensor = torch::empty(item.sizes, item.type);
    }
    hand_over(group_, tensor, 0, item.rank);
    if (item.rank == group_.rank()) mine[item.name].copy_(tensor);
  }
}

void save_state_dict(const std::filesystem::path& path, const Pipeline& pipeline) {
  const StateDict whole = pipeline.gather_state();
  on_rank_0(pipeline.group(), [&] { write_pth(path, whole); });
}

void load_state_dict(const std::filesystem::path& path, Pipeline& pipeline, const std::string& key) {
  StateDict whole;
  on_rank_0(pipeline.group(), [&] { whole = read_pth(path, key); });
  pipeline.scatter_state(whole);
}

}  // namespace lockstep
