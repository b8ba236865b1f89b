#include "lockstep/group/gpu_update.h"

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "lockstep/backend/device_arena/update_rule.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/group/gpu_calls.h"
#include "lockstep/group/impl.h"

namespace lockstep {
namespace {

/// Loaded once for each GPU, and kept: an optimizer may step for as long as the process lives.
struct Loaded {
  std::shared_ptr<Gpu> gpu;
  std::shared_ptr<device_arena::Kernels> kernels;  ///< null: there are none
};

const Loaded& loaded_on(int device) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, Loaded>;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = all->try_emplace(device);
  if (!is_new) return place->second;
  try {
    if (device_arena::kernel_image().empty()) return place->second;
    place->second.gpu = Gpu::open(device);
    const Gpu::Current current(*place->second.gpu);
    place->second.kernels = device_arena::Kernels::on(place->second.gpu);
  } catch (const Error& error) {
    log::debug(std::string("optimizers on GPUs take libtorch's operations: ") + error.what());
  }
  return place->second;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

std::uint32_t fingerprint(const SharedUpdate& update) {
  const auto rule = device_arena::rule_of(update.update.step, update.update.gradient_scale);
  return fnv1a_32({reinterpret_cast<const char*>(&rule), sizeof(rule)}) | 1U;
}

}  // namespace

bool can_update_on_gpu(int device) { return has_gpu_driver() && loaded_on(device).kernels != nullptr; }

void update_on_gpu(const MemoryPlace& place, Dtype dtype, const kernel::UpdateStep& step,
                   double gradient_scale, std::span<const TensorUpdate> tensors) {
  const Loaded& loaded = loaded_on(place.device);
  const Gpu::Current current(*loaded.gpu);
  std::vector<device_arena::UpdateList::Tensor> list;
  list.reserve(tensors.size());
  for (const TensorUpdate& tensor : tensors) {
    list.push_back({.gradient = address_of(tensor.gradient),
                    .parameters = address_of(tensor.parameters),
                    .first = address_of(tensor.first),
                    .second = address_of(tensor.second),
                    .master = address_of(tensor.master),
                    .elements = tensor.elements});
  }
  device_arena::move_tensors(*loaded.gpu, *loaded.kernels, static_cast<cuda::Stream>(place.stream), dtype,
                             step, gradient_scale, list);
}

Work update_on_shared_gpu(const Group& group, const MemoryPlace& place,
                          std::span<const SharedUpdate> updates) {
  std::vector<Request> requests;
  for (const SharedUpdate& update : updates) {
    const std::size_t size = size_of(update.dtype), elements = update.parameters.size() / size;
    requests.push_back({.signature = {.elements = elements,
                                      .root = Signature::root_of_update,
                                      .detail = fingerprint(update),
                                      .operation = Operation::all_reduce,
                                      .dtype = update.dtype},
                        .call = {.elements = elements, .rank = group.rank(), .ranks = group.size()},
                        .element_bytes = size,
                        .input = update.gradients,
                        .output = update.parameters,
                        .place = place,
                        .update = &update.update});
  }
  return submit_on_gpu(group.impl(), requests);
}

}  // namespace lockstep
