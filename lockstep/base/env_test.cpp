#include "lockstep/base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Environment : public ::testing::Test {
 protected:
  void set(const char* value) { ::setenv("LOCKSTEP_TEST", value, 1); }
  void TearDown() override { ::unsetenv("LOCKSTEP_TEST"); }
  static std::string refusal(const std::function<void()>& read) {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
};

TEST_F(Environment, UnsetAndEmptyAreTheSame) {
  EXPECT_EQ(env::text("LOCKSTEP_TEST"), std::nullopt);
  set("");
  EXPECT_EQ(env::text("LOCKSTEP_TEST"), std::nullopt);
  EXPECT_EQ(env::integer("LOCKSTEP_TEST", 0, 9), std::nullopt);
}

TEST_F(Environment, IntegersAreReadWhole) {
  set("-12");
  EXPECT_EQ(env::integer("LOCKSTEP_TEST", -20, 20), -12);
  for (const char* wrong : {"12x", " 12", "0x12", "21", "-21", "99999999999999999999", "one"}) {
    set(wrong);
    EXPECT_THAT(
        refusal([] { env::integer("LOCKSTEP_TEST", -20, 20); }),
        HasSubstr("LOCKSTEP_TEST=\"" + std::string(wrong) + "\" is not a whole number from -20 to 20"));
  }
}

TEST_F(Environment, BytesTakeSuffixes) {
  set("3K");
  EXPECT_EQ(env::bytes("LOCKSTEP_TEST"), 3072U);
  set("2GiB");
  EXPECT_EQ(env::bytes("LOCKSTEP_TEST"), 2ULL << 30);
  for (const char* wrong : {"K", "1T", "-1", "1.5M", "99999999999999999999", "18446744073709551615K"}) {
    set(wrong);
    EXPECT_THAT(refusal([] { env::bytes("LOCKSTEP_TEST"); }), HasSubstr("is not a number of bytes"));
  }
}

TEST_F(Environment, DurationsTakeUnitsAndOff) {
  const std::pair<const char*, std::chrono::nanoseconds> readings[] = {
      {"30", 30s},
      {"1.5s", 1500ms},
      {"20ms", 20ms},
      {"7us", 7us},
      {"2m", 2min},
      {"1h", 1h},
      {"off", std::chrono::nanoseconds::max()}};
  for (const auto& [text, expected] : readings) {
    set(text);
    EXPECT_EQ(env::duration("LOCKSTEP_TEST"), expected) << text;
  }
  for (const char* wrong : {"-1", "nan", "inf", "5 s", "never", "1e99"}) {
    set(wrong);
    EXPECT_THAT(refusal([] { env::duration("LOCKSTEP_TEST"); }), HasSubstr("is not a duration"));
  }
}

TEST_F(Environment, SwitchesAreOnOrOff) {
  set("yes");
  EXPECT_EQ(env::flag("LOCKSTEP_TEST"), true);
  set("0");
  EXPECT_EQ(env::flag("LOCKSTEP_TEST"), false);
  set("2");
  EXPECT_THAT(refusal([] { env::flag("LOCKSTEP_TEST"); }), HasSubstr("is not a switch"));
}

TEST_F(Environment, NamesThatAreAlmostOursAreFound) {
  const auto meant_by = [](const char* name) {
    ::setenv(name, "x", 1);
    std::string meant;
    for (const auto& one : env::mistyped()) {
      if (one.name == name) meant += one.meant;
    }
    ::unsetenv(name);
    return meant;
  };
  EXPECT_EQ(meant_by("LOCKSTEP_TIMOUT"), "LOCKSTEP_TIMEOUT");
  EXPECT_EQ(meant_by("LOCKSTEP_ARENA_BYTE"), "LOCKSTEP_ARENA_BYTES");
  EXPECT_EQ(meant_by("LOCKSTP_LOG"), "LOCKSTEP_LOG");
  EXPECT_EQ(meant_by("LOCKSTEP_TIMEOUT"), "");
  EXPECT_EQ(meant_by("LOCKSTEP_MY_OWN"), "") << "programs have variables of their own";
  EXPECT_EQ(meant_by("LOCKSTEP_LR"), "");
}

}  // namespace
}  // namespace lockstep
