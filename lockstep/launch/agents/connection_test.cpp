#include "lockstep/launch/agents/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/group/interface_address.h"
#include "lockstep/launch/hosts/this_host.h"

namespace lockstep::launch::agents {
namespace {

using ::testing::HasSubstr;

TEST(AdviceFor, KnowsWhatSshSays) {
  const auto advice = [](const std::string& words) { return advice_for(words, "server1", "/opt/lockstep"); };
  EXPECT_THAT(advice("root@server1: Permission denied (publickey,password).\n"),
              HasSubstr("`ssh-copy-id server1`"));
  EXPECT_THAT(advice("Host key verification failed.\n"), HasSubstr("does not know its key yet"));
  EXPECT_THAT(advice("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"),
              HasSubstr("its key is not the one that ssh knows"));
  EXPECT_THAT(advice("bash: line 1: exec: /opt/lockstep: cannot execute: Permission denied"),
              HasSubstr("may it be executed there? --agent PATH (now /opt/lockstep)"));
  EXPECT_THAT(advice("ssh: Could not resolve hostname server1: Name or service not known"),
              HasSubstr("no host has this name"));
  EXPECT_THAT(advice("ssh: connect to host server1 port 22: Connection refused"),
              HasSubstr("--ssh 'ssh -p PORT'"));
  EXPECT_THAT(advice("ssh: connect to host server1 port 22: No route to host"), HasSubstr("it is down"));
  EXPECT_THAT(advice("bash: line 1: /opt/lockstep: No such file or directory"),
              HasSubstr("--agent PATH (now /opt/lockstep)"));
  EXPECT_EQ(advice("something else"), "");
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
