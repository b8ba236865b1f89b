#include "lockstep/backend/device_arena/update_rule.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <variant>

namespace lockstep::device_arena {
namespace {

std::uint32_t pieces_of(const UpdateList::Tensor& tensor) {
  return static_cast<std::uint32_t>((tensor.elements + piece_elements - 1) / piece_elements);
}

}  // namespace

// As kernel/update.cpp has it.
UpdateRule rule_of(const kernel::UpdateStep& step, double gradient_scale) {
  return std::visit(
      [&]<class Step>(const Step& taken) -> UpdateRule {
        UpdateRule rule{.gradient_scale = gradient_scale,
                        .learning_rate = taken.learning_rate,
                        .weight_decay = taken.weight_decay};
        if constexpr (std::is_same_v<Step, kernel::SgdStep>) {
          rule.momentum = taken.momentum;
          rule.fresh = 1.0 - taken.dampening;
          rule.nesterov = taken.nesterov ? 1 : 0;
          rule.is_first = taken.is_first ? 1 : 0;
          rule.has_velocity = taken.momentum != 0 ? 1 : 0;
        } else {
          const auto t = static_cast<double>(taken.t);
          rule.learning_rate /= 1.0 - std::pow(taken.beta1, t);
          rule.beta1 = taken.beta1;
          rule.fresh1 = 1.0 - taken.beta1;
          rule.beta2 = taken.beta2;
          rule.fresh2 = 1.0 - taken.beta2;
          rule.epsilon = taken.epsilon;
          rule.kept = 1.0 - taken.learning_rate * taken.weight_decay;
          rule.root_correction = std::sqrt(1.0 - std::pow(taken.beta2, t));
          rule.is_decoupled = taken.is_decoupled ? 1 : 0;
        }
        return rule;
      },
      step);
}

void move_tensors(const Gpu& gpu, Kernels& kernels, cuda::Stream stream, Dtype dtype,
                  const kernel::UpdateStep& step, double gradient_scale,
                  std::span<const UpdateList::Tensor> tensors) {
  if (tensors.empty()) return;
  UpdateList list{.rule = rule_of(step, gradient_scale)};
  std::uint32_t pieces = 0;
  const auto launch = [&] {
    void* arguments[] = {&list};
    const auto blocks = std::min(pieces, static_cast<std::uint32_t>(4 * kernels.processors()));
    gpu.driver().check(kernels.sharing().launch(kernels.of_list(step, dtype), blocks, 1, 1,
                                                threads_of_a_block, 1, 1, 0, stream, arguments, nullptr),
                       "starting a kernel of Lockstep's");
    list.tensors = 0;
    pieces = 0;
  };
  for (const UpdateList::Tensor& tensor : tensors) {
    if (tensor.elements == 0) continue;
    list.tensor[list.tensors] = tensor;
    list.pieces_through[list.tensors] = pieces += pieces_of(tensor);
    if (++list.tensors == most_tensors) launch();
  }
  if (list.tensors > 0) launch();
}

}  // namespace lockstep::device_arena
