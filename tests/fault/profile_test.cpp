// The profile that a job leaves: counts and bytes against what the ranks are known to have called, also where one is killed,
// and under launchers of others.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "lockstep/trace/flight_record.h"
#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Row {
  long calls = 0;
  double average_bytes = 0;
  double seconds = 0;
};

/// The rows of a rank's file, up to the rule after them.
std::map<std::string, Row> rows_of(const std::string& text) {
  std::map<std::string, Row> rows;
  std::istringstream lines(text.substr(text.find("time(sec)\n") + 10));
  std::string line;
  std::getline(lines, line);  // a rule
  while (std::getline(lines, line) && !line.starts_with("----")) {
    std::istringstream words(line.substr(28));
    Row row;
    words >> row.calls >> row.average_bytes >> row.seconds;
    rows[line.substr(0, line.find_last_not_of(' ', 27) + 1)] = row;
  }
  return rows;
}

class Profile : public SshJobTest {
 protected:
  fs::path place() const { return folder() / "profile"; }
  Process launch(std::vector<std::string> options, std::vector<std::string> actions,
                 const Variables& variables = {}, int network = -1) const {
    std::vector<std::string> words = {program("lockstep"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--profile", place(), program("probe_rank")});
    words.insert(words.end(), actions.begin(), actions.end());
    return start(words, variables, network);
  }
  /// The files' contents by what follows the job's name.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(place())) {
      const std::string name = entry.path().filename();
      EXPECT_THAT(name, ContainsRegex("^lockstep_profile\\.[^.]+\\.([0-9]+|json)$"));
      found[name.substr(name.rfind('.') + 1)] = text_in(entry.path());
    }
    return found;
  }
};

const std::vector<std::string> some_calls = {
    "barrier",         "barrier",      "all_reduce,f32,100", "all_reduce,f32,100",   "all_reduce,f64,50000",
    "0:send,8,1",      "1:recv,8,0",   "broadcast,3000,0",   "all_to_all_v,4-4,4-4", "0:send,100000,1",
    "1:recv,100000,0", "all_gather,70"};

TEST_F(Profile, HasEachCallOnceWithItsBytes) {
  const Ending ending = launch({"-np", "2"}, some_calls).finish();
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const auto made = files();
  ASSERT_THAT(made, SizeIs(3));
  for (const std::string rank : {"0", "1"}) {
    const std::string& text = made.at(rank);
    EXPECT_THAT(text, HasSubstr("Data for rank " + rank + " of 2:\n"));
    auto rows = rows_of(text);
    const auto expect = [&](const std::string& name, long calls, double bytes) {
      EXPECT_EQ(rows[name].calls, calls) << name << text;
      EXPECT_NEAR(rows[name].average_bytes, bytes, 0.05) << name << text;
      EXPECT_GE(rows[name].seconds, 0);
    };
    expect("barrier", 2, 0);
    expect("all_reduce", 3, (400 + 400 + 400000) / 3.0);
    expect(rank == "0" ? "send" : "recv", 2, 100008 / 2.0);
    expect("broadcast", 1, 3000);
    expect("all_to_all_v", 1, 0);  // each rank passes something else
    expect("all_gather", 1, 70);
    EXPECT_THAT(rows, SizeIs(6)) << text;
    EXPECT_THAT(
        text, ContainsRegex("\nall_reduce +#calls +avg. bytes +time\\(sec\\)\n +2 +400.0 +[0-9]+\\.[0-9]{3}\n"
                            " +1 +400000.0 +[0-9]+\\.[0-9]{3}\n\n"));
  }
  EXPECT_THAT(
      ending.err,
      AllOf(ContainsRegex("lockstep run: profile of 2 ranks, in [^\n]*lockstep_profile\\.[^\n]*\\.\\*\n"),
            ContainsRegex("\n  all_reduce +3 +133600.0 "),
            ContainsRegex("\n  communication: [0-9.]+ s of [0-9.]+ s \\([0-9.]+ %\\)"),
            ContainsRegex("largest resident set [0-9.]+ MiB \\(rank [01]\\)")));
}

