// A training that goes on from a checkpoint in the middle of an epoch is the one that was not interrupted.
#include <algorithm>
#include <cstdio>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::SizeIs;

class Resuming : public JobTest {
 protected:
  /// What saving_rank says on all ranks.
  std::string train(int ranks, const std::string& action, std::vector<std::string> words) const {
    words.insert(words.begin(), {program("lockstep"), "run", "-np", std::to_string(ranks), "--",
                                 program("saving_rank"), action, folder() / "model.ckpt"});
    const auto ending = start(words).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return ending.out;
  }
};

struct Case {
  const char* name;
  std::vector<std::string> words;
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

class ResumingFrom : public Resuming, public ::testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(
    A, ResumingFrom,
    ::testing::Values(Case{"Checkpoint", {"dropout"}}, Case{"CheckpointWrittenBehind", {"dropout", "behind"}},
                      Case{"ShardedCheckpoint", {"dropout", "sharded"}},
                      Case{"ShardedCheckpointWrittenBehind", {"dropout", "sharded", "behind"}}),
    [](const auto& info) { return info.param.name; });

TEST_P(ResumingFrom, InTheMiddleOfAnEpochIsTheSameToTheLastBit) {
  const auto straight = train(2, "straight", GetParam().words);
  const auto resumed = train(2, "resume", GetParam().words);
  for (const std::string rank : {"[0] ", "[1] "}) {
    const auto whole = lines_with(straight, rank);
    const auto rest = lines_with(resumed, rank);
    ASSERT_THAT(whole, SizeIs(16)) << straight;  // 15 steps and the end
    EXPECT_EQ(rest, std::vector<std::string>(whole.begin() + 7, whole.end()));
  }
  const auto step_of = [&](const std::string& rank) {
    return lines_with(straight, rank + "step 9 ").at(0).substr(rank.size());
  };
  EXPECT_NE(step_of("[0] "), step_of("[1] ")) << "ranks have samples and random numbers of their own";
}

/// The mean loss of all ranks, by step.
std::vector<double> means(const std::string& out) {
  std::vector<double> found;
  for (const auto& line : lines_with(out, "[0] step ")) {
    unsigned step = 0;
    double loss = 0, mean = 0;
    EXPECT_EQ(std::sscanf(line.c_str(), "[0] step %u loss %la mean %lf", &step, &loss, &mean), 3) << line;
    found.push_back(mean);
  }
  return found;
}

TEST_F(Resuming, OnAnotherNumberOfRanksHasTheSameLosses) {
  for (const bool sharded : {false, true}) {
    const std::vector<std::string> words(sharded ? 1 : 0, "sharded");
    const auto whole = means(train(2, "straight", words));
    ASSERT_THAT(whole, SizeIs(15));
    for (const int ranks : {1, 4}) {
      const auto rest = means(train(ranks, "resume", words));
      ASSERT_THAT(rest, SizeIs(8)) << ranks;
      for (std::size_t i = 0; i < rest.size(); ++i)
        EXPECT_NEAR(rest[i], whole[7 + i], 1e-5 * whole[7 + i]) << ranks << " ranks, step " << 8 + i;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
