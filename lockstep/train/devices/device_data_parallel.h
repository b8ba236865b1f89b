// Trains one model on several devices of one process: each has a replica, which computes its share of every batch. As
// TensorFlow's MirroredStrategy and CentralStorageStrategy have it.
#pragma once

#include <torch/torch.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/train/devices/devices.h"
#include "lockstep/train/devices/replicated_module.h"
#include "lockstep/train/tensor/output_tensors.h"
#include "lockstep/train/tensor/random_numbers.h"

namespace lockstep {

/// What a function returned on each replica, and how many samples each had.
template <class Value>
struct PerReplica {
  std::vector<Value> values;
  std::vector<std::int64_t> samples;

  /// The mean over all samples, where each value is the mean over its replica's. Of tensors or numbers.
  auto mean() const {
    std::int64_t all = 0;
    for (const std::int64_t each : samples) all += each;
    auto sum = values[0] * (static_cast<double>(samples[0]) / static_cast<double>(all));
    for (std::size_t i = 1; i < values.size(); ++i)
      sum = sum + beside_first(i) * (static_cast<double>(samples[i]) / static_cast<double>(all));
    return sum;
  }
  /// Of values that are sums or counts.
  Value sum() const {
    Value all = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) all = all + beside_first(i);
    return all;
  }

 private:
  /// Tensors may be on their replicas' GPUs.
  Value beside_first(std::size_t i) const {
    if constexpr (std::derived_from<Value, torch::Tensor>) {
      return values[i].to(values[0].device());
    } else {
      return values[i];
    }
  }
};

/// A batch of a data loader: its data and its target are dealt out.
template <class T>
concept BatchOfExamples = requires(const T& batch) {
  { batch.data } -> std::convertible_to<torch::Tensor>;
  { batch.target } -> std::convertible_to<torch::Tensor>;
};

/// The module that DataParallel holds.
template <class Model>
class ReplicatedImpl : public ReplicatedModule {
 public:
  ReplicatedImpl(std::shared_ptr<Model> model, std::vector<std::shared_ptr<Model>> replicas,
                 std::vector<torch::Device> devices, const ReplicaOptions& options)
      : ReplicatedModule(model, Modules(replicas.begin(), replicas.end()), std::move(devices), options),
        model_(std::move(model)),
        replicas_(std::move(replicas)) {}

  /// The model itself, whose parameters an optimizer updates.
  const std::shared_ptr<Model>& model() const { return model_; }

  /// The model's forward of each part of the batch, each on its device's thread; the outputs in the order of the samples.
  template <class... Inputs>
  auto forward(const Inputs&... inputs) {
    using Output = std::decay_t<decltype(model_->forward(inputs...))>;
    Pass pass = begin(samples_of(inputs...));
    const auto parts = std::make_tuple(parts_of(pass, inputs)...);
    std::vector<std::optional<Output>> outputs(pass.samples.size());
    std::vector<Tensors> tensors(pass.samples.size());
    each(pass, [&](std::size_t slot) {
      outputs[slot].emplace(
          call(parts, slot, [&](const auto&... part) { return replicas_[slot]->forward(part...); }));
      for_each_tensor(*outputs[slot], [&](const torch::Tensor& tensor) { tensors[slot].push_back(tensor); });
    });
    const Tensors whole = join(std::move(pass), std::move(tensors));
    std::size_t next = 0;
    Output output = std::move(*outputs[0]);
    for_each_tensor(output, [&](torch::Tensor& tensor) { tensor = whole[next++]; });
    return output;
  }

  /// `step(replica, parts...)` on each replica's thread. What its backwards leave in the replica's grad() is added to the
  /// model's, weighted by samples: a loss that is a mean over the part gives the gradient of the mean over the batch.
  template <class Step, class... Inputs>
  auto run(const Step& step, const Inputs&... inputs) {
    using Value = std::decay_t<decltype(step(*model_, inputs...))>;
    Pass pass = begin(samples_of(inputs...));
    const auto parts = std::make_tuple(parts_of(pass, inputs)...);
    const auto on = [&](std::size_t slot) {
      return call(parts, slot, [&](const auto&... part) { return step(*replicas_[slot], part...); });
    };
    if constexpr (std::is_void_v<Value>) {
      run_and_gather(pass, on);
    } else {
      std::vector<std::optional<Value>> values(pass.samples.size());
      run_and_gather(pass, [&](std::size_t slot) { values[slot].emplace(on(slot)); });
      PerReplica<Value> result{.values = {}, .samples = pass.samples};
      for (auto& value : values) result.values.push_back(std::move(*value));
      return result;
    }
  }

 private:
  template <class Work>
  void run_and_gather(const Pass& pass, const Work& work) {
    try {
      each(pass, work);
    } catch (...) {
      drop_gradients();
      throw;
    }
    gather_gradients(pass);
  }

  /// Tensors are dealt out; everything else goes to all replicas as it is.
  template <class Input>
  auto parts_of(Pass& pass, const Input& input) const {
    if constexpr (std::derived_from<Input, torch::Tensor>) {
      return split(pass, input);
    } else if constexpr (BatchOfExamples<Input>) {
      const Tensors data = split(pass, input.data), target = split(pass, input.target);
      std::vector<Input> batches(data.size());
      for (std::size_t i = 0; i < data.size(); ++i) batches[i] = {data[i], target[i]};
      return batches;
    } else {
      return &input;
    }
  }

