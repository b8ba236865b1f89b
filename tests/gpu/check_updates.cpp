#include "tests/gpu/check_updates.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "lockstep/base/half.h"
#include "lockstep/group/gpu_update.h"
#include "lockstep/schedule/call.h"

namespace lockstep::testing {
namespace {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

template <class T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, float16>) return to_float16(static_cast<float>(value));
  if constexpr (std::is_same_v<T, bfloat16>) return to_bfloat16(static_cast<float>(value));
  if constexpr (!is_half<T>) return static_cast<T>(value);
}
template <class T>
Wide<T> widened(T value) {
  if constexpr (is_half<T>) return to_float(value);
  if constexpr (!is_half<T>) return value;
}

const std::vector<kernel::UpdateStep>& rules() {
  using kernel::AdamStep;
  using kernel::SgdStep;
  static const std::vector<kernel::UpdateStep> all{
      SgdStep{.learning_rate = 0.1, .weight_decay = 0.01},
      SgdStep{.learning_rate = 0.03, .momentum = 0.9, .dampening = 0.2},
      SgdStep{.learning_rate = 0.03, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
      AdamStep{.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1},
      AdamStep{.learning_rate = 0.01, .weight_decay = 0.1, .is_decoupled = true}};
  return all;
}

/// As it is at the `number`th step.
kernel::UpdateStep step_of(kernel::UpdateStep rule, int number) {
  if (auto* const sgd = std::get_if<kernel::SgdStep>(&rule)) sgd->is_first = number == 0;
  if (auto* const adam = std::get_if<kernel::AdamStep>(&rule))
    adam->t = static_cast<std::uint64_t>(number) + 1;
  return rule;
}

bool has_first(const kernel::UpdateStep& rule) {
  const auto* const sgd = std::get_if<kernel::SgdStep>(&rule);
  return sgd == nullptr || sgd->momentum != 0;
}
bool has_second(const kernel::UpdateStep& rule) { return std::holds_alternative<kernel::AdamStep>(rule); }

/// Parameters with all that belongs to them, in main memory; the same on all ranks.
template <class T>
struct Model {
  Model(std::size_t elements, std::size_t ranks, std::mt19937_64& random)
      : gradients(ranks, std::vector<T>(elements)),
        parameters(elements),
        first(elements),
        second(elements),
        master(elements) {
    for (std::size_t i = 0; i < elements; ++i) {
      parameters[i] = narrowed<T>(std::normal_distribution<>()(random));
      master[i] = widened(parameters[i]);
    }
  }
  void draw(std::mt19937_64& random) {
    for (auto& of_rank : gradients)
      std::ranges::generate(of_rank, [&] { return narrowed<T>(std::normal_distribution<>()(random)); });
  }
  void step(const kernel::UpdateStep& rule, double scale) {
    if (parameters.empty()) return;
    std::vector<const std::byte*> sources;
    for (const auto& of_rank : gradients)
      sources.push_back(reinterpret_cast<const std::byte*>(of_rank.data()));
    kernel::UpdateSlice slice{.dtype = dtype_of<T>,
                              .elements = parameters.size(),
                              .gradients = sources,
                              .gradient_scale = scale,
                              .parameters = reinterpret_cast<std::byte*>(parameters.data())};
    if constexpr (is_half<T>) slice.master = master.data();
    if (const auto* const sgd = std::get_if<kernel::SgdStep>(&rule))
      kernel::update_sgd(slice, sgd->momentum != 0 ? first.data() : nullptr, *sgd);
    if (const auto* const adam = std::get_if<kernel::AdamStep>(&rule))
      kernel::update_adam(slice, first.data(), second.data(), *adam);
  }

  std::vector<std::vector<T>> gradients;
  std::vector<T> parameters;
  std::vector<Wide<T>> first, second, master;
};

/// An array of `elements`, which begins `offset` elements after a border.
template <class T>
class OnGpu {
 public:
  OnGpu(const GpuAccess& access, std::size_t elements, std::size_t offset)
      : access_(access), block_(access.allocate((elements + offset) * sizeof(T) + 1, &memory_)) {
    memory_ = static_cast<T*>(memory_) + offset;
  }
  T* data() const { return static_cast<T*>(memory_); }
  void write(std::span<const T> values) const { access_.write(memory_, values.data(), values.size_bytes()); }
  void require_same(std::span<const T> expected, const std::string& what) const {
    std::vector<T> found(expected.size());
    access_.read(found.data(), memory_, expected.size_bytes());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::memcmp(&found[i], &expected[i], sizeof(T)) == 0) continue;
      throw std::runtime_error(what + ": element " + std::to_string(i) + " is " +
                               std::to_string(widened(found[i])) + ", not " +
                               std::to_string(widened(expected[i])));
    }
  }

 private:
  const GpuAccess& access_;
  void* memory_ = nullptr;
  std::shared_ptr<void> block_;
};

