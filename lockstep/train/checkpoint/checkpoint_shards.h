// State that was saved by each rank for itself: beside the checkpoint lies a shard from every rank of the
// save, and the checkpoint says which they are. Here they are written, read and, once nobody names them,
// removed; the layout is in docs/checkpoint_format.md.
//
//   model.ckpt                                    parameters, buffers, "SGD sharded": a ShardIndex
//   model.ckpt.5f3a9c01d2e4b687.shard-0-of-2      the state of rank 0's slice of every parameter
//   model.ckpt.5f3a9c01d2e4b687.shard-1-of-2      that of rank 1's
//
// Shards come first, under a new token, and stay locked until the checkpoint that names their token has taken
// its place: a shard that is not locked and whose token is not named is of no use to anybody.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/unique_fd.h"
#include "lockstep/train/checkpoint/checkpoint_file.h"
#include "lockstep/train/checkpoint/shard_index.h"
#include "lockstep/train/replicas/sharded_state.h"

namespace lockstep {

/// Of a save that begins: 16 random hex digits.
std::string new_token();

/// Where a shard of the checkpoint `path` lies, or of what it leads to where it is a link.
std::filesystem::path shard_path(const std::filesystem::path& path, const ShardIndex& index, int shard);

/// What shard number `shard` holds. `states` are borrowed.
CheckpointImage make_shard(const ShardIndex& index, int shard, std::span<const ParameterSlice> slices,
                           std::span<const SliceState> states);

/// Writes it. It is left alone by remove_stale_shards() while the result is open. Call once for an image.
/// Cost: the state is read twice (checksums). Throws Error{system}; nothing is left behind then but, where
/// the folder could not be synced, the shard.
UniqueFd write_shard(const std::filesystem::path& path, const ShardIndex& index, int shard,
                     CheckpointImage& image);

/// The state of each slice, in memory of its own. Of `slices`, require_same_parameters() holds. Reads the
/// header of every shard and, of the contents, what has a part in a slice.
/// Throws Error: system (a shard is not there); corrupt_data (checksums, another token, holes; see decode()).
std::vector<SliceState> read_slices(const std::filesystem::path& path, const ShardIndex& index,
                                    std::span<const ParameterSlice> slices, bool with_masters);

/// The token that the checkpoint at `path` names; empty if there is none, or one without shards; nullopt if
/// it cannot be told.
std::optional<std::string> named_token(const std::filesystem::path& path) noexcept;

/// Removes the shards, and temporaries of shards, beside `path` that it does not name, unless a save is still
/// at work on them. Never throws: what cannot be removed stays, and all of them where the checkpoint cannot
/// be read.
void remove_stale_shards(const std::filesystem::path& path) noexcept;

}  // namespace lockstep
