// The timeline of an MPI program's calls, however it ends.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mpitrace_test.h"
#include "tests/support/trace_events.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct Slice {
  int rank = 0, row = 0;
  std::string name;
  double begin = 0, end = 0;
  json about;
};

struct DrawnTimeline {
  json whole;
  std::map<int, std::vector<Slice>> calls = {};  ///< of each rank, in the file's order
  std::vector<Slice> parts = {};                 ///< waiting and transfer
  std::map<int, std::string> left_out = {};      ///< what each rank says
};

DrawnTimeline drawn_in(const std::filesystem::path& file) {
  std::ifstream stream(file);
  DrawnTimeline drawn{.whole = json::parse(stream, nullptr, false)};
  EXPECT_FALSE(drawn.whole.is_discarded()) << file << " is no JSON";
  if (drawn.whole.is_discarded()) return drawn;
  for (const json& event : drawn.whole.at("traceEvents")) {
    if (event.at("ph") == "i") drawn.left_out[event.at("pid")] = event.at("name");
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    Slice slice{
        event.at("pid"), event.at("tid"), event.at("name"), begin, begin + event.at("dur").get<double>(),
        event.at("args")};
    EXPECT_EQ(event.at("cat"), "mpi");
    if (slice.name.starts_with("MPI_")) {
      drawn.calls[slice.rank].push_back(slice);
    } else {
      drawn.parts.push_back(slice);
    }
  }
  return drawn;
}

/// What a program's own counting would say of these calls.
Truths told_by(const std::vector<Slice>& calls) {
  Truths truths;
  for (const Slice& call : calls) {
    Truth& truth = truths[call.name];
    ++truth.calls;
    truth.bytes += call.about.value("bytes", 0LL);
  }
  return truths;
}

/// As they were made on each row.
void expect_order(const DrawnTimeline& drawn) {
  EXPECT_TRUE(nests(drawn.whole.at("traceEvents")));
  for (const auto& [rank, calls] : drawn.calls) {
    std::map<int, double> ends;
    for (const Slice& call : calls) {
      EXPECT_GE(call.begin, std::exchange(ends[call.row], call.end) - 0.002) << call.name;
    }
  }
}

std::vector<std::string> about_all(const DrawnTimeline& drawn, int rank, const std::string& name) {
  std::vector<std::string> texts;
  for (const Slice& call : drawn.calls.at(rank)) {
    if (call.name == name) texts.push_back(call.about.dump());
  }
  return texts;
}

class MpitraceTimeline : public Mpitrace {
 protected:
  std::filesystem::path file() const { return folder() / "timeline.json"; }
  Variables wanted() const { return {{"LOCKSTEP_TIMELINE", file()}}; }
  void expect_nothing_left() const { EXPECT_THAT(files(), Each(StartsWith("mpi_profile."))); }
};

TEST_P(MpitraceTimeline, HasEachCallOnceWithItsBytes) {
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "calls.c"), folder() / "data"}, wanted());
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  DrawnTimeline drawn = drawn_in(file());
  ASSERT_THAT(drawn.calls, SizeIs(2)) << ending.err;
  for (int rank = 0; rank < 2; ++rank) {
    Truths told = told_by(drawn.calls.at(rank));
    told["MPI_Testall"].calls += std::atoi(drawn.left_out[rank].c_str());  // where it polled for very long
    EXPECT_EQ(told, truths(ending, rank)) << drawn.left_out[rank];
  }
  expect_order(drawn);
  for (const Slice& part : drawn.parts) {
    const auto& calls = drawn.calls.at(part.rank);
    const auto within = std::ranges::find_if(calls, [&](const Slice& call) {
      return call.row == part.row && call.begin <= part.begin && part.end <= call.end + 0.002;
    });
    ASSERT_NE(within, calls.end());
    EXPECT_THAT(within->name, AnyOf("MPI_Barrier", StartsWith("MPI_All"), StartsWith("MPI_Reduce_scatter")));
  }
  EXPECT_EQ(drawn.whole.at("otherData").count("notes"), 0U);
  EXPECT_EQ(drawn.whole.at("otherData").at("clock_error_us"), 0);
  EXPECT_THAT(ending.err, HasSubstr("lockstep mpitrace: timeline of 2 ranks in " + file().string()));
  expect_nothing_left();
}

