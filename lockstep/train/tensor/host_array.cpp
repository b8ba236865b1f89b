#include "lockstep/train/tensor/host_array.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/device.h"
#include "lockstep/train/tensor/gpu_place.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

class PuttingBack final : public PendingWork {
 public:
  PuttingBack(Work work, std::vector<HostArray> arrays)
      : arrays_(std::move(arrays)), work_(std::move(work)) {}

  bool poll() override {
    return unless_it_fails([&] { return work_.test(); });
  }
  bool wait_for(std::chrono::nanoseconds duration) override {
    return unless_it_fails([&] { return work_.wait_for(duration); });
  }
  void synchronize() override {
    wait();
    for (const HostArray& array : arrays_) {
      if (array.is_written()) await_device(array.device());
    }
  }
  void wait() override {
    if (failure_) std::rethrow_exception(failure_);
    work_.wait();
    for (const HostArray& array : arrays_) {
      if (array.is_written()) array.put_back();
    }
  }
  void abandon() noexcept override { work_.abandon(); }

 private:
  template <class Test>
  bool unless_it_fails(const Test& test) {
    try {
      return test();
    } catch (...) {
      failure_ = std::current_exception();
      return true;
    }
  }

  std::vector<HostArray> arrays_;  // before the work that borrows from them
  Work work_;
  std::exception_ptr failure_;
};

}  // namespace

HostArray::HostArray(const torch::Tensor& tensor, const std::string& what, Use use)
    : tensor_(tensor), use_(use) {
  require_array(tensor, what);
  is_copy_ = !tensor.device().is_cpu() || !tensor.is_contiguous();
  if (!is_copy_) {
    host_ = tensor;
  } else if (use == Use::write) {
    host_ = torch::empty(tensor.sizes(), torch::dtype(tensor.scalar_type()));
  } else {
    const torch::NoGradGuard no_grad;
    host_ = tensor.detach().to(torch::kCPU).contiguous();
  }
  if (is_written()) {
    bytes_ = writable_bytes(host_, what);
  } else {
    const auto bytes = readable_bytes(host_, what);
    bytes_ = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    if (is_copy_) tensor_.reset();  // a GPU's memory is dear
  }
}

HostArray::HostArray(const torch::Tensor& tensor, const std::string& what, Use use, const MemoryPlace& place)
    : HostArray(place.is_on_gpu() ? HostArray() : HostArray(tensor, what, use)) {
  if (!place.is_on_gpu()) return;
  if (tensor.device() != torch::Device(gpu_kind, static_cast<c10::DeviceIndex>(place.device))) {
    throw_invalid_argument(what + " is " + describe(tensor) + ", but the call's other tensor is on GPU " +
                           std::to_string(place.device) +
                           ": all of a call's tensors have to be on one device");
  }
  tensor_ = tensor;
  use_ = use;
  bytes_ = bytes_for_calls(tensor, is_written());
}

HostArray::HostArray(const torch::Tensor& tensor, const std::string& what, torch::Tensor host)
    : tensor_(tensor), host_(std::move(host)), use_(Use::write), is_copy_(true) {
  require_array(tensor, what);
  bytes_ = bytes_for_calls(host_, true);
}

void HostArray::put_back() const {
  if (!is_copy_) return;
  const torch::NoGradGuard no_grad;
  tensor_.detach().copy_(host_.view_as(tensor_));
}

Work then_put_back(Work work, std::vector<HostArray> arrays) {
  const auto on_gpu = std::ranges::find_if(arrays, &HostArray::is_on_gpu);
  if (on_gpu != arrays.end()) work = in_current_stream(std::move(work), on_gpu->device());
  if (std::ranges::none_of(arrays, &HostArray::is_copy)) return work;
  return then_put_back_and_keep(std::move(work), std::move(arrays));
}

Work then_put_back_and_keep(Work work, std::vector<HostArray> arrays) {
  return Work(std::make_unique<PuttingBack>(std::move(work), std::move(arrays)));
}

}  // namespace lockstep
