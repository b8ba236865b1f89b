#include "lockstep/engine/named_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <numeric>
#include <random>

#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::failure_of;
using test::on_ranks;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> ones(std::size_t elements, float value = 1.0F) {
  return std::vector<float>(elements, value);
}

TEST(NamedCollectives, AverageUnlessToldOtherwise) {
  on_ranks(3, [](Group& world) {
    const NamedCollectives named(world);
    std::vector<float> mean = ones(5, static_cast<float>(world.rank()));
    std::vector<double> most = {static_cast<double>(world.rank())};
    Work first = named.all_reduce("mean", mean);
    Work second = named.all_reduce("most", most, ReduceOp::max);
    second.wait();
    first.wait();
    EXPECT_THAT(mean, Each(1.0F));
    EXPECT_THAT(most, ElementsAre(2.0));
  });
}

TEST(NamedCollectives, MeetByNameInWhateverOrderRanksSubmitThem) {
  on_ranks(3, [](Group& world) {
    const NamedCollectives named(world);
    constexpr int count = 200;
    for (int round = 0; round < 3; ++round) {
      std::vector<int> order(count);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, std::mt19937(static_cast<unsigned>(world.rank() + 10 * round)));
      std::vector<std::vector<float>> values(count);
      std::vector<Work> works;
      for (const int i : order) {
        auto& value = values[static_cast<std::size_t>(i)];
        value = ones(static_cast<std::size_t>(i % 7), static_cast<float>(i));
        works.push_back(named.all_reduce("tensor " + std::to_string(i), value, ReduceOp::sum));
      }
      Work::all(std::move(works)).wait();
      for (int i = 0; i < count; ++i)
        EXPECT_THAT(values[static_cast<std::size_t>(i)], Each(3.0F * static_cast<float>(i)));
    }
    const auto statistics = named.statistics();
    EXPECT_EQ(statistics.submitted, 600U);
    EXPECT_EQ(statistics.by_number, 400U) << "names are known after their first round";
  });
}

TEST(NamedCollectives, FuseWhatIsReadyTogether) {
  on_ranks(2, [](Group& world) {
    const NamedCollectives named(world, {.background_thread = false});
    const NamedCollectives single(world, {.fusion_bytes = 0, .background_thread = false});
    for (const auto* set : {&named, &single}) {
      std::vector<std::vector<float>> values(100, ones(3));
      std::vector<Work> works;
      // Rank 0 decides when rank 1 has submitted all.
      if (world.rank() == 0) barrier(world).wait();
      for (std::size_t i = 0; i < values.size(); ++i)
        works.push_back(set->all_reduce(std::to_string(i), values[i], ReduceOp::sum));
      if (world.rank() == 1) barrier(world).wait();
      Work::all(std::move(works)).wait();
      for (const auto& value : values) EXPECT_THAT(value, Each(2.0F));
    }
    EXPECT_LE(named.statistics().calls, 100U);
    EXPECT_EQ(single.statistics().calls, 100U);
  });
}

