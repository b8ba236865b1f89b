// A channel whose other side is the test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/execute/link.h"
#include "lockstep/transport/channel.h"

namespace lockstep::test {

class ChannelByHand final : public Channel {
 public:
  void arrive(const MessageHeader& header, std::size_t payload_bytes = 0) {
    const auto bytes = std::as_bytes(std::span(&header, 1));
    arrived_.insert(arrived_.end(), bytes.begin(), bytes.end());
    arrived_.resize(arrived_.size() + payload_bytes);
  }
  void arrive(std::span<const std::byte> bytes) {
    arrived_.insert(arrived_.end(), bytes.begin(), bytes.end());
  }
  /// So much can be written from now on.
  void set_room(std::size_t bytes) { room_ = bytes; }
  const std::vector<std::byte>& written() const { return written_; }
  /// The other side has read one more thing where it lies; how many this side has.
  void take() { ++taken_; }
  std::uint64_t noted() const { return noted_; }

  std::size_t try_write(std::span<const std::byte> bytes) override {
    const std::size_t count = std::min(bytes.size(), room_);
    written_.insert(written_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    room_ -= count;
    return count;
  }
  void note_taken() override { ++noted_; }
  std::uint64_t taken() override { return taken_; }
  std::size_t try_read(std::span<std::byte> bytes) override {
    const std::size_t count = std::min(bytes.size(), arrived_.size() - read_);
    if (count > 0) std::memcpy(bytes.data(), arrived_.data() + read_, count);
    read_ += count;
    return count;
  }

 private:
  std::vector<std::byte> arrived_, written_;
  std::size_t room_ = SIZE_MAX;
  std::size_t read_ = 0;
  std::uint64_t taken_ = 0, noted_ = 0;
};

}  // namespace lockstep::test
