// The names that a timeline's events have: our own, or Horovod's (horovod_timeline.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::view {

enum class TimelineNames : std::uint8_t { lockstep, horovod };

/// "lockstep" or "horovod"; nothing for another word.
std::optional<TimelineNames> timeline_names(std::string_view word);

/// LOCKSTEP_TIMELINE_NAMES, or our own. Throws invalid_argument.
TimelineNames timeline_names_from_environment();

}  // namespace lockstep::view
