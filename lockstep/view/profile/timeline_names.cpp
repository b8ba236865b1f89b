#include "lockstep/view/profile/timeline_names.h"

#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::view {

std::optional<TimelineNames> timeline_names(std::string_view word) {
  if (word == "lockstep") return TimelineNames::lockstep;
  if (word == "horovod") return TimelineNames::horovod;
  return std::nullopt;
}

TimelineNames timeline_names_from_environment() {
  const std::string word = env::text("LOCKSTEP_TIMELINE_NAMES").value_or("lockstep");
  const auto names = timeline_names(word);
  if (!names)
    throw_invalid_argument("LOCKSTEP_TIMELINE_NAMES=" + word + ": names of events are lockstep or horovod");
  return *names;
}

}  // namespace lockstep::view
