#include "lockstep/launch/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

std::string words_of(int error_number) {
  try {
    throw_refused("opening it", error_number);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    return error.what();
  }
}

TEST(Limits, AreNamedWhereTheyAreTheReason) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{123, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(words_of(EMFILE),
            "opening it: Too many open files; ulimit -n is 123: raise it, or start fewer ranks");
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(words_of(ENOENT), "opening it: No such file or directory");
  errno = EPERM;
  EXPECT_EQ(words_of(0), "opening it: Operation not permitted");
}

}  // namespace
}  // namespace lockstep::launch
