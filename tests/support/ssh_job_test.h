// What tests of jobs on several hosts by ssh share: namespaces with a real sshd each, and that nothing is left on any of them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/process_status.h"
#include "tests/support/job_test.h"
#include "tests/support/ssh_servers.h"

namespace lockstep::testing {

class SshJobTest : public JobTest {
 protected:
  /// For the body of a test, before anything else; REQUIRE_SSH_HOSTS is what to write.
  void make_hosts(int count) {
    if (!has_hosts(count)) GTEST_SKIP() << why_no_hosts();
    std::string why_not;
    servers_ = SshServers::start(hosts(), folder(), why_not);
    if (!servers_) GTEST_SKIP() << why_not;
  }
  void TearDown() override {
    for (int host = 0; servers_ && host < hosts().count(); ++host)
      EXPECT_THAT(servers_->left_behind(hosts(), host), ::testing::IsEmpty()) << "on host " << host;
    servers_.reset();
    JobTest::TearDown();
  }
  const SshServers& servers() const { return *servers_; }

  /// "ADDRESS:SLOTS,..." of all hosts.
  std::string list(int slots) const {
    std::string text;
    for (int host = 0; host < hosts().count(); ++host)
      text += (host == 0 ? "" : ",") + hosts().address(host) + ":" + std::to_string(slots);
    return text;
  }
  /// Processes of `host` whose command line holds all of `words`.
  std::vector<pid_t> processes_with_words(int host, const std::vector<std::string>& words) const {
    std::vector<pid_t> found;
    for (const pid_t pid : hosts().processes(host)) {
      const std::string line = text_in("/proc/" + std::to_string(pid) + "/cmdline");
      const auto has = [&](const std::string& word) { return line.find(word) != std::string::npos; };
      if (std::ranges::all_of(words, has)) found.push_back(pid);
    }
    return found;
  }
  /// An agent's two processes: its guard, and the guard's child, which looks after ranks. The child's number
  /// may be the smaller one: the kernel begins again from below.
  std::vector<pid_t> agents_of(int host) const {
    std::vector<pid_t> found = processes_with_words(host, {std::string("lockstep\0agent", 14)});
    if (found.size() == 2 && base::read_status(found[0]).parent == found[1]) std::swap(found[0], found[1]);
    return found;
  }

 private:
  std::optional<SshServers> servers_;
};

/// Ends the test as skipped where there cannot be so many hosts, or no sshd.
#define REQUIRE_SSH_HOSTS(count) \
  make_hosts(count);             \
  if (IsSkipped()) return

}  // namespace lockstep::testing
