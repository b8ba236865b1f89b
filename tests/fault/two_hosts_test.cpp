// A job on two hosts: it works, and what is wrong with one rank is known on both.
#include <unistd.h>

#include <sstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class TwoHostsJob : public JobTest {
 protected:
  Process probe(int rank, int host, int size, std::vector<std::string> actions, const Variables& more) {
    actions.insert(actions.begin(), program("probe_rank"));
    Variables variables = {{"MASTER_ADDR", hosts().address(0)}, {"LOCKSTEP_INIT_TIMEOUT", "4s"}};
    variables.insert(variables.end(), more.begin(), more.end());
    return start(actions, by_hand(rank, size, variables), hosts().network(host));
  }
};

void expect_checked(const std::vector<Ending>& endings) {
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, ContainsRegex("checked [0-9]{3} calls")) << ending.err;
    EXPECT_EQ(ending.err, "");
  }
}

TEST_F(TwoHostsJob, OneRankOnEachGetsRightResults) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, {"everything"});
  expect_checked(finish(ranks));
}

TEST_F(TwoHostsJob, TwoRanksOnEachGetRightResults) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(4, {"everything"});
  expect_checked(finish(ranks));
}

TEST_F(TwoHostsJob, OneRankAndTwoGetRightResults) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(3, {"everything"});
  expect_checked(finish(ranks));
}

/// Bytes that a host has sent.
std::uint64_t sent_by(const Hosts& hosts, int host, const std::string& interface = "cable") {
  const Ending told = run({.words = {"cat", "/proc/self/net/dev"}, .network = hosts.network(host)});
  const std::string name = interface + ":";
  std::istringstream line(told.out.substr(told.out.find(name) + name.size()));
  std::uint64_t value = 0;
  for (int column = 0; column < 9; ++column) line >> value;
  return value;
}

// What a rank has to tell about its host's sum crosses, no more: a ring of all four would send half as much again.
TEST_F(TwoHostsJob, TwoRanksOnEachSendNoMoreThanTheyHaveTo) {
  REQUIRE_TWO_HOSTS();
  constexpr double n = 4.0 * (1 << 20);
  for (const char* buffers : {"private", "arena"}) {
    const std::uint64_t before = sent_by(hosts(), 0);
    auto ranks = start_probes_on_two_hosts(
        4, {std::string("all_reduce,f32,") + std::to_string(1 << 20) + "," + buffers});
    for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const auto sent = static_cast<double>(sent_by(hosts(), 0) - before);
    EXPECT_GE(sent, n) << buffers;
    EXPECT_LE(sent, 1.15 * n) << buffers;
  }
}

const std::vector<std::string> long_sum = {"all_reduce,f32,1048576,arena"};

TEST_F(TwoHostsJob, HalvesOnTheWireAreHalfTheBytes) {
  REQUIRE_TWO_HOSTS();
  constexpr double n = 4.0 * (1 << 20);
  for (const char* wire : {"bf16", "f16"}) {
    const std::uint64_t before = sent_by(hosts(), 0);
    auto ranks = start_probes_on_two_hosts(4, long_sum, {{"LOCKSTEP_WIRE_DTYPE", wire}});
    for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const auto sent = static_cast<double>(sent_by(hosts(), 0) - before);
    EXPECT_GE(sent, n / 2) << wire;
    EXPECT_LE(sent, 1.15 * n / 2) << wire;
  }
}

TEST_F(TwoHostsJob, RankZeroSaysInWhatSumsCross) {
  REQUIRE_TWO_HOSTS();
  const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("ours")}};
  for (const int says : {0, 1}) {
    const std::uint64_t before = sent_by(hosts(), 0);
    std::vector<Process> ranks;
    for (const int rank : {0, 1}) {
      Variables variables = secret;
      if (rank == says) variables.emplace_back("LOCKSTEP_WIRE_DTYPE", "bf16");
      ranks.push_back(probe(rank, rank, 2, long_sum, variables));
    }
    for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const std::uint64_t sent = sent_by(hosts(), 0) - before;
    EXPECT_EQ(sent < std::uint64_t{3} << 20, says == 0) << sent;
  }
}

