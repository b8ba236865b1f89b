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

/// A tensor of the whole model.
struct Item {
  std::string name;
  int rank = 0;
  std::vector<std::int64_t> sizes;
  torch::ScalarType type = torch::kFloat32;
};

c10::IValue described(const StateDict& tensors) {
  c10::List<c10::IValue> list(c10::AnyType::get());
  for (const auto& item : tensors) {
    list.push_back(item.key());
    list.push_back(static_cast<std::int64_t>(item.value().scalar_type()));
    list.push_back(item.value().sizes().vec());
  }
  return list;
}

/// Collective. Of all ranks, in the order of the layers.
std::vector<Item> all_items(const Group& group, const StateDict& mine,
                            const std::vector<std::string>& layers) {
  const auto of_ranks = all_gather_object(group, described(mine));
  std::vector<Item> items;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto list = of_ranks[rank].toListRef();
    for (std::size_t i = 0; i + 2 < list.size(); i += 3)
      items.push_back({.name = list[i].toStringRef(),
                       .rank = static_cast<int>(rank),
                       .sizes = list[i + 2].toIntVector(),
                       .type = static_cast<torch::ScalarType>(list[i + 1].toInt())});
  }
  const auto layer = [&](const Item& item) {
    return std::ranges::find(layers, item.name.substr(0, item.name.find('.'))) - layers.begin();
  };
  std::ranges::stable_sort(items, {}, layer);
  return items;
}

}  // namespace

StateDict Pipeline::gather_state() const {
  const torch::NoGradGuard no_grad;
  const StateDict mine = state_dict(*module_);
  StateDict whole;
  for (const Item& item : all_items(group_, mine, names_)) {
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
  const std::vector<Item> items = all_items(group_, mine, names_);
  on_rank_0(group_, [&] {
    for (const Item& item : items) {
      const Tensor* const found = tensors.find(item.name);
      if (found == nullptr)
        throw_invalid_argument("the state dict is of another model: \"" + item.name + "\" is missing");
      if (found->sizes() != item.sizes || found->scalar_type() != item.type)
        throw_invalid_argument("the state dict is of another model: \"" + item.name + "\" is " +
                               describe(*found) + " there and has the shape " + shape_text(item.sizes) +
                               " here");
    }
    for (const auto& item : tensors) {
      if (std::ranges::find(items, item.key(), &Item::name) == items.end())
        throw_invalid_argument("the state dict is of another model: \"" + item.key() + "\" is unexpected");
    }
  });
  for (const Item& item : items) {
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
