#include "lockstep/execute/link.h"

#include "lockstep/base/error.h"

namespace lockstep {

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
    const auto header = std::as_bytes(std::span(&message.header, 1));
    const std::size_t total = header.size() + message.bytes.size();
    while (send_position_ < total) {
      const bool in_header = send_position_ < header.size();
      const auto rest =
          in_header ? header.subspan(send_position_) : message.bytes.subspan(send_position_ - header.size());
      const std::size_t count = channel_->try_write(rest);
      if (count == 0) return moved;
      moved = true;
      send_position_ += count;
    }
    sends_.pop_front();
    send_position_ = 0;
    ++sent_;
  }
  return moved;
}

bool Link::advance_receives() {
  bool moved = false;
  const auto header = std::as_writable_bytes(std::span(&arriving_, 1));
  while (!receives_.empty()) {
    while (receive_position_ < header.size() + receives_.front().bytes.size()) {
      const bool in_header = receive_position_ < header.size();
      const auto payload = receives_.front().bytes;
      const auto rest =
          in_header ? header.subspan(receive_position_) : payload.subspan(receive_position_ - header.size());
      const std::size_t count = channel_->try_read(rest);
      if (count == 0) return moved;
      moved = true;
      receive_position_ += count;
      if (receive_position_ == header.size() && !header_arrived()) return true;
    }
    receives_.pop_front();
    receive_position_ = 0;
    ++received_;
  }
  return moved;
}

bool Link::header_arrived() {
  const MessageHeader& expected = receives_.front().header;
  if (arriving_.magic != MessageHeader::expected_magic) {
    throw Error(ErrorCode::corrupt_data,
                "bytes that are no message arrived; do all ranks run the same version?");
  }
  if (arriving_.sequence == expected.sequence && arriving_.bytes == expected.bytes &&
      arriving_.signature.matches(expected.signature)) {
    return true;
  }
  unexpected_ = Unexpected{arriving_, expected.sequence, expected.signature, expected.bytes};
  return false;
}

}  // namespace lockstep
