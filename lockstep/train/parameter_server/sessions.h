// What servers and the coordinator have in common: a thread for each client, which does what that asks until it leaves or is gone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/train/parameter_server/crew.h"
#include "lockstep/train/parameter_server/messages.h"

namespace lockstep::ps {

/// After which a client that waits is told to ask again: long enough to cost nothing, and below its time-out.
inline std::chrono::nanoseconds patience_of(std::chrono::nanoseconds timeout) {
  return std::min<std::chrono::nanoseconds>(std::chrono::seconds(2), timeout / 4);
}
/// How often somebody looks who lives.
inline constexpr auto looks_every = std::chrono::milliseconds(2);

class Sessions {
 public:
  /// `talk` is called in each client's thread and returns when that has left. `gone`: in that thread, after its line was lost, and
  /// only where ranks may die. Borrows the crew.
  Sessions(Crew& crew, std::function<void(const Life&, const Line&)> talk,
           std::function<void(const Life&, const std::string&)> gone);
  ~Sessions();

  /// The workers that are new, and their lives if who lives has changed. From one thread.
  std::optional<std::vector<Life>> look();
  /// A client that is no worker.
  void admit(const Life& life);

  /// Throws what a client's thread has failed with that is not the client's loss.
  void rethrow_failure();
  bool are_over() const;
  /// Closes the lines of those that are still there, and waits for all threads.
  void end(const std::string& why);

 private:
  struct Session {
    Life life;
    std::optional<Group> group = {};  // once it is made
    bool is_over = false;
    std::thread thread = {};
  };
  void run(Session& session);

  Crew& crew_;
  std::function<void(const Life&, const Line&)> talk_;
  std::function<void(const Life&, const std::string&)> gone_;
  mutable std::mutex mutex_;
  std::list<Session> sessions_;
  std::set<Life> admitted_;
  std::uint64_t view_ = 0;
  bool is_ending_ = false;
  std::exception_ptr failure_;
};

}  // namespace lockstep::ps
