// Every algorithm is proven for every size: see verify.h for what that means.
#include "lockstep/schedule/algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/schedule/verify.h"

namespace lockstep::schedule {
namespace {

constexpr auto in_arena = BufferClass::arena;

// Sanitizers look at the code, not at the proof: fewer sizes are enough for them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool thorough = false;
#else
constexpr bool thorough = true;
#endif

// From a piece's fill to when it is collected (hierarchical.cpp).
constexpr std::size_t windows_under_way = 6;

std::string name_of(const AlgorithmEntry& entry) {
  return std::string(entry.name) + "_" + std::string(to_string(entry.operation));
}

class EveryAlgorithm : public ::testing::TestWithParam<AlgorithmEntry> {
 protected:
  void expect_proven(const std::vector<Call>& calls) {
    const Verdict verdict = verify(GetParam().algorithm, calls);
    ASSERT_TRUE(verdict) << calls[0] << ": " << verdict.reason;
  }

  /// For every root, in place and not.
  void expect_proven(Call call) {
    const AlgorithmEntry& entry = GetParam();
    if (entry.operation == Operation::barrier && call.elements > 0) return;  // it has none
    call.operation = entry.operation;
    call.buffers = entry.requirement == Requirement::arena ? in_arena : BufferClass::private_memory;
    call.keeps_order = entry.keeps_order;
    // All roots of few ranks; of many some, at both ends and in between.
    const int roots = has_root(entry.operation) ? call.ranks : 1;
    for (call.root = 0; call.root<roots; call.root += roots> 9 ? 7 : 1) {
      for (const bool in_place : {false, true}) {
        if (in_place && !entry.allows_in_place) continue;
        call.in_place = in_place;
        for (const int each : ranks_per_node(call.ranks)) {
          call.ranks_per_node = each;
          expect_proven_on_hosts(call);
        }
      }
    }
  }

  /// Alone, or on hosts of many kinds, which have their buffers in arenas, or not, or some have.
  void expect_proven_on_hosts(Call call) {
    if (!has_hosts()) return expect_proven(calls_of_all(call));
    call.windows = windows_under_way;
    auto all_hosts = hosts_of(call.ranks);
    // Of many ranks one kind for each number of them; and one where the engine is asked for all of it.
    const bool is_engines = GetParam().algorithm == engine_collective;
    if (call.ranks > 9 || is_engines)
      std::swap(all_hosts[0], all_hosts[static_cast<std::size_t>(call.ranks) % all_hosts.size()]);
    if (call.ranks > 9 || is_engines) all_hosts.resize(1);
    for (auto& hosts : all_hosts) {
      call.host_of = hosts;
      for (const int in_arenas : {0, 1, 2}) {
        if (is_engines && in_arenas > 0) continue;
        auto calls = calls_of_all(call);
        for (Call& mine : calls) {
          const int host = hosts[static_cast<std::size_t>(mine.rank)];
          if (in_arenas == 1 || (in_arenas == 2 && host % 2 == 0)) mine.buffers = in_arena;
        }
        expect_proven(calls);
        if (!GetParam().allows_narrow_wire) continue;
        for (Call& mine : calls) mine.narrow_wire = true;
        expect_proven(calls);
      }
    }
  }

  /// Hosts with as many ranks each, one after another and in turns; with different numbers; with one each.
  static std::vector<std::vector<int>> hosts_of(int ranks) {
    std::vector<std::vector<int>> all(4);
    for (int rank = 0; rank < ranks; ++rank) {
      all[0].push_back(rank / std::max((ranks + 1) / 2, 1));
      all[1].push_back(rank % std::min(ranks, 3));
      all[2].push_back(rank == 0 ? 0 : 1 + (rank - 1) / 3);
      all[3].push_back(rank);
    }
    return all;
  }

  /// Of so many ranks: what nodes of memory can have of them; 0: there is one.
  std::vector<int> ranks_per_node(int ranks) const {
    std::vector<int> numbers = {0};
    for (int each = 1; GetParam().is_for_nodes && each < ranks; ++each) {
      if (ranks % each == 0) numbers.push_back(each);
    }
    return numbers;
  }

  bool is_staged() const { return GetParam().requirement == Requirement::staging || has_hosts(); }
  bool has_hosts() const {
    return GetParam().requirement == Requirement::hosts || GetParam().requirement == Requirement::exchange;
  }
};

TEST_P(EveryAlgorithm, IsProvenFor1To33Ranks) {
  for (int ranks = 1; ranks <= (thorough ? 33 : 15); ranks += thorough || ranks < 8 ? 1 : 7) {
    for (const std::size_t elements : {0, 1, 2, 3, 7, 16, 31, 64, 100}) {
      const bool is_much = elements * static_cast<std::size_t>(ranks) > (thorough ? 900 : 100);
      if (!is_much) {
        expect_proven(Call{.elements = elements,
                           .ranks = ranks,
                           .segment_elements = 1000,
                           .window_elements = is_staged() ? 2000UL : 0UL});
      }
    }
  }
}

TEST_P(EveryAlgorithm, IsProvenForEverySize) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (std::size_t elements = 0; elements <= 100; elements += thorough ? 1 : 13) {
      expect_proven(Call{.elements = elements,
                         .ranks = ranks,
                         .segment_elements = 1000,
                         .window_elements = is_staged() ? 24UL : 0UL});
    }
  }
}

