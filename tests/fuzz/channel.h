// A channel whose other side is a script: bytes arrive when it says so, and come and go in pieces of the size
// that it likes.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "lockstep/execute/link.h"
#include "lockstep/transport/channel.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz {

class ScriptedChannel final : public Channel {
 public:
  void arrive(Input bytes) { arrived_.insert(arrived_.end(), bytes.begin(), bytes.end()); }
  void set_piece(std::size_t most_bytes) { piece_ = most_bytes; }
  void make_room(std::size_t bytes) { room_ += bytes; }

  std::size_t try_write(std::span<const std::byte> bytes) override {
    require(!bytes.empty(), "nothing is written only if nothing can be");
    const std::size_t count = std::min({bytes.size(), piece_, room_});
    written_.insert(written_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    room_ -= count;
    return count;
  }
  std::size_t try_read(std::span<std::byte> bytes) override {
    require(!bytes.empty(), "nothing is read only if nothing is there");
    const std::size_t count = std::min({bytes.size(), piece_, arrived_.size() - read_});
    if (count > 0) std::memcpy(bytes.data(), arrived_.data() + read_, count);
    read_ += count;
    return count;
  }

  /// What was read of what arrived.
  Input read() const { return Input(arrived_).first(read_); }
  Input written() const { return written_; }

 private:
  std::vector<std::byte> arrived_;
  std::vector<std::byte> written_;
  std::size_t read_ = 0;
  std::size_t piece_ = 1000;
  std::size_t room_ = 100;
};

/// A second opinion about a row of messages.
class Messages {
 public:
  explicit Messages(Input bytes) : rest_(bytes) {}

  /// nullopt: not all of it is there.
  std::optional<MessageHeader> header() {
    if (rest_.size() < sizeof(MessageHeader)) return std::nullopt;
    MessageHeader header;
    std::memcpy(&header, rest_.data(), sizeof(header));
    rest_ = rest_.subspan(sizeof(header));
    return header;
  }
  std::optional<Input> payload(std::uint64_t bytes) {
    if (rest_.size() < bytes) return std::nullopt;
    const Input taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }

 private:
  Input rest_;
};

inline Input bytes_of(const MessageHeader& header) { return std::as_bytes(std::span(&header, 1)); }

/// No two messages are alike: the serial number says which it is.
inline std::vector<std::byte> payload(std::size_t bytes, int serial) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<std::byte>(static_cast<std::size_t>(serial) + 7 * i);
  return made;
}

inline bool same(Input a, Input b) { return std::ranges::equal(a, b); }

/// `whole` is what may come out of it, `part` what did so far.
inline bool is_beginning(Input part, Input whole) {
  return part.size() <= whole.size() && same(part, whole.first(part.size()));
}

}  // namespace lockstep::fuzz