TEST_F(TwoHostsJob, AnUnknownWireIsRefusedWithThoseThereAre) {
  REQUIRE_TWO_HOSTS();
  const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("ours")}, {"LOCKSTEP_WIRE_DTYPE", "int8"}};
  Process zero = probe(0, 0, 2, {}, secret);
  Process one = probe(1, 1, 2, {}, secret);
  EXPECT_THAT(zero.finish().err,
              HasSubstr("LOCKSTEP_WIRE_DTYPE: sums of f32 cross between hosts in bf16, f16 or, as they are, "
                        "f32; not in \"int8\""));
  EXPECT_NE(one.finish().exit_code, 0);
}

TEST_F(TwoHostsJob, TwoNetworksCarryHalfEach) {
  REQUIRE_TWO_HOSTS();
  const auto inside = [&](int host, const std::string& command) {
    const Ending made = run({.words = {"sh", "-ec", command}, .network = hosts().network(host)});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  };
  // The other end of a cable goes to the other host's network, which this process holds open.
  inside(0, "ip link add rail type veth peer name rail netns /proc/" + std::to_string(::getpid()) + "/fd/" +
                std::to_string(hosts().network(1)));
  for (const int host : {0, 1})
    inside(host, "ip address add 10.178.0." + std::to_string(host + 1) + "/24 dev rail; ip link set rail up");
  for (const char* connections : {"1", "2"}) {
    const std::uint64_t cable = sent_by(hosts(), 0), rail = sent_by(hosts(), 0, "rail");
    auto ranks = start_probes_on_two_hosts(
        2, long_sum, {{"LOCKSTEP_IFACE", "cable,rail"}, {"LOCKSTEP_CONNECTIONS", connections}});
    for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
    constexpr double half = 2.0 * (1 << 20);
    EXPECT_NEAR(static_cast<double>(sent_by(hosts(), 0) - cable), half, 0.15 * half) << connections;
    EXPECT_NEAR(static_cast<double>(sent_by(hosts(), 0, "rail") - rail), half, 0.15 * half) << connections;
  }
  inside(0, "ip link del rail");
}

