#include "lockstep/train/checkpoint/checkpoint_save.h"

#include <span>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/group/outcome.h"
#include "lockstep/train/checkpoint/checkpoint_shards.h"
#include "lockstep/train/checkpoint/optimizer_copy.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/replicas/broadcast_tensors.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/parameter_claim.h"
#include "lockstep/train/replicas/state_storage.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

template <class Task>
std::exception_ptr failure_of(const Task& task) noexcept {
  try {
    task();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void rethrow(const std::exception_ptr& failure) {
  if (failure) std::rethrow_exception(failure);
}

void copy_into(SnapshotMemory& memory, SliceState& state) {
  for (torch::Tensor& array : state.arrays) {
    if (array.defined()) array = memory.row_major(array);
  }
  if (state.master.defined()) state.master = memory.row_major(state.master);
}

}  // namespace

CheckpointSave::CheckpointSave(const std::filesystem::path& path, const Group& group, const Content& content,
                               SnapshotMemory* memory)
    : path_(path), group_(group), is_sharded_(content.is_sharded) {
  if (memory != nullptr) memory->begin();
  if (is_sharded_) {
    take_slices(content, memory);
    return;
  }
  const auto record = gather_record(group_, content.info.training);
  if (content.optimizer != nullptr) storage_of(*content.optimizer).gather(*content.optimizer);
  on_rank_0(group_, [&] {
    take_model(content, record, memory);
    if (content.optimizer != nullptr) take_state(*content.optimizer, memory);
  });
}

void CheckpointSave::take_model(const Content& content, const std::optional<TrainingRecord>& record,
                                SnapshotMemory* memory) {
  CheckpointHeader header{.epoch = content.info.epoch, .metadata = content.info.metadata};
  put_record(header.metadata, record);
  image_ = CheckpointImage(std::move(header));
  const auto tensors = tensors_of(content.module);
  require_whole(tensors);
  for (const auto& item : tensors) {
    require_array(item.tensor, item.label());
    const std::uint8_t type = type_number(item);
    const auto& tensor =
        tensors_.emplace_back(memory != nullptr ? memory->row_major(item.tensor)
                                                : item.tensor.detach().to(torch::kCPU).contiguous());
    image_.add({.kind = item.is_parameter ? EntryKind::parameter : EntryKind::buffer,
                .type = type,
                .name = item.name,
                .shape = {tensor.sizes().begin(), tensor.sizes().end()}},
               elements_of(tensor));
  }
}

void CheckpointSave::take_state(const torch::optim::Optimizer& optimizer, SnapshotMemory* memory) {
  optimizer_name_ = optimizer_kind(optimizer);
  if (memory == nullptr) {
    optimizer_content_ = [&optimizer] { return optimizer_state(optimizer); };
  } else if (std::shared_ptr<torch::optim::Optimizer> copy = copy_of(optimizer, *memory)) {
    optimizer_content_ = [copy = std::move(copy)] { return optimizer_state(*copy); };
  } else {
    optimizer_content_ = [state = optimizer_state(optimizer)] { return state; };
  }
}

/// Collective.
void CheckpointSave::take_slices(const Content& content, SnapshotMemory* memory) {
  if (content.optimizer == nullptr)
    throw_invalid_argument(
        "CheckpointOptions::sharded is for a ShardedOptimizer, and there is no optimizer; save whole");
  const StateStorage& storage = storage_of(*content.optimizer);
  states_ = storage.slice_states(*content.optimizer);
  const auto slices = storage.slices(*content.optimizer, tensors_of(content.module));
  const auto record = gather_record(group_, content.info.training);
  index_ = make_index(group_.size(), *content.optimizer, slices, states_);
  on_rank_0(group_, [&] {
    remove_stale_shards(path_);
    index_.token = new_token();
    take_model(content, record, memory);
    const std::string kind = optimizer_kind(*content.optimizer);
    optimizer_name_ = sharded_name(kind);
    optimizer_content_ = [state = encode_index(index_, kind)] { return state; };
  });
  index_.token = broadcast_text(group_, std::move(index_.token));
  on_every_rank(group_, [&] {
    if (memory != nullptr) {
      for (SliceState& state : states_) copy_into(*memory, state);
    }
    shard_ = make_shard(index_, group_.rank(), slices, states_);
  });
}

void CheckpointSave::write() noexcept {
  if (shard_)
    shard_failure_ = failure_of([&] { lock_ = write_shard(path_, index_, group_.rank(), *shard_); });
  if (group_.rank() != 0 || shard_failure_) return;
  failure_ = failure_of([&] { write_file(); });
  if (failure_) file_.reset();
}

void CheckpointSave::write_file() {
  std::string state;
  if (optimizer_content_) {
    state = optimizer_content_();
    image_.add({.kind = EntryKind::optimizer, .name = optimizer_name_, .shape = {state.size()}},
               std::as_bytes(std::span(state)));
  }
  file_.emplace(path_, "checkpoint");
  image_.write([&](std::span<const std::byte> bytes) { file_->write(bytes); });
  if (is_sharded_)
    file_->sync();
  else
    put_in_place();
}

void CheckpointSave::put_in_place() {
  file_->commit();
  remove_stale_shards(path_);
}

void CheckpointSave::finish() {
  if (!is_sharded_) {
    on_rank_0(group_, [&] { rethrow(failure_); });
    return;
  }
  auto failure = failure_on_any_rank(group_, [&] { rethrow(shard_failure_); });
  if (!failure) {
    failure = failure_on_rank_0(group_, [&] {
      rethrow(failure_);
      put_in_place();
    });
  }
  if (!failure) return;
  file_.reset();
  // The file may be in place, and only its folder not on the disk: then it names the shards.
  std::error_code ignored;
  if (named_token(path_) != index_.token)
    std::filesystem::remove(shard_path(path_, index_, group_.rank()), ignored);
  throw Error(*failure);
}

std::string CheckpointSave::unfinished() const {
  try {
    rethrow(shard_failure_);
    rethrow(failure_);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return is_sharded_ ? "the shards of checkpoint " + path_.string() +
                           " are written, but the checkpoint that was there has not made way for them"
                     : "";
}

}  // namespace lockstep
