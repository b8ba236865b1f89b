// Collectives over ranks that are threads: results, orders, failures. Processes and hosts are in tests/.
#include "lockstep/group/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <functional>
#include <latch>
#include <numeric>
#include <thread>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/execute/execution_watch_test.h"
#include "lockstep/group/threads_test.h"
#include "lockstep/trace/recorder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::failure_of;
using test::on_ranks;
using ::testing::HasSubstr;

template <class T>
T value_of(int rank, std::size_t index) {
  return static_cast<T>(static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 3) % 11) - 3);
}

enum class BufferPlace { private_memory, arena };

/// A buffer in the arena or not, filled with this rank's values.
template <class T>
struct Filled {
  std::vector<T> own;
  ArenaBuffer<T> shared;
  std::span<T> span;

  Filled(const Group& group, std::size_t elements, BufferPlace where) {
    if (where == BufferPlace::arena) {
      shared = group.allocate<T>(elements);
      span = shared.span();
    } else {
      own.resize(elements);
      span = own;
    }
    for (std::size_t index = 0; index < elements; ++index) span[index] = value_of<T>(group.rank(), index);
  }
};

class Collectives : public ::testing::TestWithParam<std::tuple<int, BufferPlace>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  BufferPlace where() const { return std::get<1>(GetParam()); }
  // Around the slot, the tree's limit and the segment's, in bytes of f32.
  static constexpr std::size_t counts[] = {0, 1, 7, 8, 9, 511, 512, 513, 8191, 8193, 100'003};
};

TEST_P(Collectives, AllReduceSumsOverAllRanks) {
  on_ranks(ranks(), [&](Group& group) {
    for (const std::size_t count : counts) {
      const Filled<float> buffer(group, count, where());
      all_reduce(group, buffer.span).wait();
      for (std::size_t index = 0; index < count; ++index) {
        float expected = 0;
        for (int rank = 0; rank < ranks(); ++rank) expected += value_of<float>(rank, index);
        ASSERT_EQ(buffer.span[index], expected) << count << " elements, element " << index;
      }
    }
  });
}

