// Simulated times are those that can be computed by hand, where they can; and every algorithm comes to an end.
#include "lockstep/schedule/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/schedule/simulate/cluster.h"

namespace lockstep::schedule {
namespace {

using test::error_of;
using testing::HasSubstr;

constexpr std::size_t float_bytes = 4;
constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t slot_bytes = 4096;

/// Hosts of one rank that compute in no time, on a network of 1 GB/s without latency or cost of messages.
Topology plain() {
  Topology made;
  made.host = {.ranks = 1, .copy_rate = 1e18, .reduce_rate = 1e18, .memory_rate = 1e18, .stage = 0};
  made.network = {.send_rate = 1e9, .receive_rate = 1e9, .socket_rate = 1e18};
  return made;
}

const AlgorithmEntry& entry_named(Operation operation, std::string_view name) {
  for (const AlgorithmEntry& entry : all_algorithms()) {
    if (entry.operation == operation && entry.name == name) return entry;
  }
  throw std::logic_error("no such algorithm");
}

Cluster::Question of(Operation operation, std::size_t bytes) {
  return {.operation = operation, .elements = bytes / float_bytes, .element_bytes = float_bytes};
}

Simulated simulated(const Topology& topology, int ranks, Operation operation, std::string_view name,
                    std::size_t bytes) {
  return Cluster(topology, ranks, Tuning::standard(), slot_bytes)
      .simulate(entry_named(operation, name), of(operation, bytes));
}

TEST(Simulate, OfARingIsWhatItsLinksNeed) {
  for (const int ranks : {2, 3, 4, 8}) {
    const double bytes = 16 * mebibyte;
    const double least = 2.0 * (ranks - 1) / ranks * bytes / 1e9;
    const Simulated ring = simulated(plain(), ranks, Operation::all_reduce, "ring", 16 * mebibyte);
    EXPECT_GE(ring.seconds, least * 0.999) << ranks;
    EXPECT_LE(ring.seconds, least * 1.15) << ranks << ": segments are passed on while others arrive";
    EXPECT_NEAR(static_cast<double>(ring.bytes_of_busiest), 2.0 * (ranks - 1) / ranks * bytes, 64);
  }
}

TEST(Simulate, OfAShortMessageIsLatencyAndCosts) {
  Topology made = plain();
  made.network.latency = 10e-6;
  made.network.message = 1e-6;
  // A tree of four: up two levels and down two. On each a rank sends, the message travels, a rank takes it; the root has two
  // children on the way up and down, so that it takes and sends one more.
  const double level = 12e-6;
  EXPECT_NEAR(simulated(made, 2, Operation::all_reduce, "tree", 4).seconds, 2 * level, 1e-7);
  EXPECT_NEAR(simulated(made, 4, Operation::all_reduce, "tree", 4).seconds, 4 * level, 3e-6);
  EXPECT_NEAR(simulated(made, 8, Operation::all_reduce, "recursive_doubling", 4).seconds, 3 * level, 1e-7);
}

TEST(Simulate, OfConnectionsSharesTheirPort) {
  Topology made = plain();
  const double of_one = simulated(made, 2, Operation::broadcast, "tree", mebibyte).seconds;
  // The root sends to three hosts at once by the direct algorithm: three blocks through one port.
  const double of_three = simulated(made, 4, Operation::scatter, "direct", mebibyte).seconds;
  EXPECT_NEAR(of_three, 3 * of_one, 0.05 * of_one);
  made.network.receive_rate = 1e18;
  EXPECT_NEAR(simulated(made, 4, Operation::gather, "direct", mebibyte).seconds, of_one, 0.05 * of_one)
      << "three ports send";
  made.network.receive_rate = 1e9;
  EXPECT_NEAR(simulated(made, 4, Operation::gather, "direct", mebibyte).seconds, 3 * of_one, 0.05 * of_one)
      << "one takes";
}

TEST(Simulate, OfAFatTreeIsLongerWhereUplinksAreFew) {
  Topology wide = plain();
  wide.network.kind = Topology::Kind::fat_tree;
  wide.network.hosts_per_leaf = 4;
  wide.network.uplinks = 4;
  wide.network.uplink_rate = 1e9;
  Topology narrow = wide;
  narrow.network.uplinks = 1;
  const auto all_to_all = [](const Topology& topology) {
    return simulated(topology, 8, Operation::all_to_all, "pairwise", mebibyte).seconds;
  };
  const double flat = all_to_all(plain());
  EXPECT_NEAR(all_to_all(wide), flat, 0.1 * flat) << "as many cables as hosts";
  // Of seven blocks that a host sends, four cross, and four hosts share a cable: sixteen blocks on it.
  EXPECT_NEAR(all_to_all(narrow), 16 * mebibyte / 1e9, 0.3 * 16 * mebibyte / 1e9);
  Topology far = wide;
  far.network.uplink_latency = 1e-3;
  EXPECT_NEAR(simulated(far, 8, Operation::all_reduce, "recursive_doubling", 4).seconds, 1e-3, 1e-5)
      << "one of three rounds goes through the spine";
}

TEST(Simulate, OfOneHostIsWhatItsMemoryNeeds) {
  Topology made = plain();
  made.host = {.ranks = 4, .copy_rate = 1e18, .reduce_rate = 1e18, .memory_rate = 10e9, .stage = 0};
  // Two ranks read both buffers, half each, and write both: 4 n.
  EXPECT_NEAR(simulated(made, 2, Operation::all_reduce, "arena", mebibyte).seconds, 4 * mebibyte / 10e9,
              1e-7);
  made.host.stage = 1e-3;
  EXPECT_NEAR(simulated(made, 2, Operation::barrier, "one_shot", 0).seconds, 1e-3, 1e-9);
}

TEST(Simulate, OfHostsWithSeveralRanksCrossesAsOftenAsItMust) {
  Topology made = plain();
  made.host.ranks = 2;
  const Simulated two_level = simulated(made, 4, Operation::all_reduce, "hierarchical", 4 * mebibyte);
  EXPECT_EQ(two_level.bytes_of_busiest, 4 * mebibyte) << "n for two hosts";
  EXPECT_EQ(two_level.bytes, 8 * mebibyte);
  EXPECT_NEAR(two_level.seconds, 4 * mebibyte / 1e9, 0.1 * 4 * mebibyte / 1e9);
}

TEST(Simulate, EndsForEveryAlgorithmAndIsTheSameAgain) {
  for (const int ranks : {1, 2, 3, 5, 8, 9}) {
    for (const int each : {1, 2, 3, 16}) {
      Topology made = plain();
      made.host.ranks = each;
      made.network.latency = 5e-6;
      const Cluster cluster(made, ranks, Tuning::standard(), slot_bytes);
      for (const AlgorithmEntry& entry : all_algorithms()) {
        for (const std::size_t bytes : {std::size_t{4}, std::size_t{400'000}}) {
          const Cluster::Question question =
              of(entry.operation, entry.operation == Operation::barrier ? 0 : bytes);
          const auto candidates = cluster.candidates(question);
          if (std::ranges::find(candidates, &entry) == candidates.end()) continue;
          const Simulated once = cluster.simulate(entry, question);
          EXPECT_EQ(once.seconds, cluster.simulate(entry, question).seconds);
          EXPECT_TRUE(std::isfinite(once.seconds)) << entry.name;
        }
      }
      EXPECT_FALSE(cluster.taken(of(Operation::all_reduce, mebibyte)).empty());
    }
  }
}

TEST(Simulate, SaysAtOnceWhatIsTooMuch) {
  const Error error =
      error_of([] { (void)simulated(plain(), 4096, Operation::all_to_all, "pairwise", 25 * mebibyte); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(),
              HasSubstr("million steps of 4096 ranks are more than a simulation holds (280 million)"));
}

}  // namespace
}  // namespace lockstep::schedule
