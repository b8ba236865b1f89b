// `lockstep bench`: what it measures is a table that jobs take, and what it cannot do is said in a line.
#include <fstream>

#include "lockstep/schedule/tuning.h"
#include "lockstep/view/profile/machine_limits.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class BenchCommand : public JobTest {
 protected:
  Ending bench(std::vector<std::string> words, const Variables& more = {}) const {
    words.insert(words.begin(), {program("lockstep"), "bench"});
    return start(words, more).finish();
  }
  static std::vector<std::string> quickly(std::vector<std::string> words) {
    words.insert(words.end(), {"--max-bytes", "4K", "--passes", "1"});
    return words;
  }
  std::string table() const { return folder() / "table.json"; }
  Tuning read_table() const {
    std::ifstream file(table());
    return Tuning::parse({std::istreambuf_iterator<char>(file), {}}, "the table");
  }
};

TEST_F(BenchCommand, ShowsWhatEachCollectiveTakes) {
  const Ending ending = bench(quickly({"-np", "2"}));
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, AllOf(HasSubstr("2 ranks; microseconds a call"),
                                ContainsRegex("all_to_all +64 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+\n"),
                                ContainsRegex("barrier +[0-9.]+\n")));
}

TEST_F(BenchCommand, CalibratesATableThatJobsTake) {
  const Ending ending =
      bench(quickly({"-np=3", "--calibrate", "--operations", "all_reduce,broadcast", "--out", table()}));
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, IsEmpty());
  EXPECT_THAT(ending.err, HasSubstr("jobs of 3 ranks take it with LOCKSTEP_TUNING_FILE=" + table()));
  const Tuning tuning = read_table();
  for (const Operation operation : {Operation::all_reduce, Operation::broadcast}) {
    for (const Where where : {Where::arena, Where::private_memory, Where::slots})
      EXPECT_EQ(tuning.rule_for(operation, where, 3)->ranks, 3) << to_string(operation);
  }
  EXPECT_EQ(tuning.rule_for(Operation::reduce, Where::arena, 3)->ranks, 2) << "which was not measured";
  EXPECT_EQ(launch_probes(3, {"everything"}, {{"LOCKSTEP_TUNING_FILE", table()}}).exit_code, 0);
}

TEST_F(BenchCommand, RanksOfAnyLauncherCalibrate) {
  const Ending ending = start({program("lockstep"), "run", "-np", "2", program("lockstep"), "bench",
                               "--calibrate", "--operations", "barrier", "--passes", "1", "--out", table()})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(read_table().rule_for(Operation::barrier, Where::slots, 2)->ranks, 2);
}

TEST_F(BenchCommand, CalibratesWhatIsForNodesOfMemoryWhereThereAreSome) {
  const auto algorithms = [&](const Variables& more) {
    const Ending ending =
        bench(quickly({"-np", "4", "--calibrate", "--operations", "all_gather", "--out", table()}), more);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    const std::size_t end = ending.err.find(" algorithms");
    EXPECT_NE(end, std::string::npos) << ending.err;
    return std::stoi(ending.err.substr(ending.err.rfind(' ', end - 1)));
  };
  // One node, whatever machine this is, and two.
  const int of_one = algorithms({{"LOCKSTEP_RANKS_PER_NODE", "4"}});
  EXPECT_EQ(algorithms({{"LOCKSTEP_RANKS_PER_NODE", "2"}}), of_one + 1);
  EXPECT_EQ(read_table().ranks_per_node, 0) << "which is the job's, not the table's";
}

TEST_F(BenchCommand, TwoHostsCalibrateWhatGoesBetweenThem) {
  REQUIRE_TWO_HOSTS();
  const std::string secret = secret_file(std::string(32, 's'));
  std::vector<Process> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(
        start({program("lockstep"), "bench", "--calibrate", "--operations", "all_reduce", "--max-bytes", "4K",
               "--passes", "1", "--out", table()},
              by_hand(rank, 2, {{"MASTER_ADDR", hosts().address(0)}, {"LOCKSTEP_SECRET_FILE", secret}}),
              hosts().network(rank)));
  }
  for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_EQ(read_table().rule_for(Operation::all_reduce, Where::channels, 2)->ranks, 2);
}

TEST_F(BenchCommand, MeasuresTheMachineForProfiles) {
  const Ending ending = bench({"-np", "2", "--machine", "--passes", "1", "--out", table()});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* what :
       {"memory, 1 core: [0-9.]+ GB/s", "memory, 2 cores: [0-9.]+ GB/s", "arena, [^:]+: [0-9.]+ GB/s",
        "to the next: [0-9.]+ GB/s each, [0-9.]+ us for 8 bytes"})
    EXPECT_THAT(ending.err, ContainsRegex(what));
  EXPECT_THAT(ending.err, HasSubstr("LOCKSTEP_MACHINE_FILE=" + table()));
  const auto limits = view::MachineLimits::parse(text_in(table()), "it");
  EXPECT_EQ(limits.ranks, 2);
  EXPECT_EQ(limits.hosts, 1);
  EXPECT_EQ(limits.memory_bytes_per_s.size(), 2U);
  EXPECT_GT(limits.push_bytes_per_s, 0);
}

TEST_F(BenchCommand, SaysWhatIsWrongWithItsOptions) {
  struct {
    std::vector<std::string> words;
    std::string says;
  } const wrong[] = {
      {{"-np", "1"}, "-np=\"1\" is not a whole number from 2 to 4096"},
      {{"--operations", "all_reduce,all_increase"},
       "there is no collective \"all_increase\"; there are all_reduce"},
      {{"--max-bytes", "1K"}, "--max-bytes is 1K; it must be from 4K to 1G"},
      {{"--out", "table.json"}, "--out is for --calibrate and --machine, which write a file"},
      {{"--machine", "--calibrate"}, "--calibrate excludes --machine"},
      {{"--passes", "none"}, "--passes=\"none\" is not a whole number from 1 to 1000"},
      {{"--fast"}, "--fast"},
  };
  for (const auto& [words, says] : wrong) {
    const Ending ending = bench(words);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_THAT(ending.err, AllOf(HasSubstr("lockstep bench: "), HasSubstr(says),
                                  HasSubstr("See `lockstep bench --help`.")));
  }
}

TEST_F(BenchCommand, ATableThatCannotBeWrittenIsNamed) {
  const Ending ending = bench({"-np", "2", "--calibrate", "--operations", "barrier", "--passes", "1", "--out",
                               folder() / "no" / "table"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err,
              AllOf(HasSubstr("cannot write the tuning table " + (folder() / "no" / "table").string()),
                    HasSubstr("make it first"), Not(HasSubstr("pass 1"))));
}

TEST_F(BenchCommand, OneRankHasNothingToMeasure) {
  const Ending ending = bench({}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("there is one rank, and nothing to measure; start two or more"));
}

TEST_F(BenchCommand, ARankStartsNoRanks) {
  const Ending ending = bench({"-np", "2"}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, HasSubstr("-np starts ranks, and this process is one already: leave it out"));
}

}  // namespace
}  // namespace lockstep::testing
