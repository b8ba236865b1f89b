#include "lockstep/train/replicas/parameter_drift.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/same_options.h"
#include "lockstep/train/tensor/number_text.h"

namespace lockstep {
namespace {

/// From the tensor's beginning, in elements. Ranks may have the same tensor in another order of memory.
std::int64_t offset_of_element(const torch::Tensor& tensor, std::int64_t index) {
  if (tensor.is_contiguous()) return index;
  std::int64_t offset = 0;
  for (std::int64_t dim = tensor.dim(); dim-- > 0; index /= tensor.size(dim))
    offset += index % tensor.size(dim) * tensor.stride(dim);
  return offset;
}

torch::Tensor element_of(const torch::Tensor& tensor, std::int64_t index) {
  return tensor.detach().as_strided({}, {}, tensor.storage_offset() + offset_of_element(tensor, index));
}

double unit_in_the_last_place(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64: return DBL_EPSILON;
    case torch::kFloat32: return FLT_EPSILON;
    case torch::kFloat16: return 0x1p-10;
    default: return 0x1p-7;  // bf16
  }
}

/// What a rank has in the sample's places.
struct SampledElements {
  std::uint64_t is_valid = 0;
  std::array<double, ParameterDrift::most_elements> values{}, largest{};  ///< `largest`: of the parameter
};

bool are_apart(double a, double b, double allowed) {
  if (std::isnan(a) && std::isnan(b)) return false;
  return a != b && !(std::abs(a - b) <= allowed);
}

}  // namespace

ParameterDrift::ParameterDrift(std::vector<NamedTensor> parameters) : parameters_(std::move(parameters)) {
  std::erase_if(parameters_, [](const NamedTensor& item) {
    const bool is_plain = item.tensor.layout() == torch::kStrided && item.tensor.is_floating_point();
    return !is_plain || item.tensor.numel() == 0;
  });
  is_in_main_memory_ =
      std::ranges::all_of(parameters_, [](const NamedTensor& item) { return item.tensor.device().is_cpu(); });
}

/// Spread over the parameters, and over each in the course of passes.
std::vector<ParameterDrift::Element> ParameterDrift::sample(std::uint64_t pass) const {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 by the golden ratio: multiples are spread
  const std::size_t count = std::min(most_elements, parameters_.size());
  std::vector<Element> elements(count);
  std::size_t parameter = count == 0 ? 0 : pass % parameters_.size();
  for (Element& element : elements) {
    const auto size = static_cast<std::uint64_t>(parameters_[parameter].tensor.numel());
    element = {parameter, static_cast<std::int64_t>((pass * golden >> 16) % size)};
    parameter += parameters_.size() / count;
    if (parameter >= parameters_.size()) parameter -= parameters_.size();
  }
  return elements;
}

std::optional<std::uint32_t> ParameterDrift::digest(std::uint64_t pass) {
  if (pass < next_ || (!is_in_main_memory_ && !is_step_to_compare(pass))) return std::nullopt;
  std::string bytes;
  for (const auto& [parameter, index] : sample(pass)) {
    const torch::Tensor& tensor = parameters_[parameter].tensor;
    const auto size = static_cast<std::size_t>(tensor.element_size());
    if (tensor.device().is_cpu()) {
      const auto* const memory = static_cast<const char*>(tensor.const_data_ptr());
      bytes.append(memory + static_cast<std::size_t>(offset_of_element(tensor, index)) * size, size);
    } else {
      const torch::Tensor copy = element_of(tensor, index).cpu();
      bytes.append(static_cast<const char*>(copy.const_data_ptr()), size);
    }
  }
  return fnv1a_32(bytes);
}

void ParameterDrift::compare(const Group& group, std::uint64_t pass, bool has_digest) {
  const torch::NoGradGuard no_grad;
  const auto elements = sample(pass);
  SampledElements mine{.is_valid = has_digest};
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const torch::Tensor tensor = parameters_[elements[i].parameter].tensor.detach();
    mine.values[i] = element_of(tensor, elements[i].index).item<double>();
    mine.largest[i] = tensor.abs().max().item<double>();
  }
  std::vector<SampledElements> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(&mine, 1), all).wait();
  const auto first = std::ranges::find_if(all, [](const auto& one) { return one.is_valid != 0; });
  for (auto other = first; other != all.end(); ++other) {
    for (std::size_t i = 0; i < elements.size() && other->is_valid != 0; ++i) {
      const NamedTensor& item = parameters_[elements[i].parameter];
      const double allowed = static_cast<double>(pass + 1) * first->largest[i] *
                             unit_in_the_last_place(item.tensor.scalar_type());
      if (!are_apart(first->values[i], other->values[i], allowed)) continue;
      const auto on_rank = [&](auto one) {
        return number_text(one->values[i]) + " on rank " +
               std::to_string(group.world_rank(static_cast<int>(one - all.begin())));
      };
      throw Error(ErrorCode::mismatch,
                  item.label() + " has drifted apart: after " + std::to_string(pass) +
                      " averaged backwards its element " + std::to_string(elements[i].index) + " is " +
                      on_rank(first) + " and " + on_rank(other) +
                      ". The ranks' optimizers do not do the same (learning rate, options, kind), or a rank "
                      "has changed parameters on its own: make and schedule optimizers, and load "
                      "checkpoints, alike on every rank",
                  group.world_rank(static_cast<int>(other - all.begin())));
    }
  }
  next_ = 2 * pass + 1;
}

}  // namespace lockstep
