#include "lockstep/train/tensor/device.h"

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view cuda = "cuda";

/// Of "cuda:1" the 1; nullopt if it is nothing of the kind.
std::optional<int> index_in(std::string_view name) {
  if (!name.starts_with(cuda) || name.size() < cuda.size() + 2 || name[cuda.size()] != ':')
    return std::nullopt;
  const std::string_view digits = name.substr(cuda.size() + 1);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || index < 0) return std::nullopt;
  return index;
}

std::string gpu_count_text(const VisibleGpus& gpus) {
  return "sees " + std::to_string(*gpus.count) + (*gpus.count == 1 ? " GPU" : " GPUs") +
         " (CUDA_VISIBLE_DEVICES is " + (gpus.variable ? "\"" + *gpus.variable + "\"" : "not set") + ")";
}

}  // namespace

torch::Device with_number(torch::Device device) {
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void let_follow(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

void await_device(torch::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeStream(current_stream(device));
}

VisibleGpus VisibleGpus::of_this_process() {
  VisibleGpus gpus;
  // libtorch's CUDA library registers it when it is loaded.
  if (c10::impl::hasDeviceGuardImpl(torch::kCUDA)) gpus.count = torch::cuda::device_count();
  if (const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES")) gpus.variable = variable;
  return gpus;
}

torch::Device choose_device(const std::string& name, int local_rank, int local_size,
                            const VisibleGpus& gpus) {
  if (name == "cpu") return torch::kCPU;
  const auto named = index_in(name);
  if (name != cuda && !named) {
    throw_invalid_argument("the device is \"" + name +
                           "\"; it is \"cpu\", \"cuda\" (each rank of a host the next GPU) or \"cuda:1\" "
                           "(that GPU)");
  }
  const std::string wanted = "the device is \"" + name + "\", but ";
  if (!gpus.count) {
    throw Error(
        ErrorCode::unsupported,
        wanted +
            "this libtorch was built without CUDA; use \"cpu\", or build Lockstep with a libtorch that "
            "has it: name its folder in LOCKSTEP_TORCH");
  }
  if (named && *named >= *gpus.count) {
    throw Error(ErrorCode::unsupported,
                wanted + "this process " + gpu_count_text(gpus) + "; they are numbered from 0");
  }
  if (!named && local_size > *gpus.count) {
    throw Error(ErrorCode::unsupported,
                wanted + "there are " + std::to_string(local_size) +
                    " ranks on this host, and this process " + gpu_count_text(gpus) +
                    "; start as many ranks as there are GPUs, or, where each rank sees GPUs of its own, use "
                    "\"cuda:0\"");
  }
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(named.value_or(local_rank))};
}

torch::Device device_for(const Group& group, const std::string& name) {
  return choose_device(name, group.local_rank(), group.local_size(), VisibleGpus::of_this_process());
}

}  // namespace lockstep
