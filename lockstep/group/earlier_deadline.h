// When who alone knows why others wait has to give up, so that they are told before their own time-out blames somebody.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

/// `timeout` of a group less two seconds, in which the word goes round on a busy machine: at most half of it, at least a tenth.
inline std::chrono::nanoseconds earlier_than(std::chrono::nanoseconds timeout) {
  const std::chrono::nanoseconds time_for_a_word = std::chrono::seconds(2);
  return timeout - std::max(timeout / 10, std::min(timeout / 2, time_for_a_word));
}

}  // namespace lockstep
