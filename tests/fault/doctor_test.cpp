// `lockstep doctor`.
#include <nlohmann/json.hpp>

#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Doctor : public SshJobTest {
 protected:
  Ending ask(std::vector<std::string> options, const Variables& variables = {}, int network = -1) const {
    options.insert(options.begin(), {program("lockstep"), "doctor"});
    return start(options, variables, network).finish();
  }
};

TEST_F(Doctor, SaysWhatThisMachineHas) {
  const Ending ending = ask({});
  EXPECT_EQ(ending.exit_code, 0) << ending.out << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(ContainsRegex("two of them +start, join and average in [0-9]+ ms\n"),
                    ContainsRegex("cores +[0-9]+ of [0-9]+"), ContainsRegex("bandwidth +[0-9.]+ GB/s"),
                    HasSubstr("process_vm_readv"), ContainsRegex("all_reduce +slots: ")));
}

TEST_F(Doctor, SaysTheSameToPrograms) {
  const Ending ending = ask({"--json"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  const auto report = nlohmann::json::parse(ending.out);
  EXPECT_EQ(report.at("trains"), true);
  EXPECT_FALSE(report.at("processor").at("cores").empty());
  EXPECT_GT(report.at("memory").at("bytes").at("total"), 0);
  EXPECT_GT(report.at("memory").at("bandwidth_bytes_per_s"), 0);
  EXPECT_TRUE(report.at("problems").is_array());
  EXPECT_TRUE(report.at("collectives").at("all_reduce").contains("slots"));
}

TEST_F(Doctor, EndsWith1WhereRanksCannotStart) {
  const std::string command = "ulimit -n 12; exec " + program("lockstep") + " doctor";
  const Ending ending = start({"/bin/sh", "-c", command}).finish();
  EXPECT_EQ(ending.exit_code, 1) << ending.out << ending.err;
  EXPECT_THAT(
      ending.out,
      AllOf(HasSubstr("1. training does not run here: two ranks that join and average an array fail: "),
            HasSubstr("ulimit -n"),
            HasSubstr("more from the administrator: it is as many as this user may have")));
}

TEST_F(Doctor, AsksHosts) {
  REQUIRE_SSH_HOSTS(2);
  const Variables ssh = {{"LOCKSTEP_SSH", servers().client()}};
  const Ending good = ask({"-H", hosts().address(1)}, ssh, hosts().network(0));
  EXPECT_EQ(good.exit_code, 0) << good.out << good.err;
  EXPECT_THAT(good.out, ContainsRegex(hosts().address(1) + " +answers after [0-9]+ ms"));
  const Ending bad =
      ask({"-H", hosts().address(1), "--agent", "/opt/none/lockstep"}, ssh, hosts().network(0));
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.out,
              HasSubstr("training does not run here: " + hosts().address(1) + " cannot take part: "));
  EXPECT_TRUE(servers().left_behind(hosts(), 1).empty());
}

TEST_F(Doctor, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(ask({"--nonsense"}).exit_code, 2);
  EXPECT_EQ(ask({"-H", "a", "--hostfile", "b"}).exit_code, 2);
}

}  // namespace
}  // namespace lockstep::testing
