#include "lockstep/view/profile/profile_options.h"

#include "lockstep/base/env.h"

namespace lockstep::view {

ProfileOptions ProfileOptions::from_environment(const std::optional<std::string>& folder, bool has_report) {
  ProfileOptions options{
      .folder = folder.value_or(env::text("LOCKSTEP_PROFILE").value_or("")),
      .all_ranks = env::flag("LOCKSTEP_PROFILE_ALL").value_or(env::text("TRACE_ALL_TASKS") == "yes")};
  if (!options.folder.empty() || has_report) options.limits = MachineLimits::from_environment();
  return options;
}

}  // namespace lockstep::view
