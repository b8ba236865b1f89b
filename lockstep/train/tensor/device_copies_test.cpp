#include "lockstep/train/tensor/device_copies.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "lockstep/train/tensor/fake_device_test.h"

namespace lockstep {
namespace {

using test::other_device;

torch::Tensor numbers() { return torch::arange(100'000); }

TEST(DeviceCopies, GoBothWaysAndAreOverAfterTheWait) {
  const auto there = torch::zeros({100'000}, torch::kInt64).to(other_device(0));
  const auto back = torch::zeros({100'000}, torch::kInt64);
  DeviceCopies copies;
  EXPECT_TRUE(copies.are_over());
  copies.copy(there, numbers());
  const auto made = copies.copied_to(other_device(0), numbers() + 1);
  copies.wait();
  EXPECT_TRUE(copies.are_over());
  EXPECT_EQ(made.device(), other_device(0));
  EXPECT_TRUE(torch::equal(made.to(torch::kCPU), numbers() + 1));
  copies.copy(back, there);
  while (!copies.are_over()) {
  }
  EXPECT_TRUE(torch::equal(back, numbers()));
}

TEST(DeviceCopies, InMainMemoryAreOverAtOnceAndKeepWhatIsThere) {
  const auto to = torch::zeros({100'000}, torch::kInt64);
  DeviceCopies copies;
  copies.copy(to, numbers());
  EXPECT_TRUE(copies.are_over());
  EXPECT_TRUE(torch::equal(to, numbers()));
  EXPECT_EQ(copies.copied_to(torch::kCPU, to).data_ptr(), to.data_ptr());
}

TEST(PageLocked, LeavesMemoryAsItIsAndMayBeLockedAgain) {
  const auto bytes = static_cast<std::size_t>(10 * ::sysconf(_SC_PAGESIZE));
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(bytes / 10, bytes), std::free);
  const std::span<std::byte> all(static_cast<std::byte*>(memory.get()), bytes);
  std::ranges::fill(all, std::byte{7});
  for (int times = 0; times < 2; ++times) {
    const PageLocked locked(all);
    const PageLocked again(all);  // of which libtorch does not see an error
    const PageLocked nothing(all.first(0));
    const auto tensor = torch::from_blob(all.data(), {static_cast<std::int64_t>(bytes)}, torch::kUInt8);
    EXPECT_EQ(tensor.to(other_device(0)).to(torch::kCPU).sum().item<std::int64_t>(),
              static_cast<std::int64_t>(7 * bytes));
  }
}

}  // namespace
}  // namespace lockstep