TEST_P(MpitraceTimeline, NamesRanksAndCommunicators) {
  const Ending ending = run_by_tool(mpi(), 2, {"--timeline", file()}, {compile(mpi(), "peers.c")});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const DrawnTimeline drawn = drawn_in(file());
  ASSERT_THAT(drawn.calls, SizeIs(2)) << ending.err;
  const auto of_world = [](const std::string& more) {
    return json::parse(R"({"bytes":4,"communicator":"MPI_COMM_WORLD",)" + more + "}").dump();
  };
  EXPECT_THAT(about_all(drawn, 0, "MPI_Send"),
              ElementsAre(of_world(R"("to":1)"), of_world(R"("to":"none")")));
  EXPECT_THAT(about_all(drawn, 1, "MPI_Recv"), ElementsAre(of_world(R"("from":"any")")));
  for (int rank = 0; rank < 2; ++rank) {
    const std::string peer = std::to_string(1 - rank);
    EXPECT_THAT(about_all(drawn, rank, "MPI_Sendrecv"),
                ElementsAre(of_world("\"from\":" + peer + ",\"to\":" + peer)));
    EXPECT_THAT(about_all(drawn, rank, "MPI_Bcast"),
                ElementsAre(R"({"bytes":4,"communicator":"rows \"\n<b>","root":1})",
                            R"({"bytes":4,"communicator":"columns","root":0})"));
    EXPECT_THAT(about_all(drawn, rank, "MPI_Allreduce"),
                ElementsAre(R"({"bytes":4,"communicator":"of ranks 0-1"})"));
    EXPECT_THAT(about_all(drawn, rank, "MPI_Barrier"),
                ElementsAre(R"({"communicator":"of rank )" + std::to_string(rank) + "\"}"));
  }
  expect_nothing_left();
}

TEST_P(MpitraceTimeline, HasWaitingAndTransferApartWhereThereAreBarriers) {
  const Ending ending =
      run_by_tool(mpi(), 2, {"--timeline", file(), "--barrier"}, {compile(mpi(), "ends.c")});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const DrawnTimeline drawn = drawn_in(file());
  std::size_t collectives = 0;
  for (const auto& [rank, calls] : drawn.calls) {
    for (const Slice& call : calls) {
      if (call.name != "MPI_Allreduce") continue;
      ++collectives;
      double next = call.begin;
      for (const std::string name : {"waiting for others", "transfer"}) {
        const auto part = std::ranges::find_if(drawn.parts, [&](const Slice& one) {
          return one.rank == rank && one.row == call.row && one.name == name &&
                 one.begin >= call.begin - 0.002 && one.end <= call.end + 0.002;
        });
        ASSERT_NE(part, drawn.parts.end()) << name;
        EXPECT_NEAR(part->begin, next, 0.002) << name;
        next = part->end;
      }
      EXPECT_NEAR(next, call.end, 0.002);
    }
  }
  EXPECT_EQ(collectives, 20U);
  EXPECT_THAT(drawn.parts, SizeIs(40));
  EXPECT_THAT(about_all(drawn, 0, "MPI_Barrier"), IsEmpty()) << "those of ours are no calls of the program's";
}

TEST_P(MpitraceTimeline, IsWholeAfterAKill) {
  for (const std::string what : {"kill", "kill_all", "exit"}) {
    SCOPED_TRACE(what);
    std::filesystem::remove(file());
    const Ending ending = run_by_tool(mpi(), 2, {"--timeline", file()}, {compile(mpi(), "ends.c"), what});
    const DrawnTimeline drawn = drawn_in(file());
    ASSERT_THAT(drawn.calls, SizeIs(2)) << ending.err;
    for (int rank = 0; rank < 2; ++rank) {
      Truths told = told_by(drawn.calls.at(rank));
      told.erase("MPI_Barrier");  // in which rank 0 may have been
      EXPECT_EQ(told, (Truths{{"MPI_Comm_rank", {1, 0}}, {"MPI_Allreduce", {10, 640}}}));
    }
    for (const std::string& about : about_all(drawn, 0, "MPI_Barrier"))
      EXPECT_THAT(about, HasSubstr(R"("returned":false)"));
    expect_order(drawn);
    EXPECT_THAT(ending.err, HasSubstr("timeline of 2 ranks in " + file().string()));
    expect_nothing_left();
  }
}

