// A thread that cannot be started is an Error like any other, and one that is takes no signals.
#include "lockstep/base/start_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "lockstep/base/background_thread.h"
#include "lockstep/base/failure_test.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Root is exempt from limits on processes, and every user has threads elsewhere: as one who has none.
void allow_no_other_thread() {
  const rlimit one{1, 1};
  if (::setrlimit(RLIMIT_NPROC, &one) != 0) ::_exit(99);
  if (::getuid() == 0 && ::setuid(static_cast<uid_t>(1'000'000 + ::getpid())) != 0) ::_exit(99);
}

/// What `start` throws in a process that may not have another thread: "code: text".
std::string refusal_of(const std::function<void()>& start) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    allow_no_other_thread();
    std::string said = "nothing was thrown";
    try {
      start();
    } catch (const Error& error) {
      said = std::string(to_string(error.code())) + ": " + error.what();
    } catch (const std::exception& error) {
      said = std::string("no Error: ") + error.what();
    }
    ::_exit(::write(out.get(), said.data(), said.size()) < 0 ? 1 : 0);
  }
  out = UniqueFd();
  std::string said;
  std::array<char, 1000> bytes;
  for (ssize_t got = 0; (got = ::read(in.get(), bytes.data(), bytes.size())) > 0;)
    said.append(bytes.data(), static_cast<std::size_t>(got));
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

TEST(StartThread, ThatCannotBeStartedIsNamedWithTheLimits) {
  EXPECT_THAT(refusal_of([] { start_thread("store", [] {}).join(); }),
              AllOf(StartsWith("system: starting the thread store: Resource temporarily unavailable; "
                               "ulimit -u is 1, ulimit -v "),
                    HasSubstr(": raise what is too low")));
  EXPECT_THAT(refusal_of([] { const BackgroundThread thread("checkpoint", [] {}); }),
              StartsWith("system: starting the thread checkpoint: "));
}

TEST(StartThread, RunsWithItsNameAndWithoutSignals) {
  std::array<char, 16> name{};
  sigset_t blocked{}, before{}, after{};
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  start_thread("a-name", [&] {
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  }).join();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_STREQ(name.data(), "a-name");
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1}) {
    EXPECT_EQ(::sigismember(&blocked, signal), 1);
    EXPECT_EQ(::sigismember(&after, signal), ::sigismember(&before, signal));
  }
}

TEST(StartThread, StopsAJthreadWhenItGoes) {
  bool was_told = false;
  {
    const auto thread = start_thread<std::jthread>("worker", [&](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::yield();
      was_told = true;
    });
  }
  EXPECT_TRUE(was_told);
}

}  // namespace
}  // namespace lockstep
