// Buffers of the probe, and what every element of them is to be.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/half.h"
#include "lockstep/group/group.h"
#include "probe_collectives.h"
#include "tests/fault/probe_memory.h"

namespace probe {

template <class T>
class Buffer {
 public:
  Buffer(const lockstep::Group& group, std::size_t elements, Memory memory) {
    if (memory == Memory::arena) {
      shared_ = group.allocate<T>(elements);
    } else {
      private_.resize(elements);
    }
    span_ = memory == Memory::arena ? shared_.span().first(elements) : std::span<T>(private_);
    if (memory == Memory::registered && elements > 0) registered_ = group.register_memory(span_);
  }
  std::span<T> span() const { return span_; }

 private:
  lockstep::ArenaBuffer<T> shared_;
  std::vector<T> private_;
  lockstep::RegisteredMemory registered_;  // ends before it
  std::span<T> span_;
};

template <class T>
double number(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(to_float(value));
  }
}

template <class T, class Expected>
void require(const std::string& call, std::span<const T> found, const Expected& expected) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const T right = expected(i);
    if (found[i] == right) continue;
    throw WrongResult(call + ": element " + std::to_string(i) + " is " + std::to_string(number(found[i])) +
                      " instead of " + std::to_string(number(right)));
  }
}

// Small whole numbers, whose sums and halves every type has exactly.
inline double contribution(int rank, std::size_t index) {
  return static_cast<double>(rank + 1) * static_cast<double>(index % 5 + 1);
}

inline double reduced(lockstep::ReduceOp op, int ranks, std::size_t index) {
  const double sum = contribution(0, index) * ranks * (ranks + 1) / 2;
  switch (op) {
    case lockstep::ReduceOp::min: return contribution(0, index);
    case lockstep::ReduceOp::max: return contribution(ranks - 1, index);
    case lockstep::ReduceOp::average: return sum / ranks;
    default: return sum;
  }
}

inline unsigned char byte_of(int rank, std::size_t index) {
  return static_cast<unsigned char>(static_cast<std::size_t>(rank) * 31 + index * 7 + 1);
}

inline void fill(std::span<unsigned char> buffer, int rank) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = byte_of(rank, i);
}

inline void require_bytes_of(const std::string& call, std::span<const unsigned char> found, int rank) {
  require<unsigned char>(call, found, [&](std::size_t i) { return byte_of(rank, i); });
}

}  // namespace probe