TEST_F(Profile, TellsWaitingForOthersFromTransfer) {
  // Rank 1 comes 2 s late, of which rank 0 may have come some late itself.
  const Ending ending =
      launch({"-np", "2", "--profile-all"}, {"barrier", "1:sleep,2000", "all_reduce,f32,100"}).finish();
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const auto waiting = [&](const std::string& text) {
    const std::string part = text.substr(text.find("waiting(sec)"));
    std::istringstream words(part.substr(part.find("\nall_reduce") + 1));
    std::string name;
    long calls = 0;
    double seconds = -1;
    words >> name >> calls >> seconds;
    return seconds;
  };
  const auto made = files();
  EXPECT_GE(waiting(made.at("0")), 0.25);
  EXPECT_LT(waiting(made.at("1")), 0.25);
  EXPECT_THAT(made.at("0"), HasSubstr("Rank 0 of 2 had the maximum communication time.\n"));
}

TEST_F(Profile, OfNamedOperationsAndTheirControlMessagesHaveRowsOfTheirOwn) {
  const Ending ending = launch({"-np", "2"}, {"named,a=100,b=200", "all_reduce,f32,7"}).finish();
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  auto rows = rows_of(files().at("0"));
  EXPECT_EQ(rows["all_reduce"].calls, 1);
  EXPECT_GE(rows["named all_reduce"].calls, 1);
  EXPECT_GE(rows["control recv"].calls, 1);
  EXPECT_THAT(ending.err,
              ContainsRegex("\n  control messages: [0-9]+ of [0-9]+ bytes, [0-9.]+ s, [0-9.]+ %"));
}

TEST_F(Profile, IsWholeWhereARankIsKilled) {
  const Ending ending = launch({"-np", "2", "--record-dir", "none"},
                               {"all_reduce,f32,100", "all_reduce,f32,100", "1:raise,9", "barrier"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  const auto made = files();
  for (const char* rank : {"0", "1"})
    EXPECT_EQ(rows_of(made.at(rank))["all_reduce"].calls, 2) << made.at(rank);
}

TEST_F(Profile, ARankThatOverwritesThePageEndsTheJobAndNotTheLauncher) {
  const Ending ending = launch({"-np", "2", "--timeline", folder() / "timeline.json"},
                               {"barrier", "1:overwrite_control_page", "barrier"})
                            .finish();
  EXPECT_LT(ending.exit_code, 128) << ending.err;
  EXPECT_THAT(ending.err, ::testing::Not(HasSubstr("the launcher was killed")));
  EXPECT_THAT(lines_with(ending.err, "lockstep run: timeline of "), SizeIs(1)) << ending.err;
}

TEST_F(Profile, OfAHostThatWasLostSaysWhoIsMissing) {
  REQUIRE_SSH_HOSTS(2);
  Process job = launch({"-H", list(2), "--profile-all"}, {"barrier", "say,here", "pause"},
                       {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  for (const char* rank : {"0", "1", "2", "3"})
    job.await(std::string("[") + rank + "] probe rank=" + rank + " here");
  for (const pid_t agent : agents_of(1)) (void)::kill(agent, SIGKILL);
  const Ending ending = job.finish();
  EXPECT_THAT(ending.err, HasSubstr("profile of 2 of 4 ranks (nothing is known of ranks 2-3), in "));
  EXPECT_THAT(files().at("1"), HasSubstr("Data for rank 1 of 4:\n"));
}

TEST_F(Profile, OfManyRanksHasThoseThatStandOutUnlessAllAreWished) {
  ASSERT_EQ(launch({"-np", "7"}, {"barrier"}).finish().exit_code, 0);
  EXPECT_LE(files().size(), 5U);
  EXPECT_TRUE(files().contains("0"));
  fs::remove_all(place());
  ASSERT_EQ(launch({"-np", "7"}, {"barrier"}, {{"TRACE_ALL_TASKS", "yes"}}).finish().exit_code, 0);
  EXPECT_THAT(files(), SizeIs(8));
}

TEST_F(Profile, CanBeReadAgain) {
  ASSERT_EQ(launch({"-np", "2"}, some_calls).finish().exit_code, 0);
  const std::string text = files().at("json");
  const auto record = trace::FlightRecord::parse(text, "it");
  EXPECT_EQ(record.to_text(), text);
  ASSERT_THAT(record.ranks, SizeIs(2));
  for (const trace::FlightRank& rank : record.ranks) {
    EXPECT_GT(rank.costs.left_at_ns, rank.costs.joined_at_ns);
    EXPECT_GT(rank.costs.process.most_resident_bytes, std::uint64_t{1} << 20);
  }
}

TEST_F(Profile, HoldsLargeCallsAgainstTheMachinesLimits) {
  const std::string limits = folder() / "machine.json";
  std::ofstream(limits)
      << R"({"format": "lockstep-machine-1", "ranks": 2, "hosts": 1, "memory_bytes_per_s": [1e9, 4e10],
                               "link_bytes_per_s": 1e9, "link_seconds": 1e-6})";
  const Ending ending = launch({"-np", "2"}, {"all_reduce,f32,500000", "all_reduce,f32,100"},
                               {{"LOCKSTEP_MACHINE_FILE", limits}})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              ContainsRegex("  all_reduce of 256 KiB and more, 2 ranks: bus bandwidth [0-9.]+ GB/s, "
                            "[0-9]+ % of 10.00\n"));
}

TEST_F(Profile, WithLimitsThatMakeNoSenseIsRefusedBeforeAnythingStarts) {
  const std::string limits = folder() / "machine.json";
  std::ofstream(limits) << "{}";
  const Ending ending = launch({"-np", "2"}, {"barrier"}, {{"LOCKSTEP_MACHINE_FILE", limits}}).finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, HasSubstr("LOCKSTEP_MACHINE_FILE: " + limits + ": is not of \"format\""));
  EXPECT_EQ(ending.out, "");
}

