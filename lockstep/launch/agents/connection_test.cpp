#include "lockstep/launch/agents/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/group/interface_address.h"
#include "lockstep/launch/agents/gather.h"
#include "lockstep/launch/hosts/this_host.h"

namespace lockstep::launch::agents {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(AdviceFor, KnowsWhatSshSays) {
  const auto advice = [](const std::string& words) { return advice_for(words, "server1", "/opt/lockstep"); };
  EXPECT_THAT(advice("root@server1: Permission denied (publickey,password).\n"),
              HasSubstr("`ssh-copy-id server1`"));
  EXPECT_THAT(advice("Host key verification failed.\n"), HasSubstr("`ssh server1`"));
  EXPECT_THAT(advice("ssh: Could not resolve hostname server1: Name or service not known"),
              HasSubstr("no host has this name"));
  EXPECT_THAT(advice("ssh: connect to host server1 port 22: Connection refused"),
              HasSubstr("--ssh 'ssh -p PORT'"));
  EXPECT_THAT(advice("ssh: connect to host server1 port 22: No route to host"), HasSubstr("it is down"));
  EXPECT_THAT(advice("bash: line 1: /opt/lockstep: No such file or directory"),
              HasSubstr("--agent PATH (now /opt/lockstep)"));
  EXPECT_EQ(advice("something else"), "");
}

TEST(VariablesForOthers, AreThoseThatAreNotOfThisHostOrRank) {
  EXPECT_THAT(
      variables_for_others({"PATH=/bin", "HOSTNAME=here", "PWD=/x", "SSH_CLIENT=1", "RANK=3",
                            "SLURM_PROCID=2", "SLURM_CPUS_PER_TASK=4", "OMP_NUM_THREADS=2",
                            "LOCKSTEP_SECRET_FD=5", "LOCKSTEP_TIMEOUT=5s", "odd", "=x"},
                           {{"OMP_NUM_THREADS", "1"}}),
      ElementsAre(Pair("PATH", "/bin"), Pair("SLURM_CPUS_PER_TASK", "4"), Pair("OMP_NUM_THREADS", "2"),
                  Pair("LOCKSTEP_TIMEOUT", "5s"), Pair("OMP_NUM_THREADS", "1")));
}

TEST(IsThisHost, KnowsItsNamesAndAddresses) {
  for (const std::string name : {"localhost", "127.0.0.1", "127.0.0.5"})
    EXPECT_TRUE(is_this_host(name)) << name;
  for (const std::string& address : own_addresses()) EXPECT_TRUE(is_this_host(address)) << address;
  for (const std::string name : {"192.0.2.1", "root@localhost", "no-such-host.invalid"})
    EXPECT_FALSE(is_this_host(name)) << name;
}

}  // namespace
}  // namespace lockstep::launch::agents
