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

StateDict Pipeline::gather_state() const {
  const torch::NoGradGuard no_grad;
  const StateDict mine = state_dict(*module_);
  StateDict whole;
  for (const WholeTensor& item : whole_tensors(*this)) {
    if (item.rank == 0 && group_.rank() == 0) {
      whole.insert(item.name, mine[item.name]);
    } else if (group_.rank() == 0) {
      Tensor tensor = torch::empty(item.sizes, item.type);
      if (tensor.numel() > 0) recv(group_, tensor, item.rank, state_tag).wait();
      whole.insert(item.name, std::move(tensor));
    } else if (item.rank == group_.rank() && mine[item.name].numel() > 0) {
      send(group_, mine[item.name].detach().contiguous(), 0, state_tag).wait();
    }
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
    if (group_.rank() == 0 && item.rank == 0) {
      mine[item.name].copy_(tensors[item.name]);
    } else if (group_.rank() == 0) {
      const Tensor dense = tensors[item.name].detach().contiguous();
      if (dense.numel() > 0) send(group_, dense, item.rank, state_tag).wait();
    } else if (item.rank == group_.rank() && mine[item.name].numel() > 0) {
      const Tensor dense = torch::empty(item.sizes, item.type);
      recv(group_, dense, 0, state_tag).wait();
      mine[item.name].copy_(dense);
    }
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
