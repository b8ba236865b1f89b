#include "lockstep/launch/agents/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch::agents {
namespace {

using ::testing::ElementsAre;

Candidate candidate(const std::string& machine, std::vector<std::string> addresses) {
  Candidate made;
  made.hello =
      Hello{.host = machine, .machine = machine, .network = machine, .addresses = std::move(addresses)};
  return made;
}

/// The first host has these.
std::vector<std::string> tried(std::vector<std::string> addresses, const std::string& name) {
  Candidates hosts;
  hosts.push_back(candidate("one", std::move(addresses)));
  hosts.push_back(candidate("other", {"10.0.0.9"}));
  return addresses_to_try(hosts, name);
}

TEST(AddressesToTry, BeginWithTheOneTheUserNames) {
  EXPECT_THAT(tried({"10.0.0.1", "10.1.0.1"}, "10.1.0.1"), ElementsAre("10.1.0.1", "10.0.0.1"));
  EXPECT_THAT(tried({"10.0.0.1", "10.1.0.1"}, "no-such-host.invalid"), ElementsAre("10.0.0.1", "10.1.0.1"));
}

TEST(AddressesToTry, AreIPv6WhereThatIsWishedOrAllThereIs) {
  EXPECT_THAT(tried({"10.0.0.1", "fd00::1", "fd01::1"}, "10.0.0.1"), ElementsAre("10.0.0.1"));
  EXPECT_THAT(tried({"10.0.0.1", "fd00::1", "fd01::1"}, "fd01::1"), ElementsAre("fd01::1", "10.0.0.1"));
  EXPECT_THAT(tried({"fd00::1", "fd01::1"}, "no-such-host.invalid"), ElementsAre("fd00::1", "fd01::1"));
}

TEST(AddressesToTry, AreLoopbackOnOneMachine) {
  Candidates hosts;
  hosts.push_back(candidate("one", {"10.0.0.1"}));
  hosts.push_back(candidate("one", {"10.0.0.1"}));
  EXPECT_THAT(addresses_to_try(hosts, "10.0.0.1"), ElementsAre("127.0.0.1"));
}

}  // namespace
}  // namespace lockstep::launch::agents