TEST_P(EveryAlgorithm, IsProvenAroundEverySegmentLimit) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    const auto p = static_cast<std::size_t>(ranks);
    for (const std::size_t segment : {1UL, 3UL, 8UL}) {
      for (const std::size_t limit : {segment, 2 * segment, p * segment, 2 * p * segment, 3 * p * segment}) {
        if (!thorough && limit > 40) continue;
        for (std::size_t elements = limit - 1; elements <= limit + 1; ++elements) {
          expect_proven(Call{.elements = elements,
                             .ranks = ranks,
                             .segment_elements = segment,
                             .window_elements = is_staged() ? p * segment : 0});
        }
      }
    }
  }
}

/// Those that take a count for each rank, or have a root.
class EveryAlgorithmOfBlocks : public EveryAlgorithm {};

TEST_P(EveryAlgorithmOfBlocks, IsProvenForBlocksOfDifferentSizes) {
  const AlgorithmEntry& entry = GetParam();
  for (const int ranks : {1, 2, 3, 4, 7, 8, 13}) {
    for (std::size_t variant = 0; variant < 4; ++variant) {
      Call call{.ranks = ranks, .segment_elements = 4, .window_elements = is_staged() ? 32UL : 0UL};
      for (int rank = 0; rank < ranks; ++rank) {
        const auto number = static_cast<std::size_t>(rank);
        const std::size_t counts[] = {number, number % 2 * 5, number == 1 ? 30UL : 0UL,
                                      (number * 7 + 3) % 11};
        call.counts.push_back(counts[variant]);
      }
      if (entry.operation == Operation::reduce || entry.operation == Operation::broadcast)
        call.counts.clear();
      expect_proven(call);
    }
  }
}

TEST(PairwiseAllToAll, IsProvenForDifferentSizesBetweenAnyTwoRanks) {
  for (const int ranks : {1, 2, 3, 4, 7, 8}) {
    const auto count = [](int from, int to) { return static_cast<std::size_t>((from * 5 + to * 3) % 7); };
    for (const bool in_place : {false, true}) {
      // In place, what is sent to a rank makes room for what comes from it.
      const auto sent = [&](int from, int to) {
        return in_place ? count(std::min(from, to), std::max(from, to)) : count(from, to);
      };
      auto calls = calls_of_all(
          {.operation = Operation::all_to_all, .ranks = ranks, .in_place = in_place, .segment_elements = 2});
      for (Call& call : calls) {
        for (int peer = 0; peer < ranks; ++peer) {
          call.counts.push_back(sent(call.rank, peer));
          call.receive_counts.push_back(sent(peer, call.rank));
        }
      }
      const Verdict verdict = verify(pairwise_all_to_all, calls);
      EXPECT_TRUE(verdict) << ranks << " ranks: " << verdict.reason;
    }
  }
}

TEST(PairwiseAllToAll, SendsAnEmptyBlockToo) {
  const Schedule steps = pairwise_all_to_all({.operation = Operation::all_to_all,
                                              .rank = 0,
                                              .ranks = 2,
                                              .counts = {1, 0},
                                              .receive_counts = {1, 0}});
  const auto has = [&](StepKind kind) {
    return std::ranges::count_if(steps.steps(),
                                 [&](const Step& step) { return step.kind == kind && step.elements == 0; });
  };
  EXPECT_EQ(has(StepKind::send), 1);
  EXPECT_EQ(has(StepKind::receive), 1);
}

TEST(AllToAll, MayBeInPlaceOnSomeRanksOnly) {
  for (const Algorithm algorithm : {pairwise_all_to_all, bruck_all_to_all, staged_all_to_all}) {
    auto calls = calls_of_all({.operation = Operation::all_to_all,
                               .elements = 6,
                               .ranks = 5,
                               .segment_elements = 4,
                               .window_elements = 10});
    calls[1].in_place = calls[4].in_place = true;
    const Verdict verdict = verify(algorithm, calls);
    EXPECT_TRUE(verdict) << verdict.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryAlgorithm, ::testing::ValuesIn(all_algorithms()),
                         [](const auto& instance) { return name_of(instance.param); });

std::vector<AlgorithmEntry> algorithms_of_blocks() {
  std::vector<AlgorithmEntry> found;
  std::ranges::copy_if(all_algorithms(), std::back_inserter(found), [](const AlgorithmEntry& entry) {
    const bool has_blocks = has_root(entry.operation) || entry.operation == Operation::all_gather ||
                            entry.operation == Operation::reduce_scatter;
    return has_blocks && entry.allows_counts;
  });
  return found;
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryAlgorithmOfBlocks, ::testing::ValuesIn(algorithms_of_blocks()),
                         [](const auto& instance) { return name_of(instance.param); });

}  // namespace
}  // namespace lockstep::schedule