TEST_P(Collectives, AllReduceAveragesWithOneScaling) {
  on_ranks(ranks(), [&](Group& group) {
    for (const std::size_t count : {5UL, 3000UL, 70'001UL}) {
      const Filled<double> buffer(group, count, where());
      all_reduce(group, buffer.span, ReduceOp::average).wait();
      for (std::size_t index = 0; index < count; ++index) {
        double expected = 0;
        for (int rank = 0; rank < ranks(); ++rank) expected += value_of<double>(rank, index);
        ASSERT_DOUBLE_EQ(buffer.span[index], expected / ranks());
      }
    }
  });
}

TEST_P(Collectives, BroadcastCopiesTheRootsBuffer) {
  on_ranks(ranks(), [&](Group& group) {
    for (const std::size_t count : counts) {
      for (const int root : {0, ranks() - 1}) {
        const Filled<std::int32_t> buffer(group, count, where());
        broadcast(group, buffer.span, root).wait();
        for (std::size_t index = 0; index < count; ++index) {
          ASSERT_EQ(buffer.span[index], value_of<std::int32_t>(root, index));
        }
      }
    }
  });
}

TEST_P(Collectives, AllGatherConcatenatesInRankOrder) {
  on_ranks(ranks(), [&](Group& group) {
    for (const std::size_t count : counts) {
      const Filled<std::int64_t> input(group, count, BufferPlace::private_memory);
      const Filled<std::int64_t> output(group, count * static_cast<std::size_t>(ranks()), where());
      all_gather(group, input.span, output.span).wait();
      for (int rank = 0; rank < ranks(); ++rank) {
        for (std::size_t index = 0; index < count; ++index) {
          ASSERT_EQ(output.span[static_cast<std::size_t>(rank) * count + index],
                    value_of<std::int64_t>(rank, index));
        }
      }
    }
  });
}

TEST_P(Collectives, ManyWorksUnderWayFinishInAnyOrderOfWaiting) {
  on_ranks(ranks(), [&](Group& group) {
    std::vector<Filled<float>> buffers;
    for (std::size_t index = 0; index < 150; ++index)
      buffers.emplace_back(group, 1 + (index * 977) % 9000, where());
    std::vector<Work> works;
    for (auto& buffer : buffers) works.push_back(all_reduce(group, buffer.span));
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (auto& buffer : buffers) {
      float expected = 0;
      for (int rank = 0; rank < ranks(); ++rank) expected += value_of<float>(rank, 0);
      ASSERT_EQ(buffer.span[0], expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::Values(BufferPlace::private_memory,
                                                              BufferPlace::arena)),
                         [](const auto& instance) {
                           return std::to_string(std::get<0>(instance.param)) +
                                  (std::get<1>(instance.param) == BufferPlace::arena ? "InArenas"
                                                                                     : "InPrivateMemory");
                         });

TEST(AllReduce, AddsElementsOfEveryType) {
  on_ranks(3, [](Group& group) {
    const auto expect_three = [&](auto one) {
      std::vector<decltype(one)> buffer(1001, one);
      all_reduce(group, buffer).wait();
      const auto three = static_cast<decltype(one)>(3);
      EXPECT_EQ(buffer, std::vector<decltype(one)>(1001, three)) << to_string(dtype_of<decltype(one)>);
    };
    std::apply(
        [&](auto... ones) { (expect_three(ones), ...); },
        std::tuple<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int8_t, std::int16_t,
                   std::int32_t, std::int64_t, float, double, std::complex<float>, std::complex<double>>(
            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
    std::array<bool, 3> ranks = {};
    ranks[static_cast<std::size_t>(group.rank())] = true;
    all_reduce(group, ranks).wait();
    EXPECT_EQ(ranks, (std::array{true, true, true}));
  });
}

TEST(AllReduce, TakesComplexNumbersThatAreAlignedAsTheirParts) {
  on_ranks(2, [](Group& group) {
    std::vector<double> memory(203, 1.0);
    for (const std::size_t first : {0U, 1U}) {  // one of these is no multiple of 16 bytes
      const std::span numbers(reinterpret_cast<std::complex<double>*>(&memory[first]), 101);
      all_reduce(group, numbers, ReduceOp::average).wait();
      EXPECT_EQ(memory, std::vector<double>(203, 1.0));
    }
  });
}

TEST(AllReduce, MixesArenaAndPrivateBuffers) {
  on_ranks(3, [](Group& group) {
    const Filled<float> buffer(group, 50'000,
                               group.rank() == 1 ? BufferPlace::arena : BufferPlace::private_memory);
    all_reduce(group, buffer.span, ReduceOp::max).wait();
    float expected = -100;
    for (int rank = 0; rank < 3; ++rank) expected = std::max(expected, value_of<float>(rank, 49'999));
    EXPECT_EQ(buffer.span[49'999], expected);
  });
}

TEST(AllReduce, TakesBuffersAtDifferentPlacesOfTheArenas) {
  on_ranks(2, [](Group& group) {
    const auto padding = group.allocate<float>(group.rank() == 0 ? 16 : 5000);
    const Filled<float> buffer(group, 30'000, BufferPlace::arena);
    all_reduce(group, buffer.span).wait();
    EXPECT_EQ(buffer.span[29'999], value_of<float>(0, 29'999) + value_of<float>(1, 29'999));
  });
}

TEST(AllReduce, GivesAllRanksTheSameBitsInEveryAlgorithm) {
  const int ranks = 4;
  for (const std::size_t count : {8UL, 600UL, 3000UL, 50'000UL}) {
    for (const BufferPlace where : {BufferPlace::private_memory, BufferPlace::arena}) {
      std::vector<std::vector<float>> results(ranks);
      on_ranks(ranks, [&](Group& group) {
        Filled<float> buffer(group, count, where);
        for (std::size_t index = 0; index < count; ++index) {
          buffer.span[index] =
              std::sin(static_cast<float>(index * 31 + static_cast<std::size_t>(group.rank())));
        }
        all_reduce(group, buffer.span).wait();
        results[static_cast<std::size_t>(group.rank())].assign(buffer.span.begin(), buffer.span.end());
      });
      for (int rank = 1; rank < ranks; ++rank) EXPECT_EQ(results[static_cast<std::size_t>(rank)], results[0]);
    }
  }
}

TEST(AllReduce, RoundsHalvesOnceInArenas) {
  on_ranks(3, [](Group& group) {
    // 256 + 0.75 + 0.75: adding one by one in bf16 stays at 256, the sum rounds to 258.
    auto buffer = group.allocate<bfloat16>(4000);
    const float mine = group.rank() == 0 ? 256.0F : 0.75F;
    std::fill(buffer.begin(), buffer.end(), to_bfloat16(mine));
    all_reduce(group, buffer).wait();
    EXPECT_EQ(to_float(buffer[3999]), 258.0F);
  });
}

TEST(Messages, ArriveInOrderBetweenTwoRanks) {
  on_ranks(3, [](Group& group) {
    for (const std::size_t count : {0UL, 1UL, 1000UL, 300'000UL}) {
      if (group.rank() == 0) {
        const Filled<float> first(group, count, BufferPlace::private_memory);
        const Filled<float> second(group, count + 1, BufferPlace::private_memory);
        Work one = send(group, first.span, 2);
        Work two = send(group, second.span, 2);
        two.wait();
        one.wait();
      } else if (group.rank() == 2) {
        std::vector<float> first(count), second(count + 1);
        Work one = recv(group, first, 0);
        Work two = recv(group, second, 0);
        one.wait();
        two.wait();
        EXPECT_EQ(second[count], value_of<float>(0, count));
        if (count > 0) {
          EXPECT_EQ(first[count - 1], value_of<float>(0, count - 1));
        }
      }
      barrier(group).wait();
    }
  });
}

TEST(Messages, CrossBetweenTwoRanksWithoutDeadlock) {
  on_ranks(2, [](Group& group) {
    const Filled<double> mine(group, 400'000, BufferPlace::private_memory);
    std::vector<double> theirs(400'000);
    Work sending = send(group, mine.span, 1 - group.rank());
    Work receiving = recv(group, theirs, 1 - group.rank());
    sending.wait();
    receiving.wait();
    EXPECT_EQ(theirs.back(), value_of<double>(1 - group.rank(), 399'999));
  });
}

TEST(Executor, RunsExactlyTheStepsOfTheSchedule) {
  std::mutex mutex;
  std::map<const Schedule*, std::vector<Step>> ran;
  std::map<const Schedule*, Schedule> schedules;
  {
    const ExecutionWatch watch([&](const Schedule& schedule, const Step& step) {
      const std::lock_guard lock(mutex);
      ran[&schedule].push_back(step);
      schedules.insert({&schedule, schedule});
    });
    on_ranks(3, [](Group& group) {
      for (const std::size_t count : {2UL, 2000UL, 90'000UL}) {
        const Filled<float> shared(group, count, BufferPlace::arena);
        const Filled<float> own(group, count, BufferPlace::private_memory);
        all_reduce(group, shared.span).wait();
        broadcast(group, own.span, 1).wait();
        std::vector<float> all(3 * count);
        all_gather(group, own.span, all).wait();
      }
      barrier(group).wait();
    });
  }
  EXPECT_GE(ran.size(), 3U * 8U);
  for (const auto& [schedule, steps] : ran) {
    const bool begins_later = schedules.at(schedule).needs_no_first_wait();
    const auto planned = std::span(schedules.at(schedule).steps()).subspan(begins_later ? 2 : 0);
    ASSERT_EQ(steps.size() % planned.size(), 0U);
    for (std::size_t index = 0; index < steps.size(); ++index)
      EXPECT_EQ(steps[index], planned[index % planned.size()]);
  }
}

TEST(Mismatch, NamesBothRanksAndBothCalls) {
  on_ranks(2, [](Group& group) {
    std::vector<float> buffer(group.rank() == 0 ? 100 : 101);
    const std::string text = failure_of([&] { all_reduce(group, buffer).wait(); }, ErrorCode::mismatch);
    EXPECT_THAT(
        text, HasSubstr("rank 0 called all_reduce (sum of f32 x 100) as #0, rank 1 called all_reduce (sum of "
                        "f32 x 101) as #0"));
    EXPECT_THAT(failure_of([&] { barrier(group).wait(); }, ErrorCode::mismatch),
                HasSubstr("the group is closed"));
  });
}

TEST(Mismatch, IsFoundBetweenDifferentOperationsTypesAndRoots) {
  const std::vector<std::function<Work(Group&, std::vector<std::byte>&)>> calls{
      [](Group& group, auto& bytes) { return all_reduce_bytes(group, bytes, bytes, {.dtype = Dtype::f32}); },
      [](Group& group, auto& bytes) { return all_reduce_bytes(group, bytes, bytes, {.dtype = Dtype::i32}); },
      [](Group& group, auto& bytes) {
        return all_reduce_bytes(group, bytes, bytes, {.dtype = Dtype::f32, .op = ReduceOp::max});
      },
      [](Group& group, auto& bytes) { return broadcast_bytes(group, bytes, 0); },
      [](Group& group, auto& bytes) { return broadcast_bytes(group, bytes, 1); },
      [](Group& group, auto&) { return barrier(group); },
  };
  for (const std::size_t size : {16UL, 400'000UL}) {
    for (std::size_t first = 0; first < calls.size(); ++first) {
      for (std::size_t second = 0; second < first; ++second) {
        on_ranks(2, [&](Group& group) {
          std::vector<std::byte> bytes(size);
          failure_of([&] { calls[group.rank() == 0 ? first : second](group, bytes).wait(); },
                     ErrorCode::mismatch);
        });
      }
    }
  }
}

TEST(Mismatch, OfMessageSizesNamesBoth) {
  on_ranks(2, [](Group& group) {
    std::vector<std::byte> bytes(group.rank() == 0 ? 16 : 24);
    const auto call = [&] {
      (group.rank() == 0 ? send(group, bytes, 1) : recv(group, bytes, 0)).wait();
      barrier(group).wait();  // the sender is done as soon as its bytes are on their way
    };
    EXPECT_THAT(failure_of(call, ErrorCode::mismatch),
                AllOf(HasSubstr("rank 0 called send (16 bytes)"), HasSubstr("rank 1 called recv (")));
  });
}

TEST(Timeout, NamesWhoIsMissing) {
  std::latch submitted(2), failed(2);
  on_ranks(
      3,
      [&](Group& group) {
        if (group.rank() == 2) {
          failed.wait();
          return;
        }
        std::vector<float> buffer(10);
        Work work = all_reduce(group, buffer);
        submitted.arrive_and_wait();
        const std::string text = failure_of([&] { work.wait(); }, ErrorCode::timeout);
        EXPECT_THAT(
            text,
            HasSubstr(
                "all_reduce #0 (sum of f32 x 10) in group \"world\": rank 2 did not arrive within 200 ms"));
        failed.count_down();
      },
      {.timeout = 200ms});
}

TEST(Timeout, NamesTheRankAtTheEndOfAChainOfWaits) {
  std::latch failed(3);
  on_ranks(4,
           [&](Group& group) {
             if (group.rank() == 3) {
               failed.wait();
               return;
             }
             // 0 waits for 1, 1 waits for 2, 2 waits for 3.
             std::vector<float> buffer(10);
             const auto call = [&] { recv(group, buffer, group.rank() + 1).wait(); };
             EXPECT_THAT(failure_of(call, ErrorCode::timeout), HasSubstr("rank 3 did not arrive within 2 s"));
             failed.count_down();
           },
           {.timeout = 2s});
}

TEST(Timeout, NamesTheRankThatDoesNotWaitAmongThoseThatAnotherWaitsFor) {
  std::latch failed(2);
  on_ranks(3,
           [&](Group& group) {
             if (group.rank() == 2) {
               failed.wait();
               return;
             }
             // 0 waits for a message of 1 or of 2, and 1 for one of 0.
             std::vector<float> buffer(10);
             const auto call = [&] { recv(group, buffer, group.rank() == 0 ? any_source : 0).wait(); };
             EXPECT_THAT(failure_of(call, ErrorCode::timeout),
                         HasSubstr(": rank 2 did not arrive within 2 s"));
             failed.count_down();
           },
           {.timeout = 2s});
}

TEST(Timeout, OfAReceiveTellsWhatNobodyReceives) {
  std::latch sent(1), failed(1);
  on_ranks(2,
           [&](Group& group) {
             std::vector<double> value(1);
             if (group.rank() == 1) {
               for (const int tag : {4, 7, 4, 9}) send(group, value, 0, tag).wait();
               sent.count_down();
               failed.wait();
               return;
             }
             sent.wait();
             const auto call = [&] { recv(group, value, 1, 5).wait(); };
             EXPECT_THAT(
                 failure_of(call, ErrorCode::timeout),
                 HasSubstr("rank 1 did not arrive within 300 ms; messages that nobody receives: tag 4 from "
                           "rank 1 (8 bytes), tag 7 from rank 1 (8 bytes), tag 4 from rank 1 (8 bytes), "
                           "...; the group is closed"));
             failed.count_down();
           },
           {.timeout = 300ms});
}

TEST(PeerLost, NamesARankThatLeftEarly) {
  on_ranks(3, [](Group& group) {
    std::vector<float> buffer(10);
    all_reduce(group, buffer).wait();
    if (group.rank() == 1) {
      group = Group();  // the last copy: goodbye
      return;
    }
    const std::string text = failure_of([&] { all_reduce(group, buffer).wait(); }, ErrorCode::peer_lost);
    EXPECT_THAT(text, HasSubstr("rank 1 left the job while others still needed it"));
  });
}

TEST(PeerLost, NamesTheRankWhoseExceptionEndedAWork) {
  on_ranks(2, [](Group& group) {
    std::vector<float> buffer(10);
    if (group.rank() == 1) {
      try {
        std::vector<float> early(10);
        Work work = all_reduce(group, early);
        throw std::runtime_error("the program's own trouble");
      } catch (const std::runtime_error&) {
      }
      return;
    }
    const auto call = [&] {
      all_reduce(group, buffer).wait();
      all_reduce(group, buffer).wait();
    };
    EXPECT_THAT(failure_of(call, ErrorCode::peer_lost), HasSubstr("rank 1"));
  });
}

TEST(BadArguments, AreClearAndStartNothing) {
  on_ranks(2, [](Group& group) {
    std::vector<float> buffer(4);
    std::vector<std::int32_t> whole(4);
    const auto refused = [](const std::function<void()>& call) {
      return failure_of(call, ErrorCode::invalid_argument);
    };
    EXPECT_THAT(refused([&] { broadcast(group, buffer, 2).wait(); }),
                HasSubstr("root 2 is not in group \"world\", whose ranks are 0 to 1"));
    EXPECT_THAT(refused([&] { all_reduce(group, whole, ReduceOp::average).wait(); }),
                HasSubstr("average is not defined for i32"));
    EXPECT_THAT(refused([&] { send(group, buffer, 0, -2).wait(); }), HasSubstr("tag -2 is negative"));
    EXPECT_THAT(refused([&] { recv(group, buffer, 2).wait(); }), HasSubstr("recv: source 2 is not in group"));
    EXPECT_THAT(refused([&] { all_gather(group, buffer, buffer).wait(); }),
                HasSubstr("all_gather: output has 16 bytes, but rank " + std::to_string(group.rank()) +
                          " of 2 needs 32 (16 for each block)"));
    const auto six = std::as_writable_bytes(std::span(buffer)).first(6);
    EXPECT_THAT(refused([&] { all_reduce_bytes(group, six, six, {.dtype = Dtype::f32}).wait(); }),
                HasSubstr("its size must be a multiple of 4, its address of 4"));
    EXPECT_THAT(refused([&] { group.subgroup(std::vector<int>{1 - group.rank()}); }),
                HasSubstr("is not among them"));
    EXPECT_THAT(refused([&] {
                  group.subgroup(std::vector<int>{group.rank(), 5});
                }),
                HasSubstr("rank 5 is not in group"));
    all_reduce(group, buffer).wait();  // nothing was harmed
  });
}

TEST(Record, HoldsEveryCollective) {
  on_ranks(2, [](Group& group) {
    std::vector<float> buffer(1000);
    const auto position = group.recorder().collectives();
    all_reduce(group, buffer, ReduceOp::max).wait();
    barrier(group).wait();
    const auto events = group.recorder().collectives_since(position);
    ASSERT_EQ(events.size(), 2U);
    const auto& first = events[0];
    EXPECT_EQ(first.operation, Operation::all_reduce);
    EXPECT_EQ(first.elements, 1000U);
    EXPECT_EQ(first.reduce_op, ReduceOp::max);
    EXPECT_LE(first.begin_ns, first.arrived_ns);
    EXPECT_LE(first.arrived_ns, first.end_ns);
    EXPECT_EQ(events[1].operation, Operation::barrier);
  });
}

}  // namespace
}  // namespace lockstep
