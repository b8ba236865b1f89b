// `lockstep simulate`: its table, its files, and what it says of what it cannot do.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class SimulateCommand : public JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    write_topology(R"({"format": "lockstep-topology-1", "host": {"ranks": 2},
                       "network": {"kind": "two-level", "gbit_per_s": 10, "latency_us": 20, "message_us": 3}})");
  }
  std::string topology() const { return folder() / "topology.json"; }
  void write_topology(const std::string& text) const { std::ofstream(topology()) << text; }
  Ending simulate(std::vector<std::string> words, const Variables& more = {}) const {
    words.insert(words.begin(), {program("lockstep"), "simulate", "--topology", topology()});
    return start(words, more).finish();
  }
  /// What is wrong is said in one line, and nothing is left behind.
  void expect_refused(const std::vector<std::string>& words, int exit_code, const std::string& text) const {
    const auto before = files();
    const Ending ending = simulate(words);
    EXPECT_EQ(ending.exit_code, exit_code);
    EXPECT_THAT(ending.out, IsEmpty());
    EXPECT_THAT(ending.err, AllOf(::testing::StartsWith("lockstep simulate: "), HasSubstr(text)));
    EXPECT_EQ(files(), before);
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
      names.insert(entry.path().filename());
    return names;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(SimulateCommand, ShowsTheTimeOfEachAlgorithmAndTheQuickest) {
  const Ending ending = simulate({"--ranks", "4", "--bytes", "1K,4MiB"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(
      ending.out,
      AllOf(HasSubstr("all_reduce, float32, arena buffers; microseconds, * the quickest\n"),
            ContainsRegex(
                "bytes +ranks +hosts +double_tree +halving_doubling +hierarchical +recursive_doubling "
                "+ring +tree +a job takes\n"),
            ContainsRegex("1 KiB +4 +2( +\\*?[0-9.]+){6} +tree\n"),
            ContainsRegex("4 MiB +4 +2( +\\*?[0-9.]+){6} +hierarchical\n"),
            ContainsRegex("hierarchical +[0-9]+ messages between hosts, 8.39 MB; the busiest port sends 4.19 "
                          "MB; a rank needs [0-9.]+ MB")));
  EXPECT_THAT(ending.err, IsEmpty());
}

TEST_F(SimulateCommand, WritesAllFiguresAndAPictureOfTheGrowth) {
  const Ending ending = simulate({"--ranks", "8,2", "--bytes", "1M", "--algorithm", "ring,tree", "--json",
                                  folder() / "out.json", "--svg", folder() / "out.svg", "--step-bytes",
                                  "2500K", "--backward-ms", "5"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(HasSubstr("A step of 5 ms of backward and 2500 KiB of gradients waits after it:\n"),
                    ContainsRegex("  8 ranks, buckets of 1 MiB: ring [0-9.]+ ms, tree [0-9.]+ ms\n")));
  const nlohmann::json made = nlohmann::json::parse(read("out.json"));
  EXPECT_EQ(made["format"], "lockstep-simulation-1");
  ASSERT_EQ(made["rows"].size(), 4U);
  EXPECT_EQ(made["rows"][0]["ranks"], 2) << "in ascending order";
  EXPECT_EQ(made["rows"][3]["algorithm"], "tree");
  EXPECT_EQ(made["rows"][3]["hosts"], 4);
  EXPECT_GT(made["rows"][3]["us"], made["rows"][1]["us"]);
  EXPECT_GT(made["rows"][3]["step_waits_us"], made["rows"][3]["us"]);
  EXPECT_THAT(read("out.svg"), AllOf(::testing::StartsWith("<svg "), HasSubstr("all_reduce of 1 MiB"),
                                     HasSubstr(">ring<"), HasSubstr(">ranks<")));
}

TEST_F(SimulateCommand, ShowsWhyAnAlgorithmHasNoTime) {
  const Ending ending =
      simulate({"--ranks", "4096", "--op", "all_to_all", "--bytes", "25M", "--algorithm", "pairwise"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out,
              AllOf(ContainsRegex("25 MiB +4096 +2048 +- +pairwise"),
                    HasSubstr("- pairwise, 4096 ranks, 25 MiB: "), HasSubstr("million steps of 4096 ranks")));
}

TEST_F(SimulateCommand, TakesTheTuningTableInForce) {
  const Ending ending =
      simulate({"--ranks", "4", "--bytes", "4M"}, {{"LOCKSTEP_ALGORITHM", "all_reduce=ring"}});
  EXPECT_THAT(ending.out, ContainsRegex("4 MiB +4 +2( +\\*?[0-9.]+){6} +ring\n"));
}

TEST_F(SimulateCommand, SaysWhatIsWrong) {
  expect_refused({}, 2, "--ranks is required");
  expect_refused({"--ranks", "0"}, 2, "--ranks");
  expect_refused({"--ranks", "4,many"}, 2, "--ranks=\"many\"");
  expect_refused(
      {"--ranks", "4", "--op", "all_sum"}, 2,
      "--op: there is no collective \"all_sum\"; there are barrier, all_reduce, reduce, reduce_scatter, "
      "broadcast, scatter, gather, all_gather, all_to_all\n");
  expect_refused({"--ranks", "4", "--algorithm", "rings"}, 2,
                 "--algorithm: there is no rings for all_reduce; there are one_shot, arena, ");
  expect_refused({"--ranks", "4", "--bytes", "5"}, 2,
                 "--bytes has 5; it must be a multiple of 4 bytes, up to 1024G\n");
  expect_refused({"--ranks", "4", "--buffers", "mine"}, 2,
                 "--buffers must be arena or private, not \"mine\"\n");
  expect_refused({"--ranks", "4", "--step-bytes", "1M"}, 2,
                 "--step-bytes and --backward-ms belong together\n");
  expect_refused({"--ranks", "4", "--op", "broadcast", "--step-bytes", "1M", "--backward-ms", "1"}, 2,
                 "--step-bytes is for all_reduce");
  expect_refused({"--ranks", "4", "--algorithm", "arena"}, 1, "none of these algorithms can do that call\n");
  expect_refused({"--ranks", "4", "--json", "/nowhere/out.json"}, 1, "/nowhere");
}

TEST_F(SimulateCommand, SaysWhereATopologyIsWrong) {
  write_topology(R"({"format": "lockstep-topology-1", "host": {"ranks": 0}, "network": {}})");
  expect_refused({"--ranks", "4"}, 2,
                 "topology file " + topology() +
                     ": \"host\": \"ranks\" must be a whole number from 1 to 65536, not 0\n");
  write_topology(std::string((1 << 20) + 1, ' '));
  expect_refused({"--ranks", "4"}, 2, "has 1048577 bytes; one has at most 1048576\n");
  std::filesystem::remove(topology());
  const Ending ending = simulate({"--ranks", "4"});
  EXPECT_EQ(ending.exit_code, 2);
  EXPECT_THAT(ending.err, HasSubstr(topology()));
}

}  // namespace
}  // namespace lockstep::testing
