// What tests of whole jobs share: ranks started by hand or by `lockstep run`, and the question that every one
// of them asks in the end, whether anything is left behind.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/hosts.h"
#include "tests/support/process.h"

namespace lockstep::testing {

/// Each test has a folder and a port of its own, and fails if it leaves a process, or a file in the folder
/// for temporary files or in /dev/shm.
class JobTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  const std::filesystem::path& folder() const { return folder_; }
  /// That nobody else on this host uses while the test runs. Nobody listens there.
  int port() const { return ports_.front(); }
  int another_port();
  /// Makes this test listen at port(), as another program would.
  void take_port() const;

  /// A file with this secret, for LOCKSTEP_SECRET_FILE.
  std::string secret_file(const std::string& secret) const;

  /// A `lockstep run` leaves no flight record unless `variables` has a LOCKSTEP_RECORD_DIR.
  Process start(std::vector<std::string> words, Variables variables = {}, int network = -1) const;

  /// RANK, WORLD_SIZE, MASTER_ADDR=127.0.0.1 and MASTER_PORT=port(), and what `more` says (which wins).
  Variables by_hand(int rank, int size, const Variables& more = {}) const;
  /// probe_rank on ranks 0 to size - 1, started by hand.
  std::vector<Process> start_probes(int size, const std::vector<std::string>& actions,
                                    const Variables& more = {}) const;
  /// The same on two hosts, the first half of the ranks on one and the rest on the other, with a secret file
  /// unless `more` has a LOCKSTEP_SECRET_FILE. REQUIRES: has_hosts(2).
  std::vector<Process> start_probes_on_two_hosts(int size, const std::vector<std::string>& actions,
                                                 const Variables& more = {}) const;
  /// Makes them when first called; always the same number in one test.
  bool has_hosts(int count);
  const Hosts& hosts() const { return *hosts_; }
  std::string why_no_hosts() const { return why_no_hosts_; }

  /// Until none of this test's runs, for 10 s at most: for launchers of others, which end before their ranks.
  void await_end_of_processes() const;

  /// `lockstep run -np size probe_rank actions...`, to its end.
  Ending launch_probes(int size, const std::vector<std::string>& actions, const Variables& more = {}) const;

 private:
  std::filesystem::path folder_;
  std::string mark_;
  std::vector<UniqueFd> port_holders_;
  std::vector<int> ports_;
  std::vector<std::string> shared_memory_;
  std::optional<Hosts> hosts_;
  std::string why_no_hosts_;
};

/// Ends the test as skipped where there cannot be so many hosts. For the body of a test of a JobTest.
#define REQUIRE_HOSTS(count) \
  if (!has_hosts(count)) GTEST_SKIP() << why_no_hosts()
#define REQUIRE_TWO_HOSTS() REQUIRE_HOSTS(2)

std::vector<Ending> finish(std::vector<Process>& processes);

/// A file of the peer of this name, if `script/bootstrap --peers` has installed it.
std::optional<std::filesystem::path> peer_file(const std::string& peer, const std::string& path);
/// A program of the peer of this name, if `script/bootstrap --peers` has installed it.
std::optional<std::filesystem::path> peer_program(const std::string& peer, const std::string& name);
/// Python with the peer of this name, if `script/bootstrap --peers` has installed it.
std::optional<std::filesystem::path> peer_python(const std::string& peer);

/// What is in it; "" where there is none.
std::string text_in(const std::filesystem::path& path);

/// How often a test does its deed: as often as this variable of script/soak says, or else `otherwise`.
int times_of_soak(const char* variable, int otherwise);

/// The lines of `text` that begin with `beginning`.
std::vector<std::string> lines_with(const std::string& text, const std::string& beginning);

}  // namespace lockstep::testing
