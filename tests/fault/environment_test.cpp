// An environment that makes no sense is refused at once, in one line that says what was found and what to do.
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Environment {
  const char* name;
  Variables variables;
  std::vector<std::string> says;
  const char* code = "invalid_argument";
};

std::ostream& operator<<(std::ostream& out, const Environment& environment) {
  return out << environment.name;
}

class BadEnvironment : public JobTest, public ::testing::WithParamInterface<Environment> {};

TEST_P(BadEnvironment, IsRefusedInOneLine) {
  const Ending ending = start({program("probe_rank"), "barrier"}, GetParam().variables).finish();
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_EQ(ending.out, "");
  EXPECT_THAT(lines_with(ending.err, ""), SizeIs(1)) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr(std::string("code=") + GetParam().code));
  for (const std::string& part : GetParam().says) EXPECT_THAT(ending.err, HasSubstr(part));
}

Variables place(const char* rank, const char* size) {
  return {{"RANK", rank}, {"WORLD_SIZE", size}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}};
}

Variables meeting(Variables variables) {
  variables.insert(variables.begin(), {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  return variables;
}

const std::vector<std::string> needs_a_place = {"needs a place to meet", "MASTER_ADDR", "MASTER_PORT",
                                                "lockstep run"};

INSTANTIATE_TEST_SUITE_P(
    Ranks, BadEnvironment,
    ::testing::Values(
        Environment{"RankBeyondTheWorld", place("2", "2"), {"RANK is 2", "WORLD_SIZE=2", "0 to 1"}},
        Environment{"NegativeRank", place("-1", "2"), {"RANK=\"-1\" is not a whole number from 0 to 65535"}},
        Environment{
            "RankIsNoNumber", place("first", "2"), {"RANK=\"first\" is not a whole number from 0 to 65535"}},
        Environment{"SizeIsNoNumber", place("0", "2x"), {"WORLD_SIZE=\"2x\" is not a whole number"}},
        Environment{
            "EmptyWorld", place("0", "0"), {"WORLD_SIZE=\"0\" is not a whole number from 1 to 65536"}},
        Environment{
            "NegativeWorld", place("0", "-2"), {"WORLD_SIZE=\"-2\" is not a whole number from 1 to 65536"}},
        Environment{"OnlyRank", {{"RANK", "0"}}, {"RANK is set but WORLD_SIZE is not", "lockstep run"}},
        Environment{"OnlySize", {{"WORLD_SIZE", "2"}}, {"WORLD_SIZE is set but RANK is not", "lockstep run"}},
        Environment{"SizeEmpty", {{"RANK", "0"}, {"WORLD_SIZE", ""}}, {"WORLD_SIZE is not"}},
        Environment{"LogLevelIsUnknown", {{"LOCKSTEP_LOG", "loud"}}, {"LOCKSTEP_LOG=\"loud\"", "warning"}},
        Environment{"OnlyTheLaunchersStore",
                    {{"LOCKSTEP_STORE", "unix:@nobody"}},
                    {"LOCKSTEP_STORE is set but RANK and WORLD_SIZE are not"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Meeting, BadEnvironment,
    ::testing::Values(Environment{"NoMeetingPlace", meeting({}), needs_a_place},
                      Environment{"NoPort", meeting({{"MASTER_ADDR", "127.0.0.1"}}), needs_a_place},
                      Environment{"NoAddress", meeting({{"MASTER_PORT", "29500"}}), needs_a_place},
                      Environment{"PortIsNoNumber",
                                  meeting({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "http"}}),
                                  {"MASTER_PORT=\"http\" is not a whole number from 1 to 65535"}},
                      Environment{"PortTooLarge",
                                  meeting({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "65536"}}),
                                  {"MASTER_PORT=\"65536\" is not a whole number from 1 to 65535"}},
                      Environment{"NoSecretBetweenHosts",
                                  meeting({{"MASTER_ADDR", "192.0.2.7"}, {"MASTER_PORT", "29500"}}),
                                  {"tcp:192.0.2.7:29500", "need a secret", "LOCKSTEP_SECRET_FILE",
                                   "MASTER_ADDR=127.0.0.1", "LOCKSTEP_INSECURE=1"}},
                      Environment{"SecretFileIsMissing",
                                  meeting({{"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", "29500"},
                                           {"LOCKSTEP_SECRET_FILE", "/nowhere/secret"}}),
                                  {"secret file /nowhere/secret", "No such file"},
                                  "system"},
                      Environment{"TimeoutIsNoDuration",
                                  meeting({{"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", "29500"},
                                           {"LOCKSTEP_INIT_TIMEOUT", "soon"}}),
                                  {"LOCKSTEP_INIT_TIMEOUT=\"soon\"", "30s"}},
                      Environment{"NoTimeToArrive",
                                  meeting({{"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", "29500"},
                                           {"LOCKSTEP_TIMEOUT", "0s"}}),
                                  {"LOCKSTEP_TIMEOUT=\"0s\" leaves no rank time to arrive", "off"}},
                      Environment{"TorchrunWithoutAPlace",
                                  meeting({{"TORCHELASTIC_RUN_ID", "none"}}),
                                  {"torchrun's environment has no MASTER_ADDR or MASTER_PORT"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OtherLaunchers, BadEnvironment,
    ::testing::Values(
        Environment{"OpenMpiOnSeveralHosts",
                    {{"OMPI_COMM_WORLD_SIZE", "4"},
                     {"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                    {"rank 1 of 4 started by Open MPI (OMPI_COMM_WORLD_SIZE is set)", "MASTER_ADDR",
                     "MASTER_PORT", "LOCKSTEP_SECRET_FILE"}},
        Environment{
            "OpenMpiWithoutARank",
            {{"OMPI_COMM_WORLD_SIZE", "2"}},
            {"Open MPI has set OMPI_COMM_WORLD_SIZE, but not OMPI_COMM_WORLD_RANK", "lockstep run -np N"}},
        Environment{"AnotherMpi", {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, {"an MPI launcher", "MASTER_ADDR"}},
        Environment{"ARankOutsideOfTheWorld",
                    {{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}},
                    {"PMI_RANK=\"2\" is not a whole number from 0 to 1"}},
        Environment{"MpiexecWithoutItsSocket",
                    {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "4711"}},
                    {"PMI_FD=4711 is no socket of this process"}},
        Environment{"SrunOnSeveralHosts",
                    {{"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "2"},
                     {"SLURM_PROCID", "1"},
                     {"SLURM_STEP_NUM_NODES", "2"}},
                    {"started by srun (SLURM_STEP_NUM_TASKS is set)", "MASTER_ADDR"}},
        Environment{"TfConfigIsNoJson", {{"TF_CONFIG", "{"}}, {"TF_CONFIG: it is no JSON (at byte 2)"}},
        Environment{
            "TfConfigWithoutASecret",
            {{"TF_CONFIG",
              R"({"cluster": {"worker": ["192.0.2.7:1", "192.0.2.8:1"]}, "task": {"type": "worker", "index": 1}})"}},
            {"tcp:192.0.2.7:1", "need a secret", "call it 127.0.0.1 in TF_CONFIG"}}),
    [](const auto& info) { return info.param.name; });

class GoodEnvironment : public JobTest {};

TEST_F(GoodEnvironment, AloneIsAWorldOfOne) {
  const Ending ending = start({program("probe_rank"), "barrier", "all_reduce,f32,1000"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(ending.out, "probe rank=0 of 1 done\n");
  EXPECT_EQ(ending.err, "");
}

TEST_F(GoodEnvironment, AWorldOfOneHasSubgroups) {
  const Ending ending = start({program("probe_rank"), "subgroup_of_itself"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("world/0 of 1 has 3.0")) << ending.err;
}

TEST_F(GoodEnvironment, OneRankNeedsNoPlaceToMeet) {
  const Ending ending =
      start({program("probe_rank"), "barrier"}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(GoodEnvironment, AShellOfABatchJobIsNoRank) {
  const Variables batch = {{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}};
  const Ending ending = start({program("probe_rank"), "barrier"}, batch).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(GoodEnvironment, OneRankUnderAnMpiLauncherIsAlone) {
  const Ending ending = start({program("probe_rank"), "barrier"}, {{"OMPI_COMM_WORLD_SIZE", "1"}}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

}  // namespace
}  // namespace lockstep::testing
