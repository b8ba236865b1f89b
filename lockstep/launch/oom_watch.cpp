#include "lockstep/launch/oom_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/base/system_file.h"
#include "lockstep/topology/topology.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view counter = "oom_kill";
constexpr double gibibyte = 1 << 30;

}  // namespace

namespace detail {

std::optional<std::uint64_t> counter_in(std::string_view text, std::string_view name) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') continue;
    std::uint64_t number = 0;
    const char* last = line.data() + line.size();
    const auto parsed = std::from_chars(line.data() + name.size() + 1, last, number);
    if (parsed.ec == std::errc() && parsed.ptr == last) return number;
  }
  return std::nullopt;
}

}  // namespace detail

OomWatch::OomWatch(std::string root) : root_(std::move(root)) {
  for (const auto& group :
       topology::detail::parse_cgroup_paths(base::system_text(root_ + "proc/self/cgroup"), "memory")) {
    const std::string folder = root_ + "sys/fs/cgroup" + (group.unified ? "" : "/memory") + group.path + "/";
    const std::string events = folder + (group.unified ? "memory.events" : "memory.oom_control");
    if (!detail::counter_in(base::system_text(events), counter)) continue;
    events_ = events;
    limit_ = folder + (group.unified ? "memory.max" : "memory.limit_in_bytes");
    break;
  }
  known_ = kills().value_or(0);
}

std::optional<std::uint64_t> OomWatch::kills() const {
  return detail::counter_in(base::system_text(events_.empty() ? root_ + "proc/vmstat" : events_), counter);
}

std::string OomWatch::explain_kill() {
  if (kills().value_or(0) <= known_) return "";
  ++known_;
  if (events_.empty()) return "the system's OOM killer has just killed a process: there was no memory left";
  double limit = 0;  // "max": none
  const std::string text = base::system_text(limit_);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), limit);
  const bool has_limit = parsed.ec == std::errc() && limit < gibibyte * 1024 * 1024;
  return "the system's OOM killer did it: there was no memory left" +
         (has_limit ? fmt::format(" of the {:.4g} GiB that its cgroup may have", limit / gibibyte) : "");
}

}  // namespace lockstep::launch
