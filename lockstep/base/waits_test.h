// What tests of waits and failures share: a deadline that no good run meets, and errors to be looked at.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <optional>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"

namespace lockstep::test {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

/// Tries until it is so; false after a time that no test needs.
template <class Condition>
bool eventually(Condition condition) {
  for (const Deadline deadline = soon(); !deadline.expired();) {
    if (condition()) return true;
    ::poll(nullptr, 0, 1);
  }
  return false;
}

/// What `action` throws, if anything.
template <class Action>
std::optional<Error> thrown_by(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// What `action` throws; the test fails if that is nothing.
template <class Action>
Error error_of(Action action) {
  if (const std::optional<Error> error = thrown_by(action)) return *error;
  ADD_FAILURE() << "no error";
  return {ErrorCode::system, "no error"};
}

}  // namespace lockstep::test
