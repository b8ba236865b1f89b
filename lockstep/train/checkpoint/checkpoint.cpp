#include "lockstep/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/outcome.h"
#include "lockstep/trace/traced_range.h"
#include "lockstep/train/checkpoint/checkpoint_file.h"
#include "lockstep/train/checkpoint/checkpoint_load.h"
#include "lockstep/train/checkpoint/checkpoint_save.h"
#include "lockstep/train/checkpoint/checkpoint_shards.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/same_facts.h"
#include "lockstep/train/replicas/state_storage.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

std::string describe_entry(const CheckpointEntry& entry) {
  const std::vector<std::int64_t> shape(entry.shape.begin(), entry.shape.end());
  return type_name(type_of(entry)) + " " + shape_text(shape);
}

/// What the file says of an optimizer.
struct OptimizerContent {
  std::string name;
  std::string content;
};

/// The entry of each tensor, in the tensors' order.
std::vector<const CheckpointEntry*> match(const CheckpointFile& file, std::span<const NamedTensor> tensors) {
  const auto refuse = [&](const std::string& difference) {
    throw_invalid_argument("checkpoint " + file.name() + " is of another model: " + difference +
                           "; build the model that it was saved from");
  };
  std::map<std::pair<EntryKind, std::string>, const CheckpointEntry*> left;
  for (const auto& entry : file.header().entries) {
    if (entry.kind != EntryKind::optimizer) left[{entry.kind, entry.name}] = &entry;
  }
  std::vector<const CheckpointEntry*> entries;
  for (const auto& item : tensors) {
    const auto found =
        left.extract({item.is_parameter ? EntryKind::parameter : EntryKind::buffer, item.name});
    if (found.empty()) refuse("it has no " + item.label() + ", here " + describe(item.tensor));
    const CheckpointEntry& entry = *entries.emplace_back(found.mapped());
    const bool same_shape = std::ranges::equal(entry.shape, item.tensor.sizes(), [](auto there, auto here) {
      return there == static_cast<std::uint64_t>(here);
    });
    if (entry.type != type_number(item) || !same_shape) {
      refuse("its " + item.label() + " (at byte " + std::to_string(entry.offset) + ") is " +
             describe_entry(entry) + ", here " + describe(item.tensor));
    }
  }
  if (!left.empty()) {
    const CheckpointEntry& entry = *left.begin()->second;
    refuse("it has " + entry.label() + ", " + describe_entry(entry) + ", here is none");
  }
  return entries;
}

/// What the file has of such an optimizer.
OptimizerContent read_optimizer(const CheckpointFile& file, const torch::optim::Optimizer& optimizer) {
  const auto& entries = file.header().entries;
  const auto found = std::ranges::find(entries, EntryKind::optimizer, &CheckpointEntry::kind);
  if (found == entries.end()) {
    throw_invalid_argument(
        "checkpoint " + file.name() +
        " was saved without an optimizer; load it without one, or start the optimizer anew");
  }
  const std::string kind = sharded_kind(found->name).value_or(found->name);
  if (kind != optimizer_kind(optimizer)) {
    throw_invalid_argument("checkpoint " + file.name() + " holds the state of an optimizer " + kind +
                           ", here it is " + optimizer_kind(optimizer) +
                           "; use the same, or load the model alone");
  }
  OptimizerContent read{found->name, std::string(found->bytes, '\0')};
  file.read(*found, std::as_writable_bytes(std::span(read.content)));
  return read;
}

/// As ranks compare it.
std::string optimizer_label(const torch::optim::Optimizer& optimizer) {
  return optimizer_kind(optimizer) + (storage_of(optimizer).is_sharded() ? " (sharded)" : "");
}

/// State from shards, on its way to an optimizer.
struct StateFromShards {
  ShardIndex index{};
  std::vector<ParameterSlice> slices{};
  std::vector<SliceState> states{};
};

/// Collective. Each rank reads for itself, or rank 0 all of it for everybody.
StateFromShards read_shards(const std::filesystem::path& path, const Group& group,
                            std::span<const NamedTensor> tensors, const torch::optim::Optimizer& optimizer,
                            const OptimizerContent& read) {
  StateFromShards from;
  const StateStorage& storage = storage_of(optimizer);
  on_every_rank(group, [&] {
    const std::string where = path.string();
    from.index = decode_index(std::as_bytes(std::span(read.content)), optimizer_kind(optimizer), where);
    require_fitting_state(from.index.options, optimizer, "checkpoint " + where);
    from.slices = storage.slices(optimizer, tensors);
    require_same_parameters(from.index, from.slices, where);
    if (storage.is_sharded() || group.rank() == 0)
      from.states = read_slices(path, from.index, from.slices, storage.is_sharded());
  });
  if (storage.is_sharded() || group.size() == 1) return from;
  std::vector<std::span<std::byte>> spans;
  from.states.resize(from.slices.size());
  for (std::size_t i = 0; i < from.slices.size(); ++i) {
    const NamedTensor& item = from.slices[i].parameter;
    const auto& kept = from.index.parameters.at(item.name);
    from.states[i].steps = kept.steps;
    for (std::size_t array = 0; array < kept.arrays; ++array) {
      torch::Tensor& content = from.states[i].arrays[array];
      if (!content.defined())
        content = torch::empty({item.tensor.numel()}, state_type(item.tensor.scalar_type()));
      spans.push_back(writable_bytes(content, item.label()));
    }
  }
  broadcast_spans(group, spans);
  return from;
}

