// The check of results is what stands between a wrong library and a fast figure: it must let right results
// pass and notice wrong ones, whatever the operation.
#include "collectives/operation.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace bench {
namespace {

using Buffer = std::vector<float>;

Case a_case(Operation op, int rank, int ranks) {
  return {op, "f32", 24 * static_cast<std::size_t>(ranks), rank, ranks};
}

Buffer input_of(const Case& what) {
  Buffer input(input_elements(what));
  pattern::rewrite(what, input.data(), input.data());
  return input;
}

// A rank's result, made from all inputs in the most literal way.
Buffer result_of(const Case& what) {
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < what.ranks; ++rank) inputs.push_back(input_of(a_case(what.op, rank, what.ranks)));
  Buffer sum(inputs[0].size(), 0.0F);
  for (const Buffer& input : inputs) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
  }
  const auto part = static_cast<std::ptrdiff_t>(what.part());
  Buffer result;
  switch (what.op) {
    case Operation::all_reduce: return sum;
    case Operation::reduce: return what.rank == 0 ? sum : Buffer{};
    case Operation::reduce_scatter:
      return {sum.begin() + what.rank * part, sum.begin() + (what.rank + 1) * part};
    case Operation::broadcast: return inputs[0];
    case Operation::send_recv:
      if (what.partner() == what.ranks) return {};
      return inputs[static_cast<std::size_t>(what.partner())];
    case Operation::all_gather:
      for (const Buffer& input : inputs) result.insert(result.end(), input.begin(), input.end());
      return result;
    case Operation::all_to_all:
      for (const Buffer& input : inputs) {
        result.insert(result.end(), input.begin() + what.rank * part, input.begin() + (what.rank + 1) * part);
      }
      return result;
  }
  return {};
}

template <class Do>
void for_all_cases(Do act) {
  for (const auto& [name, op] : operations) {
    for (int ranks = 2; ranks <= 16; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(std::string(name) + ", rank " + std::to_string(rank) + " of " + std::to_string(ranks));
        act(a_case(op, rank, ranks), result_of(a_case(op, rank, ranks)));
      }
    }
  }
}

TEST(CheckOfResults, LetsRightResultsPass) {
  for_all_cases([](const Case& what, const Buffer& result) {
    EXPECT_EQ(result.size(), output_elements(what));
    EXPECT_NO_THROW(pattern::check(what, result.data()));
  });
}

TEST(CheckOfResults, NoticesAnElementThatNobodyWrote) {
  for_all_cases([](const Case& what, Buffer result) {
    if (result.empty()) return;
    pattern::rewrite(what, input_of(what).data(), result.data());  // NaNs, as before each call
    EXPECT_THROW(pattern::check(what, result.data()), std::runtime_error);
    result = result_of(what);
    std::memset(&result.back(), 0xff, sizeof(float));
    EXPECT_THROW(pattern::check(what, result.data()), std::runtime_error);
  });
}

TEST(CheckOfResults, NoticesTheResultOfAnotherRank) {
  for_all_cases([](const Case& what, const Buffer&) {
    if (what.op == Operation::all_reduce || what.op == Operation::all_gather)
      return;  // all ranks have the same
    if (what.op == Operation::broadcast || what.op == Operation::reduce) return;
    const Buffer other = result_of(a_case(what.op, (what.rank + 1) % what.ranks, what.ranks));
    if (other.empty() || output_elements(what) == 0) return;
    EXPECT_THROW(pattern::check(what, other.data()), std::runtime_error);
  });
}

TEST(CheckOfResults, NoticesPartsInTheWrongOrder) {
  for_all_cases([](const Case& what, Buffer result) {
    if (what.op != Operation::all_gather && what.op != Operation::all_to_all) return;
    std::swap_ranges(result.begin(), result.begin() + static_cast<std::ptrdiff_t>(what.part()),
                     result.end() - static_cast<std::ptrdiff_t>(what.part()));
    EXPECT_THROW(pattern::check(what, result.data()), std::runtime_error);
  });
}

TEST(CheckOfResults, NamesWhatIsWrongAndWhere) {
  Buffer result = result_of(a_case(Operation::broadcast, 1, 2));
  result[7] += 1;
  try {
    pattern::check(a_case(Operation::broadcast, 1, 2), result.data());
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "broadcast of 48 f32: wrong result at element 7 on rank 1");
  }
}

TEST(CheckOfResults, KnowsHalvesToo) {
  const Case what{Operation::all_reduce, "bf16", 64, 3, 16};
  std::vector<std::uint16_t> result(64);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = pattern::to_bf16(pattern::sum(i, 16));
  EXPECT_NO_THROW(pattern::check(what, result.data()));
  result[63] ^= 1U;  // the least that a sum can differ by
  EXPECT_THROW(pattern::check(what, result.data()), std::runtime_error);
}

TEST(LeastTraffic, IsEachInputReadOnceAndEachOutputWrittenOnce) {
  const auto bytes = [](Operation op) { return least_traffic({op, "f32", 12, 0, 3}); };  // of 3 ranks
  EXPECT_EQ(3 * bytes(Operation::all_reduce), 3U * 48U + 3U * 48U);
  EXPECT_EQ(3 * bytes(Operation::broadcast), 48U + 2U * 48U);
  EXPECT_EQ(3 * bytes(Operation::reduce), 3U * 48U + 48U);
  EXPECT_EQ(3 * bytes(Operation::reduce_scatter), 3U * 48U + 3U * 16U);
  EXPECT_EQ(3 * bytes(Operation::all_gather), 3U * 16U + 3U * 48U);
  EXPECT_EQ(3 * bytes(Operation::all_to_all), 3U * 48U + 3U * 48U);
}

TEST(Operations, AreRefusedByNameIfUnknown) {
  EXPECT_EQ(operation_named("all_to_all"), Operation::all_to_all);
  EXPECT_THROW(operation_named("gather"), std::invalid_argument);
}

}  // namespace
}  // namespace bench
