// Tables of algorithms that are wrong, and what is said about them.
#include "lockstep/schedule/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"

namespace lockstep::schedule {
namespace {

using test::error_of;
using testing::HasSubstr;
using testing::Not;

std::string with_segment_bytes(const std::string& value) {
  return R"({"format": "lockstep-tuning-1", "segment_bytes": )" + value +
         R"(, "staging_bytes": 4096, "rules": []})";
}

Error error_of_parsing(const std::string& text) {
  Error error = error_of([&] { (void)Tuning::parse(text, "file"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), testing::StartsWith("file: "));
  return error;
}

TEST(Tuning, ThatIsWrittenAndReadAgainIsTheSame) {
  Tuning tuning = Tuning::standard();
  tuning.forced = {{Operation::all_reduce, "ring"}};
  tuning.ranks_per_node = 4;
  tuning.wire_dtype = Dtype::f16;
  tuning.connections = 3;
  EXPECT_EQ(Tuning::parse(tuning.to_text(), "text"), tuning);
}

TEST(Tuning, SaysWhichValueIsWrong) {
  EXPECT_THAT(error_of_parsing(with_segment_bytes("\"64\"")).what(), HasSubstr("not \"64\""));
  EXPECT_THAT(error_of_parsing(with_segment_bytes("-1")).what(), HasSubstr("not -1"));
  EXPECT_THAT(error_of_parsing(with_segment_bytes("[1, 2]")).what(), HasSubstr("not an array"));
  EXPECT_THAT(error_of_parsing(with_segment_bytes("null")).what(), HasSubstr("not null"));
}

// To write such a value down takes more stack than there is.
TEST(Tuning, SurvivesListsWithinListsWithoutEnd) {
  constexpr std::size_t depth = 500'000;
  const Error error = error_of_parsing(with_segment_bytes(std::string(depth, '[') + std::string(depth, ']')));
  EXPECT_THAT(error.what(), HasSubstr("not an array"));
}

TEST(Tuning, QuotesWhatIsWrongInOneShortLine) {
  for (const std::string& name : {std::string("a\\nb"), std::string(100'000, 'x')}) {
    const std::string what = error_of_parsing(R"({"format": ")" + name + R"(", "segment_bytes": 64})").what();
    EXPECT_THAT(what, Not(HasSubstr("\n")));
    EXPECT_LT(what.size(), 500U);
  }
}

TEST(Tuning, TakesRanksPerNodeFromTheEnvironment) {
  ::setenv("LOCKSTEP_RANKS_PER_NODE", "24", 1);
  EXPECT_EQ(Tuning::from_environment().ranks_per_node, 24);
  for (const char* wrong : {"0", "-2", "half"}) {
    ::setenv("LOCKSTEP_RANKS_PER_NODE", wrong, 1);
    const Error error = error_of([] { (void)Tuning::from_environment(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_RANKS_PER_NODE=\"" + std::string(wrong) + "\""));
  }
  ::unsetenv("LOCKSTEP_RANKS_PER_NODE");
}

TEST(Tuning, TakesWhatCrossesBetweenHostsFromTheEnvironment) {
  const auto with = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    const auto unset = std::unique_ptr<const char, int (*)(const char*)>(name, ::unsetenv);
    return Tuning::from_environment();
  };
  EXPECT_EQ(with("LOCKSTEP_WIRE_DTYPE", "bf16").wire_dtype, Dtype::bf16);
  EXPECT_EQ(with("LOCKSTEP_WIRE_DTYPE", "fp16").wire_dtype, Dtype::f16);
  EXPECT_EQ(with("LOCKSTEP_WIRE_DTYPE", "f32").wire_dtype, std::nullopt);
  EXPECT_THAT(
      error_of([&] { (void)with("LOCKSTEP_WIRE_DTYPE", "int8"); }).what(),
      HasSubstr(
          "LOCKSTEP_WIRE_DTYPE: sums of f32 cross between hosts in bf16, f16 or, as they are, f32; not in "
          "\"int8\""));
  EXPECT_EQ(with("LOCKSTEP_CONNECTIONS", "4").connections, 4);
  for (const char* wrong : {"0", "9", "many"})
    EXPECT_THAT(error_of([&] { (void)with("LOCKSTEP_CONNECTIONS", wrong); }).what(),
                HasSubstr("LOCKSTEP_CONNECTIONS"));
}

TEST(Tuning, RefusesSegmentsThatNoMessageCanHave) {
  for (const char* wrong : {"0", "63", "2G"}) {
    ::setenv("LOCKSTEP_SEGMENT_BYTES", wrong, 1);
    const Error error = error_of([] { (void)Tuning::from_environment(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("messages over a connection have 64 to 1073741824 bytes"));
  }
  ::setenv("LOCKSTEP_SEGMENT_BYTES", "64K", 1);
  EXPECT_EQ(Tuning::from_environment().segment_bytes, 65536U);
  ::unsetenv("LOCKSTEP_SEGMENT_BYTES");
}

}  // namespace
}  // namespace lockstep::schedule
