#include "mpitrace/settings.h"

#include <cstdlib>
#include <exception>
#include <string_view>

#include "lockstep/base/env.h"

namespace lockstep::mpitrace {
namespace {

/// "" for no, else the text: a yes or a list.
std::string yes_or_names(const char* name) {
  std::string text = env::text(name).value_or("");
  for (const std::string_view yes : {"1", "yes", "true", "on"}) {
    if (text == yes) return "yes";
  }
  for (const std::string_view no : {"0", "no", "false", "off"}) {
    if (text == no) return "";
  }
  return text;
}

}  // namespace

Settings read_settings() {
  Settings settings;
  const auto take = [&](auto&& read) {
    try {
      read();
    } catch (const std::exception& error) {
      settings.problems += std::string(settings.problems.empty() ? "" : "; ") + error.what();
    }
  };
  const auto set = [&](bool& setting, std::optional<bool> value) {
    setting = setting || value.value_or(false);
  };
  take([&] { set(settings.all, env::flag("LOCKSTEP_PROFILE_ALL")); });
  take([&] { set(settings.all, env::flag("SAVE_ALL_TASKS")); });
  take([&] { set(settings.all, env::flag("TRACE_ALL_TASKS")); });
  take([&] { set(settings.sites, env::flag("LOCKSTEP_PROFILE_SITES")); });
  take([&] { set(settings.sites, env::flag("PROFILE_BY_CALL_SITE")); });
  take([&] {
    if (env::flag("LOCKSTEP_PROFILE_BARRIER").value_or(false)) settings.barriers = "yes";
  });
  if (settings.barriers.empty()) settings.barriers = yes_or_names("COLLECTIVE_BARRIER");
  settings.folder = env::text("LOCKSTEP_PROFILE").value_or(env::text("TRACE_DIR").value_or("."));
  settings.run = env::text("LOCKSTEP_PROFILE_RUN").value_or("");
  settings.timeline = env::text("LOCKSTEP_TIMELINE").value_or("");
  return settings;
}

std::string job_of_batch_system() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID"}) {
    const char* const job = std::getenv(name);
    if (job != nullptr && *job != '\0' && std::string_view(job).find('/') == std::string_view::npos)
      return job;
  }
  return "";
}

}  // namespace lockstep::mpitrace
