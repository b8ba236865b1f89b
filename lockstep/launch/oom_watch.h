// Who is killed for want of memory gets SIGKILL, as from anybody. That it was the kernel's OOM killer can be told from its
// counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

class OomWatch {
 public:
  /// Counts from now on. `root`: where /proc and /sys are.
  explicit OomWatch(std::string root = "/");

  /// For a process that has ended by SIGKILL: why, as the end of a sentence, if the OOM killer has killed one that was not asked
  /// about yet; else "".
  std::string explain_kill();

 private:
  /// How many it has killed: of our cgroup, or of the whole system where that is not told.
  std::optional<std::uint64_t> kills() const;

  std::string root_;
  std::string events_;  // path of our cgroup's counters; "": they are the whole system's
  std::string limit_;   // path of its limit
  std::uint64_t known_ = 0;
};

namespace detail {
/// The number after `name` at the beginning of a line.
std::optional<std::uint64_t> counter_in(std::string_view text, std::string_view name);
}  // namespace detail

}  // namespace lockstep::launch
