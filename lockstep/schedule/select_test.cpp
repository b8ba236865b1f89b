// Which algorithm a call gets where memory has nodes, and on several hosts. (What else decides is tested where it is measured and
// forced: calibration_test.cpp, tests/conformance.)
#include "lockstep/schedule/select.h"

#include <gtest/gtest.h>

#include <string_view>

namespace lockstep::schedule {
namespace {

int found(const std::vector<int>& nodes) { return ranks_per_node(nodes); }

TEST(Nodes, AreThoseThatHaveAsManyRanksEachOneAfterAnother) {
  EXPECT_EQ(found({0, 0, 1, 1}), 2);
  EXPECT_EQ(found({3, 3, 3, 0, 0, 0}), 3);
  EXPECT_EQ(found({5, 4, 3}), 1);
}

TEST(Nodes, AreNoneWhereThereIsOneAlone) {
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found({0}), 0);
  EXPECT_EQ(found({1, 1, 1, 1}), 0);
}

TEST(Nodes, AreNoneWhereRanksAreMixedOrMoreOnOne) {
  EXPECT_EQ(found({0, 1, 0, 1}), 0) << "in turns";
  EXPECT_EQ(found({0, 0, 1}), 0);
  EXPECT_EQ(found({0, 0, 1, 1, 1, 1}), 0);
  EXPECT_EQ(found({0, 1, 1, 1}), 0);
  EXPECT_EQ(found({0, 0, 1, 1, 0, 0}), 0) << "a node in two places";
}

TEST(Nodes, AreNoneWhereARankRunsBesideSeveral) {
  EXPECT_EQ(found({-1, -1, -1, -1}), 0);
  EXPECT_EQ(found({0, 0, -1, -1}), 0);
  EXPECT_EQ(found({-1, 0}), 0);
}

class ForNodes : public ::testing::Test {
 protected:
  std::string_view chosen() const { return select(call, 4, where, table).name; }

  Call call{.operation = Operation::all_reduce,
            .elements = 1 << 20,
            .ranks = 4,
            .buffers = BufferClass::arena,
            .ranks_per_node = 2};
  Neighbourhood where;
  Tuning table = [] {
    Tuning made;
    made.rules = {{Operation::all_reduce, Where::arena, 2, {{"numa"}}}};
    return made;
  }();
};

TEST_F(ForNodes, ATablesWordIsTaken) { EXPECT_EQ(chosen(), "numa"); }

TEST_F(ForNodes, NoTableMeansTheArena) {
  table = {};
  EXPECT_EQ(chosen(), "arena");
  table = Tuning::standard();
  EXPECT_EQ(chosen(), "arena");
}

TEST_F(ForNodes, TheArenaIsTakenWhereThereAreNone) {
  call.ranks_per_node = 0;
  EXPECT_EQ(chosen(), "arena");
}

class OnHosts : public ::testing::Test {
 protected:
  OnHosts() { place(2, 2); }
  void place(int hosts, int each) {
    call.ranks = hosts * each;
    call.host_of.clear();
    for (int rank = 0; rank < call.ranks; ++rank) call.host_of.push_back(rank / each);
    where.host_of = call.host_of;
  }
  std::string_view chosen() const { return select(call, 4, where, Tuning::standard()).name; }

  Call call{.operation = Operation::all_reduce, .elements = 1 << 20, .window_elements = 1 << 16};
  Neighbourhood where;
};

TEST_F(OnHosts, ThatAreFewTheirMemoryIsUsed) {
  for (const int hosts : {2, 3, 16}) {
    place(hosts, 2);
    EXPECT_EQ(chosen(), "hierarchical") << hosts;
  }
}

TEST_F(OnHosts, ThatAreManyARingGoesThroughAll) {
  place(17, 2);
  EXPECT_EQ(chosen(), "ring");
}

TEST_F(OnHosts, ANarrowWireIsForWhatRoundsOnAllRanksAlike) {
  call.narrow_wire = true;
  for (const int hosts : {2, 3, 17, 64}) {
    place(hosts, 1);
    EXPECT_EQ(chosen(), "hierarchical") << hosts;
  }
  call.elements = 1;
  EXPECT_EQ(chosen(), "hierarchical");
}

TEST_F(OnHosts, AUsersOperationIsLeftToThoseThatKeepTheOrder) {
  call.keeps_order = true;
  EXPECT_EQ(chosen(), "tree");
}

}  // namespace
}  // namespace lockstep::schedule
