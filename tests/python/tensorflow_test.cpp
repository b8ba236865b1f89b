// lockstep.tensorflow and lockstep.keras under `lockstep run`, with the oldest and the newest TensorFlow that they are for.
#include <cstdlib>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class TensorFlow : public JobTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    const auto python = peer_python(GetParam());
    if (!python) GTEST_SKIP() << GetParam() << " is not installed: script/bootstrap --peers " << GetParam();
    python_ = *python;
  }
  Ending run(int ranks, const std::string& action, const Variables& more = {}) const {
    const std::string source = std::getenv("LOCKSTEP_SOURCE_DIR");
    Variables variables = {
        {"PYTHONPATH", source + "/python"},
        {"PYTHONDONTWRITEBYTECODE", "1"},
        {"LOCKSTEP_C_LIBRARY", std::string(std::getenv("LOCKSTEP_BINARY_DIR")) + "/lib/liblockstep_c.so"}};
    variables.insert(variables.end(), more.begin(), more.end());
    return start({program("lockstep"), "run", "--no-prefix", "-np", std::to_string(ranks), python_,
                  source + "/tests/python/tensorflow_programs.py", action, folder().string()},
                 variables)
        .finish();
  }
  void expect_right(const std::string& action, int ranks = 2) const {
    const Ending ending = run(ranks, action);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(ending.out, HasSubstr("probe " + std::to_string(rank) + " right\n")) << ending.err;
  }

 private:
  std::string python_;
};

TEST_P(TensorFlow, OperationsAreDoneEagerlyAndInFunctions) { expect_right("collectives", 3); }
TEST_P(TensorFlow, OperationsHaveGradients) { expect_right("gradients"); }
TEST_P(TensorFlow, ATapesGradientsAreThoseOfAllRanks) { expect_right("tape"); }
TEST_P(TensorFlow, SparseGradientsAreGathered) { expect_right("sparse"); }
TEST_P(TensorFlow, KerasFitsAsOneProcessDoes) { expect_right("keras_fit"); }
TEST_P(TensorFlow, KerasCallbacksSetTheLearningRate) { expect_right("keras_callbacks"); }
TEST_P(TensorFlow, SessionsTrainAsTheDocumentsHaveThem) { expect_right("sessions"); }
TEST_P(TensorFlow, WhatCannotBeDoneIsSaid) { expect_right("wrong_use"); }
TEST_P(TensorFlow, RanksThatDifferAreToldSo) { expect_right("mismatch"); }
TEST_P(TensorFlow, RanksMayBeginInDifferentOrders) { expect_right("crossed"); }
TEST_P(TensorFlow, FunctionsServeInTheNextWorld) { expect_right("worlds"); }

TEST_P(TensorFlow, ARankThatDiesIsNamed) {
  const Ending ending = run(2, "killed");
  EXPECT_EQ(ending.exit_code, 137);
  EXPECT_THAT(ending.out, HasSubstr("probe 0 right 0\n")) << ending.err;
}

INSTANTIATE_TEST_SUITE_P(Of, TensorFlow, ::testing::Values("tensorflow", "tensorflow2.15"),
                         [](const auto& info) {
                           return std::string(info.param) == "tensorflow" ? "Newest" : "Oldest";
                         });

}  // namespace
}  // namespace lockstep::testing
