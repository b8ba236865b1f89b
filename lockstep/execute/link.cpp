#include "lockstep/execute/link.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

void throw_no_message() {
  throw Error(ErrorCode::corrupt_data,
              "bytes that are no message arrived; do all ranks run the same version?");
}

bool write_rest(Channel& channel, const MessageHeader& header, std::span<const std::byte> payload,
                std::size_t& position) {
  const std::size_t before = position;
  const auto head = std::as_bytes(std::span(&header, 1));
  const std::size_t total = head.size() + payload.size();
  while (position < total) {
    const std::size_t of_head = std::min(position, head.size());
    const std::size_t count =
        channel.try_write_both(head.subspan(of_head), payload.subspan(position - of_head));
    if (count == 0) break;
    position += count;
  }
  return position != before;
}

std::uint64_t Link::post_send(std::uint64_t sequence, const Signature& signature,
                              std::span<const std::byte> bytes) {
  sends_.push_back({{.sequence = sequence, .bytes = bytes.size(), .signature = signature}, bytes});
  return ++posted_sends_;
}

std::uint64_t Link::post_receive(std::uint64_t sequence, const Signature& signature,
                                 std::span<std::byte> bytes) {
  receives_.push_back({{.sequence = sequence, .bytes = bytes.size(), .signature = signature}, bytes});
  return ++posted_receives_;
}

bool Link::advance() {
  const bool sent = !sends_.empty() && advance_sends();
  const bool received = !receives_.empty() && !unexpected_ && advance_receives();
  return sent || received;
}

bool Link::advance_sends() {
  bool moved = false;
  while (!sends_.empty()) {
    const auto& message = sends_.front();
    if (write_rest(*channel_, message.header, message.bytes, send_position_)) moved = true;
    if (send_position_ < sizeof(MessageHeader) + message.bytes.size()) return moved;
    sends_.pop_front();
    send_position_ = 0;
    ++sent_;
  }
  return moved;
}

bool Link::advance_receives() {
  bool moved = false;
  while (!receives_.empty()) {
    const bool in_header = receive_position_ < sizeof(MessageHeader);
    if (in_header) {
      const std::size_t before = receive_position_;
      const bool is_complete = read_header();
      moved = moved || receive_position_ != before;
      if (!is_complete) return moved;
    }
    // Also a header that was read before anybody expected it.
    if (receive_position_ == sizeof(MessageHeader) && !is_expected()) return true;
    const auto payload = receives_.front().bytes;
    while (receive_position_ < sizeof(MessageHeader) + payload.size()) {
      const std::size_t count =
          channel_->try_read(payload.subspan(receive_position_ - sizeof(MessageHeader)));
      if (count == 0) return moved;
      moved = true;
      receive_position_ += count;
    }
    receives_.pop_front();
    receive_position_ = 0;
    ++received_;
  }
  return moved;
}

/// True when the header of a message with data is there.
bool Link::read_header() {
  const auto header = std::as_writable_bytes(std::span(&arriving_, 1));
  while (receive_position_ < header.size()) {
    const std::size_t count = channel_->try_read(header.subspan(receive_position_));
    if (count == 0) return false;
    receive_position_ += count;
    if (receive_position_ < header.size()) continue;
    if (!is_message(arriving_)) throw_no_message();
    if (arriving_.kind == MessageHeader::Kind::data) return true;
    (arriving_.kind == MessageHeader::Kind::call ? told_call_ : told_wait_) = arriving_;
    receive_position_ = 0;
  }
  return true;
}

bool Link::is_expected() {
  const MessageHeader& expected = receives_.front().header;
  if (arriving_.sequence == expected.sequence && arriving_.bytes == expected.bytes &&
      arriving_.signature.matches(expected.signature)) {
    return true;
  }
  unexpected_ = Unexpected{arriving_, expected.sequence, expected.signature, expected.bytes};
  return false;
}

void Link::post_call(std::uint64_t sequence, const Signature& signature) {
  post_word({.kind = MessageHeader::Kind::call, .sequence = sequence, .signature = signature});
}

void Link::post_word(const MessageHeader& word) {
  sends_.push_back({word, {}});
  ++posted_sends_;
}

std::optional<MessageHeader> Link::listen() {
  if (receives_.empty() && !unexpected_ && read_header()) return arriving_;
  return told_call_;
}

}  // namespace lockstep