TEST_F(TwoHostsJob, AnInterfaceNamedTwiceIsRefused) {
  REQUIRE_TWO_HOSTS();
  Process zero = probe(
      0, 0, 2, {},
      {{"LOCKSTEP_IFACE", "cable," + hosts().address(0)}, {"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
  EXPECT_THAT(zero.finish().err, HasSubstr("names " + hosts().address(0) + " twice"));
}

TEST_F(TwoHostsJob, WorksWithoutASecretForThoseWhoAskForIt) {
  REQUIRE_TWO_HOSTS();
  std::vector<Process> ranks;
  for (const int rank : {0, 1})
    ranks.push_back(probe(rank, rank, 2, {"everything"}, {{"LOCKSTEP_INSECURE", "1"}}));
  expect_checked(finish(ranks));
}

TEST_F(TwoHostsJob, ListensWhereItIsTold) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, {"everything"}, {{"LOCKSTEP_IFACE", "cable"}});
  expect_checked(finish(ranks));
}

TEST_F(TwoHostsJob, AWrongInterfaceIsNamedWithThoseThereAre) {
  REQUIRE_TWO_HOSTS();
  Process zero =
      probe(0, 0, 2, {}, {{"LOCKSTEP_IFACE", "ib0"}, {"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
  EXPECT_THAT(zero.finish().err, AllOf(HasSubstr("LOCKSTEP_IFACE=\"ib0\" is no interface of this host"),
                                       HasSubstr("cable (" + hosts().address(0) + ")")));
}

TEST_F(TwoHostsJob, AnInterfaceWithoutAnAddressIsSaid) {
  REQUIRE_TWO_HOSTS();
  const Ending made =
      start({"ip", "link", "add", "naked", "type", "veth", "peer", "name", "other"}, {}, hosts().network(0))
          .finish();
  ASSERT_EQ(made.exit_code, 0) << made.err;
  Process zero =
      probe(0, 0, 2, {}, {{"LOCKSTEP_IFACE", "naked"}, {"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
  EXPECT_THAT(zero.finish().err, AllOf(HasSubstr("LOCKSTEP_IFACE=\"naked\" has no address; there are "),
                                       HasSubstr("cable (" + hosts().address(0) + ")")));
}

TEST_F(TwoHostsJob, AnInterfaceThatLeadsNowhereIsRefusedByEachHost) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, {"everything"}, {{"LOCKSTEP_IFACE", "lo"}});
  for (const Ending& ending : finish(ranks)) {
    EXPECT_NE(ending.exit_code, 0);
    EXPECT_THAT(ending.err,
                ContainsRegex("rank [01] was told to listen at 127\\.0\\.0\\.1, where rank [01] of another "
                              "host cannot come; set LOCKSTEP_IFACE"));
  }
}

TEST_F(TwoHostsJob, NoSecretIsRefusedBeforeAnythingIsSent) {
  REQUIRE_TWO_HOSTS();
  Process zero = probe(0, 0, 2, {}, {});
  EXPECT_THAT(zero.finish().err, HasSubstr("need a secret"));
}

TEST_F(TwoHostsJob, AWrongSecretIsNamed) {
  REQUIRE_TWO_HOSTS();
  Process zero = probe(0, 0, 2, {}, {{"LOCKSTEP_SECRET_FILE", secret_file("right")}});
  Process one = probe(1, 1, 2, {}, {{"LOCKSTEP_SECRET_FILE", secret_file("wrong")}});
  const Ending stranger = one.finish();
  EXPECT_EQ(stranger.exit_code, 1);
  EXPECT_THAT(stranger.err, AllOf(HasSubstr("code=invalid_argument"), HasSubstr("wrong secret")));
  EXPECT_THAT(zero.finish().err, AllOf(HasSubstr("wrong secret: it was turned away"),
                                       HasSubstr("waited in vain for rank 1 of 2")));
}

TEST_F(TwoHostsJob, ARankThatNeverComesIsNamedOnBoth) {
  REQUIRE_TWO_HOSTS();
  const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("ours")}};
  std::vector<Process> ranks;
  ranks.push_back(probe(0, 0, 3, {}, secret));
  ranks.push_back(probe(2, 1, 3, {}, secret));
  for (const Ending& ending : finish(ranks))
    EXPECT_THAT(ending.err, HasSubstr("code=timeout peer=1 text=waited in vain for rank 1 of 3"));
}

TEST_F(TwoHostsJob, ARankKilledOnTheOtherHostIsNamedByAll) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(4, {"barrier", "3:say,ready", "3:read", "all_reduce,f32,300000"});
  ranks[3].await("ready");
  ranks[3].send(SIGKILL);
  EXPECT_EQ(ranks[3].finish().exit_code, 128 + SIGKILL);
  for (const std::size_t survivor : {0U, 1U, 2U}) {
    const Ending ending = ranks[survivor].finish();
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(lines_with(ending.err, "probe rank="), SizeIs(1));
    EXPECT_THAT(ending.err, AllOf(HasSubstr("code=peer_lost peer=3"), HasSubstr("all_reduce #1"),
                                  ContainsRegex("rank 3 (\\(pid [0-9]+\\) )?died")));
  }
}

TEST_F(TwoHostsJob, AStoppedRankIsNamedByAllWhenTheDeadlineHasPassed) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(4, {"barrier", "1:raise,19", "all_reduce,f32,300000"},
                                         {{"LOCKSTEP_TIMEOUT", "4s"}});
  for (const std::size_t survivor : {0U, 2U, 3U}) {
    const Ending ending = ranks[survivor].finish();
    EXPECT_EQ(ending.exit_code, 1);
    EXPECT_THAT(ending.err, AllOf(HasSubstr("code=timeout peer=1"), HasSubstr("all_reduce #1"),
                                  ContainsRegex("rank 1 did not (arrive within 4 s|answer)")));
  }
  ranks[1].send(SIGCONT);
  const Ending ending = ranks[1].finish();
  EXPECT_EQ(ending.exit_code, 1) << "the stopped rank goes on as if nothing had happened";
}

}  // namespace
}  // namespace lockstep::testing
