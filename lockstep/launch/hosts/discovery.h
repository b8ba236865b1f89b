// A job that grows and shrinks with the hosts that there are: a program of the user's says from time to time which they are and how
// many ranks each takes, as horovodrun's --host-discovery-script does.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/poll_set.h"

namespace lockstep::launch {

struct DiscoveryOptions {
  std::string script = {};  ///< a command for sh; prints HOST:SLOTS, or HOST, in lines
  int slots = 1;            ///< of hosts of which it says none
  std::chrono::milliseconds between{1000};
  std::chrono::milliseconds limit{30000};  ///< for one run of it, which is ended then
};

/// Runs the script again and again, beside what else an event loop does. What it prints is bounded to 1 MiB.
class Discovery {
 public:
  /// Signals in `signal_mask` are blocked in the script.
  Discovery(DiscoveryOptions options, const sigset_t& signal_mask);
  ~Discovery();
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

  void watch(PollSet& poll);
  Deadline wake_at() const;

  struct Found {
    std::vector<Host> hosts = {};
    std::string problem = {};  ///< "": none; else it failed, and hosts are as they were
  };
  /// Of the last run that has ended, once.
  std::optional<Found> take();

 private:
  void begin();
  void read_some();
  void end(const std::string& problem);

  DiscoveryOptions options_;
  sigset_t signal_mask_;
  pid_t pid_ = 0;
  UniqueFd out_;
  std::string printed_;
  Deadline next_ = Deadline::after(std::chrono::nanoseconds(0));
  Deadline limit_ = Deadline::never();
  std::optional<Found> found_;
};

/// The same once, for a job that is about to begin. Throws Error{invalid_argument} where the script fails.
std::vector<Host> discover(const DiscoveryOptions& options);

}  // namespace lockstep::launch
