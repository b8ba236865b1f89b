// A launcher that is killed leaves no process and no file: JobTest looks for them when a test is over.
#include <csignal>
#include <fstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

class KilledLauncher : public JobTest {
 protected:
  /// The process of `lockstep run` itself, or the one that runs the job under it.
  void kill_one(bool is_guard) {
    Process job = start(
        {program("lockstep"), "run", "-np", "2", program("probe_rank"), "barrier", "say,here", "pause"});
    job.await("[0] probe rank=0 here");
    job.await("[1] probe rank=1 here");
    pid_t victim = job.pid();
    if (!is_guard) {
      const std::string guard = std::to_string(job.pid());
      std::ifstream children("/proc/" + guard + "/task/" + guard + "/children");
      ASSERT_TRUE(children >> victim);
    }
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    EXPECT_EQ(job.finish().exit_code, 128 + SIGKILL);
  }
};

TEST_F(KilledLauncher, LeavesNothing) {
  for (const bool is_guard : {true, false}) kill_one(is_guard);
}

}  // namespace
}  // namespace lockstep::testing
