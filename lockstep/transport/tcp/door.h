// Where the connections of other ranks come in. Anyone on the network can connect, send what he likes or
// nothing at all; a thread lets in who proves to know the job's secret and to be a rank of this group,
// however many others keep silent, and drops the rest unread.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/background_thread.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/transport/guest_room.h"
#include "lockstep/transport/tcp/bell.h"
#include "lockstep/transport/tcp/line.h"

namespace lockstep::tcp {

struct DoorOptions {
  std::string address;  ///< numeric, of the interface to listen on
  Trust trust;
  std::string job;
  std::string group;
  int rank = 0;
  int ranks = 0;
  NewcomerLimits guests = {.most = 256};  ///< connections without a proof yet
};

/// Thread safety: one thread at a time, beside the door's own.
class Door {
 public:
  struct Arrival {
    Socket socket;
    int rank = -1;
    Strand strand = {};
    std::size_t words_told = 0;  ///< how many bytes of the last words were sent to it
  };

  /// Listens at once. Rings `bell` for each arrival. Throws Error{invalid_argument}: no secret (see Trust);
  /// system.
  Door(DoorOptions options, Bell& bell);
  ~Door();

  const Endpoint& endpoint() const { return endpoint_; }
  /// Who came since the last call.
  std::vector<Arrival> take();
  /// Ranks that were let in and are not in take() yet: what they sent before is still to come.
  bool has_arriving() const { return arriving_.load(std::memory_order_acquire) > 0; }
  /// Notices that whoever comes from now on on a line for notices is told at once, also when this rank's own
  /// threads never look again. They only grow.
  void set_last_words(const std::string& words);
  /// False in a forked process.
  bool is_here() const { return thread_->runs_here(); }

 private:
  void run() noexcept;
  bool turn();
  void accept_guests();
  void let_in(Guest& guest);
  void admit(Guest& guest, const Strand& strand);
  int poll_milliseconds() const;

  const DoorOptions options_;
  Bell& bell_;
  const UniqueFd stop_;
  Listener listener_;
  const Endpoint endpoint_;
  const Destination destination_;
  GuestRoom guests_;                            // the door's thread only
  Deadline::Clock::time_point accept_again_{};  // not before
  std::atomic<int> arriving_ = 0;
  std::mutex mutex_;
  std::vector<Arrival> arrivals_;  // under mutex_
  std::string last_words_;         // under mutex_
  std::optional<BackgroundThread> thread_;
};

}  // namespace lockstep::tcp
