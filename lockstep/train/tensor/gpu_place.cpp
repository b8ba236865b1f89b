#include "lockstep/train/tensor/gpu_place.h"

#include <c10/core/StreamGuard.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lockstep/group/gpu_calls.h"
#include "lockstep/train/tensor/device.h"

namespace lockstep {

c10::DeviceType gpu_kind = torch::kCUDA;

namespace {

/// The handle that CUDA knows the stream by; nothing where this libtorch does not tell it (2.10 and older).
template <class Stream>
std::optional<void*> handle_of(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    return std::nullopt;
  }
}

}  // namespace

bool stays_on_gpu(const Group& group, torch::Device device) {
  if (device.type() != gpu_kind) return false;
  if (!handle_of(current_stream(device))) {
    say_through_main_memory(group, "this libtorch does not tell its streams' handles; 2.11 does");
    return false;
  }
  std::string why;
  if (can_call_on_gpu(group, device.index(), &why)) return true;
  say_through_main_memory(group, why);
  return false;
}

void say_leaves_gpu(const Group& group, torch::Device device, const char* why) {
  if (device.type() == gpu_kind) say_through_main_memory(group, why);
}

MemoryPlace place_of(const Group& group, torch::Device device) {
  return stays_on_gpu(group, device) ? place_on(device) : MemoryPlace{};
}

MemoryPlace place_on(torch::Device device) {
  if (device.type() != gpu_kind || !has_gpu_driver()) return {};
  const auto stream = handle_of(current_stream(device));
  return stream ? MemoryPlace{.device = device.index(), .stream = *stream} : MemoryPlace{};
}

namespace {

/// One for each device: libtorch keeps memory that was given back for the stream that it came from.
c10::Stream stream_for_results(torch::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard lock(mutex);
  const auto known = streams.find(device.index());
  if (known != streams.end()) return known->second;
  return streams
      .emplace(
          device.index(),
          c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true))
      .first->second;
}

}  // namespace

torch::Tensor empty_for_result(torch::IntArrayRef sizes, const torch::TensorOptions& options) {
  if (options.device().is_cpu()) return torch::empty(sizes, options);
  // Memory is given in the order of a stream. Not of the program's: a call that came after what is there by then could wait for a
  // call that comes after it on another rank.
  const c10::Stream stream = stream_for_results(options.device());
  const c10::StreamGuard on_stream(stream);
  torch::Tensor made = torch::empty(sizes, options);
  c10::impl::VirtualGuardImpl(options.device().type())
      .synchronizeStream(stream);  // which may be others', too
  return made;
}

void used_now(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  c10::impl::VirtualGuardImpl(tensor.device().type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), current_stream(tensor.device()));
}

namespace {

class InCurrentStream final : public PendingWork {
 public:
  InCurrentStream(Work work, c10::Stream called_on) : work_(std::move(work)), called_on_(called_on) {}

  bool poll() override { return work_.test(); }
  bool wait_for(std::chrono::nanoseconds duration) override { return work_.wait_for(duration); }
  void wait() override {
    work_.wait();
    let_current_follow();
  }
  bool follow() override {
    work_.follow();
    let_current_follow();
    return true;
  }
  void synchronize() override { work_.synchronize(); }
  void abandon() noexcept override { work_.abandon(); }

 private:
  void let_current_follow() const {
    const auto now = current_stream(called_on_.device());
    if (now != called_on_) let_follow(called_on_, now);
  }

  Work work_;
  c10::Stream called_on_;
};

}  // namespace

Work in_current_stream(Work work, torch::Device device) {
  return Work(std::make_unique<InCurrentStream>(std::move(work), current_stream(device)));
}

std::span<std::byte> bytes_for_calls(const torch::Tensor& tensor, bool is_written) {
  if (is_written && !tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace lockstep
