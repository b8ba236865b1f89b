// What the files of a sharded checkpoint say of themselves: the checkpoint which shards it has and what is
// kept for each parameter, an entry of a shard of which parameter it is a piece. All of it comes from files,
// and is taken for nothing before it was checked.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/train/replicas/sharded_state.h"

namespace lockstep {

/// The arrays of a parameter: those of its state, then its master.
inline constexpr std::size_t master_array = most_state_arrays, most_shard_arrays = most_state_arrays + 1;

/// A part of one array of a parameter, as an entry of a shard names it: "0 1048576 fc.weight".
struct ShardPiece {
  std::size_t array = 0;
  std::size_t begin = 0;  ///< in elements
  std::string parameter{};
};
std::string name_of(const ShardPiece& piece);
/// nullopt for a name that is no such.
std::optional<ShardPiece> piece_of(const std::string& name);

/// What a checkpoint says of its shards.
struct ShardIndex {
  /// Of a parameter that the optimizer has.
  struct Parameter {
    std::uint64_t steps = 0;
    std::size_t arrays = 0;  ///< of state
    bool has_master = false;
    std::vector<std::int64_t> strides{};  ///< the order of elements; empty: row-major
  };
  std::string token{};  ///< 16 hex digits
  int shards = 0;
  std::map<std::string, Parameter> parameters{};  ///< by name
  std::string options{};                          ///< see optimizer_options()
};

/// Everything but the token.
ShardIndex make_index(int shards, const torch::optim::Optimizer& optimizer,
                      std::span<const ParameterSlice> slices, std::span<const SliceState> states);

/// The name of the checkpoint's entry for an optimizer of this kind, and the kind that such a name stands
/// for; nullopt for names that are no such.
std::string sharded_name(const std::string& kind);
std::optional<std::string> sharded_kind(const std::string& name);

/// The entry's content.
std::string encode_index(const ShardIndex& index, const std::string& kind);
/// Throws Error{corrupt_data}. `file`: the checkpoint, as in messages.
ShardIndex decode_index(std::span<const std::byte> content, const std::string& kind, const std::string& file);

/// Throws invalid_argument unless `slices` are of the index's parameters, all of them.
void require_same_parameters(const ShardIndex& index, std::span<const ParameterSlice> slices,
                             const std::string& file);

}  // namespace lockstep
