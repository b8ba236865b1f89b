// The ways to train that are compared, each behind the same step(): with a wrapper or an optimizer of
// Lockstep's, or unconnected, as the same program without any.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/lockstep.h"
#include "lockstep/train.h"
#include "training/models.h"

namespace bench {

struct Options {
  std::string model = "mlp";
  std::string mode = "ddp";
  std::string optimizer = "sgd";
  std::string device = "cpu";
  int steps = 40;
  int warm_up = 10;
  bool watch_memory = false;
  bool check = false;              ///< compare with one process that has the whole batch
  bool without_averaging = false;  ///< for the test that such a row is refused
};

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;

inline torch::optim::SGDOptions sgd_options() { return torch::optim::SGDOptions(0.001).momentum(0.9); }
inline torch::optim::AdamWOptions adamw_options() { return torch::optim::AdamWOptions(0.0001); }

template <class Plain>
using Itself = Plain;

/// The user's optimizer; Form is what Lockstep makes of it.
template <template <class> class Form = Itself>
Optimizer make_optimizer(const Options& options, const torch::nn::Sequential& net) {
  if (options.optimizer == "adamw")
    return std::make_unique<Form<torch::optim::AdamW>>(net->parameters(), adamw_options());
  return std::make_unique<Form<torch::optim::SGD>>(net->parameters(), sgd_options());
}

inline Optimizer make_sharded(const Options& options, const torch::nn::Sequential& net,
                              const lockstep::Group& world) {
  using lockstep::ShardedOptimizer;
  if (options.optimizer == "adamw")
    return std::make_unique<ShardedOptimizer<torch::optim::AdamW>>(*net, world, adamw_options());
  return std::make_unique<ShardedOptimizer<torch::optim::SGD>>(*net, world, sgd_options());
}

/// Every gradient under a name of its own, as Horovod has them; each is submitted when backward is over.
inline void average_by_name(const lockstep::NamedCollectives& named,
                            const std::vector<torch::Tensor>& parameters) {
  std::vector<lockstep::Work> works;
  for (const auto& parameter : parameters) {
    const auto gradient = parameter.grad();
    const auto name = "gradient " + std::to_string(works.size());
    works.push_back(named.all_reduce(
        name, std::span(gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())),
        lockstep::ReduceOp::average));
  }
  lockstep::Work::all(std::move(works)).wait();
}

class Way {
 public:
  Way(const Options& options, const lockstep::Group& world, torch::Device device)
      : heap_(heap_for(options.mode, world)), net_(model_named(options.model).net) {
    net_->to(device);
    parameters_ = net_->parameters();
    if (options.mode == "ddp") ddp_.emplace(net_, world);
    optimizer_ = optimizer_for(options, world);
    if (options.mode == "distributed_optimizer") distributed_.emplace(*optimizer_, *net_, world);
    if (options.mode == "named") named_.emplace(world);
    if (options.mode == "unconnected_in_step") meets_ = world;
    if (options.without_averaging) stay_apart();
  }

  void step(const Batch& batch) {
    optimizer_->zero_grad();
    const auto output = ddp_ ? (*ddp_)(batch.input) : net_->forward(batch.input);
    torch::nn::functional::cross_entropy(output, batch.target).backward();
    if (named_) average_by_name(*named_, parameters_);
    if (meets_) barrier(*meets_).wait();
    if (distributed_) {
      distributed_->step();
    } else {
      optimizer_->step();
    }
  }

  const torch::nn::Sequential& net() const { return net_; }
  const std::optional<lockstep::NamedCollectives>& named() const { return named_; }

 private:
  static std::unique_ptr<lockstep::SharedHeap> heap_for(const std::string& mode,
                                                        const lockstep::Group& world) {
    const bool opened = mode == "unconnected_heap" || mode == "unconnected_in_step" ||
                        mode == "unconnected_tuned" || mode == "sharded";
    return opened ? std::make_unique<lockstep::SharedHeap>(world) : nullptr;
  }

  Optimizer optimizer_for(const Options& options, const lockstep::Group& world) const {
    if (options.mode == "sharded") return make_sharded(options, net_, world);
    if (options.mode == "unconnected_tuned") return make_optimizer<lockstep::FusedOptimizer>(options, net_);
    return make_optimizer(options, net_);
  }

  void stay_apart() {
    if (!ddp_) throw std::invalid_argument("--without-averaging is for --mode ddp");
    apart_ = ddp_->no_sync();
  }

  std::unique_ptr<lockstep::SharedHeap> heap_;  // first: what follows is allocated in it
  torch::nn::Sequential net_;
  std::vector<torch::Tensor> parameters_;
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp_;
  Optimizer optimizer_;
  std::optional<lockstep::DistributedOptimizer> distributed_;
  std::optional<lockstep::NamedCollectives> named_;
  std::optional<lockstep::Group> meets_;
  std::shared_ptr<void> apart_;
};

}  // namespace bench