TEST_P(MpitraceTimeline, IsMadeLaterOfWhatAJobWithoutTheToolHasLeft) {
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "ends.c"), "kill_all"}, wanted());
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_THAT(files(), Contains(StartsWith(".lockstep_mpievents.")));
  const Ending later = start({program("lockstep"), "profile", "--dir", profiles(), "--all"}).finish();
  EXPECT_EQ(later.exit_code, 0) << later.err;
  EXPECT_THAT(drawn_in(file()).calls, SizeIs(2)) << ending.err << later.err;
  expect_nothing_left();
}

TEST_P(MpitraceTimeline, SaysWhatIsLeftOut) {
  constexpr int polls = 200'000;
  const Ending ending =
      run_by_tool(mpi(), 2, {"--timeline", file()}, {compile(mpi(), "peers.c"), std::to_string(polls)});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const DrawnTimeline drawn = drawn_in(file());
  for (int rank = 0; rank < 2; ++rank) {
    const auto shown = static_cast<int>(about_all(drawn, rank, "MPI_Iprobe").size());
    EXPECT_GT(shown, 8000);
    EXPECT_THAT(drawn.left_out.at(rank),
                StartsWith(std::to_string(polls - shown) +
                           " events of this rank had no room and are not here: thread 0 has all from "));
    EXPECT_THAT(about_all(drawn, rank, "MPI_Sendrecv"), SizeIs(1)) << "the end is there";
  }
  EXPECT_THAT(ending.err, HasSubstr(" events had no room"));
}

TEST_P(MpitraceTimeline, HasARowForEachThread) {
  const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "threads.c")}, wanted());
  if (ending.out.find("no threads") != std::string::npos)
    GTEST_SKIP() << "this MPI has no MPI_THREAD_MULTIPLE";
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const DrawnTimeline drawn = drawn_in(file());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(told_by(drawn.calls.at(rank)), truths(ending, rank));
    std::set<int> rows;
    for (const Slice& call : drawn.calls.at(rank)) rows.insert(call.row);
    EXPECT_GE(rows.size(), 2U);
    EXPECT_LE(rows.size(), 9U);
  }
  expect_order(drawn);
}

TEST_P(MpitraceTimeline, IsNotTouchedByForkedChildren) {
  for (const char* what : {"fork", "exec"}) {
    std::filesystem::remove_all(profiles());
    const Ending ending = run_profiled(mpi(), 2, {compile(mpi(), "ends.c"), what}, wanted());
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    const DrawnTimeline drawn = drawn_in(file());
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(told_by(drawn.calls.at(rank)), truths(ending, rank)) << what;
    expect_nothing_left();
  }
}

TEST_P(MpitraceTimeline, ThatCannotBeIsSaidBeforeAnythingStarts) {
  const std::string program = compile(mpi(), "ends.c");
  const Ending tool =
      run_by_tool(mpi(), 2, {"--timeline", folder() / "missing" / "timeline.json"}, {program});
  EXPECT_EQ(tool.exit_code, 2);
  EXPECT_THAT(tool.err, HasSubstr("there is no folder " + (folder() / "missing").string()));
  EXPECT_FALSE(std::filesystem::exists(folder() / "truth.0")) << "it ran";
  const Ending alone =
      run_profiled(mpi(), 2, {program}, {{"LOCKSTEP_TIMELINE", folder() / "missing" / "timeline.json"}});
  EXPECT_EQ(alone.exit_code, 0) << "without the tool the program comes first";
  const auto lines = lines_with(alone.err, "lockstep mpitrace: cannot write the timeline");
  ASSERT_THAT(lines, SizeIs(1)) << alone.err;
  EXPECT_THAT(lines.front(), EndsWith("make it first; there will be no timeline"));
  expect_nothing_left();
}

TEST_P(MpitraceTimeline, IsInPerfettosFormatWhereItsNameSaysSoAlsoWhereAllSymbolsAreBoundAtOnce) {
  const Ending ending =
      run_profiled(mpi(), 2, {compile(mpi(), "ends.c")},
                   {{"LOCKSTEP_TIMELINE", folder() / "timeline.pftrace"}, {"LD_BIND_NOW", "1"}});
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const std::string text = text_in(folder() / "timeline.pftrace");
  EXPECT_THAT(text, StartsWith("\x0a"));  // a packet of a trace
  EXPECT_THAT(text, HasSubstr("MPI_Allreduce"));
  EXPECT_EQ(text.find("MPI_Allreduce", text.find("MPI_Allreduce") + 1), std::string::npos)
      << "names stand there once";
  expect_nothing_left();
}