TEST(NamedCollectives, OfAllKinds) {
  on_ranks(3, [](Group& world) {
    const NamedCollectives named(world);
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<int> sent(3, world.rank());
    named.broadcast("broadcast", sent, 2).wait();
    EXPECT_THAT(sent, Each(2));

    for (int round = 0; round < 2; ++round) {
      std::vector<int> all;
      named.all_gather("gather", std::vector<int>(rank + static_cast<std::size_t>(round), world.rank()), all)
          .wait();
      if (round == 0) {
        EXPECT_THAT(all, ElementsAre(1, 2, 2));
      } else {
        EXPECT_THAT(all, ElementsAre(0, 1, 1, 2, 2, 2));
      }
    }

    // Rank r sends q elements to rank q.
    std::vector<int> received;
    const std::vector<int> rows = {10 * world.rank(), 10 * world.rank() + 1, 10 * world.rank() + 2};
    const std::vector<std::int64_t> counts = {0, 1, 2};
    named.all_to_all("all to all", rows, counts, received).wait();
    if (rank == 0) {
      EXPECT_TRUE(received.empty());
    }
    if (rank == 1) {
      EXPECT_THAT(received, ElementsAre(0, 10, 20));
    }
    if (rank == 2) {
      EXPECT_THAT(received, ElementsAre(1, 2, 11, 12, 21, 22));
    }

    std::vector<float> share;
    named.reduce_scatter("scatter", std::vector<float>{0, 1, 2, 3}, share, ReduceOp::sum).wait();
    if (rank == 0) {
      EXPECT_THAT(share, ElementsAre(0.0F, 3.0F));
    }
    if (rank == 1) {
      EXPECT_THAT(share, ElementsAre(6.0F));
    }
    if (rank == 2) {
      EXPECT_THAT(share, ElementsAre(9.0F));
    }

    std::vector<std::vector<float>> parts = {ones(2), ones(100'000)};
    named.all_reduce_grouped("grouped", parts, ReduceOp::sum).wait();
    EXPECT_THAT(parts[0], Each(3.0F));
    EXPECT_THAT(parts[1], Each(3.0F));
    named.barrier("barrier").wait();
  });
}

TEST(NamedCollectives, OfOneRankAreItsOwn) {
  const NamedCollectives named{Group()};
  std::vector<float> value = {3};
  named.all_reduce("a", value).wait();
  EXPECT_THAT(value, ElementsAre(3.0F));
  std::vector<int> all;
  named.all_gather("b", std::vector<int>{1, 2}, all).wait();
  EXPECT_THAT(all, ElementsAre(1, 2));
  EXPECT_EQ(named.join(), 0);
}

TEST(NamedCollectives, OfProcessSetsAreTheirOwn) {
  on_ranks(3, [](Group& world) {
    const NamedCollectives named(world);
    const int first_two[] = {0, 1}, last_two[] = {1, 2};
    std::vector<NamedCollectives> sets;
    if (world.rank() < 2) sets.push_back(named.process_set(first_two));
    if (world.rank() > 0) sets.push_back(named.process_set(last_two));
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < sets.size(); ++i) values.push_back(ones(4));
    std::vector<float> of_all = ones(4);
    std::vector<Work> works;
    for (std::size_t i = 0; i < sets.size(); ++i)
      works.push_back(sets[i].all_reduce("a", values[i], ReduceOp::sum));
    works.push_back(named.all_reduce("a", of_all, ReduceOp::sum));
    std::ranges::reverse(works);
    for (Work& work : works) work.wait();
    for (const auto& value : values) EXPECT_THAT(value, Each(2.0F));
    EXPECT_THAT(of_all, Each(3.0F));
  });
}

TEST(NamedCollectives, GoOnWithoutRanksThatHaveJoined) {
  on_ranks(3, [](Group& world) {
    const NamedCollectives named(world);
    for (int epoch = 0; epoch < 2; ++epoch) {
      // Rank r has r + 1 batches.
      for (int batch = 0; batch <= world.rank(); ++batch) {
        std::vector<float> value = ones(3);
        named.all_reduce("gradient", value, ReduceOp::sum).wait();
        EXPECT_THAT(value, Each(static_cast<float>(3 - batch)));
      }
      EXPECT_EQ(named.join(), 2);
    }
  });
}

TEST(NamedCollectives, GoOnWhileTheProgramDoesOtherThings) {
  on_ranks(2, [](Group& world) {
    const NamedCollectives named(world);
    std::vector<float> value = ones(1000);
    Work work = named.all_reduce("a", value, ReduceOp::sum);
    if (world.rank() == 0) work.wait();
    // Rank 1 never looks at its work until rank 0 is done with it.
    barrier(world).wait();
    work.wait();
    EXPECT_THAT(value, Each(2.0F));
  });
}

TEST(NamedCollectives, RefuseANameThatIsUnderWay) {
  std::latch tried(1);  // until then nobody can carry out the first
  on_ranks(2, [&](Group& world) {
    const NamedCollectives named(world);
    std::vector<float> first = ones(2), second = ones(2);
    Work work;
    if (world.rank() == 0) {
      work = named.all_reduce("a", first, ReduceOp::sum);
      EXPECT_THAT(
          failure_of([&] { named.all_reduce("a", second).wait(); }, ErrorCode::invalid_argument),
          HasSubstr("all_reduce \"a\" (average of f32 [2]) is under way already on this rank: wait for it "
                    "first, or give this one another name"));
      tried.count_down();
    } else {
      tried.wait();
      work = named.all_reduce("a", first, ReduceOp::sum);
    }
    work.wait();
    EXPECT_THAT(first, Each(2.0F));
  });
}

TEST(NamedCollectives, RefuseWhatCannotBe) {
  const NamedCollectives named{Group()};
  std::vector<float> values = {1};
  std::vector<int> integers = {1};
  const auto fault = [](const std::function<Work()>& call) {
    return failure_of([&] { call().wait(); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(fault([&] { return named.all_reduce("", values); }),
              HasSubstr("all_reduce by name has no name"));
  EXPECT_THAT(fault([&] { return named.all_reduce(std::string(5000, 'a'), values); }),
              HasSubstr("a name of 5000 bytes, of which 4096 are allowed"));
  EXPECT_THAT(fault([&] { return named.broadcast("a", values, 1); }),
              HasSubstr("the group has ranks 0 to 0"));
  EXPECT_THAT(fault([&] { return named.all_reduce("a", integers); }), HasSubstr("i32 has no average"));
}

TEST(NamedCollectives, NameRanksThatMeanDifferentThings) {
  on_ranks(3, [](Group& world) {
    const NamedCollectives named(world);
    std::vector<float> value = ones(world.rank() == 1 ? 5 : 4);
    std::vector<float> other = ones(2);
    Work wrong = named.all_reduce("a", value);
    Work right = named.all_reduce("b", other, ReduceOp::sum);
    const auto text = failure_of([&] { wrong.wait(); }, ErrorCode::mismatch);
    EXPECT_THAT(text, HasSubstr("ranks mean different things by one name"));
    EXPECT_THAT(text, HasSubstr("all_reduce \"a\" (average of f32 [5]) on rank 1"));
    right.wait();
    EXPECT_THAT(other, Each(3.0F)) << "others are not affected";
    named.barrier("end").wait();
  });
}

TEST(NamedCollectives, NameRanksThatHaveNotSubmitted) {
  std::latch told(2);
  on_ranks(3,
           [&](Group& world) {
             const NamedCollectives named(world);
             if (world.rank() < 2) {
               std::vector<float> value = ones(4);
               Work work = named.all_reduce("forgotten", value);
               const auto text = failure_of([&] { work.wait(); }, ErrorCode::timeout);
               EXPECT_THAT(
                   text,
                   HasSubstr("all_reduce \"forgotten\" (average of f32 [4]) was submitted by ranks 0, 1, but "
                             "not by rank 2"));
               // The cause stays.
               EXPECT_THAT(failure_of([&] { named.barrier("later").wait(); }, ErrorCode::timeout),
                           HasSubstr("forgotten"));
               told.count_down();
             }
             told.wait();
             barrier(world).wait();
           },
           {.timeout = 4s});
}

TEST(NamedCollectives, LeftByAnExceptionNameTheRank) {
  on_ranks(2, [](Group& world) {
    const NamedCollectives named(world);
    std::vector<float> value = ones(4), other = ones(4);
    if (world.rank() == 1) {
      try {
        Work work = named.all_reduce("a", value);
        throw std::runtime_error("out of data");
      } catch (const std::runtime_error&) {
        return;
      }
    }
    try {  // the second submission is refused already where the first one's end was seen
      std::vector<Work> works;
      works.push_back(named.all_reduce("a", value));
      works.push_back(named.all_reduce("b", other));
      Work::all(std::move(works)).wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.peer(), 1) << error.what();
    }
  });
}

}  // namespace
}  // namespace lockstep
