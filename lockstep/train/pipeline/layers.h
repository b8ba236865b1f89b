// A model as a list of layers that are not there yet: factories, of which each rank of a pipeline calls those of its own
// stages.
#pragma once

#include <torch/torch.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/train/tensor/output_tensors.h"

namespace lockstep {

/// A layer that a rank has built.
struct BuiltLayer {
  std::shared_ptr<torch::nn::Module> module;  ///< null: a function without parameters
  std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> forward;
};

/// Two parameters that are one: "embed.weight" and "head.weight".
struct TiedParameters {
  std::string first, second;
};

/// What goes from layer to layer is a tensor, or several: a layer that returns a tuple or a vector of them gives the next
/// one as many arguments, so that skip connections are tuples. A layer takes one to four tensors, or a vector of any number.
class Layers {
 public:
  struct Layer {
    std::string name;
    std::function<BuiltLayer()> build;
  };

  /// A module, made by the ranks whose stage it is in: `add<torch::nn::Linear>(64, 512)`. Its name in files is its number, as
  /// in a Sequential.
  template <class Holder, class... Arguments>
  Layers& add(const Arguments&... arguments) {
    return add_named<Holder>(next_name(), arguments...);
  }
  template <class Holder, class... Arguments>
  Layers& add_named(const std::string& name, const Arguments&... arguments) {
    return put(name, [arguments...] { return built(Holder(arguments...)); });
  }
  /// A function of tensors, such as torch::relu, or a factory that returns a module holder or a pointer.
  template <class Callable>
  requires(!std::same_as<std::decay_t<Callable>, std::string>) Layers& add(const Callable& callable) {
    return add_named(next_name(), callable);
  }
  template <class Callable>
  Layers& add_named(const std::string& name, const Callable& callable) {
    if constexpr (std::invocable<const Callable&>) {
      return put(name, [callable] { return built(callable()); });
    } else {
      return put(name, [callable] {
        return BuiltLayer{
            .module = nullptr, .forward = [callable](const std::vector<torch::Tensor>& inputs) {
              return call([&](auto&&... each) -> decltype(callable(each...)) { return callable(each...); },
                          inputs);
            }};
      });
    }
  }
  /// torch::relu and its like are overloaded or have defaults; this takes the form of one tensor.
  Layers& add(torch::Tensor (*function)(const torch::Tensor&)) {
    return add([function](const torch::Tensor& x) { return function(x); });
  }

  /// Makes two parameters of different layers one, under both names: they begin with the first one's values, and get the sum of
  /// both gradients. Throws Error{invalid_argument} by the pipeline, where there is none of that name, or shapes differ.
  Layers& tie(const std::string& first, const std::string& second) {
    tied_.push_back({first, second});
    return *this;
  }

  std::size_t size() const { return layers_.size(); }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<TiedParameters>& tied() const { return tied_; }

 private:
  std::string next_name() const { return std::to_string(layers_.size()); }
  Layers& put(const std::string& name, std::function<BuiltLayer()> build);

  template <class Made>
  static BuiltLayer built(const Made& made) {
    const auto module = pointer_to(made);
    return {
        .module = module, .forward = [module](const std::vector<torch::Tensor>& inputs) {
          return call(
              [&](auto&&... each) -> decltype(module->forward(each...)) { return module->forward(each...); },
              inputs);
        }};
  }
  template <class Module>
  static std::shared_ptr<Module> pointer_to(const torch::nn::ModuleHolder<Module>& holder) {
    return holder.ptr();
  }
  template <class Module>
  static std::shared_ptr<Module> pointer_to(const std::shared_ptr<Module>& pointer) {
    return pointer;
  }

  [[noreturn]] static void refuse_count(std::size_t count);

  /// `function` of as many tensors as there are.
  template <class Function>
  static std::vector<torch::Tensor> call(const Function& function, const std::vector<torch::Tensor>& inputs) {
    using Tensor = torch::Tensor;
    const auto& in = inputs;
    if constexpr (std::invocable<const Function&, const Tensor&>) {
      if (in.size() == 1) return tensors_in(function(in[0]));
    }
    if constexpr (std::invocable<const Function&, const Tensor&, const Tensor&>) {
      if (in.size() == 2) return tensors_in(function(in[0], in[1]));
    }
    if constexpr (std::invocable<const Function&, const Tensor&, const Tensor&, const Tensor&>) {
      if (in.size() == 3) return tensors_in(function(in[0], in[1], in[2]));
    }
    if constexpr (std::invocable<const Function&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&>) {
      if (in.size() == 4) return tensors_in(function(in[0], in[1], in[2], in[3]));
    }
    if constexpr (std::invocable<const Function&, const std::vector<Tensor>&>)
      return tensors_in(function(in));
    refuse_count(in.size());
  }
  template <class Output>
  static std::vector<torch::Tensor> tensors_in(const Output& output) {
    std::vector<torch::Tensor> tensors;
    for_each_tensor(output, [&](const torch::Tensor& tensor) { tensors.push_back(tensor); });
    return tensors;
  }

  std::vector<Layer> layers_;
  std::vector<TiedParameters> tied_;
};

}  // namespace lockstep
