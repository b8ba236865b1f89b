#include "lockstep/train/tensor/snapshot_memory.h"

#include <gtest/gtest.h>

#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

TEST(SnapshotMemory, KeepsWhatWasThere) {
  SnapshotMemory memory;
  auto tensor = torch::arange(12, torch::kFloat32).view({3, 4}).t();
  const auto expected = tensor.clone();
  const auto row_major = memory.row_major(tensor), as_it_lies = memory.as_it_lies(tensor);
  tensor.fill_(7);
  EXPECT_TRUE(test::same_bits(row_major, expected));
  EXPECT_TRUE(test::same_bits(as_it_lies, expected));
  EXPECT_TRUE(row_major.is_contiguous());
  EXPECT_EQ(as_it_lies.strides(), tensor.strides());
}

TEST(SnapshotMemory, TakesTensorsWithGapsWithoutOnesAndOfAnyType) {
  SnapshotMemory memory;
  const auto wide = torch::arange(20, torch::kInt64).view({4, 5});
  for (const auto& tensor :
       {wide.narrow(1, 1, 2), torch::tensor(3.5), torch::empty({0, 2}), torch::ones({3}, torch::kBool),
        torch::full({2}, 2, torch::kComplexFloat), torch::full({2}, 2, torch::kBFloat16)}) {
    EXPECT_TRUE(test::same_bits(memory.row_major(tensor), tensor));
    EXPECT_TRUE(test::same_bits(memory.as_it_lies(tensor), tensor));
  }
}

TEST(SnapshotMemory, IsNoPartOfTheGraph) {
  SnapshotMemory memory;
  const auto parameter = torch::ones({3}, torch::requires_grad());
  EXPECT_FALSE(memory.row_major(parameter).requires_grad());
  EXPECT_FALSE(memory.as_it_lies(parameter * 2).requires_grad());
}

TEST(SnapshotMemory, IsUsedAgain) {
  SnapshotMemory memory;
  const auto large = torch::ones({1000}), small = torch::ones({10});
  memory.begin();
  const void* const first = memory.row_major(large).const_data_ptr();
  const void* const second = memory.row_major(small).const_data_ptr();
  EXPECT_NE(first, second);
  for (int snapshot = 0; snapshot < 3; ++snapshot) {
    memory.begin();
    EXPECT_EQ(memory.row_major(large).const_data_ptr(), first);
    EXPECT_EQ(memory.as_it_lies(small).const_data_ptr(), second);
  }
  memory.begin();
  EXPECT_EQ(memory.row_major(small).const_data_ptr(), first) << "also for less";
  EXPECT_TRUE(test::same_bits(memory.row_major(large), large)) << "and where more is asked for";
}

}  // namespace
}  // namespace lockstep
