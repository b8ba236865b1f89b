// One connection to another rank in the making. Connecting and proving the secret take as long
// as the other side pleases, and meanwhile the caller holds a lock and has deadlines to watch; so a thread
// does it.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/base/background_thread.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"
#include "lockstep/transport/tcp/bell.h"
#include "lockstep/transport/tcp/line.h"

namespace lockstep::tcp {

class Dial {
 public:
  struct Call {
    Endpoint endpoint;
    Destination destination;
    Claim claim;
    int world_rank = -1;  ///< of the other side, for errors
    Trust trust;
    Deadline deadline = Deadline::never();
  };

  /// Begins. Rings `bell`, which it borrows, when it is over. Throws Error{system}.
  Dial(Call call, Bell& bell);
  /// Gives up within a second or so, most often at once.
  ~Dial();

  bool is_over() const { return over_.load(std::memory_order_acquire); }
  /// What a line for notices says first when it is made after this, though nobody may ever take() it. False:
  /// it is over already. Last words only grow.
  bool set_last_words(const std::string& words);
  /// How much of them was sent. REQUIRES: is_over().
  std::size_t words_told() const { return last_words_.size(); }
  /// The connection, or none: nobody listens there any more. REQUIRES: is_over(); once only.
  /// Throws Error: timeout (peer() is that rank), invalid_argument (wrong secret), system.
  std::optional<Socket> take();

 private:
  void run() noexcept;
  void connect();
  void open();
  void finish();

  const Call call_;
  Bell& bell_;
  std::mutex mutex_;
  bool giving_up_ = false;      // under mutex_
  std::string last_words_;      // under mutex_, until over_
  Socket socket_;               // assigned under mutex_, used by the thread until over_
  std::optional<Error> error_;  // the same
  std::atomic<bool> over_ = false;
  std::optional<BackgroundThread> thread_;
};

}  // namespace lockstep::tcp