/// What a rank has of a model there: its gradients and all parameters, and the state of its part.
template <class T>
struct ModelOnGpu {
  ModelOnGpu(const GpuAccess& access, const Model<T>& model, const Range& own, std::size_t offset)
      : own(own),
        gradients(access, model.parameters.size(), offset),
        parameters(access, model.parameters.size(), offset),
        first(access, own.count, offset),
        second(access, own.count, offset),
        master(access, own.count, offset) {
    parameters.write(model.parameters);
    for (const auto* const state : {&first, &second}) state->write(std::vector<Wide<T>>(own.count));
    master.write(part_of(model.master));
  }
  std::span<const Wide<T>> part_of(const std::vector<Wide<T>>& all) const {
    return std::span(all).subspan(own.begin, own.count);
  }
  void require_same(const Model<T>& model, const kernel::UpdateStep& rule, const std::string& what) const {
    parameters.require_same(model.parameters, what + ", parameters");
    if (has_first(rule)) first.require_same(part_of(model.first), what + ", first state");
    if (has_second(rule)) second.require_same(part_of(model.second), what + ", second state");
    if (is_half<T>) master.require_same(part_of(model.master), what + ", masters");
  }

  Range own;
  OnGpu<T> gradients, parameters;
  OnGpu<Wide<T>> first, second, master;
};

std::string named(const char* what, Dtype dtype, const kernel::UpdateStep& rule, std::size_t elements,
                  int number) {
  const auto kind =
      std::ranges::find_if(rules(), [&](const kernel::UpdateStep& one) { return &one == &rule; }) -
      rules().begin();
  return std::string(what) + " of " + std::string(to_string(dtype)) + " x " + std::to_string(elements) +
         " by rule " + std::to_string(kind) + ", step " + std::to_string(number);
}

/// Ranks own parts that are not alike: the last one has the rest, the first one may have nothing.
Range part_of(std::size_t elements, int rank, int ranks) {
  const std::size_t each = elements / static_cast<std::size_t>(ranks + 1) / 8 * 8;
  const std::size_t begin = each * static_cast<std::size_t>(rank);
  return {begin, rank == ranks - 1 ? elements - begin : each};
}

template <class T>
void check_together(const Group& group, const GpuAccess& access, const kernel::UpdateStep& rule,
                    std::size_t elements, std::size_t offset) {
  std::mt19937_64 random(elements + offset);
  Model<T> model(elements, static_cast<std::size_t>(group.size()), random);
  const Range own = part_of(elements, group.rank(), group.size());
  const ModelOnGpu<T> on_gpu(access, model, own, offset);
  const double scale = 1.0 / group.size();
  for (int number = 0; number < 3; ++number) {
    model.draw(random);
    on_gpu.gradients.write(model.gradients[static_cast<std::size_t>(group.rank())]);
    const auto step = step_of(rule, number);
    const SharedUpdate update{
        .gradients = std::as_bytes(std::span(on_gpu.gradients.data(), elements)),
        .parameters = std::as_writable_bytes(std::span(on_gpu.parameters.data(), elements)),
        .dtype = dtype_of<T>,
        .update = {.step = step,
                   .gradient_scale = scale,
                   .own = own,
                   .first = has_first(rule) ? on_gpu.first.data() : nullptr,
                   .second = has_second(rule) ? on_gpu.second.data() : nullptr,
                   .master = is_half<T> ? on_gpu.master.data() : nullptr}};
    update_on_shared_gpu(group, access.place, std::span(&update, 1)).synchronize();
    model.step(step, scale);
    on_gpu.require_same(model, rule, named("all ranks' parameters", dtype_of<T>, rule, elements, number));
  }
}

/// More tensors than one kernel takes, of all sizes.
template <class T>
void check_list(const GpuAccess& access, const kernel::UpdateStep& rule, std::size_t offset) {
  std::mt19937_64 random(7);
  std::vector<Model<T>> models;
  std::vector<ModelOnGpu<T>> on_gpu;
  std::vector<TensorUpdate> list;
  for (std::size_t tensor = 0; tensor < 70; ++tensor) {
    const std::size_t elements = tensor == 3 ? 20'000 : tensor * tensor % 900;
    models.emplace_back(elements, 1, random);
    const auto& placed = on_gpu.emplace_back(access, models.back(), Range{0, elements}, offset);
    list.push_back({.gradient = placed.gradients.data(),
                    .parameters = placed.parameters.data(),
                    .first = has_first(rule) ? placed.first.data() : nullptr,
                    .second = has_second(rule) ? placed.second.data() : nullptr,
                    .master = is_half<T> ? placed.master.data() : nullptr,
                    .elements = elements});
  }
  for (int number = 0; number < 2; ++number) {
    for (std::size_t tensor = 0; tensor < models.size(); ++tensor) {
      models[tensor].draw(random);
      on_gpu[tensor].gradients.write(models[tensor].gradients[0]);
    }
    const auto step = step_of(rule, number);
    update_on_gpu(access.place, dtype_of<T>, step, 0.5, list);
    for (std::size_t tensor = 0; tensor < models.size(); ++tensor) {
      models[tensor].step(step, 0.5);
      on_gpu[tensor].require_same(models[tensor], rule,
                                  named("a tensor", dtype_of<T>, rule, list[tensor].elements, number));
    }
  }
}

template <class T>
void check_type(const Group& group, const GpuAccess& access) {
  for (const kernel::UpdateStep& rule : rules()) {
    for (const std::size_t offset : {0, 1}) {
      if (group.size() == 1) {
        check_list<T>(access, rule, offset);
        continue;
      }
      for (const std::size_t elements : {1, 130, 9001})
        check_together<T>(group, access, rule, elements, offset);
    }
  }
}

}  // namespace

void check_updates(const Group& group, const GpuAccess& access) {
  check_type<float>(group, access);
  check_type<double>(group, access);
  check_type<float16>(group, access);
  check_type<bfloat16>(group, access);
}

}  // namespace lockstep::testing
