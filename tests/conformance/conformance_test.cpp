// Conformance over threads (the memory transport), processes of one host (shm), and two hosts (tcp).
#include "tests/conformance/conformance.h"

#include <cstdlib>
#include <functional>
#include <thread>

#include "lockstep/group/in_process.h"
#include "lockstep/schedule/algorithms.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

/// Set while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// Runs `body` on threads, one a rank.
void on_threads(int ranks, const std::function<void(const Group&)>& body) {
  auto world = in_process_world(ranks, {}, std::size_t{16} << 20);
  std::vector<std::string> failures(world.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&body, &failure = failures[rank], group = std::move(world[rank])]() mutable {
      try {
        body(group);
      } catch (const std::exception& error) {
        failure = error.what();
      }
      group = Group();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t few_counts[] = {0, 1, 33, 300, 520};
constexpr int rank_numbers[] = {1, 2, 3, 5};
#else
constexpr std::size_t few_counts[] = {0, 1, 7, 33, 64, 65, 300, 520, 1031};
constexpr int rank_numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};
#endif

class Threads : public ::testing::TestWithParam<int> {
 protected:
  /// In private memory and in the arenas.
  static void check(void (*function)(const Group&, const ConformanceOptions&)) {
    on_threads(GetParam(), [&](const Group& group) {
      for (const bool in_arena : {false, true}) function(group, {.in_arena = in_arena, .counts = few_counts});
    });
  }
};

TEST_P(Threads, ReduceEveryTypeByEveryOperation) { check(check_reductions); }
TEST_P(Threads, MoveBlocks) { check(check_movements); }
TEST_P(Threads, ReduceByAUsersOperation) { check(check_custom_op); }
TEST_P(Threads, SendAndReceive) {
  on_threads(GetParam(), [](const Group& group) {
    for (const bool in_arena : {false, true}) check_messages(group, {.in_arena = in_arena});
  });
}
TEST_P(Threads, RoundOnce) {
  check([](const Group& group, const ConformanceOptions& options) { check_rounding(group, options, 1); });
}
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, ::testing::ValuesIn(rank_numbers),
                         [](const auto& instance) { return std::to_string(instance.param); });

/// Every algorithm over channels, over staging memory or for nodes, with messages of few elements.
class Forced : public ::testing::TestWithParam<AlgorithmEntry> {
 protected:
  static std::vector<AlgorithmEntry> entries() {
    std::vector<AlgorithmEntry> chosen;
    for (const AlgorithmEntry& entry : schedule::all_algorithms()) {
      const bool is_forced = entry.requirement == Requirement::channels ||
                             entry.requirement == Requirement::staging || entry.is_for_nodes;
      if (is_forced && entry.operation != Operation::barrier) chosen.push_back(entry);
    }
    return chosen;
  }
  friend std::vector<AlgorithmEntry> forced_entries();
};
std::vector<AlgorithmEntry> forced_entries() { return Forced::entries(); }

TEST_P(Forced, AlgorithmGivesTheSame) {
  const AlgorithmEntry& entry = GetParam();
  const Variable forced("LOCKSTEP_ALGORITHM",
                        std::string(to_string(entry.operation)) + "=" + std::string(entry.name));
  const Variable segments("LOCKSTEP_SEGMENT_BYTES", "128");
  const bool in_arena = entry.requirement == Requirement::arena;
  for (const int ranks : {2, 3, 4, 7, 8}) {
    const Variable nodes("LOCKSTEP_RANKS_PER_NODE", ranks % 2 == 0 ? std::to_string(ranks / 2) : "1");
    on_threads(ranks, [&](const Group& group) {
      const ConformanceOptions options{.in_arena = in_arena, .counts = few_counts};
      if (reduces(entry.operation)) {
        check_sums(group, options);
        check_custom_op(group, options);
        check_rounding(group, options, entry.is_for_nodes ? 1 : ranks);
      } else {
        check_movements(group, options);
      }
      // It was indeed this one.
      const auto events = group.recorder().collectives_since(0);
      const auto is_it = [&](const trace::CollectiveEvent& event) {
        return event.operation == entry.operation && entry.name == event.algorithm;
      };
      if (std::none_of(events.begin(), events.end(), is_it))
        throw std::runtime_error("another algorithm ran");
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Algorithms, Forced, ::testing::ValuesIn(forced_entries()), [](const auto& instance) {
  return std::string(instance.param.name) + "_" + std::string(to_string(instance.param.operation));
});

#if !defined(__SANITIZE_THREAD__)  // it sees no other process, and these take minutes under it

class Processes : public JobTest {
 protected:
  void expect_conforming(const std::vector<Ending>& endings) {
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.exit_code, 0) << ending.err;
      EXPECT_THAT(ending.out, HasSubstr("conforms")) << ending.err;
    }
  }
};

TEST_F(Processes, OfOneHostConform) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    std::vector<Process> started;
    for (int rank = 0; rank < ranks; ++rank) {
      started.push_back(start({program("probe_conformance")}, by_hand(rank, ranks)));
    }
    expect_conforming(finish(started));
  }
}

TEST_F(Processes, OfTwoHostsConform) {
  REQUIRE_TWO_HOSTS();
  const std::string secret = secret_file("two hosts that conform");
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<Process> started;
    for (int rank = 0; rank < ranks; ++rank) {
      const Variables variables = {{"MASTER_ADDR", hosts().address(0)},
                                   {"LOCKSTEP_SECRET_FILE", secret},
                                   {"LOCKSTEP_SEGMENT_BYTES", "1024"},
                                   {"LOCKSTEP_CONNECTIONS", ranks % 3 == 0 ? "3" : "1"}};
      const int host = rank < (ranks + 1) / 2 ? 0 : 1;
      started.push_back(
          start({program("probe_conformance")}, by_hand(rank, ranks, variables), hosts().network(host)));
    }
    expect_conforming(finish(started));
  }
}

TEST_F(Processes, OfSeveralHostsConformWithHalvesBetweenThem) {
  REQUIRE_HOSTS(3);
  const std::string secret = secret_file("hosts that conform");
  for (const auto& [wire, ranks, hosts_used] : {std::tuple("bf16", 2, 2), std::tuple("f16", 4, 2),
                                                std::tuple("bf16", 3, 3), std::tuple("bf16", 5, 3)}) {
    std::vector<Process> started;
    for (int rank = 0; rank < ranks; ++rank) {
      const Variables variables = {{"MASTER_ADDR", hosts().address(0)},
                                   {"LOCKSTEP_SECRET_FILE", secret},
                                   {"LOCKSTEP_WIRE_DTYPE", wire},
                                   {"LOCKSTEP_CONNECTIONS", "3"}};
      started.push_back(start({program("probe_conformance")}, by_hand(rank, ranks, variables),
                              hosts().network(rank * hosts_used / ranks)));
    }
    expect_conforming(finish(started));
  }
}

#endif

}  // namespace
}  // namespace lockstep::testing
