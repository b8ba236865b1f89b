// A link makes messages of a channel's bytes: each begins with a header that says which work it belongs to,
// so that ranks which call different things are told apart instead of reading each other's data. One message
// per segment.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "lockstep/base/signature.h"
#include "lockstep/transport/channel.h"

namespace lockstep {

/// On the wire before each message's payload (docs/wire_formats.md).
struct MessageHeader {
  static constexpr std::uint32_t expected_magic = 0x326d6b4cU;  // "Lkm2"
  enum class Kind : std::uint32_t {
    data = 0,  ///< a payload follows
    call = 1,  ///< nothing follows: the sender only says in which call it is
    lent = 2,  ///< where the payload lies follows, 8 bytes: between ranks that share memory (mailbox.h)
    // Nothing follows: the sender waits in the message that `signature` describes for the receiver of this. It
    // has called `sequence` collectives. `bytes`: in recv, how many messages of the receiver's it has had; in
    // send, how many it had sent to it before.
    wait = 3,
    standstill = 4,  ///< the same, and the sender does nothing else before that message is over
  };
  std::uint32_t magic = expected_magic;
  Kind kind = Kind::data;
  std::uint64_t sequence = 0;  ///< number of the work in its group (collectives) or on its link (messages)
  std::uint64_t bytes = 0;     ///< of payload
  Signature signature = {};

  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};
static_assert(sizeof(MessageHeader) == 48);

/// What tells a header of other kinds than `lent` from other bytes.
constexpr bool is_message(const MessageHeader& header) {
  return header.magic == MessageHeader::expected_magic && header.kind <= MessageHeader::Kind::standstill &&
         header.kind != MessageHeader::Kind::lent;
}
/// Error{corrupt_data}.
[[noreturn]] void throw_no_message();

/// Writes as much of a message as goes out now, from byte `position` of header and payload together on. Moves
/// `position`, and returns whether it moved.
bool write_rest(Channel& channel, const MessageHeader& header, std::span<const std::byte> payload,
                std::size_t& position);

class Link {
 public:
  /// Borrows the channel.
  explicit Link(Channel& channel) : channel_(&channel) {}

  /// Queue a message; the bytes stay untouched until sent() or received() has reached the number returned.
  std::uint64_t post_send(std::uint64_t sequence, const Signature& signature,
                          std::span<const std::byte> bytes);
  std::uint64_t post_receive(std::uint64_t sequence, const Signature& signature, std::span<std::byte> bytes);

  /// Tells the other side which call this rank is in.
  void post_call(std::uint64_t sequence, const Signature& signature);
  /// Tells the other side what this rank is in: a header of another kind than data and lent.
  void post_word(const MessageHeader& word);
  /// The last wait that the other side told of, as far as it was heard: listen() and advance() hear.
  const std::optional<MessageHeader>& told_wait() const { return told_wait_; }
  /// The call that the other side is in, or was in last: as it said itself, or as the header of data says
  /// that nobody receives yet. Throws as advance() does.
  std::optional<MessageHeader> listen();

  /// Messages that are complete, counted from the first.
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }
  bool is_sending() const { return !sends_.empty(); }
  bool is_receiving() const { return !receives_.empty(); }

  /// Moves what can be moved without waiting; true if anything was.
  /// Throws peer_lost from the channel, and corrupt_data for what is no message. After a message of another
  /// work or another call arrived it stands still: see unexpected().
  bool advance();

  struct Unexpected {
    MessageHeader arrived;
    std::uint64_t sequence;
    Signature expected;
    std::uint64_t bytes;
  };
  /// The mismatch that stopped this link.
  const std::optional<Unexpected>& unexpected() const { return unexpected_; }

 private:
  template <class Bytes>
  struct Message {
    MessageHeader header;
    Bytes bytes;
  };
  bool advance_sends();
  bool advance_receives();
  bool read_header();
  bool is_expected();

  Channel* channel_;
  std::deque<Message<std::span<const std::byte>>> sends_;
  std::deque<Message<std::span<std::byte>>> receives_;
  std::size_t send_position_ = 0;  // in header and payload together
  std::size_t receive_position_ = 0;
  MessageHeader arriving_;
  std::optional<MessageHeader> told_call_, told_wait_;
  std::uint64_t posted_sends_ = 0, posted_receives_ = 0, sent_ = 0, received_ = 0;
  std::optional<Unexpected> unexpected_;
};

}  // namespace lockstep
