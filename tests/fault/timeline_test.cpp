// The timeline of a job: all ranks in one file that trace viewers can read, also where one is killed, and of several hosts.
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/ssh_job_test.h"
#include "tests/support/trace_events.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class TimelineOf : public SshJobTest {
 protected:
  std::string file() const { return (folder() / "timeline.json").string(); }
  Ending launch(std::vector<std::string> options, std::vector<std::string> actions,
                const Variables& variables = {}, int network = -1) const {
    std::vector<std::string> words = {program("lockstep"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--timeline", file(), program("probe_rank")});
    words.insert(words.end(), actions.begin(), actions.end());
    return start(words, variables, network).finish();
  }
  json read() const { return json::parse(text_in(file())); }
};

const std::map<int, int> three_each = {{0, 3}, {1, 3}};

TEST_F(TimelineOf, AJobHasAllCallsOfAllRanksNested) {
  const Ending ending =
      launch({"-np", "2"}, {"all_reduce,f32,100", "all_reduce,f32,100000", "all_reduce,f64,7", "1:sleep,1500",
                            "barrier", "range,my range", "counter,my counter,2.5"});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: timeline of 2 ranks in " + file()));
  const json timeline = read();
  EXPECT_TRUE(nests(timeline["traceEvents"]));
  EXPECT_EQ(count_ranges(timeline, "all_reduce"), three_each);
  EXPECT_EQ(count_ranges(timeline, "my range"), (std::map<int, int>{{0, 1}, {1, 1}}));
  double waited = 0;
  int counters = 0;
  for (const json& event : timeline["traceEvents"]) {
    if (event["pid"] == 0 && event["name"] == "waiting for others")
      waited = std::max(waited, event["dur"].get<double>());
    if (event["ph"] == "C") {
      ++counters;
      EXPECT_EQ(event["name"], "my counter");
      EXPECT_EQ(event["args"]["value"], 2.5);
    }
  }
  EXPECT_GE(waited, 100e3);  // microseconds, of the 1,500,000 that rank 1 sleeps
  EXPECT_EQ(counters, 2);
}

TEST_F(TimelineOf, AJobOfMoreCallsThanARingHoldsIsThereFromBeginningToEnd) {
  std::vector<std::string> actions;
  for (int i = 0; i < 3; ++i) actions.insert(actions.end(), {"many_barriers,2000", "sleep,1500"});
  ASSERT_EQ(launch({"-np", "2"}, actions).exit_code, 0);
  EXPECT_EQ(count_ranges(read(), "barrier"), (std::map<int, int>{{0, 6000}, {1, 6000}}));
}

TEST_F(TimelineOf, AJobWhoseRankIsKilledIsWhole) {
  const Ending ending =
      launch({"-np", "2", "--record-dir", "none"},
             {"all_reduce,f32,100", "all_reduce,f32,100", "all_reduce,f32,100", "1:raise,9", "barrier"});
  EXPECT_EQ(ending.exit_code, 128 + SIGKILL);
  const json timeline = read();
  EXPECT_EQ(count_ranges(timeline, "all_reduce"), three_each);
}

TEST_F(TimelineOf, NamesHoldAnyBytes) {
  ASSERT_EQ(launch({"-np", "2"}, {"range,a \"quoted\" <b>name</b> \\ \xff\x01"}).exit_code, 0);
  EXPECT_EQ(count_ranges(read(), "a \"quoted\" <b>name</b> \\ \xef\xbf\xbd\x01"),
            (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST_F(TimelineOf, AJobThatCannotBeWrittenIsSaidOnceAndTheJobGoesOn) {
  const auto place = folder() / "place";
  std::filesystem::create_directory(place);
  const Ending ending = start({program("lockstep"), "run", "-np", "2", "--timeline", place / "timeline.json",
                               program("probe_rank"), "0:take_folder," + place.string(), "barrier"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.err, "lockstep run: the timeline could not be written: "), SizeIs(1))
      << ending.err;
}

TEST_F(TimelineOf, AJobWithoutAPlaceIsRefusedBeforeAnythingStarts) {
  for (const auto& [path, why] : std::vector<std::pair<std::string, std::string>>{
           {folder() / "none" / "timeline.json", "there is no folder "},
           {folder(), " is a folder; name a file in it"},
           {"/proc/timeline.json", "cannot open the timeline /proc/timeline.json"},
           {"", "is empty"}}) {
    const Ending ending =
        start({program("lockstep"), "run", "-np", "1", "--timeline", path, "true"}).finish();
    EXPECT_EQ(ending.exit_code, 2) << path;
    EXPECT_THAT(ending.err, HasSubstr(why));
  }
}

TEST_F(TimelineOf, OfAJobThatStartsAgainEachAttemptHasItsOwn) {
  const std::string once = "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec " + program("probe_rank") +
                           " barrier 1:raise,9 barrier; else exec " + program("probe_rank") + " barrier; fi";
  const Ending ending = start({program("lockstep"), "run", "-np", "2", "--max-restarts", "1", "--timeline",
                               file(), "/bin/sh", "-c", once})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(count_ranges(read(), "barrier"), (std::map<int, int>{{0, 2}, {1, 1}}));
  EXPECT_EQ(count_ranges(json::parse(text_in(folder() / "timeline.restart1.json")), "barrier"),
            (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST_F(TimelineOf, HorovodsVariableDoesIt) {
  const Ending ending = start({program("lockstep"), "run", "-np", "2", program("probe_rank"), "barrier"},
                              {{"HOROVOD_TIMELINE", file()}})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(count_ranges(read(), "barrier"), (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST_F(TimelineOf, NamedOperationsHasTheirNames) {
  const Ending ending = launch({"-np", "2"}, {"named,grad.0=10,grad.1=20"});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const json timeline = read();
  EXPECT_TRUE(nests(timeline["traceEvents"]));
  EXPECT_EQ(count_ranges(timeline, "grad.0"), (std::map<int, int>{{0, 1}, {1, 1}}));
  int waits = 0;
  for (const json& event : timeline["traceEvents"]) {
    if (event["name"] == "grad.1") {
      EXPECT_EQ(event["args"], json::parse(R"({"operation":"all_reduce","dtype":"f32","elements":20})"));
    }
    if (event["name"] == "waiting for others to submit it") ++waits;
  }
  EXPECT_GE(waits, 2);  // each by the rank that was first
}

TEST_F(TimelineOf, AJobWithHorovodsNamesHasAProcessForEachTensor) {
  const Ending ending =
      launch({"-np", "2", "--timeline-names", "horovod"}, {"named,grad.0=10,grad.1=20", "all_reduce,f64,7"});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              HasSubstr("lockstep run: timeline of 2 ranks in " + file() + ", with Horovod's names"));
  std::map<int, std::string> tensors;
  std::map<std::string, std::vector<std::string>> events;
  for (const json& event : read()) {
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") tensors[event["pid"]] = event["args"]["name"];
      continue;
    }
    const std::string name =
        event.contains("name") ? event["name"].get<std::string>() : event.value("args", json()).dump();
    events[tensors.at(event["pid"])].push_back(event["ph"].get<std::string>() + " " + name);
  }
  ASSERT_THAT(events, SizeIs(3));
  const auto& grad = events["grad.1"];
  EXPECT_THAT(grad,
              ::testing::IsSupersetOf({"B NEGOTIATE_ALLREDUCE", "X 0", "X 1", "B ALLREDUCE",
                                       "B LOCKSTEP_ALLREDUCE", R"(E {"dtype":"float32","shape":"[20]"})"}));
  EXPECT_EQ(grad.front(), "B NEGOTIATE_ALLREDUCE");
  EXPECT_THAT(events, ::testing::Contains(::testing::Key("all_reduce in world")));
}

TEST_F(TimelineOf, HorovodsNamesAreNotOfPerfettosFormat) {
  for (const std::string ending : {"pftrace", "perfetto-trace"}) {
    const std::string file = folder() / ("timeline." + ending);
    const Ending launched = start({program("lockstep"), "run", "-np", "1", "--timeline", file,
                                   "--timeline-names", "horovod", program("probe_rank"), "say,here"})
                                .finish();
    EXPECT_EQ(launched.exit_code, 2);
    EXPECT_EQ(launched.out, "");
    EXPECT_THAT(launched.err,
                HasSubstr("--timeline " + file +
                          ": what reads Horovod's names reads JSON; name a file that ends in .json"));
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

TEST_F(TimelineOf, OtherNamesAreRefused) {
  const Ending flag = launch({"-np", "1", "--timeline-names", "theirs"}, {"say,here"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_THAT(flag.err, HasSubstr("--timeline-names: theirs not in {lockstep,horovod}"));
  const Ending variable = launch({"-np", "1"}, {"say,here"}, {{"LOCKSTEP_TIMELINE_NAMES", "theirs"}});
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_THAT(variable.err,
              HasSubstr("LOCKSTEP_TIMELINE_NAMES=theirs: names of events are lockstep or horovod"));
  EXPECT_EQ(flag.out + variable.out, "");
}

/// Of ranks that had a range "before" a barrier and one "after": no rank was through with it before the last one had come, as far
/// as clocks are right. (The barrier itself begins a little later than it says, once the others have been told.)
void expect_a_barrier_between(const json& timeline) {
  double last_before = 0, first_after = std::numeric_limits<double>::infinity();
  for (const json& event : timeline["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    if (event["name"] == "before") last_before = std::max(last_before, end);
    if (event["name"] == "after") first_after = std::min(first_after, begin);
  }
  const double error = timeline["otherData"]["clock_error_us"].get<double>() * 2 + 1;
  EXPECT_GT(last_before, 0);
  EXPECT_GE(first_after + error, last_before);
}

TEST_F(TimelineOf, APartIsMadeByTheProgramUnderAnyLauncherAlsoOfTwoClocks) {
  std::vector<std::string> other_clock = {"unshare", "--time", "--monotonic", "5000", "--fork"};
  const bool has_other =
      start({"unshare", "--time", "--monotonic", "5000", "--fork", "true"}).finish().exit_code == 0;
  if (!has_other) other_clock.clear();
  std::vector<Process> ranks;
  for (const char* rank : {"--rank=0", "--rank=1"}) {
    std::vector<std::string> words;
    if (std::string_view(rank) == "--rank=1") words = other_clock;
    words.insert(words.end(), {program("probe_rank"), rank, "--size=2", "--address=127.0.0.1",
                               "--port=" + std::to_string(port()), "barrier", "timeline," + file(), "barrier",
                               "range,before", "barrier", "range,after", "timeline_end", "barrier"});
    ranks.push_back(start(words));
  }
  std::string out;
  for (const Ending& ending : finish(ranks)) {
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    out += ending.out;
  }
  EXPECT_THAT(out, HasSubstr("timeline: timeline of 2 ranks in " + file()));
  const json timeline = read();
  EXPECT_TRUE(nests(timeline["traceEvents"]));
  EXPECT_EQ(count_ranges(timeline, "barrier"), (std::map<int, int>{{0, 2}, {1, 2}}));
  EXPECT_EQ(count_ranges(timeline, "after"), (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(timeline["otherData"]["clock_error_us"].get<double>() > 0, has_other);
  expect_a_barrier_between(timeline);
}

TEST_F(TimelineOf, TwoHostsIsOneAndTheirClocksAreCompared) {
  REQUIRE_SSH_HOSTS(2);
  const Ending ending =
      launch({"-H", list(2)},
             {"barrier", "sleep,100", "all_reduce,f32,100", "range,before", "barrier", "range,after"},
             {{"LOCKSTEP_SSH", servers().client()}}, hosts().network(0));
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.err,
              ContainsRegex("timeline of 4 ranks in [^\n]*; clocks of hosts agree within [0-9.]+ [mu]s"));
  const json timeline = read();
  EXPECT_TRUE(nests(timeline["traceEvents"]));
  EXPECT_EQ(count_ranges(timeline, "barrier"), (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
  expect_a_barrier_between(timeline);
}

}  // namespace
}  // namespace lockstep::testing
