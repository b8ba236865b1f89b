#include "lockstep/launch/flight_recorder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

TEST(StateOf, KnowsAStoppedProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(state_of(child), trace::ProcessState::stopped);
  ::kill(child, SIGKILL);
  ::kill(child, SIGCONT);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(state_of(child), trace::ProcessState::gone);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(state_of(child), trace::ProcessState::gone);
  EXPECT_EQ(state_of(::getpid()), trace::ProcessState::running);
}

}  // namespace
}  // namespace lockstep::launch
