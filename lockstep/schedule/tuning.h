// The measured table that select() decides from. Rank 0 reads it at init and sends it to all others, so that
// all choose alike; `lockstep bench --calibrate` measures one and writes it; a default ships with the library
// (default_tuning.json).
//
//   { "format": "lockstep-tuning-1",
//     "segment_bytes": 65536,             largest message over a channel
//     "staging_bytes": 2097152,           staging memory of a rank that is used; pieces are an eighth of it
//     "connections": 2,                   to each interface of a rank on another host [1]
//     "rules": [
//       { "operation": "all_reduce", "where": "channels", "ranks": 4,
//         "choose": [ { "algorithm": "tree", "up_to_bytes": 32768 }, { "algorithm": "ring" } ] } ] }
//
// where: slots (small messages inside a host: its last limit is the largest of them), arena, private (both
// inside a host), channels (between hosts). A choice is taken up to its limit, and where it can do the call; of several
// with one limit the first that can. A call takes the rule with the most ranks that are not more than
// it has, or else the one with the fewest. Bytes are a rank's buffer (all_reduce, reduce, broadcast) or
// block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/schedule/algorithms.h"

namespace lockstep {

enum class Where : std::uint8_t { slots, arena, private_memory, channels };

struct Tuning {
  struct Choice {
    std::string algorithm;
    std::uint64_t up_to_bytes = UINT64_MAX;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  struct Rule {
    Operation operation = Operation::barrier;
    Where where = Where::channels;
    int ranks = 1;
    std::vector<Choice> choose;  ///< limits do not descend
    friend bool operator==(const Rule&, const Rule&) = default;
  };

  std::uint64_t segment_bytes = 0;
  std::uint64_t staging_bytes = 0;
  std::vector<Rule> rules;
  /// LOCKSTEP_WIRE_DTYPE: in what sums of f32 of 16 KiB and more cross between hosts, bf16 or f16; none: as they are.
  std::optional<Dtype> wire_dtype;
  /// LOCKSTEP_CONNECTIONS: how many each rank makes to each interface of a rank on another host, for its data.
  int connections = 1;
  /// LOCKSTEP_RANKS_PER_NODE: that many of a host's ranks to each node of its memory, one after the other;
  /// 0: as the system says.
  int ranks_per_node = 0;
  /// LOCKSTEP_ALGORITHM: taken wherever they can be.
  std::vector<std::pair<Operation, std::string>> forced;
  friend bool operator==(const Tuning&, const Tuning&) = default;

  /// The one with the most ranks that are not more than these, or else with the fewest; or nullptr.
  const Rule* rule_for(Operation operation, Where where, int ranks) const;

  /// The table that ships.
  static Tuning standard();
  /// LOCKSTEP_TUNING_FILE or the standard one, and over it LOCKSTEP_ALGORITHM ("all_reduce=ring,
  /// broadcast=tree"), LOCKSTEP_ONE_SHOT_BYTES, LOCKSTEP_SEGMENT_BYTES, LOCKSTEP_WIRE_DTYPE, LOCKSTEP_CONNECTIONS and
  /// LOCKSTEP_RANKS_PER_NODE.
  static Tuning from_environment();
  /// Throws Error{invalid_argument}: what is wrong, where in the text, and beginning with `name`.
  static Tuning parse(const std::string& text, const std::string& name);
  std::string to_text() const;
};

/// Largest staging memory a table may ask for; a region has room for so much.
inline constexpr std::uint64_t most_staging_bytes = std::uint64_t{4} << 20;
/// Tuning::wire_dtype by name: "bf16", "f16" (also "fp16"); none for "f32". Throws Error{invalid_argument} for others,
/// beginning with `where` it stands.
std::optional<Dtype> wire_dtype_named(const std::string& name, const std::string& where);

/// Most connections to an interface.
inline constexpr int most_connections = 8;
/// Largest tuning text.
inline constexpr std::size_t most_tuning_bytes = std::size_t{1} << 20;

}  // namespace lockstep
