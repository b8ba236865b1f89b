#include "lockstep/group/launchers.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/failure_test.h"

namespace lockstep {
namespace {

/// Variables of launchers for one test, and none from outside.
class Launchers : public ::testing::Test {
 protected:
  Launchers() {
    for (const char* name : all) ::unsetenv(name);
  }
  ~Launchers() override {
    for (const char* name : all) ::unsetenv(name);
  }
  static void set(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }

 private:
  static constexpr const char* all[] = {"OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "PMI_SIZE",
                                        "PMI_RANK",
                                        "PMI_FD",
                                        "PMI_PORT",
                                        "PMI_ID",
                                        "PMIX_RANK",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_PROCID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_NUM_NODES",
                                        "JSM_NAMESPACE_SIZE",
                                        "JSM_NAMESPACE_RANK",
                                        "JSM_NAMESPACE_LOCAL_SIZE",
                                        "JSM_NAMESPACE_ID",
                                        "LSB_JOBID",
                                        "FLUX_JOB_SIZE",
                                        "FLUX_TASK_RANK",
                                        "FLUX_JOB_ID",
                                        "FLUX_JOB_NNODES"};
};

void expect(const std::string& launcher, int rank, int size, std::optional<int> local_size,
            const std::string& job) {
  const auto found = find_launched_rank();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, launcher);
  EXPECT_EQ(found->rank, rank);
  EXPECT_EQ(found->size, size);
  EXPECT_EQ(found->local_size, local_size);
  EXPECT_EQ(found->job, job);
  EXPECT_EQ(found->is_on_one_host(), local_size == size);
}

TEST_F(Launchers, AreNoneWithoutVariables) { EXPECT_FALSE(find_launched_rank()); }

TEST_F(Launchers, OpenMpi) {
  set({{"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_RANK", "3"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
       {"PMIX_NAMESPACE", "prterun-vm-22106@1"}});
  expect("Open MPI (OMPI_COMM_WORLD_SIZE is set)", 3, 4, 2, "prterun-vm-22106@1");
}

TEST_F(Launchers, MpiexecHasItsJobsNameFromPmi) {
  set({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_FD", "9"}, {"MPI_LOCALNRANKS", "2"}});
  expect("mpiexec (PMI_SIZE is set)", 1, 2, 2, "");
  EXPECT_EQ(find_launched_rank()->pmi_fd, 9);
}

TEST_F(Launchers, MpiexecInsideASlurmAllocationComesBeforeTheStepThatStartedIt) {
  set({{"SLURM_STEP_ID", "0"},
       {"SLURM_STEP_NUM_TASKS", "1"},
       {"SLURM_PROCID", "0"},
       {"PMI_SIZE", "4"},
       {"PMI_RANK", "2"},
       {"MPI_LOCALNRANKS", "4"}});
  expect("mpiexec (PMI_SIZE is set)", 2, 4, 4, "");
}

TEST_F(Launchers, Srun) {
  set({{"SLURM_JOB_ID", "17"},
       {"SLURM_STEP_ID", "3"},
       {"SLURM_STEP_NUM_TASKS", "2"},
       {"SLURM_PROCID", "1"},
       {"SLURM_STEP_NUM_NODES", "1"},
       {"PMI_SIZE", "2"},
       {"PMI_RANK", "1"}});
  expect("srun (SLURM_STEP_NUM_TASKS is set)", 1, 2, 2, "17-3");
  set({{"SLURM_STEP_NUM_NODES", "2"}});
  expect("srun (SLURM_STEP_NUM_TASKS is set)", 1, 2, std::nullopt, "17-3");
}

TEST_F(Launchers, JsrunAndFlux) {
  set({{"JSM_NAMESPACE_SIZE", "2"},
       {"JSM_NAMESPACE_RANK", "1"},
       {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
       {"LSB_JOBID", "5"},
       {"JSM_NAMESPACE_ID", "1"}});
  expect("jsrun (JSM_NAMESPACE_SIZE is set)", 1, 2, 2, "5-1");
  ::unsetenv("JSM_NAMESPACE_SIZE");
  set({{"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_ID", "f1"}, {"FLUX_JOB_NNODES", "1"}});
  expect("flux run (FLUX_JOB_SIZE is set)", 0, 2, 2, "f1");
}

TEST_F(Launchers, ARankThatIsMissingIsNamed) {
  set({{"PMI_SIZE", "2"}});
  EXPECT_EQ(test::failure_of([] { find_launched_rank(); }, ErrorCode::invalid_argument),
            "an MPI launcher has set PMI_SIZE, but not PMI_RANK; start the ranks with `lockstep run -np N`, "
            "or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each");
}

TEST_F(Launchers, AProcessOfOneThatIsNotUnderstoodIsNoWorldOfOne) {
  const auto refusal = [] {
    return test::failure_of([] { find_launched_rank(); }, ErrorCode::invalid_argument);
  };
  const std::string ways =
      "; or start the ranks with `lockstep run -np N`, or set RANK and WORLD_SIZE for each (1 in a world of "
      "one)";
  set({{"PMI_PORT", "node:35795"}, {"PMI_ID", "0"}});
  EXPECT_EQ(refusal(),
            "PMI_PORT is set, so this is a rank of some launcher, but how many there are is not said: start "
            "mpiexec without -pmi-port" +
                ways);
  ::unsetenv("PMI_PORT");
  ::unsetenv("PMI_ID");
  set({{"SLURM_PROCID", "0"}});
  EXPECT_FALSE(find_launched_rank()) << "the shell of a batch job is no rank";
  set({{"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(refusal(),
            "srun has set SLURM_PROCID, so this is a rank of some launcher, but how many there are is not "
            "said: SLURM_STEP_NUM_TASKS is missing" +
                ways);
}

}  // namespace
}  // namespace lockstep
