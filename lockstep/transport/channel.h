// A channel carries bytes between two ranks, in order, in both directions, and never blocks. It knows no
// messages and no schedules; execute/ makes both of it.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/memory/control_page.h"
#include "lockstep/memory/host_region.h"
#include "lockstep/trace/sent.h"

namespace lockstep {

class Channel {
 public:
  virtual ~Channel() = default;

  /// How many bytes went out; 0: none could. Throws Error{peer_lost} when the peer is gone.
  virtual std::size_t try_write(std::span<const std::byte> bytes) = 0;
  /// The same of two buffers, one after the other, which go out together where that is quicker.
  virtual std::size_t try_write_both(std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::size_t count = first.empty() ? 0 : try_write(first);
    return count < first.size() || second.empty() ? count : count + try_write(second);
  }
  /// How many bytes came in; 0: nothing is there now. Throws Error{peer_lost} when the peer is gone and all
  /// that it had sent was read.
  virtual std::size_t try_read(std::span<std::byte> bytes) = 0;

  // Where both sides share memory, what is long can be read where it lies; the writer has to know when.
  /// Counts one more thing that the peer has written of, and that was read where it lies.
  virtual void note_taken() {}
  /// How many of them the peer has counted.
  virtual std::uint64_t taken() { return 0; }
};

/// What became of a peer.
struct PeerNews {
  enum class Kind { died, left, failed } kind = Kind::died;
  int rank = -1;            ///< the peer, in the group's numbering
  FirstCause::Cause cause;  ///< failed: what the peer says was the first cause
};

/// A rank that waits long says so again at least so often. Who waits for nobody reads none of it: in a whole time-out it has to fit
/// into what a connection holds.
constexpr std::chrono::nanoseconds waiting_told_again(std::chrono::nanoseconds timeout) {
  return std::max<std::chrono::nanoseconds>(std::chrono::milliseconds(100), timeout / 2000);
}

/// How one rank of a group reaches all others. Ranks are the group's. One thread at a time (the progress
/// lock).
class Transport {
 public:
  virtual ~Transport() = default;

  /// Connects when first used. Throws Error{peer_lost, timeout, system}.
  virtual Channel& channel(int peer, Purpose purpose) = 0;
  /// Peers that are not well, each time anew. Costs system calls: for the slow part of waits.
  virtual std::vector<PeerNews> look() = 0;
  /// Tells the peers why this rank fails.
  virtual void tell_failure(const FirstCause::Cause& cause) = 0;
  // In these two ranks are the world's: who is waited for may be in another group.
  /// Tells the peers that this rank waits for `world` (none: -1); a slow wait calls it every few milliseconds.
  virtual void tell_waiting(int world) = 0;
  /// The rank for which `world`, a peer, itself waits, as far as it said so in this last time: one that is stopped in
  /// the middle of a wait is silent. One that could not be heard so far is connected to, for later questions.
  /// REQUIRES: `within` is some times waiting_told_again().
  virtual std::optional<int> awaited_by(int world, std::chrono::nanoseconds within) = 0;
  /// Tells peers on other hosts alone for whom this rank waits in another group, and hears what they say. look() does so in waits here.
  virtual void tell_waiting_afar(int /*world*/) {}
  /// Says that this rank leaves in an orderly way.
  virtual void say_goodbye() = 0;
  /// What has gone to each peer on another host; empty where there is none, or nobody counts.
  virtual std::vector<trace::Sent> sent() const { return {}; }
  /// Descriptors that become readable or writable when progress is possible; empty where a doorbell is rung.
  virtual std::vector<pollfd> wait_descriptors() = 0;
};

}  // namespace lockstep
