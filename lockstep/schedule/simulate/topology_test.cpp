// Topology files that are right, and what is said about those that are not.
#include "lockstep/schedule/simulate/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"

namespace lockstep::schedule {
namespace {

using test::error_of;
using testing::HasSubstr;

std::string file(const std::string& host, const std::string& network) {
  return R"({"format": "lockstep-topology-1", "host": )" + host + R"(, "network": )" + network + "}";
}
std::string two_level(const std::string& more = "") {
  return R"({"kind": "two-level", "gbit_per_s": 8, "latency_us": 10, "message_us": 2)" + more + "}";
}

std::string complaint_about(const std::string& text) {
  const Error error = error_of([&] { (void)Topology::parse(text, "file"); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  return error.what();
}

TEST(Topology, IsInBytesAndSeconds) {
  const Topology made =
      Topology::parse(file(R"({"ranks": 4, "copy_gb_per_s": 5, "stage_us": 2})", two_level()), "file");
  EXPECT_EQ(made.host.ranks, 4);
  EXPECT_DOUBLE_EQ(made.host.copy_rate, 5e9);
  EXPECT_DOUBLE_EQ(made.host.stage, 2e-6);
  EXPECT_DOUBLE_EQ(made.network.send_rate, 0.94e9) << "without the frames' share";
  EXPECT_DOUBLE_EQ(made.network.receive_rate, made.network.send_rate);
  EXPECT_DOUBLE_EQ(made.network.latency, 10e-6);
  EXPECT_DOUBLE_EQ(made.network.message, 2e-6);
  EXPECT_EQ(made.hosts_of(9), 3);
}

TEST(Topology, HasLeavesWhereItIsAFatTree) {
  const Topology made = Topology::parse(
      file(
          R"({"ranks": 1})",
          R"({"kind": "fat-tree", "gbit_per_s": 8, "overhead": 0, "receive_gbit_per_s": 16, "latency_us": 0, "message_us": 0,
               "hosts_per_leaf": 4, "uplinks": 2, "uplink_gbit_per_s": 8, "uplink_latency_us": 1})"),
      "file");
  EXPECT_EQ(made.network.hosts_per_leaf, 4);
  EXPECT_EQ(made.network.uplinks, 2);
  EXPECT_DOUBLE_EQ(made.network.uplink_rate, 1e9);
  EXPECT_DOUBLE_EQ(made.network.receive_rate, 2e9);
}

TEST(Topology, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(complaint_about("topology"), "file: is no JSON; docs/simulate.md shows what it should be");
  EXPECT_EQ(complaint_about("{}"), "file: lacks \"format\"");
  EXPECT_EQ(complaint_about(R"({"format": "lockstep-topology-2"})"),
            "file: \"format\" is \"lockstep-topology-2\", not \"lockstep-topology-1\"");
  EXPECT_EQ(complaint_about(file("{}", two_level())), "file: \"host\": lacks \"ranks\"");
  EXPECT_EQ(complaint_about(file(R"({"ranks": 0})", two_level())),
            "file: \"host\": \"ranks\" must be a whole number from 1 to 65536, not 0");
  EXPECT_EQ(complaint_about(file(R"({"ranks": 1, "copy_gb_per_s": 0})", two_level())),
            "file: \"host\": \"copy_gb_per_s\" must be a number from 1e-06 to 1e+06, not 0");
  EXPECT_EQ(complaint_about(file(R"({"ranks": 1, "cores": 8})", two_level())),
            "file: \"host\": \"cores\" is no member here; there are ranks, copy_gb_per_s, reduce_gb_per_s, "
            "memory_gb_per_s, stage_us");
  EXPECT_EQ(complaint_about(file(R"({"ranks": 1})", R"({"kind": "torus"})")),
            "file: \"network\": \"kind\" must be two-level or fat-tree, not \"torus\"");
  EXPECT_EQ(complaint_about(file(R"({"ranks": 1})", R"({"kind": "two-level", "gbit_per_s": "fast"})")),
            "file: \"network\": \"gbit_per_s\" must be a number from 1e-06 to 1e+06, not \"fast\"");
  EXPECT_THAT(complaint_about(file(R"({"ranks": 1})", two_level(R"(, "uplinks": 2)"))),
              HasSubstr("\"uplinks\" is no member here"))
      << "it is of fat trees";
  EXPECT_THAT(
      complaint_about(file(R"({"ranks": 1})",
                           R"({"kind": "fat-tree", "gbit_per_s": 1, "latency_us": 1, "message_us": 1})")),
      HasSubstr("lacks \"hosts_per_leaf\""));
}

}  // namespace
}  // namespace lockstep::schedule
