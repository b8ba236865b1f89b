#include "lockstep/group/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "lockstep/base/failure_test.h"
#include "lockstep/base/folder_test.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::failure_of;
using test::on_ranks;
using ::testing::HasSubstr;

class Recording : public test::FolderTest {
 protected:
  std::string place() const { return (folder_ / "timeline.json").string(); }
  /// How often rank `rank` has a call of this name.
  static int count(const json& timeline, int rank, const std::string& name) {
    int found = 0;
    for (const json& event : timeline["traceEvents"])
      found += event["ph"] == "X" && event["pid"] == rank && event["name"] == name ? 1 : 0;
    return found;
  }
  json read() const { return json::parse(test::text_in(place())); }
};

void add_up(const Group& group, int times) {
  for (int time = 0; time < times; ++time) {
    std::vector<float> values(10, 1);
    all_reduce(group, values).wait();
  }
}

TEST_F(Recording, HasWhatAllRanksDidMeanwhileAndNothingElse) {
  on_ranks(3, [&](const Group& world) {
    add_up(world, 2);
    const Group pair = world.subgroup(std::vector{0, 1, 2});
    TimelineRecording recording(world, place());
    add_up(world, 5);
    add_up(pair, 1);
    const std::string line = recording.write();
    if (world.rank() == 0) {
      EXPECT_THAT(line, HasSubstr("timeline of 3 ranks in " + place()));
    } else {
      EXPECT_EQ(line, "");
    }
    add_up(world, 3);
  });
  const json timeline = read();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(count(timeline, rank, "all_reduce"), 6) << rank;
    EXPECT_EQ(count(timeline, rank, "gather"), 0) << "calls of its own";
  }
  EXPECT_THAT(timeline.dump(), HasSubstr("\"group\":\"world/0,1,2\"")) << "names of groups";
}

TEST_F(Recording, HasMoreCallsThanARingHolds) {
  on_ranks(2, [&](const Group& world) {
    TimelineRecording recording(world, place());
    for (int time = 0; time < 12; ++time) {
      add_up(world, 1000);
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
    recording.write();
  });
  EXPECT_GT(count(read(), 1, "all_reduce"), static_cast<int>(trace::ring_capacity));
}

TEST_F(Recording, CanBeginAgainInAnotherFile) {
  on_ranks(2, [&](const Group& world) {
    for (const int calls : {1, 2}) {
      TimelineRecording recording(world, place());
      add_up(world, calls);
      recording.write();
    }
  });
  EXPECT_EQ(count(read(), 0, "all_reduce"), 2) << "the later one";
}

TEST_F(Recording, OfAWorldOfOneIsAFileToo) {
  TimelineRecording recording{Group(), place()};
  recording.write();
  EXPECT_EQ(read()["traceEvents"].empty(), false) << "its rows' names";
}

TEST_F(Recording, ThatIsNotWrittenLeavesNothing) {
  on_ranks(2, [&](const Group& world) {
    TimelineRecording recording(world, place());
    add_up(world, 2);
  });
  EXPECT_FALSE(std::filesystem::exists(place()));
}

TEST_F(Recording, WithoutAPlaceIsRefusedOnAllRanks) {
  on_ranks(2, [&](const Group& world) {
    const auto begin = [&](const std::string& path) {
      return failure_of([&] { const TimelineRecording recording(world, path); }, ErrorCode::invalid_argument);
    };
    const std::string absent = (folder_ / "absent").string();
    EXPECT_THAT(begin(absent + "/timeline.json"),
                HasSubstr("there is no folder " + absent + "; make it first"));
    EXPECT_THAT(begin(folder_.string()), HasSubstr("is a folder; name a file in it"));
    EXPECT_THAT(begin(""), HasSubstr("needs the path of a file"));
    add_up(world, 1);  // the group is well
  });
}

TEST_F(Recording, WhosePlaceIsGoneAtTheEndIsAnErrorOfAllRanks) {
  const std::filesystem::path gone = folder_ / "gone";
  std::filesystem::create_directory(gone);
  on_ranks(2, [&](const Group& world) {
    TimelineRecording recording(world, (gone / "timeline.json").string());
    barrier(world).wait();
    if (world.rank() == 1) std::filesystem::remove(gone);
    barrier(world).wait();
    EXPECT_THAT(failure_of([&] { recording.write(); }, ErrorCode::system),
                HasSubstr("there is no folder " + gone.string()));
    EXPECT_THAT(failure_of([&] { recording.write(); }, ErrorCode::invalid_argument),
                HasSubstr("this recording of a timeline was written before"));
  });
}

TEST_F(Recording, IsOfTheWorld) {
  on_ranks(2, [&](const Group& world) {
    const Group alone = world.subgroup(std::vector{world.rank()});
    EXPECT_THAT(
        failure_of([&] { const TimelineRecording recording(alone, place()); }, ErrorCode::invalid_argument),
        HasSubstr("is not the world"));
  });
}

}  // namespace
}  // namespace lockstep