  template <class Parts, class Work>
  static decltype(auto) call(const Parts& parts, std::size_t slot, const Work& work) {
    const auto part_of = [&](const auto& each) -> const auto& {
      if constexpr (std::is_pointer_v<std::decay_t<decltype(each)>>) {
        return *each;
      } else {
        return each[slot];
      }
    };
    return std::apply([&](const auto&... all) { return work(part_of(all)...); }, parts);
  }

  template <class First, class... Rest>
  static std::int64_t samples_of(const First& first, const Rest&... rest) {
    if constexpr (std::derived_from<First, torch::Tensor>) {
      return first.dim() == 0 ? 0 : first.size(0);
    } else if constexpr (BatchOfExamples<First>) {
      return samples_of(first.data);
    } else if constexpr (sizeof...(rest) > 0) {
      return samples_of(rest...);
    } else {
      static_assert(BatchOfExamples<First>,
                    "some input is to be a tensor or a batch, whose samples are dealt out");
    }
  }

  std::shared_ptr<Model> model_;
  std::vector<std::shared_ptr<Model>> replicas_;
};

/// The module behind what a factory makes: a module holder or a shared pointer.
template <class Module>
std::shared_ptr<Module> made_module(const torch::nn::ModuleHolder<Module>& made) {
  return made.ptr();
}
template <class Module>
std::shared_ptr<Module> made_module(const std::shared_ptr<Module>& made) {
  return made;
}
template <class Factory>
using ModuleMadeBy = typename decltype(made_module(std::declval<const Factory&>()()))::element_type;

/// One model on several devices, used in place of it: `net(batch)` is the output of the whole batch, so the loss sees all
/// of it, and the gradient is that of one device, also of parts of different sizes. A module holder:
/// `DistributedDataParallel ddp(net, world)` trains on several devices of each rank; files have the model's own names.
///
/// - The factory is called once for the model and once for each device; the model's values are everybody's. The random
///   numbers it draws on the CPU are drawn once.
/// - Buffers (batch norm's running statistics) are those of the first replica, whose part of the batch they have seen.
/// - Random numbers in a forward (dropout) come from one generator in the order in which replicas ask; on GPUs from each one's own,
///   which torch::manual_seed() seeds alike.
/// - An exception in a replica is thrown when all have returned; gradients are as they were.
/// - Gradients of gradients are unsupported.
/// - Devices are slots of the CPU, or GPUs, each once. All tensors of the inputs go to them in parts, in the caller's
///   streams; outputs are on the first one, and gradients where the model's parameters are. Mirrored variables' model is kept on the
///   first GPU, also where it was loaded or moved elsewhere.
///
/// Thread safety: one call at a time. Cost: two meetings of the replicas' threads for each step, a sum of gradients, and
/// with mirrored variables, or on GPUs, a copy. Processes (`lockstep run`) are quicker: they share no allocator and no locks.
template <class Model>
class DataParallel : public torch::nn::ModuleHolder<ReplicatedImpl<Model>> {
 public:
  /// `factory()` makes a module, its holder or a pointer to it. Throws Error: invalid_argument if there are no devices, a GPU is
  /// named twice or beside slots of the CPU, or models differ; unsupported where libtorch has no such devices.
  template <class Factory>
  DataParallel(const Factory& factory, const std::vector<torch::Device>& devices,
               const ReplicaOptions& options = {})
      : torch::nn::ModuleHolder<ReplicatedImpl<Model>>(make(factory, devices, options)) {}

  /// The model's forward of the whole batch: inputs that are tensors (or batches) are dealt out by their first dimension,
  /// others are given to all.
  template <class... Inputs>
  auto operator()(const Inputs&... inputs) {
    return this->get()->forward(inputs...);
  }

  const std::shared_ptr<Model>& module() const { return this->get()->model(); }
  std::vector<torch::Tensor> parameters() const { return this->get()->parameters(); }
  auto named_parameters() const { return this->get()->named_parameters(); }
  std::vector<torch::Tensor> buffers() const { return this->get()->buffers(); }
  void train(bool on = true) { this->get()->train(on); }
  void eval() { this->get()->eval(); }
  void zero_grad(bool set_to_none = true) { this->get()->zero_grad(set_to_none); }

  /// See ReplicatedImpl::run(): PerReplica of what `step(replica, parts...)` returns.
  template <class Step, class... Inputs>
  auto run(const Step& step, const Inputs&... inputs) {
    return this->get()->run(step, inputs...);
  }

 private:
  template <class Factory>
  static std::shared_ptr<ReplicatedImpl<Model>> make(const Factory& factory,
                                                     const std::vector<torch::Device>& devices,
                                                     const ReplicaOptions& options) {
    auto model = made_module(factory());
    const KeepsGenerator keeps;
    std::vector<std::shared_ptr<Model>> replicas;
    for (std::size_t i = 0; i < devices.size(); ++i) replicas.push_back(made_module(factory()));
    return std::make_shared<ReplicatedImpl<Model>>(std::move(model), std::move(replicas), devices, options);
  }
};

template <class Factory>
DataParallel(const Factory&, const std::vector<torch::Device>&) -> DataParallel<ModuleMadeBy<Factory>>;
template <class Factory>
DataParallel(const Factory&, const std::vector<torch::Device>&, const ReplicaOptions&)
    -> DataParallel<ModuleMadeBy<Factory>>;

}  // namespace lockstep