TEST_F(Profile, WithoutAPlaceIsRefusedBeforeAnythingStarts) {
  std::ofstream(place()) << "a file";
  const Ending ending = launch({"-np", "2"}, {"barrier"}).finish();
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, HasSubstr("cannot make the folder " + place().string() + " for the profile: "));
  const Ending empty = start({program("lockstep"), "run", "-np", "1", "--profile", "", "true"}).finish();
  EXPECT_EQ(empty.exit_code, 2);
  const Ending all = start({program("lockstep"), "run", "-np", "1", "--profile-all", "true"}).finish();
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_THAT(all.err, HasSubstr("--profile-all without --profile DIR"));
}

TEST_F(Profile, ThatCannotBeWrittenIsSaidOnceAndTheJobGoesOn) {
  const Ending ending = launch({"-np", "2"}, {"0:take_folder," + place().string(), "barrier"}).finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "lockstep run: the profile could not be written: "), SizeIs(1))
      << ending.err;
}

TEST_F(Profile, OfAProgramWithoutLockstepIsNone) {
  const Ending ending =
      start({program("lockstep"), "run", "-np", "2", "--profile", place().string(), "true"}).finish();
  EXPECT_EQ(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("there is no profile: no rank has called lockstep::init()"));
  EXPECT_TRUE(fs::is_empty(place()));
}

TEST_F(Profile, OfTwoHostsIsOne) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending = launch({"-H", list(2), "--profile-all"}, {"barrier", "all_reduce,f32,100"},
                               {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0))
                            .finish();
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const auto made = files();
  EXPECT_THAT(made, SizeIs(5));
  for (const char* rank : {"0", "3"})
    EXPECT_EQ(rows_of(made.at(rank))["all_reduce"].calls, 1) << made.at(rank);
}

TEST_F(Profile, UnderNoLauncherOfOursIsLeftByTheLastRank) {
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> words = {program("probe_rank")};
    words.insert(words.end(), some_calls.begin(), some_calls.end());
    ranks.push_back(start(words, by_hand(rank, 2, {{"LOCKSTEP_PROFILE", place()}})));
  }
  std::string said;
  for (Process& rank : ranks) {
    const Ending ending = rank.finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    said += ending.err;
  }
  EXPECT_THAT(lines_with(said, "lockstep: profile of 2 ranks"), SizeIs(1)) << said;
  const auto made = files();
  ASSERT_THAT(made, SizeIs(3));
  for (const char* rank : {"0", "1"}) EXPECT_EQ(rows_of(made.at(rank))["all_reduce"].calls, 3);
}

}  // namespace
}  // namespace lockstep::testing
