// The file's bytes; that TensorBoard reads it is in tests/multi_rank/training.
#include "lockstep/train/trainer/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/folder_test.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += "0123456789abcdef"[value >> 4];
    text += "0123456789abcdef"[value & 15];
  }
  return text;
}

/// What the package tensorboard 2.21.0 makes of the same event and its masked_crc32c().
TEST(EventFile, HasTheBytesThatTensorBoardWrites) {
  EXPECT_EQ(hex(first_event(1700000000.25)),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  EXPECT_EQ(
      hex(scalar_event(1700000001.5, 300, "train/loss", 0.125F)),
      "2100000000000000017becf60900006040fc54d94110ac022a130a110a0a747261696e2f6c6f7373150000003e81a338e3");
  EXPECT_EQ(
      hex(scalar_event(1700000002, 0, "eval/accuracy", 1)),
      "2100000000000000017becf60900008040fc54d9412a160a140a0d6576616c2f6163637572616379150000803f9c7269b2");
}

class EventFileTest : public test::FolderTest {
 protected:
  /// The events of a file whose records are whole and fit their checksums.
  static std::vector<std::string> events_of(const fs::path& path) {
    const std::string content = test::text_in(path);
    std::vector<std::string> events;
    const auto checked = [&](std::size_t begin, std::size_t bytes) {
      std::string part = content.substr(begin, bytes);
      std::uint32_t sum = 0;
      EXPECT_LE(begin + bytes + sizeof(sum), content.size()) << "the file is cut";
      std::memcpy(&sum, content.substr(begin + bytes, sizeof(sum)).c_str(), sizeof(sum));
      EXPECT_EQ(sum, masked_crc32c(std::as_bytes(std::span(part))));
      return part;
    };
    for (std::size_t at = 0; at < content.size() && !HasFailure();) {
      std::uint64_t length = 0;
      std::memcpy(&length, checked(at, sizeof(length)).c_str(), sizeof(length));
      events.push_back(checked(at + 12, length));
      at += 12 + length + 4;
    }
    return events;
  }
};

TEST_F(EventFileTest, HoldsEachFigureAsSoonAsItIsAdded) {
  const fs::path run = folder_ / "made" / "for it";
  EventFile file(run, Group());
  EXPECT_EQ(file.path().parent_path(), run);
  EXPECT_THAT(file.path().filename().string(),
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\." + std::to_string(::getpid())));
  EXPECT_THAT(events_of(file.path()), SizeIs(1));
  file.add("train/loss", 2.5, 7);
  file.add("train/loss", std::nan(""), 8);
  const auto events = events_of(file.path());  // while it is open: nothing is held back
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_THAT(events[0], HasSubstr("brain.Event:2"));
  EXPECT_THAT(events[1], HasSubstr("train/loss"));
}

TEST_F(EventFileTest, IsAnotherOneForEachRunOfAProcess) {
  EventFile first(folder_, Group()), second(folder_, Group());
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(files(), SizeIs(2));
}

TEST_F(EventFileTest, IsOfRank0Alone) {
  test::on_ranks(3, [&](const Group& group) {
    EventFile file(folder_, group);
    file.add("loss", 1, 0);
    EXPECT_EQ(file.path().empty(), group.rank() != 0);
  });
  ASSERT_THAT(files(), SizeIs(1));
  EXPECT_THAT(events_of(folder_ / files().front()), SizeIs(2));
}

TEST_F(EventFileTest, NamesAFolderThatCannotBe) {
  file("file", "no folder");
  try {
    const EventFile file(folder_ / "file" / "runs", Group());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_THAT(error.what(), HasSubstr("cannot make the folder " + (folder_ / "file" / "runs").string() +
                                        " for TensorBoard: Not a directory; name another, or make it"));
  }
}

}  // namespace
}  // namespace lockstep
