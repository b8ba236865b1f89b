#include "lockstep/train/tensor/fake_device_test.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

namespace lockstep::test {
namespace {

using c10::Device;
using c10::DeviceIndex;
using torch::Tensor;

thread_local DeviceIndex current_index = 0;

// The engine of autograd asks whether there is such a device.
#ifdef LOCKSTEP_FAKE_IS_PRIVATEUSE1
struct FakeHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  // All main memory is as good: copies of this device's are over when they return.
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  bool isPinnedPtr(const void*) const override { return true; }
};
[[maybe_unused]] const bool has_hooks = [] {
  at::RegisterPrivateUse1HooksInterface(new FakeHooks);
  return true;
}();
#else
struct FakeHooks final : at::HPUHooksInterface {
  explicit FakeHooks(at::HPUHooksArgs) {}
  // It allows one kind beside the CPU.
  bool hasHPU() const override { return !c10::impl::hasDeviceGuardImpl(torch::kCUDA); }
  bool isBuilt() const override { return hasHPU(); }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  void init() const override {}
};
using at::HPUHooksRegistry;
using at::RegistererHPUHooksRegistry;
C10_REGISTER_CLASS(HPUHooksRegistry, HPUHooks, FakeHooks)
#endif

class FakeGuard final : public c10::impl::NoOpDeviceGuardImpl<fake_kind> {
 public:
  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return {fake_kind, current_index}; }
  void setDevice(Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) current_index = device.index();
  }
  DeviceIndex deviceCount() const noexcept override { return fake_devices; }
  // All is done at once, so that nobody has to wait for a stream.
  c10::Stream getStream(Device device) const noexcept override {
    const Device one(device.type(), device.has_index() ? device.index() : current_index);
    return c10::Stream(c10::Stream::DEFAULT, one);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return getStream(stream.device());
  }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }  // the default stream
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  // Nor for a mark, but for one that tells the time.
  void record(void** event, const c10::Stream& stream, DeviceIndex, c10::EventFlag flag) const override {
    if (flag != c10::EventFlag::BACKEND_DEFAULT) return;
    if (*event == nullptr) *event = new std::shared_ptr<FakeMark>;
    auto& mark = *static_cast<std::shared_ptr<FakeMark>*>(*event);
    mark = std::make_shared<FakeMark>();
    fake_device_memory.mark(stream.device_index(), mark);
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    delete static_cast<std::shared_ptr<FakeMark>*>(event);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override { return event == nullptr || mark_of(event).ns != 0; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* from, void* to, DeviceIndex) const override {
    return static_cast<double>(mark_of(to).ns - mark_of(from).ns) / 1e6;
  }

 private:
  static FakeMark& mark_of(void* event) { return **static_cast<std::shared_ptr<FakeMark>*>(event); }
};

class FakeMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = bytes == 0 ? nullptr : fake_device_memory.allocate(current_index, bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, bytes == 0 || memory != nullptr, "out of memory");
    return {memory, memory, release, Device(fake_kind, current_index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::vector<char> between(bytes);
    fake_device_memory.read(from, between.data(), bytes);
    fake_device_memory.write(between.data(), to, bytes);
  }

 private:
  static void release(void* memory) {
    if (memory != nullptr) fake_device_memory.release(memory);
  }
};

FakeMemory* memory() {
  static auto* const immortal = new FakeMemory;
  return immortal;
}

/// Into main memory and out of it, by default.
void invert(const void* from, void* to, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(to)[i] =
        static_cast<unsigned char>(~static_cast<const unsigned char*>(from)[i]);
}

/// All of the tensor's memory, readable, and the tensor in it.
struct Image {
  explicit Image(const Tensor& tensor)
      : bytes(at::empty({static_cast<std::int64_t>(tensor.storage().nbytes())}, torch::kUInt8)),
        seen(at::empty({0}, torch::dtype(tensor.scalar_type()))) {
    if (bytes.nbytes() > 0)
      fake_device_memory.read(tensor.storage().data(), bytes.mutable_data_ptr(), bytes.nbytes());
    seen.set_(bytes.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  }
  void put_back(const Tensor& tensor) const {
    if (bytes.nbytes() > 0)
      fake_device_memory.write(bytes.const_data_ptr(), tensor.storage().mutable_data(), bytes.nbytes());
  }
  Tensor bytes, seen;
};

constexpr c10::DispatchKeySet keys(c10::DispatchKey::LOCKSTEP_FAKE_KIND);

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return Tensor(at::detail::empty_generic(sizes, memory(), keys, type.value_or(torch::kFloat32), format));
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return Tensor(
      at::detail::empty_strided_generic(sizes, strides, memory(), keys, type.value_or(torch::kFloat32)));
}

const Tensor& resize(const Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(tensor.device());
  return at::native::resize_(tensor, sizes, format);
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  const Tensor source = from.is_cpu() ? from : Image(from).seen;
  if (to.is_cpu()) {
    to.copy_(source);
  } else {
    const Image image(to);
    image.seen.copy_(source);
    image.put_back(to);
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

void compute_on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

C10_REGISTER_GUARD_IMPL(LOCKSTEP_FAKE_KIND, FakeGuard)

TORCH_LIBRARY_IMPL(aten, LOCKSTEP_FAKE_KIND, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

TORCH_LIBRARY_IMPL(_, LOCKSTEP_FAKE_KIND, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
}

}  // namespace

FakeDeviceMemory fake_device_memory{[](int, std::size_t bytes) { return std::malloc(bytes); }, std::free,
                                    invert, invert};

}  // namespace lockstep::test
