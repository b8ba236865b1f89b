// How far a training is, as the metadata of its checkpoint say it under reserved keys: see
// docs/checkpoint_format.md. Readers that know of none of this find metadata like any other. All of it comes
// from a file, and is taken for nothing before it was checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/sampling.h"

namespace lockstep {

using Metadata = std::map<std::string, std::string>;

struct TrainingRecord {
  std::uint64_t step = 0;
  std::uint64_t schedule_step = 0;
  std::optional<SamplerPosition> sampler{};
  std::vector<std::string> random{};  ///< the generator's state, by rank; none: not saved
};

/// Adds `record` to what the program notes. Throws Error{invalid_argument} if that has a reserved key.
void put_record(Metadata& metadata, const std::optional<TrainingRecord>& record);

/// Takes it out of a checkpoint's metadata; nullopt if there is none. `file`: as in messages.
/// Throws Error{corrupt_data}.
std::optional<TrainingRecord> take_record(Metadata& metadata, std::string_view file);

}  // namespace lockstep
