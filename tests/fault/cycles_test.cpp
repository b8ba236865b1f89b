// What a process makes and drops again and again leaves nothing behind: no descriptor, no mapping, no memory.
#include <algorithm>
#include <cstdio>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

[[maybe_unused]] constexpr int most_kib =
    1024;  // of a heap that has not settled yet, however many the cycles are

/// Connections to the store that are about to end, of this world's and the last one's.
constexpr int most_connections_of_a_rank = 4;

int cycles() { return times_of_soak("SOAK_CYCLES", 200); }

/// `most_descriptors`: that may come and go, however many the cycles are.
void expect_no_growth(const Ending& ending, int most_descriptors = 0) {
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  struct {
    int before = 0, after = 0;
  } descriptors, mappings, kib;
  const std::size_t begin = ending.out.find("descriptors=");
  ASSERT_NE(begin, std::string::npos) << ending.out << ending.err;
  ASSERT_EQ(std::sscanf(ending.out.c_str() + begin, "descriptors=%d..%d mappings=%d..%d memory_kib=%d..%d",
                        &descriptors.before, &descriptors.after, &mappings.before, &mappings.after,
                        &kib.before, &kib.after),
            6)
      << ending.out;
  EXPECT_LE(descriptors.after, descriptors.before + most_descriptors) << ending.out;
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
  EXPECT_LE(mappings.after, mappings.before) << ending.out;
  EXPECT_LE(kib.after, kib.before + most_kib) << ending.out;
#endif
}

class Cycles : public JobTest {
 protected:
  /// `times`: more often than `cycles()`, of what is quick: 100 bytes of each add up, then.
  void expect_no_growth_of(const std::string& action, int ranks, int times = 1) {
    constexpr int most = 4000;  // 300 bytes of each are seen then, and a slow machine has the time
    auto processes = start_probes(ranks, {action + "," + std::to_string(std::min(times * cycles(), most))});
    for (const Ending& ending : finish(processes)) expect_no_growth(ending);
  }

  void expect_no_growth_of_init(const Variables& more) {
    std::vector<Process> ranks;
    const int other_port = another_port();
    for (const char* rank : {"--rank=0", "--rank=1"}) {
      ranks.push_back(start(
          {program("probe_rank"), rank, "--size=2", "--address=127.0.0.1", "--port=" + std::to_string(port()),
           "--other-port=" + std::to_string(other_port), "--cycles=" + std::to_string(cycles())},
          more));
    }
    for (const Ending& ending : finish(ranks)) expect_no_growth(ending);
  }
};

TEST_F(Cycles, OfInitAndTheEndOfItsWorldLeaveNothing) { expect_no_growth_of_init({}); }

TEST_F(Cycles, OfInitOverTcpLeaveNothing) {
  expect_no_growth_of_init({{"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
}

TEST_F(Cycles, OfOneWorldAfterAnotherLeaveNothing) {
  for (const int ranks : {1, 2, 4}) {
    auto processes = start_probes(ranks, {"--worlds=" + std::to_string(cycles()), "barrier"});
    for (const Ending& ending : finish(processes))
      expect_no_growth(ending, ranks * most_connections_of_a_rank);
  }
}

TEST_F(Cycles, OfOneWorldAfterAnotherUnderALauncherLeaveNothing) {
  const Ending ending = launch_probes(2, {"--worlds=" + std::to_string(cycles()), "barrier"});
  expect_no_growth(ending, 2 * most_connections_of_a_rank);
}

TEST_F(Cycles, OfOneWorldAfterAnotherOverTcpLeaveNothing) {
  auto processes = start_probes(2, {"--worlds=" + std::to_string(cycles()), "barrier"},
                                {{"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
  for (const Ending& ending : finish(processes)) expect_no_growth(ending, 2 * most_connections_of_a_rank);
}

TEST_F(Cycles, OfWorldsOfThreadsLeaveNothing) { expect_no_growth_of("cycle_threads", 1); }
TEST_F(Cycles, OfSubgroupsLeaveNothing) { expect_no_growth_of("cycle_subgroups", 2, 10); }
TEST_F(Cycles, OfArenaBuffersLeaveNothing) { expect_no_growth_of("cycle_buffers", 2); }
TEST_F(Cycles, OfGroupsThatFailLeaveNothing) { expect_no_growth_of("cycle_failures", 2, 10); }

}  // namespace
}  // namespace lockstep::testing
