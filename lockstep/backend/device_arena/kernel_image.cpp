#include "lockstep/backend/device_arena/kernel_image.h"

#include <map>
#include <string>
#include <variant>

#include "lockstep/backend/gpu/gpu_update.h"
#include "lockstep/base/log.h"
#include "lockstep/kernel/form.h"

// Made by cmake/DeviceKernels.cmake.
extern "C" {
extern const std::byte lockstep_device_kernels[];
extern const std::uint64_t lockstep_device_kernels_bytes;
}

namespace lockstep::device_arena {
namespace {

constexpr std::byte nothing[8] = {};
bool has_kernels_of_the_driver = false;

// One number for each kernel, so that a call makes no name.
constexpr std::size_t first_update = 2 + kernel::dtypes * kernel::reduce_ops;

std::size_t key_of(Operation operation, const kernel::Form& form) {
  if (operation == Operation::barrier) return 0;
  if (!reduces(operation)) return 1;
  return 2 + static_cast<std::size_t>(form.dtype) * kernel::reduce_ops + static_cast<std::size_t>(form.op);
}

std::size_t key_of(const kernel::UpdateStep& step, Dtype dtype, bool is_list) {
  return first_update + (step.index() * 2 + (is_list ? 1 : 0)) * kernel::dtypes +
         static_cast<std::size_t>(dtype);
}

std::string name_of(Operation operation, const kernel::Form& form) {
  if (operation == Operation::barrier) return "lockstep_barrier";
  if (!reduces(operation)) return "lockstep_move";
  return "lockstep_" + std::string(to_string(form.op)) + "_" + std::string(to_string(form.dtype));
}

std::string name_of(const kernel::UpdateStep& step, Dtype dtype, bool is_list) {
  const std::string rule = std::holds_alternative<kernel::SgdStep>(step) ? "sgd" : "adam";
  return "lockstep_" + rule + (is_list ? "_list_" : "_") + std::string(to_string(dtype));
}

}  // namespace

std::span<const std::byte> kernel_image() {
  const std::span built(lockstep_device_kernels, static_cast<std::size_t>(lockstep_device_kernels_bytes));
  return built.empty() && has_kernels_of_the_driver ? std::span<const std::byte>(nothing) : built;
}

void take_kernels_of_the_driver() { has_kernels_of_the_driver = true; }

std::shared_ptr<Kernels> Kernels::on(const std::shared_ptr<Gpu>& gpu) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Kernels>> all;
  const std::lock_guard lock(mutex);
  auto kernels = all[gpu->device()].lock();
  if (!kernels) {
    kernels = std::shared_ptr<Kernels>(new Kernels(gpu));
    all[gpu->device()] = kernels;
  }
  return kernels;
}

Kernels::Kernels(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), sharing_(cuda::SharingDriver::get()) {
  const cuda::Driver& driver = gpu_->driver();
  driver.check(sharing_.attribute(&processors_, cuda::attribute_processors, gpu_->device()),
               "asking a GPU what it is");
  driver.check(sharing_.load_module(&module_, kernel_image().data()),
               "loading Lockstep's kernels onto GPU " + std::to_string(gpu_->device()));
}

Kernels::~Kernels() {
  try {
    const Gpu::Current current(*gpu_);
    (void)sharing_.unload_module(module_);
  } catch (const Error& error) {  // the driver has ended, and all that it had
    log::debug(error.what());
  }
}

template <class... Kind>
cuda::Function Kernels::find(const Kind&... kind) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = found_.try_emplace(key_of(kind...), nullptr);
  if (is_new) {
    const std::string name = name_of(kind...);
    gpu_->driver().check(sharing_.find_function(&place->second, module_, name.c_str()), "finding " + name);
  }
  return place->second;
}

cuda::Function Kernels::of(const Request& request) {
  const Signature& called = request.signature;
  if (request.update != nullptr) return find(request.update->step, called.dtype, false);
  return find(called.operation, kernel::find_form(called.dtype, called.reduce_op));
}

cuda::Function Kernels::of_list(const kernel::UpdateStep& step, Dtype dtype) {
  return find(step, dtype, true);
}

}  // namespace lockstep::device_arena
