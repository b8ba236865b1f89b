// libtorch's operators in a timeline, where they are asked for.
#include "tests/support/job_test.h"
#include "tests/support/trace_events.h"

namespace lockstep::testing {
namespace {

class TracedOperators : public JobTest {
 protected:
  nlohmann::json timeline_of(const Variables& variables) const {
    const std::string file = folder() / "timeline.json";
    const Ending ending = start({program("lockstep"), "run", "-np", "2", "--timeline", file,
                                 program("staged_rank"), "--steps", "5", "--layers", "3", "--width", "16"},
                                variables)
                              .finish();
    EXPECT_EQ(ending.exit_code, 0) << ending.err;
    return nlohmann::json::parse(text_in(file));
  }
};

TEST_F(TracedOperators, AreRangesWithinThoseAroundThem) {
  const nlohmann::json timeline = timeline_of({{"LOCKSTEP_TIMELINE_OPERATORS", "1"}});
  EXPECT_TRUE(nests(timeline["traceEvents"]));
  const std::map<int, int> of_layers = {{0, 15}, {1, 15}};  // 5 steps of 3
  EXPECT_EQ(count_ranges(timeline, "aten::addmm"), of_layers);
  EXPECT_EQ(count_ranges(timeline, "AddmmBackward0"), of_layers);
}

TEST_F(TracedOperators, AreNotThereUnasked) {
  const nlohmann::json timeline = timeline_of({});
  EXPECT_EQ(count_ranges(timeline, "forward"), (std::map<int, int>{{0, 5}, {1, 5}}));
  EXPECT_TRUE(count_ranges(timeline, "aten::addmm").empty());
}

}  // namespace
}  // namespace lockstep::testing
