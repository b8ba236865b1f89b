// What tests of calls on GPUs share: ranks that are threads with a GPU each, and buffers there.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/base/failure_test.h"
#include "lockstep/group/collectives.h"
#include "tests/gpu/standin.h"

namespace lockstep::test {

/// `elements` of GPU `device`, all `value`.
template <class T>
class OnGpu {
 public:
  OnGpu(int device, std::size_t elements, T value = {})
      : memory_(standin::allocate(device, elements * sizeof(T))), elements_(elements) {
    std::ranges::fill(seen(), value);
  }
  ~OnGpu() { standin::release(memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  /// For calls.
  std::span<T> span() const { return {static_cast<T*>(memory_), elements_}; }
  /// For the test.
  std::span<T> seen() const { return {reinterpret_cast<T*>(standin::host(memory_)), elements_}; }

 private:
  void* memory_;
  std::size_t elements_;
};

/// Each test leaves as much as it found, and ends its communicators in an orderly way.
class Gpus : public ::testing::Test {
 protected:
  void SetUp() override {
    (void)standin::take_nccl_calls();
    things_ = standin::things_left();
    aborted_ = standin::nccl_aborted();
  }
  void TearDown() override {
    // What is put on a stream after an abort goes through it yet.
    for (int nap = 0; nap < 2000 && standin::nccl_left() > 0; ++nap)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(standin::nccl_left(), 0) << "communicators are left";
    EXPECT_EQ(standin::things_left(), things_) << "memory, streams or events of GPUs are left";
    EXPECT_TRUE(may_abort_ || standin::nccl_aborted() == aborted_) << "communicators were aborted";
  }

  bool may_abort_ = false;

 private:
  std::size_t things_ = 0;
  int aborted_ = 0;
};

/// Of what goes wrong.
class GpuFaults : public Gpus {
 protected:
  GpuFaults() { may_abort_ = true; }
};

}  // namespace lockstep::test
