// What ranks tell each other beside the data: why one fails, for whom it waits, that it leaves. Notices have
// connections of their own, so that they never wait behind data, and say what became of a rank: the end of
// its notices without a failure or a goodbye is its death.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/socket.h"
#include "lockstep/memory/control_page.h"

namespace lockstep::tcp {

struct Notice {
  enum class Kind : std::uint16_t { failure = 1, waiting = 2, goodbye = 3 } kind = Kind::goodbye;
  int awaited = -1;              ///< waiting: a rank of the world; -1: for nobody
  FirstCause::Cause cause = {};  ///< failure
};

/// As on the wire (docs/wire_formats.md). A text longer than the limit is cut.
std::string encode(const Notice& notice);

/// Notices in both directions over one connection. Nothing waits, nothing throws: a connection that fails or
/// says what is no notice has ended.
class NoticeStream {
 public:
  static constexpr std::size_t header_bytes = 20;
  static constexpr std::size_t text_bytes = 2048;

  /// The other side was told the first `words_told` bytes of the last words.
  explicit NoticeStream(Socket socket, std::size_t words_told = 0);

  /// What came in since the last call.
  std::vector<Notice> read();
  /// There is nothing more to read, for ever.
  bool has_ended() const { return ended_; }
  /// Brings the other side to the same state: all of `words`, which only grow, and for whom this rank waits,
  /// as of `awaited_at`: a later time tells the same again. What does not go out now goes out with a later
  /// call.
  void tell(const std::string& words, int awaited, std::chrono::steady_clock::time_point awaited_at = {});
  /// All that was told has reached the other host, or never will.
  bool is_delivered() const;
  /// REQUIRES: !has_ended().
  pollfd wait_descriptor() const;

 private:
  void flush();
  std::optional<Notice> next();

  Socket socket_;
  std::array<std::byte, header_bytes + text_bytes> in_{};
  std::size_t received_ = 0;
  std::string out_;
  std::size_t words_told_;
  int awaited_told_ = -1;
  std::chrono::steady_clock::time_point awaited_told_at_{};
  bool ended_ = false;
  bool deaf_ = false;  // the other side takes no more
};

}  // namespace lockstep::tcp
