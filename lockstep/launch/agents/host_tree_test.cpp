#include "lockstep/launch/agents/host_tree.h"

#include <gmock/gmock.h>

namespace lockstep::launch::agents {
namespace {

using ::testing::ElementsAre;

TEST(HostTree, AsManyAsItsWidthAreReachedDirectlyAndNoneHasTooManyBehindIt) {
  EXPECT_EQ(directly_reached(32, 32), 32U);
  EXPECT_EQ(directly_reached(33, 32), 32U);
  EXPECT_EQ(directly_reached(320, 32), 32U);
  EXPECT_EQ(directly_reached(321, 32), 33U);
  EXPECT_EQ(directly_reached(3, 1), 1U);
}

std::vector<std::string> ways(const RemoteOptions& remote, const std::vector<std::string>& names) {
  std::vector<Host> hosts;
  for (const std::string& name : names) hosts.push_back({name, 1});
  std::vector<std::string> found;
  for (const RemoteShell& shell : shells_for(remote, hosts, "/run/x")) found.push_back(shell.by_way_of);
  return found;
}

TEST(HostTree, DealsTheRestOutAmongTheFirst) {
  const RemoteOptions remote{.shell = {"/usr/bin/ssh", "-p", "2222"}, .tree_width = 2};
  EXPECT_THAT(ways(remote, {"a", "b", "c", "d", "e"}), ElementsAre("", "", "a", "b", "a"));
}

TEST(HostTree, OfShellsThatShareNothingEachHostIsReachedDirectly) {
  EXPECT_THAT(ways({.shell = {"rsh"}, .tree_width = 1}, {"a", "b"}), ElementsAre("", ""));
  EXPECT_THAT(ways({.tree_width = 1}, {"localhost", "far"}), ElementsAre("", ""));
}

TEST(HostTree, TheCommandsShareAConnectionAndQuoteForBothShells) {
  const RemoteOptions remote{.shell = {"ssh", "-F", "my config"}, .agent = "/opt/lockstep", .tree_width = 1};
  const auto shells = shells_for(remote, {{"a", 1}, {"user@b", 1}}, "/run/50%");
  const auto first = agent_command(shells[0], "a"), second = agent_command(shells[1], "user@b");
  EXPECT_THAT(std::vector(first.end() - 5, first.end()),
              ElementsAre("-oControlMaster=yes", "-oControlPersist=10", "-oControlPath=/run/50%%/0", "a",
                          "exec /opt/lockstep agent"));
  EXPECT_THAT(std::vector(second.end() - 3, second.end()),
              ElementsAre("-oControlPath=/run/50%%/0", "a",
                          "exec ssh -F 'my config' -T -x -oBatchMode=yes -oConnectTimeout=30 "
                          "-oServerAliveInterval=15 -oServerAliveCountMax=4 user@b "
                          "'exec /opt/lockstep agent'"));
}

}  // namespace
}  // namespace lockstep::launch::agents
