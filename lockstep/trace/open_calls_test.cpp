#include "lockstep/trace/open_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/trace/group_names.h"

namespace lockstep::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OpenCallsTest : public ::testing::Test {
 protected:
  int open(std::uint64_t sequence) { return calls.open({.sequence = sequence, .begin_ns = sequence}); }
  std::vector<std::uint64_t> sequences() const {
    std::vector<std::uint64_t> found;
    for (const OpenCall& call : read_open_calls(*table)) found.push_back(call.sequence);
    return found;
  }

  std::unique_ptr<OpenCallTable> table = std::make_unique<OpenCallTable>();
  OpenCalls calls{table.get()};
};

TEST_F(OpenCallsTest, ACallStandsThereUntilItIsOver) {
  const int second = open(2);
  const int first = open(1);
  EXPECT_THAT(sequences(), ElementsAre(1, 2));
  calls.close(second);
  EXPECT_THAT(sequences(), ElementsAre(1));
  calls.close(first);
  EXPECT_THAT(sequences(), IsEmpty());
}

TEST_F(OpenCallsTest, SaysForWhomItWaits) {
  const int place = open(1);
  calls.set_awaited(place, 77, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8});
  const OpenCall call = read_open_calls(*table).at(0);
  EXPECT_EQ(call.looked_ns, 77U);
  EXPECT_EQ(call.awaited_count, 12U);
  EXPECT_THAT(call.awaited_ranks(), ElementsAre(3, 1, 4, 1, 5, 9, 2, 6, 5, 3));
  calls.set_awaited(place, 78, {2});
  EXPECT_THAT(read_open_calls(*table).at(0).awaited_ranks(), ElementsAre(2));
}

TEST_F(OpenCallsTest, AFailedCallStaysUntilNoOtherPlaceIsLeft) {
  calls.fail(open(1000), 5);
  for (std::uint64_t sequence = 1; sequence < OpenCallTable::capacity; ++sequence) open(sequence);
  EXPECT_EQ(read_open_calls(*table).back().failed_ns, 5U);
  EXPECT_NE(open(2000), OpenCalls::nowhere);
  EXPECT_EQ(sequences().back(), 2000U);
  EXPECT_THAT(sequences(), SizeIs(OpenCallTable::capacity));
  EXPECT_EQ(read_open_calls(*table).back().failed_ns, 0U);
}

TEST_F(OpenCallsTest, ThoseThatFindNoPlaceAreCounted) {
  for (std::uint64_t sequence = 1; sequence <= OpenCallTable::capacity; ++sequence) open(sequence);
  const int place = open(7);
  EXPECT_EQ(place, OpenCalls::nowhere);
  EXPECT_EQ(table->left_out.load(), 1U);
  calls.set_awaited(place, 1, {0});
  calls.set_arrived(place, 1);
  calls.close(place);
  calls.fail(place, 1);
  EXPECT_THAT(sequences(), SizeIs(OpenCallTable::capacity));
}

TEST_F(OpenCallsTest, WithoutATableKeepsNothing) {
  OpenCalls none;
  EXPECT_EQ(none.open({}), OpenCalls::nowhere);
}

class GroupNamesTest : public ::testing::Test {
 protected:
  std::string name_of(std::uint32_t number) const {
    for (const GroupEntry& group : read_group_names(*table)) {
      if (group.number == number) return group.name;
    }
    return "none";
  }

  std::unique_ptr<GroupTable> table = std::make_unique<GroupTable>();
  GroupNames names{table.get()};
};

TEST_F(GroupNamesTest, TellsWhichGroupANumberIs) {
  names.enter({.number = 5, .ranks = 4, .rank = 3, .name = "world/0,2"});
  const auto groups = read_group_names(*table);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].name, "world/0,2");
  EXPECT_EQ(groups[0].ranks, 4);
  EXPECT_EQ(groups[0].rank, 3);
}

TEST_F(GroupNamesTest, AGroupThatIsGoneStaysUntilItsPlaceIsNeeded) {
  std::vector<int> places;
  for (std::uint32_t number = 0; number < GroupTable::capacity; ++number)
    places.push_back(names.enter({.number = number, .name = "group " + std::to_string(number)}));
  EXPECT_EQ(names.enter({.number = 1000, .name = "too many"}), GroupNames::nowhere);
  names.leave(places[7]);
  names.leave(places[3]);
  EXPECT_EQ(name_of(7), "group 7");
  EXPECT_EQ(names.enter({.number = 1001, .name = "new"}), places[7]);
  EXPECT_EQ(name_of(7), "none");
  EXPECT_EQ(name_of(3), "group 3");
  EXPECT_EQ(name_of(1001), "new");
}

TEST_F(GroupNamesTest, ALongNameIsCutShort) {
  names.enter({.number = 1, .name = std::string(GroupTable::name_capacity, 'a')});
  names.enter({.number = 2, .name = std::string(GroupTable::name_capacity + 1, 'b')});
  EXPECT_EQ(name_of(1), std::string(GroupTable::name_capacity, 'a'));
  EXPECT_EQ(name_of(2), std::string(GroupTable::name_capacity - 3, 'b') + "...");
}

}  // namespace
}  // namespace lockstep::trace
