// Another rank as this one sees it: the connections to it and from it, what it said, and what became of it.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/socket_traffic.h"
#include "lockstep/transport/channel.h"
#include "lockstep/transport/tcp/dial.h"
#include "lockstep/transport/tcp/door.h"
#include "lockstep/transport/tcp/notice.h"
#include "lockstep/transport/tcp/stripes.h"

namespace lockstep::tcp {

/// What came along with the first bytes of a message: one look brings all of a small one.
class ReadAhead {
 public:
  bool empty() const { return begin_ == end_; }
  /// As many as there are, and fit.
  std::size_t take(std::span<std::byte> bytes);
  /// As Socket::try_receive(), `most` bytes. REQUIRES: empty().
  std::optional<std::size_t> receive(Socket& socket, std::size_t most);

 private:
  std::array<std::byte, 4096> bytes_;
  std::size_t begin_ = 0, end_ = 0;
};

class Peer {
 public:
  using MakeDial = std::function<std::unique_ptr<Dial>(const Strand&)>;

  /// `strands`: how many connections this side makes for data of each purpose. `may_just_leave`: who is not there any more, and has told
  /// nothing, has left and is not dead.
  Peer(int rank, int strands, MakeDial make_dial, bool may_just_leave = false)
      : rank_(rank), strands_(strands), make_dial_(std::move(make_dial)), may_just_leave_(may_just_leave) {}

  /// A connection that it made.
  void admit(Door::Arrival arrival);

  /// As Channel's. The peer's end is no exception: it shows in news().
  std::size_t write(Purpose purpose, std::span<const std::byte> first, std::span<const std::byte> second);
  std::size_t read(Purpose purpose, std::span<std::byte> bytes);

  /// Connects to it for its notices, unless something does already.
  void hear();
  /// Takes in what it told.
  void listen();
  /// Brings it up to date: see NoticeStream.
  void tell(const std::string& words, int awaited, std::chrono::steady_clock::time_point awaited_at);
  /// What became of it, if something did, once all that it sent has arrived. `may_arrive`: connections that
  /// it made may still be on their way. REQUIRES: listen() before.
  std::optional<PeerNews> news(bool may_arrive);
  /// For whom it waits, if it said so not too long ago.
  std::optional<int> awaited(std::chrono::nanoseconds within) const;

  /// Data of all purposes.
  base::SocketTraffic sent() const;
  /// No more data will be written.
  void end_writing();
  /// All notices have reached its host, or never will.
  bool is_delivered() const;
  /// For what the reads and writes since the last call could not do, and for notices.
  void add_wait_descriptors(std::vector<pollfd>& descriptors);

 private:
  struct Path {  // of the data for one purpose
    Stripes out, in;
    ReadAhead ahead;
    std::vector<std::unique_ptr<Dial>> dials;  // under way, by index
    bool out_ended = false, in_ended = false;
    bool out_blocked = false, in_awaited = false;  // since add_wait_descriptors()
  };
  Path& path(Purpose purpose) { return paths_[static_cast<std::size_t>(purpose)]; }
  bool has_notices();
  void continue_notices_dial();
  void continue_dials(Path& data, Purpose purpose);
  bool is_gone() const;

  const int rank_;
  const int strands_;
  const MakeDial make_dial_;
  const bool may_just_leave_;
  std::array<Path, purpose_count> paths_;
  std::vector<NoticeStream> notices_;  // two when both sides dialled at the same time
  std::unique_ptr<Dial> notices_dial_;
  bool refused_ = false;        // nobody listens where it did
  std::optional<Error> error_;  // why it cannot be reached, for other reasons
  std::optional<FirstCause::Cause> failure_;
  bool left_ = false;
  int awaited_ = -1;
  std::chrono::steady_clock::time_point awaited_heard_{};
};

}  // namespace lockstep::tcp
