#include "lockstep/train/tensor/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const VisibleGpus no_cuda{.count = std::nullopt, .variable = std::nullopt};

VisibleGpus gpus(int count) { return {.count = count, .variable = "2,3"}; }

std::string refusal(const std::string& name, int local_size, const VisibleGpus& visible) {
  try {
    return "no error: " + choose_device(name, 0, local_size, visible).str();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
}

TEST(Device, IsTheProcessorWhateverGpusThereAre) {
  for (const auto& visible : {no_cuda, gpus(0), gpus(2)})
    EXPECT_EQ(choose_device("cpu", 5, 8, visible), torch::Device(torch::kCPU));
  EXPECT_EQ(device_for(Group(), "cpu"), torch::Device(torch::kCPU));
}

TEST(Device, IsTheNextGpuForEachRankOfAHost) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(choose_device("cuda", rank, 4, gpus(4)).str(), "cuda:" + std::to_string(rank));
}

TEST(Device, IsTheGpuThatIsNamed) {
  EXPECT_EQ(choose_device("cuda:1", 0, 4, gpus(2)).str(), "cuda:1");
  EXPECT_EQ(choose_device("cuda:0", 3, 4, gpus(1)).str(), "cuda:0");
}

TEST(Device, SaysThatThereAreTooFewGpus) {
  EXPECT_THAT(refusal("cuda", 4, gpus(2)),
              HasSubstr("unsupported: the device is \"cuda\", but there are 4 ranks on this host, and this "
                        "process sees 2 GPUs (CUDA_VISIBLE_DEVICES is \"2,3\"); start as many ranks"));
  EXPECT_THAT(refusal("cuda", 2, {.count = 1, .variable = std::nullopt}),
              HasSubstr("sees 1 GPU (CUDA_VISIBLE_DEVICES is not set)"));
  EXPECT_THAT(refusal("cuda:2", 1, gpus(2)),
              HasSubstr("unsupported: the device is \"cuda:2\", but this process sees 2 GPUs"));
  EXPECT_THAT(refusal("cuda:300", 1, gpus(2)), HasSubstr("sees 2 GPUs"));
}

TEST(Device, SaysThatLibtorchHasNoCuda) {
  for (const std::string name : {"cuda", "cuda:0"}) {
    EXPECT_THAT(refusal(name, 1, no_cuda),
                HasSubstr("unsupported: the device is \"" + name +
                          "\", but this libtorch was built without CUDA; use \"cpu\", or"));
    EXPECT_THAT(refusal(name, 1, no_cuda), HasSubstr("LOCKSTEP_TORCH"));
  }
}

TEST(Device, NamesWhatIsAllowedInsteadOfAnythingElse) {
  for (const std::string name : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda1",
                                 "cuda:99999999999", "meta"}) {
    EXPECT_THAT(refusal(name, 1, gpus(2)),
                HasSubstr("invalid_argument: the device is \"" + name +
                          "\"; it is \"cpu\", \"cuda\" (each rank of a host the next GPU) or \"cuda:1\""));
  }
}

TEST(Device, AsksThisLibtorch) {
  if (VisibleGpus::of_this_process().count.value_or(0) > 0) {
    EXPECT_EQ(device_for(Group(), "cuda"), torch::Device(torch::kCUDA, 0));
  } else {
    EXPECT_THROW(device_for(Group(), "cuda"), Error);
  }
}

}  // namespace
}  // namespace lockstep