void read_tensors(const CheckpointFile& file, std::span<const NamedTensor> tensors,
                  std::span<const CheckpointEntry* const> entries) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const HostArray array(tensors[i].tensor, tensors[i].label(), HostArray::Use::write);
    file.read(*entries[i], array.bytes());
    array.put_back();
  }
}

/// What rank 0 tells the others besides tensors.
std::string pack(std::uint64_t epoch, const Metadata& metadata) {
  CheckpointHeader header{.epoch = epoch, .metadata = metadata};
  return std::string(base::text_of(encode(header)));
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module,
                     const torch::optim::Optimizer* optimizer, const CheckpointInfo& info,
                     const CheckpointOptions& options) {
  const TracedRange range("checkpoint");
  CheckpointSave save(path, group, {module, optimizer, info, options.sharded}, nullptr);
  save.write();
  save.finish();
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, const Group& group,
                               const torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  return info_of(load_contents(path, group, module, optimizer), group.rank());
}

std::string load_contents(const std::filesystem::path& path, const Group& group,
                          const torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  const auto tensors = tensors_of(module);
  auto facts = facts_of(tensors);
  facts.push_back({"optimizer", optimizer == nullptr ? "none" : optimizer_label(*optimizer)});
  require_same_facts(group, facts,
                     "Build the same model and optimizer on every rank before a checkpoint is loaded");
  for (const auto& item : tensors) require_array(item.tensor, item.label());

  std::optional<CheckpointFile> file;
  std::vector<const CheckpointEntry*> entries;
  OptimizerContent read;
  std::string info;
  on_rank_0(group, [&] {
    remove_leftovers(path);
    file.emplace(path, "checkpoint");
    file->check_all();
    remove_stale_shards(path);
    entries = match(*file, tensors);
    if (optimizer != nullptr) {
      read = read_optimizer(*file, *optimizer);
      if (!sharded_kind(read.name))
        require_fitting_state(read.content, *optimizer, "checkpoint " + file->name());
    }
    info = pack(file->header().epoch, file->header().metadata);
    auto metadata = file->header().metadata;
    (void)take_record(metadata, file->name());  // throws before anything changes
  });
  read.name = broadcast_text(group, std::move(read.name));
  read.content = broadcast_text(group, std::move(read.content));
  std::optional<StateFromShards> shards;
  if (optimizer != nullptr && sharded_kind(read.name))
    shards = read_shards(path, group, tensors, *optimizer, read);
  // Finds out on its own that state does not fit, and then nothing has changed.
  if (optimizer != nullptr && !shards) restore_optimizer(*optimizer, read.content);
  on_rank_0(group, [&] { read_tensors(*file, tensors, entries); });
  broadcast_tensors(group, tensors);
  if (shards) {
    restore_options(*optimizer, shards->index.options);
    storage_of(*optimizer).restore(*optimizer, shards->states);
  }
  return broadcast_text(group, std::move(info));
}

CheckpointInfo info_of(const std::string& contents, int rank) {
  CheckpointHeader header = decode(std::as_bytes(std::span(contents)), contents.size(), "from rank 0");
  CheckpointInfo info{.epoch = header.epoch};
  if (const auto record = take_record(header.metadata, "from rank 0"))
    info.training = state_of_rank(*record, rank);
  info.metadata = std::move(header.metadata);
  return info;
}

bool checkpoint_exists(const std::filesystem::path& path, const Group& group) {
  std::error_code unknown;
  const auto kind =
      group.rank() == 0 ? std::filesystem::status(path, unknown).type() : std::filesystem::file_type::none;
  std::array<std::uint8_t, 1> is_there = {kind != std::filesystem::file_type::not_found};
  broadcast(group, is_there, 0).wait();
  return is_there[0] != 0;
}

void remove_checkpoint_leftovers(const std::filesystem::path& path, const Group& group) {
  if (group.rank() != 0) return;
  remove_leftovers(path);
  remove_stale_shards(path);
}

}  // namespace lockstep
