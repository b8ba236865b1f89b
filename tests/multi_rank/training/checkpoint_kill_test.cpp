// A save that is killed (SIGKILL) at any of its system calls leaves the old checkpoint or the new one, whole;
// and what it leaves beside is gone after the next start.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

/// Runs `words`, which stop themselves before the part that matters, and kills them at the `stop`th end or
/// beginning of a system call after that. False if they came to their end before.
bool run_and_kill(const std::vector<std::string>& words, int stop) {
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  const auto next_stop = [&](__ptrace_request how, int signal) {
    if (::ptrace(how, child, nullptr, signal) != 0 || ::waitpid(child, &status, 0) != child) status = 0;
    return WIFSTOPPED(status);
  };
  bool stopped = ::waitpid(child, &status, 0) == child && WIFSTOPPED(status);  // at its exec
  while (stopped && WSTOPSIG(status) != SIGSTOP) {
    stopped = next_stop(PTRACE_CONT, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
  }
  for (int i = 0; stopped && i < stop; ++i) stopped = next_stop(PTRACE_SYSCALL, 0);
  if (!stopped) return false;
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return true;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

using CheckpointKill = JobTest;

TEST_F(CheckpointKill, LeavesTheOldOneOrTheNewOneWhole) {
  const std::filesystem::path folder = this->folder() / "checkpoints", file = folder / "model.ckpt";
  std::filesystem::create_directory(folder);
  const std::string rank = program("training_rank");
  constexpr int never = 1'000'000;
  ASSERT_FALSE(run_and_kill({rank, "save", file, "2"}, never)) << "the save did not end";
  const std::string new_content = content_of(file);
  ASSERT_FALSE(run_and_kill({rank, "save", file, "1"}, never));
  const std::string old_content = content_of(file);
  ASSERT_NE(old_content, new_content);

  int killed = 0, left_behind = 0, saved = 0;
  // Stops alternate between the beginning of a call and its end; between an end and the next beginning
  // nothing happens.
  for (int stop = 1; run_and_kill({rank, "save", file, "2"}, stop); stop += 2, ++killed) {
    const std::string content = content_of(file);
    ASSERT_TRUE(content == old_content || content == new_content) << "killed at stop " << stop;
    if (content == new_content) {
      ++saved;
      std::ofstream(file, std::ios::binary) << old_content;
    }
    if (std::distance(std::filesystem::directory_iterator(folder), {}) == 1) continue;
    ++left_behind;
    const auto ending = start({rank, "load", file}).finish();
    ASSERT_EQ(ending.out, "value 1 epoch 1\n") << ending.err;
    ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1)
        << "a temporary is still there";
  }
  RecordProperty("killed", killed);
  RecordProperty("temporaries_left_and_removed", left_behind);
  EXPECT_GT(left_behind, 3);
  EXPECT_GT(saved, 2);
  EXPECT_LT(saved, killed);
}

}  // namespace
}  // namespace lockstep::testing
