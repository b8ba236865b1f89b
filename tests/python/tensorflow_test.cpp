// lockstep.tensorflow and lockstep.keras under `lockstep run`, with the oldest and the newest TensorFlow that they are for.
#include <cstdlib>
#include <fstream>

#include "tests/python/python_job.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TensorFlow : public PythonJob, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    PythonJob::SetUp();
    use_peer(GetParam());
  }
  Ending run(int ranks, const std::string& action) const {
    return job(ranks, {"tensorflow_programs.py", action, folder().string()}, with_horovods_names()).finish();
  }
  void expect_right(const std::string& action, int ranks = 2) const {
    const Ending ending = run(ranks, action);
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_THAT(ending.out, HasSubstr("probe " + std::to_string(rank) + " right\n")) << ending.err;
  }
  static Variables with_horovods_names() {
    return {{"PYTHONPATH", source("python") + ":" + source("python/horovod_names")}};
  }
};

TEST_P(TensorFlow, OperationsAreDoneEagerlyAndInFunctions) { expect_right("collectives", 3); }
TEST_P(TensorFlow, AnswersAsHorovodDoes) { expect_horovods_answers("tensorflow", 185, 2); }
TEST_P(TensorFlow, OperationsHaveGradients) { expect_right("gradients"); }
TEST_P(TensorFlow, ATapesGradientsAreThoseOfAllRanks) { expect_right("tape"); }
TEST_P(TensorFlow, SparseGradientsAreGathered) { expect_right("sparse"); }
TEST_P(TensorFlow, RanksAgreeAboutGradientsThatOverflow) { expect_right("mixed_precision"); }
TEST_P(TensorFlow, BackwardPassesAreAddedUp) { expect_right("aggregation"); }
TEST_P(TensorFlow, BackwardPassesAreAddedUpInSessions) { expect_right("aggregation_in_sessions"); }
TEST_P(TensorFlow, VariablesMayBeEachRanksOwn) { expect_right("local_variables"); }
TEST_P(TensorFlow, AdasumIsThere) { expect_right("adasum"); }
TEST_P(TensorFlow, BatchesAreNormalizedOverAllRanks) { expect_right("sync_batch_norm", 3); }
TEST_P(TensorFlow, SessionsHaveAnElasticState) { expect_right("state_of_a_session"); }
TEST_P(TensorFlow, TakesHorovodsArguments) { expect_right("horovods_arguments"); }
TEST_P(TensorFlow, KerasModelsHaveAnElasticState) { expect_right("keras_elastic"); }
TEST_P(TensorFlow, KerasFitsAsOneProcessDoes) { expect_right("keras_fit"); }
TEST_P(TensorFlow, KerasCallbacksSetTheLearningRate) { expect_right("keras_callbacks"); }
TEST_P(TensorFlow, SessionsTrainAsTheDocumentsHaveThem) { expect_right("sessions"); }
TEST_P(TensorFlow, WhatCannotBeDoneIsSaid) { expect_right("wrong_use"); }
TEST_P(TensorFlow, RanksThatDifferAreToldSo) { expect_right("mismatch"); }
TEST_P(TensorFlow, RanksMayBeginInDifferentOrders) { expect_right("crossed"); }
TEST_P(TensorFlow, FunctionsServeInTheNextWorld) { expect_right("worlds"); }

TEST_P(TensorFlow, TrainingGoesOnWithoutRanksThatDieAndWithThemWhenTheyAreBack) {
  const Ending ending = job(3, {"tensorflow_programs.py", "elastic", folder().string()},
                            with_horovods_names(), {"--restart", "all"})
                            .finish();
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* line : {"probe 0 right\n", "probe 1 right\n", "probe 2 right\n"})
    EXPECT_THAT(ending.out, HasSubstr(line)) << ending.err;
  EXPECT_THAT(ending.err, HasSubstr("lockstep run: rank 1 is in the job again\n"));
}

TEST_P(TensorFlow, ARankThatDiesIsNamed) {
  const Ending ending = run(2, "killed");
  EXPECT_EQ(ending.exit_code, 137);
  EXPECT_THAT(ending.out, HasSubstr("probe 0 right 0\n")) << ending.err;
}

TEST_P(TensorFlow, ThePagesProgramTrainsAlsoUnderHorovodsNames) {
  const std::string page = text_in(source("docs/python.md")), own = "import lockstep.tensorflow";
  const std::size_t begin = page.find("```python\nimport tensorflow as tf\n") + 10;
  std::string program = page.substr(begin, page.find("```", begin) - begin);
  for (const char* name : {"import lockstep.tensorflow", "import horovod.tensorflow"}) {
    program.replace(program.find("import ", program.find("tensorflow as tf") + 1), own.size(), name);
    std::ofstream(folder() / "train.py") << program;
    const Ending ending = job(2, {folder() / "train.py"}, with_horovods_names()).finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    EXPECT_THAT(ending.out,
                ContainsRegex("^batch 16: loss [0-9.]+\nbatch 32: loss [0-9.]+\nbatch 48: loss [0-9.]+\n$"));
  }
}

INSTANTIATE_TEST_SUITE_P(Of, TensorFlow, ::testing::Values("tensorflow", "tensorflow2.15"),
                         [](const auto& info) {
                           return std::string(info.param) == "tensorflow" ? "Newest" : "Oldest";
                         });

}  // namespace
}  // namespace lockstep::testing
