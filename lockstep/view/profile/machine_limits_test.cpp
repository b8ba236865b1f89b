#include "lockstep/view/profile/machine_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/failure_test.h"

namespace lockstep::view {
namespace {

using ::testing::HasSubstr;

const MachineLimits two_cores{.ranks = 2,
                              .hosts = 1,
                              .memory_bytes_per_s = {8e9, 12e9},
                              .push_bytes_per_s = 9e9,
                              .link_bytes_per_s = 5e9,
                              .link_seconds = 4e-7};

TEST(MachineLimits, AreReadAsTheyWereWritten) {
  const MachineLimits read = MachineLimits::parse(two_cores.to_text(), "file");
  EXPECT_EQ(read.to_text(), two_cores.to_text());
  EXPECT_EQ(read.memory_bytes_per_s, two_cores.memory_bytes_per_s);
}

TEST(MachineLimits, SayWhatMemoryAllows) {
  // 2 ranks all-reduce n bytes each: 4 n are read and written, and n is what counts for the bus.
  EXPECT_DOUBLE_EQ(two_cores.bus_bandwidth(Operation::all_reduce, 2), 12e9 / 4);
  EXPECT_DOUBLE_EQ(two_cores.bus_bandwidth(Operation::broadcast, 2), 12e9 / 2);
  // Blocks of n: each rank reads 2 n and writes n, and n counts.
  EXPECT_DOUBLE_EQ(two_cores.bus_bandwidth(Operation::reduce_scatter, 2), 12e9 / 6);
  EXPECT_DOUBLE_EQ(two_cores.bus_bandwidth(Operation::all_to_all, 2), 12e9 / 8);
  EXPECT_DOUBLE_EQ(two_cores.bus_bandwidth(Operation::all_reduce, 4), 12e9 / 8 * 1.5) << "of two cores";
  EXPECT_EQ(two_cores.bus_bandwidth(Operation::all_reduce, 1), 0);
}

TEST(MachineLimits, SayWhatALinkAllows) {
  MachineLimits several = two_cores;
  several.hosts = 2;
  EXPECT_DOUBLE_EQ(several.bus_bandwidth(Operation::all_reduce, 2), 5e9);
}

TEST(MachineLimits, BusBytesAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_bytes(Operation::all_reduce, false, 4, 100), 150);
  EXPECT_DOUBLE_EQ(bus_bytes(Operation::all_gather, false, 4, 100), 300) << "of blocks of 100";
  EXPECT_DOUBLE_EQ(bus_bytes(Operation::all_gather, true, 4, 100), 75);
  EXPECT_DOUBLE_EQ(bus_bytes(Operation::all_reduce, false, 1, 100), 0);
  EXPECT_DOUBLE_EQ(bus_bytes(Operation::broadcast, false, 4, 100), 100);
}

TEST(MachineLimits, ThatMakeNoSenseAreRefusedWithThePlace) {
  const auto with = [](const char* name, const nlohmann::json& value) {
    nlohmann::json text = nlohmann::json::parse(two_cores.to_text());
    text[name] = value;
    return test::failure_of([&] { MachineLimits::parse(text.dump(), "the file"); });
  };
  EXPECT_THAT(with("format", "lockstep-tuning-1"), HasSubstr("the file: is not of \"format\""));
  EXPECT_THAT(with("ranks", 1.5), HasSubstr("\"ranks\" must be a whole number up to 1048576"));
  EXPECT_THAT(with("memory_bytes_per_s", nlohmann::json::array()), HasSubstr("must be a list of numbers"));
  EXPECT_THAT(with("memory_bytes_per_s", {1, -1}), HasSubstr("must be a number from 1e-12 to 1e15"));
  EXPECT_THAT(with("link_seconds", "fast"),
              HasSubstr("\"link_seconds\" must be a number from 1e-12 to 1e15"));
  for (const char* text : {"", "[]", "{", "7"})
    EXPECT_THAT(test::failure_of([&] { MachineLimits::parse(text, "the file"); }),
                HasSubstr("the file: is "));
  nlohmann::json lacking = nlohmann::json::parse(two_cores.to_text());
  lacking.erase("hosts");
  EXPECT_THAT(test::failure_of([&] { MachineLimits::parse(lacking.dump(), "x"); }),
              HasSubstr("lacks \"hosts\""));
}

}  // namespace
}  // namespace lockstep::view
