#include "lockstep/base/log.h"

#include <fmt/core.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <optional>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::log {
namespace {

thread_local int this_rank = -1;

std::optional<spdlog::level::level_enum> level_named(const std::string& name) {
  if (name == "off") return spdlog::level::off;
  if (name == "error") return spdlog::level::err;
  if (name == "warning") return spdlog::level::warn;
  if (name == "info") return spdlog::level::info;
  if (name == "debug") return spdlog::level::debug;
  return std::nullopt;
}

std::string wanted_level() { return env::text("LOCKSTEP_LOG").value_or("warning"); }

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made =
        std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(level_named(wanted_level()).value_or(spdlog::level::warn));
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

void say(spdlog::level::level_enum level, const std::string& message) {
  if (!logger().should_log(level)) return;
  const std::string who = this_rank < 0 ? "lockstep: " : fmt::format("lockstep[{}]: ", this_rank);
  logger().log(level, "{}{}", who, message);
}

}  // namespace

void require_known_level() {
  const std::string level = wanted_level();
  if (level_named(level)) return;
  throw_invalid_argument("LOCKSTEP_LOG=\"" + level + "\" is none of off, error, warning, info, debug");
}

void set_rank(int rank) { this_rank = rank; }

void debug(const std::string& message) { say(spdlog::level::debug, message); }
void info(const std::string& message) { say(spdlog::level::info, message); }
void warning(const std::string& message) { say(spdlog::level::warn, message); }
void error(const std::string& message) { say(spdlog::level::err, message); }

}  // namespace lockstep::log