TEST_P(MpitraceTimeline, HoldsClocksOfHostsAgainstEachOther) {
  static const std::vector<std::string> other_clock = {"unshare", "--time", "--monotonic", "5000", "--fork"};
  std::vector<std::string> probe = other_clock;
  probe.emplace_back("true");
  if (start(probe).finish().exit_code != 0)
    GTEST_SKIP() << "no clock of its own for a process: unshare --time";
  const std::string program = compile(mpi(), "ends.c");
  std::vector<std::string> words = {program, ":", "-n", "1"};
  words.insert(words.end(), other_clock.begin(), other_clock.end());
  words.push_back(program);
  const Ending ending = run_by_tool(mpi(), 1, {"--timeline", file()}, words);
  ASSERT_EQ(ending.exit_code, 0) << ending.err;
  const DrawnTimeline drawn = drawn_in(file());
  ASSERT_THAT(drawn.calls, SizeIs(2)) << ending.err;
  const double error = drawn.whole.at("otherData").at("clock_error_us");
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 1e6);
  EXPECT_THAT(ending.err, HasSubstr("; clocks of hosts agree within "));
  EXPECT_EQ(drawn.whole.at("otherData").count("notes"), 0U) << drawn.whole.at("otherData");
  const auto of = [&](int rank) {
    std::vector<Slice> calls = drawn.calls.at(rank);
    std::erase_if(calls, [](const Slice& call) { return call.name != "MPI_Allreduce"; });
    return calls;
  };
  const std::vector<Slice> here = of(0), there = of(1);
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {  // none leaves before all have come
    EXPECT_GE(here[i].end + error + 1, there[i].begin);
    EXPECT_GE(there[i].end + error + 1, here[i].begin);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, MpitraceTimeline, ::testing::ValuesIn(all_mpis()),
                         [](const auto& info) { return name_of(info.param); });

class MpitraceTimelineFile : public MpitraceJob {};

TEST_F(MpitraceTimelineFile, ThatCannotBeWrittenIsAnErrorOfTheTool) {
  const auto profile_to = [&](const std::string& file) {
    return start({program("lockstep"), "profile", "--dir", profiles(), "--timeline", file, "--family",
                  "mpich", "--", "/bin/echo", "it ran"})
        .finish();
  };
  std::filesystem::create_directory(folder() / "a folder");
  for (const auto& [file, problem] :
       std::map<std::string, std::string>{{folder() / "a folder", "it is a folder; name a file in it"},
                                          {folder() / "missing" / "x.json", "there is no folder"},
                                          {"/proc/x.json", "cannot open the timeline /proc/x.json"}}) {
    const Ending ending = profile_to(file);
    EXPECT_EQ(ending.exit_code, 2) << file;
    EXPECT_EQ(ending.out, "");
    EXPECT_THAT(ending.err, HasSubstr(problem));
  }
  const Ending by_variable = start({program("lockstep"), "profile", "--dir", profiles(), "--family", "mpich",
                                    "--", "/bin/echo", "it ran"},
                                   {{"LOCKSTEP_TIMELINE", folder() / "missing" / "x.json"}})
                                 .finish();
  EXPECT_EQ(by_variable.exit_code, 2);
  EXPECT_THAT(by_variable.err, HasSubstr("there is no folder"));
  const Ending without_mpi = profile_to(folder() / "timeline.json");
  EXPECT_EQ(without_mpi.exit_code, 0);
  EXPECT_THAT(without_mpi.err, HasSubstr("there is no timeline: no rank has left any calls"));
  EXPECT_FALSE(std::filesystem::exists(folder() / "timeline.json"));
}

TEST_F(MpitraceTimelineFile, AProgramThatIsNotThereHasTheShellsExitCodes) {
  const auto profile_of = [&](const std::string& word) {
    return start({program("lockstep"), "profile", "--dir", profiles(), "--", word}).finish();
  };
  const Ending missing = profile_of("./nonexistent");
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, HasSubstr("lockstep profile: ./nonexistent: there is no such program"));
  EXPECT_EQ(profile_of(folder()).exit_code, 126);
  EXPECT_FALSE(std::filesystem::exists(profiles())) << "nothing is made for nothing";
}

}  // namespace
}  // namespace lockstep::testing
