// What calls refuse at once, with which words; a refused call starts nothing and harms nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "lockstep/group/collectives.h"
#include "lockstep/group/threads_test.h"

namespace lockstep {
namespace {

using test::failure_of;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Attempt = std::function<Work()>;

std::string refusal(const Attempt& call) {
  return failure_of([&] { call().wait(); }, ErrorCode::invalid_argument);
}

class Arguments : public ::testing::Test {
 protected:
  /// On two ranks; afterwards a call still works.
  static void check(const std::function<void(Group&)>& body) {
    on_ranks(2, [&](Group& group) {
      body(group);
      std::vector<int> values{1};
      all_reduce(group, values).wait();
      EXPECT_EQ(values[0], 2);
    });
  }
};

TEST_F(Arguments, NullBuffersOfSomeSizeAreRefused) {
  check([](Group& group) {
    const std::span<float> null(static_cast<float*>(nullptr), 4);
    std::vector<float> values(4);
    EXPECT_THAT(refusal([&] { return all_reduce(group, null); }),
                HasSubstr("all_reduce: input: the buffer is null but has 16 bytes"));
    EXPECT_THAT(refusal([&] { return all_reduce(group, values, null); }),
                HasSubstr("all_reduce: output: the buffer is null"));
    EXPECT_THAT(refusal([&] { return broadcast(group, null, 0); }),
                HasSubstr("broadcast: output: the buffer"));
    EXPECT_THAT(refusal([&] { return send(group, null, 1); }), HasSubstr("send: the buffer is null"));
    EXPECT_THAT(refusal([&] { return recv(group, null, 1); }), HasSubstr("recv: the buffer is null"));
    const std::span<float> empty(static_cast<float*>(nullptr), 0);
    all_reduce(group, empty).wait();
  });
}

TEST_F(Arguments, MisalignedBuffersAreRefused) {
  check([](Group& group) {
    alignas(8) std::array<std::byte, 24> memory{};
    const auto odd = std::span(memory).subspan(1, 16);
    EXPECT_THAT(
        refusal([&] { return all_reduce_bytes(group, odd, odd, {.dtype = Dtype::f64}); }),
        HasSubstr("input of 16 bytes at this address is not an array of f64; its size must be a multiple "
                  "of 8, its address of 8"));
  });
}

TEST_F(Arguments, BuffersThatOverlapInPartAreRefused) {
  check([](Group& group) {
    std::vector<float> memory(100);
    const auto from = std::span(memory).first(50);
    EXPECT_THAT(
        refusal([&] { return all_reduce(group, from, std::span(memory).subspan(10, 50)); }),
        HasSubstr("all_reduce: input and output overlap; they may only where they are the same buffer"));
    const auto wrong_block = std::span(memory).subspan(group.rank() == 0 ? 50 : 0, 50);
    EXPECT_THAT(refusal([&] { return all_gather(group, wrong_block, memory); }),
                HasSubstr("they may only where one of them is this rank's own block of the other"));
    EXPECT_THAT(refusal([&] { return reduce_scatter(group, memory, wrong_block); }),
                HasSubstr("reduce_scatter: input and output overlap"));
    const std::array<std::size_t, 2> even{25, 25};
    const auto later = std::span(memory).subspan(10, 50);
    EXPECT_THAT(refusal([&] { return all_to_all_v(group, from, even, later, even); }),
                HasSubstr("all_to_all_v: input and output overlap"));
  });
}

TEST_F(Arguments, SizesThatDoNotFitAreRefused) {
  check([](Group& group) {
    const std::string me = "rank " + std::to_string(group.rank()) + " of 2";
    std::vector<float> three(3), four(4), five(5);
    EXPECT_THAT(refusal([&] { return all_reduce(group, four, three); }),
                HasSubstr("all_reduce: output has 12 bytes, but " + me + " needs 16 (as many as the input)"));
    EXPECT_THAT(refusal([&] { return reduce_scatter(group, five, four); }),
                HasSubstr("reduce_scatter: input has 20 bytes, but " + me + " needs 32 (16 for each block)"));
    EXPECT_THAT(refusal([&] { return all_to_all(group, five, four); }),
                HasSubstr("all_to_all: 5 elements are not 2 equal blocks; use all_to_all_v"));
    const std::array<std::size_t, 2> counts{3, 1};
    const std::array<std::size_t, 2> two_each{2, 2};
    const std::string own = group.rank() == 0 ? "3 to itself, and receives 2" : "1 to itself, and receives 2";
    EXPECT_THAT(refusal([&] { return all_to_all_v(group, four, counts, four, two_each); }),
                HasSubstr("all_to_all_v: this rank sends " + own + " of it"));
    const std::array<std::size_t, 3> many{3, 1, 2};
    EXPECT_THAT(refusal([&] { return all_gather_v(group, three, four, many); }),
                HasSubstr("all_gather_v: counts has 3 numbers; the group has 2 ranks"));
    EXPECT_THAT(refusal([&] { return all_gather_v(group, four, four, counts); }),
                HasSubstr("all_gather_v: input has 16 bytes, but " + me + " needs"));
    const std::array<std::size_t, 2> huge{SIZE_MAX / 4, SIZE_MAX / 4};
    EXPECT_THAT(refusal([&] { return all_gather_v(group, four, four, huge); }),
                HasSubstr("counts add up to more than there can be"));
  });
}

TEST_F(Arguments, RanksThatAreNoneAreRefused) {
  check([](Group& group) {
    std::vector<float> values(4);
    const auto in_no_group = HasSubstr("is not in group \"world\", whose ranks are 0 to 1");
    for (const int rank : {-1, 2, 1'000'000}) {
      EXPECT_THAT(refusal([&] { return broadcast(group, values, rank); }), in_no_group);
      EXPECT_THAT(refusal([&] { return reduce(group, values, values, rank); }), in_no_group);
      EXPECT_THAT(refusal([&] { return scatter(group, values, values, rank); }), in_no_group);
      EXPECT_THAT(refusal([&] { return gather(group, values, values, rank); }), in_no_group);
      EXPECT_THAT(refusal([&] { return send(group, values, rank); }), in_no_group);
      if (rank == any_source) continue;
      EXPECT_THAT(refusal([&] { return recv(group, values, rank); }), in_no_group);
    }
    EXPECT_THAT(refusal([&] { return recv(group, values, 0, -7); }),
                HasSubstr("tag -7 is negative, and not any_tag"));
  });
}

TEST_F(Arguments, WhatIsSentAndWhatArrivesMustNotOverlap) {
  check([](Group& group) {
    std::vector<float> values(8);
    const auto first = std::span(values).first(5), last = std::span(values).last(4);
    EXPECT_THAT(refusal([&] { return sendrecv(group, first, 1 - group.rank(), last, 1 - group.rank()); }),
                HasSubstr("what is sent and what arrives overlap in memory"));
  });
}

TEST_F(Arguments, OperationsThatATypeHasNotAreRefused) {
  check([](Group& group) {
    std::vector<int> whole(4);
    std::vector<float> real(4);
    EXPECT_THAT(refusal([&] { return all_reduce(group, whole, ReduceOp::average); }),
                HasSubstr("average is not defined for i32"));
    EXPECT_THAT(refusal([&] { return all_reduce(group, real, ReduceOp::bxor); }),
                HasSubstr("bxor is not defined for f32"));
    EXPECT_THAT(
        refusal([&] { return all_reduce(group, whole, ReduceOp::sum, {.prescale = 0.5F}); }),
        HasSubstr("prescale is for sum and average of floating-point and complex types, not for sum of i32"));
    EXPECT_THAT(refusal([&] { return all_reduce(group, real, ReduceOp::max, {.prescale = 0.5F}); }),
                HasSubstr("not for max of f32"));
    EXPECT_THAT(refusal([&] { return all_reduce(group, real, ReduceOp::custom); }),
                HasSubstr("a custom operation without a function"));
  });
}

TEST(Prescale, MultipliesEveryContribution) {
  for (const int ranks : {1, 3}) {
    on_ranks(ranks, [&](Group& group) {
      for (const std::size_t count : {3UL, 3000UL, 200'000UL}) {
        std::vector<float> values(count, static_cast<float>(group.rank() + 1));
        all_reduce(group, values, ReduceOp::sum, {.prescale = 0.25F}).wait();
        EXPECT_THAT(values, ::testing::Each(ranks == 1 ? 0.25F : 1.5F));
      }
    });
  }
}

TEST(Prescale, ThatDiffersIsAMismatch) {
  on_ranks(2, [](Group& group) {
    std::vector<float> values(3000);
    const CollectiveOptions options{.prescale = group.rank() == 0 ? 1.0F : 0.5F};
    EXPECT_THAT(
        failure_of([&] { all_reduce(group, values, ReduceOp::sum, options).wait(); }, ErrorCode::mismatch),
        HasSubstr("rank 1 called all_reduce (sum of f32 x 3000, prescaled by 0.5"));
  });
}

TEST(Counts, ThatDifferAreAMismatch) {
  for (const std::size_t size : {4UL, 40'000UL}) {
    on_ranks(2, [&](Group& group) {
      std::vector<int> input(size), output(2 * size);
      const bool is_first = group.rank() == 0;
      // Each rank's own block fits; they differ in the other's.
      const std::array<std::size_t, 2> counts{is_first ? size : size - 1, size};
      const auto fitting = std::span(output).first(counts[0] + counts[1]);
      EXPECT_THAT(
          failure_of([&] { all_gather_v(group, input, fitting, counts).wait(); }, ErrorCode::mismatch),
          HasSubstr("called all_gather_v ("));
    });
  }
}

TEST(ElementSizes, ThatDifferAreAMismatch) {
  const auto call = [](Group& group, auto element, bool has_counts) {
    std::vector<decltype(element)> input(group.size() * 10UL), output(input.size());
    const std::array<std::size_t, 2> counts{10, 10};
    if (has_counts) {
      all_gather_v(group, std::span(input).first(10), output, counts).wait();
    } else {
      all_to_all(group, input, output).wait();
    }
  };
  for (const bool has_counts : {false, true}) {
    on_ranks(2, [&](Group& group) {
      const auto either = [&] {
        if (group.rank() == 0) return call(group, float{}, has_counts);
        return call(group, double{}, has_counts);
      };
      EXPECT_THAT(failure_of(either, ErrorCode::mismatch),
                  AllOf(HasSubstr(has_counts ? "rank 0 called all_gather_v (80 bytes)"
                                             : "rank 0 called all_to_all (40 bytes)"),
                        HasSubstr(has_counts ? "rank 1 called all_gather_v (160 bytes)"
                                             : "rank 1 called all_to_all (80 bytes)")));
    });
  }
}

TEST(Counts, OfAnAllToAllThatDoNotFitAreAMismatch) {
  constexpr std::size_t segment = 32'768;  // a message holds so many ints
  const std::pair<std::size_t, std::size_t> sent_and_expected[] = {
      {10, 11}, {0, 11}, {10, 0}, {segment, 2 * segment}, {2 * segment, segment}, {segment + 1, 0}};
  for (const auto& [sent, expected] : sent_and_expected) {
    on_ranks(2, [sent = sent, expected = expected](Group& group) {  // from rank 0 to rank 1
      const std::array<std::size_t, 2> to{10, group.rank() == 0 ? sent : 10};
      const std::array<std::size_t, 2> from{group.rank() == 1 ? expected : 10, 10};
      std::vector<int> input(to[0] + to[1]), output(from[0] + from[1]);
      const std::string sizes = "rank 0 sends " + std::to_string(4 * sent) +
                                " bytes to rank 1, which expects " + std::to_string(4 * expected);
      EXPECT_THAT(failure_of(
                      [&] {
                        all_to_all_v(group, input, to, output, from).wait();
                        barrier(group).wait();
                      },
                      ErrorCode::mismatch),
                  AllOf(HasSubstr("rank 1 called all_to_all_v as #0, rank 0 called all_to_all_v as #0 "),
                        HasSubstr("(they differ in their counts: " + sizes + ")")));
    });
  }
}

TEST(Counts, OfAnAllToAllMayAllBeZero) {
  on_ranks(3, [](Group& group) {
    const std::array<std::size_t, 3> none{};
    std::vector<int> nothing;
    all_to_all_v(group, nothing, none, nothing, none).wait();
    barrier(group).wait();
  });
}

}  // namespace
}  // namespace lockstep
