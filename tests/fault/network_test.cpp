// A network between two hosts that falls silent, becomes slow or is full of strangers while ranks call collectives.
#include <sstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TheNetwork : public JobTest {
 protected:
  void on_host(int host, const std::string& command) const {
    const Ending ending = start({"sh", "-ec", command}, {}, hosts().network(host)).finish();
    ASSERT_EQ(ending.exit_code, 0) << command << ": " << ending.err;
  }
  /// So many bits a second, each way.
  void make_slow(const std::string& rate) const {
    for (const int host : {0, 1}) {
      on_host(
          host,
          "tc qdisc add dev cable root handle 1: htb default 1; tc class add dev cable parent 1: classid 1:1 "
          "htb rate " +
              rate + " burst 1600 cburst 1600");
    }
  }
  static void go_on(std::vector<Process>& ranks) {
    for (Process& rank : ranks) rank.type("go\n");
  }
  static void await_all(std::vector<Process>& ranks, const std::string& text) {
    for (Process& rank : ranks) rank.await(text);
  }
  /// That each rank names the other as the one for which it waited in vain, and the call.
  static void expect_both_ends_named(std::vector<Process>& ranks, const std::string& call) {
    const auto endings = finish(ranks);
    for (const std::size_t rank : {0U, 1U}) {
      const std::string other = std::to_string(1 - rank);
      EXPECT_EQ(endings[rank].exit_code, 1);
      EXPECT_THAT(lines_with(endings[rank].err, "probe rank="), ::testing::SizeIs(1)) << endings[rank].err;
      EXPECT_THAT(endings[rank].err, AllOf(HasSubstr("code=timeout peer=" + other), HasSubstr(call),
                                           ContainsRegex("rank " + other + " did not (arrive|answer)")));
    }
  }
};

const std::vector<std::string> connected_then_long = {"all_reduce,f32,1000", "say,here", "read",
                                                      "all_reduce,f32,1000000"};

TEST_F(TheNetwork, ThatFallsSilentEndsTheCallAtTheDeadlineAndBothEndsAreNamed) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, connected_then_long, {{"LOCKSTEP_TIMEOUT", "2s"}});
  await_all(ranks, "here");
  on_host(1, "ip link set cable down");
  go_on(ranks);
  expect_both_ends_named(ranks, "all_reduce #1");
}

TEST_F(TheNetwork, ThatComesBackBeforeTheDeadlineCarriesOn) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, connected_then_long, {{"LOCKSTEP_TIMEOUT", "60s"}});
  await_all(ranks, "here");
  on_host(1, "ip link set cable down");
  go_on(ranks);
  on_host(1, "sleep 1; ip link set cable up");
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("done"));
  }
}

TEST_F(TheNetwork, ThatShrinksToNothingEndsTheCallAtTheDeadlineAndBothEndsAreNamed) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(2, connected_then_long, {{"LOCKSTEP_TIMEOUT", "2s"}});
  await_all(ranks, "here");
  make_slow("2kbit");
  go_on(ranks);
  expect_both_ends_named(ranks, "all_reduce #1");
}

// A table that was measured elsewhere costs time, and nothing else.
TEST_F(TheNetwork, ThatIsSlowerThanTheTableThoughtGivesTheSame) {
  REQUIRE_TWO_HOSTS();
  const std::string table = folder() / "table.json";
  ASSERT_EQ(
      run({.words =
               {"sh", "-c",
                "echo '{\"format\": \"lockstep-tuning-1\", \"segment_bytes\": 4194304, \"staging_bytes\": "
                "2097152, \"connections\": 4, \"rules\": [{\"operation\": \"all_reduce\", \"where\": "
                "\"channels\", \"ranks\": 2, \"choose\": [{\"algorithm\": \"recursive_doubling\"}]}]}' > " +
                    table}})
          .exit_code,
      0);
  make_slow("200mbit");
  auto ranks = start_probes_on_two_hosts(2, {"all_reduce,f32,200000", "broadcast,100000,1", "barrier"},
                                         {{"LOCKSTEP_TUNING_FILE", table}, {"LOCKSTEP_TIMEOUT", "60s"}});
  for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

// At every port that ranks have opened: garbage, lengths that are too long, one byte a second, and silence.
constexpr const char* strangers = R"(
import os, socket, sys, time
ends = time.monotonic() + 4
open_ones = []
def ports():
    for line in open("/proc/self/net/tcp").read().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A":
            yield int(words[1].split(":")[1], 16)
kinds = [os.urandom(200), b"LkP2" + b"\xff" * 73, b"LkP2" + b"\x00\x00\x00\x00\x00\x00\x00\x00" + os.urandom(65), b"LkP2"]
rounds = 0
seen = set()
while time.monotonic() < ends:
    for port in set(ports()):
        seen.add(port)
        for kind in kinds:
            try:
                stranger = socket.create_connection((sys.argv[1], port), timeout=1)
                stranger.send(kind)
                stranger.setblocking(False)
                open_ones.append(stranger)
            except OSError:
                pass
    for stranger in open_ones[-200:]:
        try:
            stranger.send(b"x")
        except OSError:
            pass
    for stranger in open_ones[:-200]:
        stranger.close()
    del open_ones[:-200]
    rounds += 1
    time.sleep(0.2)
print("strangers at", len(seen), "ports,", rounds, "times")
)";

TEST_F(TheNetwork, ThatIsFullOfStrangersDisturbsNobody) {
  REQUIRE_TWO_HOSTS();
  std::vector<std::string> actions = {"barrier", "say,here", "read"};
  for (int call = 0; call < 200; ++call)
    actions.insert(actions.end(), {"all_reduce,f32,100000", "all_reduce,f32,10", "sleep,10"});
  auto ranks = start_probes_on_two_hosts(2, actions, {{"LOCKSTEP_TIMEOUT", "10s"}});
  await_all(ranks, "here");
  std::vector<Process> all_strangers;
  for (const int host : {0, 1})
    all_strangers.push_back(
        start({"python3", "-c", strangers, hosts().address(host)}, {}, hosts().network(host)));
  go_on(ranks);
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, HasSubstr("done"));
    // What is said is who was turned away, and that not without end.
    std::istringstream lines(ending.err);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_THAT(line, HasSubstr("it was turned away"));
    EXPECT_LE(count, 40);
  }
  for (const Ending& ending : finish(all_strangers)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out, ContainsRegex("strangers at [1-9][0-9]* ports, [1-9][0-9]* times"));
  }
}

}  // namespace
}  // namespace lockstep::testing
