#include "lockstep/rendezvous/file_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/base/folder_test.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Deadline briefly() { return Deadline::after(std::chrono::milliseconds(50)); }
Deadline late() { return Deadline::after(std::chrono::seconds(30)); }

class TheFileBoard : public test::FolderTest {
 protected:
  std::string refusal_to_get() const {
    return test::refusal([&] { (void)FileBoard(folder_, "17.0").get("place", briefly()); });
  }
};

TEST_F(TheFileBoard, TellsOthersWhatRank0HasPutAsSoonAsItIsThere) {
  FileBoard others(folder_, "17.0");
  std::thread reader([&] { EXPECT_EQ(others.get("place", late()), "tcp:10.0.0.1:5/abc"); });
  {
    FileBoard rank_0(folder_, "17.0");
    rank_0.put("place", "tcp:10.0.0.1:5/abc", late());
    rank_0.fence(late());
    EXPECT_EQ(rank_0.get("place", late()), "tcp:10.0.0.1:5/abc");
    EXPECT_THAT(files(), ElementsAre("lockstep-17.0"));
    const auto mode = std::filesystem::status(folder_ / "lockstep-17.0").permissions();
    EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    reader.join();
  }
  EXPECT_THAT(files(), IsEmpty()) << "it goes with rank 0";
}

TEST_F(TheFileBoard, IsOfOneJob) {
  FileBoard rank_0(folder_, "17.1");
  rank_0.put("place", "elsewhere", late());
  EXPECT_THAT(refusal_to_get(),
              AllOf(HasSubstr("timeout: "), HasSubstr("lockstep-17.0, where rank 0 says where to meet")));
}

TEST_F(TheFileBoard, DoesNotTrustWhatOthersMayTouch) {
  const auto path = file("lockstep-17.0", "place=elsewhere\n");
  std::filesystem::permissions(path, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
  EXPECT_THAT(refusal_to_get(),
              AllOf(HasSubstr("invalid_argument: "), HasSubstr("is not this user's alone")));
  std::filesystem::rename(path, folder_ / "elsewhere");
  std::filesystem::create_symlink(folder_ / "elsewhere", path);
  EXPECT_THAT(refusal_to_get(), HasSubstr("system: "));
}

TEST_F(TheFileBoard, SaysOfGarbageThatItIsNoMeetingPlace) {
  for (const std::string& text :
       {std::string(), std::string("place=x"), std::string("other=x\n"), std::string(5000, 'x') + "\n"}) {
    const auto path = file("lockstep-17.0", text);
    std::filesystem::permissions(path,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_THAT(refusal_to_get(), AllOf(HasSubstr("corrupt_data: "), HasSubstr("is no meeting place")));
  }
}

TEST_F(TheFileBoard, NeedsAFolder) {
  EXPECT_THAT(test::refusal([&] { FileBoard(folder_ / "none", "17.0"); }),
              AllOf(HasSubstr("invalid_argument: LOCKSTEP_MEETING_DIR="), HasSubstr("is no folder here")));
}

}  // namespace
}  // namespace lockstep
