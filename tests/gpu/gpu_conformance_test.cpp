#include <gtest/gtest.h>

#include "lockstep/group/threads_test.h"
#include "tests/conformance/conformance.h"
#include "tests/gpu/on_gpus_test.h"

namespace lockstep {
namespace {

using testing::ConformanceOptions;
using testing::GpuMemory;

/// Of the GPU with the rank's number.
GpuMemory memory_of(int device) {
  // Where one address lies for the GPU and for this process, the others do.
  void* const one = standin::allocate(device, 1);
  const auto to_gpu = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(one) -
                                                  reinterpret_cast<std::uintptr_t>(standin::host(one)));
  standin::release(one);
  return {.place = {.device = device},
          .allocate = [device](std::size_t bytes) { return standin::host(standin::allocate(device, bytes)); },
          .release =
              [to_gpu](std::byte* seen) {
                standin::release(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(seen) +
                                                         static_cast<std::uintptr_t>(to_gpu)));
              },
          .to_gpu = to_gpu,
          .supports = testing::nccl_reduces};
}

class GpuRanks : public ::testing::TestWithParam<int> {
 protected:
  static void check(void (*function)(const Group&, const ConformanceOptions&)) {
    test::on_ranks(GetParam(), [&](const Group& group) {
      const GpuMemory gpu = memory_of(group.rank());
      constexpr std::size_t counts[] = {0, 1, 17, 1000};
      try {
        function(group, {.counts = counts, .gpu = &gpu});
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  }
};

TEST_P(GpuRanks, ReduceEveryTypeByEveryOperation) { check(testing::check_reductions); }
TEST_P(GpuRanks, MoveBlocks) { check(testing::check_movements); }

INSTANTIATE_TEST_SUITE_P(Of, GpuRanks, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace lockstep
