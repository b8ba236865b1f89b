// What a call throws, for tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::test {

/// The text of what `call` throws, which must have this code.
inline std::string failure_of(const std::function<void()>& call,
                              ErrorCode expected = ErrorCode::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline std::string corruption_of(const std::function<void()>& call) {
  return failure_of(call, ErrorCode::corrupt_data);
}

}  // namespace lockstep::test
