#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/failure_test.h"
#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/rendezvous/view_board.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

TEST(ViewText, IsReadAgain) {
  const View view{.number = 7, .members = {{0}, {12, 3}, {2}}};
  EXPECT_EQ(View::parse(view.to_text()), view);
  EXPECT_EQ(View::parse(View{.number = 1}.to_text()), View{.number = 1});
  EXPECT_THAT(view.ranks(), ElementsAre(0, 12, 2));
  EXPECT_THAT(view.place_of({12, 3}), Optional(1));
  EXPECT_FALSE(view.has({12, 2})) << "another life of the same rank";
  EXPECT_EQ(to_text(Life{3}) + " " + to_text(Life{3, 2}), "3 3.2");
}

TEST(ViewText, ThatIsNoneIsRefused) {
  for (const char* text :
       {"", "x", "1\n0", "1\n0 0\n0 0\n", "1\n-1 0\n", "1\n0 -1\n", "1\n0 0\nx\n", "1 0 0\n", "1\n0 0 \n"}) {
    EXPECT_THAT(test::corruption_of([&] { (void)View::parse(text); }), HasSubstr("for a view")) << text;
  }
}

TEST(ViewBoard, HasTheLastViewsAndWhyLivesAreOut) {
  MemoryStore store;
  ViewBoard board(store);
  EXPECT_FALSE(board.why_out({2}));
  board.note_out({2}, "it died");
  for (std::uint64_t number = 1; number <= 40; ++number) {
    store.set(ViewBoard::place_of(number) + "/0/here/1", "1");
    board.publish({.number = number, .members = {{0}}});
  }
  EXPECT_EQ(board.get(40, Deadline::never()).number, 40U);
  (void)test::failure_of([&] { (void)board.get(3, Deadline::after(std::chrono::nanoseconds(0))); },
                         ErrorCode::timeout);
  EXPECT_FALSE(store.try_get(ViewBoard::place_of(3) + "/0/here/1"));
  EXPECT_TRUE(store.try_get(ViewBoard::place_of(40) + "/0/here/1"));
  EXPECT_THAT(board.why_out({2}), Optional(std::string("it died")));
  EXPECT_FALSE(board.why_out({2, 1}));
}

}  // namespace
}  // namespace lockstep
