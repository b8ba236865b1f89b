// What calls fail of that their own process has ended, by lockstep::shutdown(): the program knows, and need not be told.
#pragma once

#include <cstring>
#include <exception>

namespace lockstep {

inline constexpr const char* shut_down_reason = "lockstep::shutdown() was called in this process";

inline bool is_of_shut_down(const std::exception& failure) {
  return std::strstr(failure.what(), shut_down_reason) != nullptr;
}

}  // namespace lockstep
