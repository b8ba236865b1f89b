#include "lockstep/base/unique_fd.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>

namespace lockstep {
namespace {

std::array<UniqueFd, 2> make_pipe() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::pipe(ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// What `check` says in a child.
template <class Check>
bool in_child(Check check) {
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(check() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status == 0;
}

bool is_null_device(int fd) {
  char byte = 'x';
  return ::write(fd, &byte, 1) == 1 && ::read(fd, &byte, 1) == 0;
}

TEST(UniqueFd, KeptFromChildrenIsTheNullDeviceThere) {
  auto [reading, writing] = make_pipe();
  writing.keep_from_children();
  const UniqueFd moved = std::move(writing);
  EXPECT_TRUE(in_child([&] { return is_null_device(moved.get()); }));
  EXPECT_EQ(::write(moved.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 1);
}

TEST(UniqueFd, NumbersUsedAgainAreNotKept) {
  int number = -1;
  {
    auto [reading, writing] = make_pipe();
    number = writing.get();
    writing.keep_from_children();
  }
  const auto again = make_pipe();
  ASSERT_EQ(again[1].get(), number);
  EXPECT_TRUE(in_child([&] { return ::write(number, "x", 1) == 1; }));
  char byte = 0;
  EXPECT_EQ(::read(again[0].get(), &byte, 1), 1);

  UniqueFd given(::dup(number));
  given.keep_from_children();
  const UniqueFd released(given.release());
  EXPECT_FALSE(in_child([&] { return is_null_device(released.get()); }));
}

}  // namespace
}  // namespace lockstep
