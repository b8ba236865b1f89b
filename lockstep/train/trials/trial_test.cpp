#include "lockstep/train/trials/trial_test.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <memory>
#include <sstream>
#include <type_traits>

#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/data_parallel/hooks/power_sgd.h"
#include "lockstep/train/horovod/distributed_optimizer.h"
#include "lockstep/train/horovod/gradient_tape.h"
#include "lockstep/train/replicas/broadcast_state.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t batch = 24, batches = 5, steps = 100;

torch::nn::Sequential make_net(const Trial& trial, std::uint64_t seed) {
  using torch::nn::Linear;
  torch::nn::Sequential net(Linear(8, 32), torch::nn::Tanh(), Linear(32, 32), torch::nn::Tanh(),
                            Linear(32, 3));
  net->to(trial.type);
  const torch::NoGradGuard no_grad;
  const auto random = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& p : net->parameters()) p.copy_(torch::randn(p.sizes(), random, torch::kFloat64) * 0.2);
  return net;
}

struct Data {
  explicit Data(const Trial& trial) {
    const auto random = at::make_generator<at::CPUGeneratorImpl>(99);
    inputs = torch::randn({batches, batch, 8}, random, torch::kFloat64).to(trial.type);
    const auto teacher = torch::randn({8, 3}, random, torch::kFloat64).to(trial.type);
    targets = torch::tanh(torch::matmul(inputs, teacher));
  }
  torch::Tensor inputs, targets;
};

/// make(std::type_identity<libtorch's optimizer>, its options)
template <class Make>
std::unique_ptr<torch::optim::Optimizer> by_rule(Rule rule, Make&& make) {
  using namespace torch::optim;
  if (rule == Rule::adam) return make(std::type_identity<Adam>(), AdamOptions(0.003));
  if (rule == Rule::adamw) return make(std::type_identity<AdamW>(), AdamWOptions(0.003));
  const auto options = SGDOptions(0.05).momentum(0.9).weight_decay(1e-3);
  return make(std::type_identity<SGD>(), SGDOptions(options).nesterov(rule == Rule::nesterov));
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Trial& trial, torch::nn::Sequential& net) {
  return by_rule(trial.rule, [&](auto kind, const auto& options) {
    return std::make_unique<typename decltype(kind)::type>(net->parameters(), options);
  });
}

std::unique_ptr<torch::optim::Optimizer> make_sharded(const Trial& trial, torch::nn::Sequential& net,
                                                      const Group& group) {
  return by_rule(trial.rule, [&](auto kind, const auto& options) {
    return std::make_unique<ShardedOptimizer<typename decltype(kind)::type>>(
        *net, group, options, ShardedOptions{.max_gradient_norm = trial.max_norm});
  });
}

/// 100 steps on part `part` of `parts` of each batch; `backward` gets inputs and targets.
template <class Optimizer, class Backward>
void train(Optimizer& optimizer, Backward&& backward, const Trial& trial, std::int64_t part,
           std::int64_t parts) {
  const Data data(trial);
  const std::int64_t size = batch / parts;
  for (std::int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad(trial.set_to_none);
    backward(data.inputs[step % batches].narrow(0, part * size, size),
             data.targets[step % batches].narrow(0, part * size, size));
    optimizer.step();
  }
}

double loss_of(torch::nn::Sequential& net, const Trial& trial) {
  const torch::NoGradGuard no_grad;
  const Data data(trial);
  return torch::mse_loss(net->forward(data.inputs), data.targets).item<double>();
}

torch::Tensor flat(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const auto& p : net->parameters()) parts.push_back(p.detach().flatten());
  return torch::cat(parts);
}

/// Gradients are added up, and not divided.
struct SumHook : CommunicationHook {
  std::string name() const override { return "sum"; }
  Work begin(const GradientBucket& bucket) override { return all_reduce(bucket.group, bucket.flat); }
};

/// One bucket stays this rank's own.
struct ForgetfulHook : CommunicationHook {
  std::string name() const override { return "forgetful"; }
  Work begin(const GradientBucket& bucket) override {
    return bucket.number == 1 ? Work() : bucket.average(bucket.flat);
  }
};

DataParallelOptions options_for(const Trial& trial) {
  DataParallelOptions options{.first_bucket_bytes = 256, .bucket_cap_bytes = 2048};  // several buckets
  const Sabotage sabotage = trial.sabotage;
  // Gradients in a shared heap are not copied, neither rightly nor wrongly.
  options.shared_heap = trial.shared_heap && sabotage != Sabotage::doubled_gradients;
  options.compare_parameters = sabotage == Sabotage::none;  // the trial has to notice by itself
  if (sabotage == Sabotage::sum) options.communication_hook = std::make_shared<SumHook>();
  if (sabotage == Sabotage::one_bucket_left_out)
    options.communication_hook = std::make_shared<ForgetfulHook>();
  options.find_unused_parameters = trial.way == Way::find_unused;
  options.static_graph = trial.way == Way::static_graph;
  if (trial.way == Way::skip_non_finite) options.non_finite = NonFinite::skip;
  if (trial.way == Way::all_reduce_hook) options.communication_hook = std::make_shared<AllReduceHook>();
  if (trial.way == Way::fp16_hook) options.communication_hook = std::make_shared<HalfHook>(torch::kHalf);
  if (trial.way == Way::bf16_hook) options.communication_hook = std::make_shared<HalfHook>(torch::kBFloat16);
  if (trial.way == Way::power_sgd || trial.way == Way::thin_power_sgd) {
    options.communication_hook = std::make_shared<PowerSgdHook>(PowerSgdOptions{
        .rank = trial.way == Way::power_sgd ? 32 : 2, .start_after = 2, .least_compression = 0.01});
  }
  return options;
}

/// Copies a new gradient over the one that is there, as a leaf hook must not: autograd adds the new one to it
/// then, so that the old one is lost and the new one counts twice.
void copy_over_gradients(torch::nn::Sequential& net) {
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    net->parameters()[i].register_hook([&net, i](const torch::Tensor& gradient) {
      const torch::NoGradGuard no_grad;
      if (auto there = net->parameters()[i].grad(); there.defined()) there.copy_(gradient);
      return gradient;
    });
  }
}

/// As if no rank had got rank 0's parameters when the model was wrapped.
void take_back(const torch::Tensor& before, torch::nn::Sequential& net) {
  const torch::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(before.narrow(0, begin, parameter.numel()).view_as(parameter));
    begin += parameter.numel();
  }
}

void train_together(const Group& group, torch::nn::Sequential& net, const Trial& trial) {
  const torch::Tensor before = flat(net).clone();
  if (trial.sabotage == Sabotage::doubled_gradients) copy_over_gradients(net);
  DistributedDataParallel ddp(net, group, options_for(trial));
  if (trial.sabotage == Sabotage::no_broadcast) take_back(before, net);
  const auto backward = [&](const torch::Tensor& x, const torch::Tensor& y) {
    if (trial.way == Way::no_sync) {
      const auto inputs = x.tensor_split(2), targets = y.tensor_split(2);
      {
        const auto alone = ddp.no_sync();
        (torch::mse_loss(ddp(inputs[0]), targets[0]) / 2).backward();
      }
      (torch::mse_loss(ddp(inputs[1]), targets[1]) / 2).backward();
      return;
    }
    torch::mse_loss(ddp(x), y).backward();
    if (trial.max_norm > 0) torch::nn::utils::clip_grad_norm_(net->parameters(), trial.max_norm);
  };
  const std::int64_t shard = trial.sabotage == Sabotage::same_shard && group.rank() == 1 ? 0 : group.rank();
  const auto run = [&] { train(*make_optimizer(trial, net), backward, trial, shard, group.size()); };
  if (trial.way == Way::join)
    ddp.join(run);
  else
    run();
}

DistributedOptimizerOptions optimizer_options_for(const Trial& trial) {
  DistributedOptimizerOptions options{.shared_heap = trial.shared_heap};
  if (trial.way == Way::optimizer_in_two_passes) options.backward_passes_per_step = 2;
  if (trial.way == Way::optimizer_groups) options.groups = 3;
  if (trial.way == Way::optimizer_predivided) options.gradient_predivide_factor = 3;
  if (trial.way == Way::optimizer_fp16) options.compression = Compression::fp16;
  if (trial.way == Way::optimizer_bf16) options.compression = Compression::bf16;
  return options;
}

void train_with_optimizer(const Group& group, torch::nn::Sequential& net, const Trial& trial) {
  broadcast_parameters(group, net);
  const auto inner = make_optimizer(trial, net);
  DistributedOptimizer optimizer(*inner, *net, group, optimizer_options_for(trial));
  const auto backward = [&](const torch::Tensor& x, const torch::Tensor& y) {
    if (trial.way != Way::optimizer_in_two_passes) return torch::mse_loss(net->forward(x), y).backward();
    const auto inputs = x.tensor_split(2), targets = y.tensor_split(2);
    for (const std::size_t half : {0UL, 1UL})
      (torch::mse_loss(net->forward(inputs[half]), targets[half]) / 2).backward();
  };
  train(optimizer, backward, trial, group.rank(), group.size());
}

void train_with_tape(const Group& group, torch::nn::Sequential& net, const Trial& trial) {
  DistributedGradientTapeOptions options;
  if (trial.way == Way::tape_fp16) options.compression = Compression::fp16;
  if (trial.way == Way::tape_bf16) options.compression = Compression::bf16;
  DistributedGradientTape tape(group, options);
  const auto optimizer = make_optimizer(trial, net);
  bool is_first = true;
  const auto backward = [&](const torch::Tensor& x, const torch::Tensor& y) {
    // As Horovod's examples: after the first step, when the optimizer has its state.
    if (is_first) broadcast_parameters(group, net);
    is_first = false;
    const auto gradients = tape.gradient(torch::mse_loss(net->forward(x), y), net->parameters());
    for (std::size_t i = 0; i < gradients.size(); ++i) net->parameters()[i].mutable_grad() = gradients[i];
  };
  train(*optimizer, backward, trial, group.rank(), group.size());
}

bool same_on_all_ranks(const Group& group, const torch::Tensor& mine) {
  const auto all = torch::empty({group.size(), mine.numel()}, mine.options());
  const std::span in(static_cast<const std::byte*>(mine.const_data_ptr()), mine.nbytes());
  const std::span out(static_cast<std::byte*>(all.mutable_data_ptr()), all.nbytes());
  all_gather_bytes(group, in, out).wait();
  for (std::int64_t rank = 1; rank < group.size(); ++rank) {
    if (!torch::equal(all[0], all[rank])) return false;
  }
  return true;
}

}  // namespace

std::string to_string(const Trial& trial) {
  constexpr std::array rules = {"SGD", "Nesterov", "Adam", "AdamW"};
  constexpr std::array ways = {"",
                               "find_unused",
                               "static_graph",
                               "no_sync",
                               "join",
                               "skip",
                               "all_reduce hook",
                               "fp16 hook",
                               "bf16 hook",
                               "PowerSGD",
                               "thin PowerSGD",
                               "optimizer",
                               "optimizer in two passes",
                               "optimizer in groups",
                               "optimizer predivided",
                               "optimizer fp16",
                               "optimizer bf16",
                               "tape",
                               "tape fp16",
                               "tape bf16"};
  std::ostringstream out;
  out << (trial.sharded ? "sharded " : "") << (trial.shared_heap ? "" : "without heap ")
      << rules.at(static_cast<std::size_t>(trial.rule)) << " " << trial.type << " "
      << ways.at(static_cast<std::size_t>(trial.way)) << (trial.max_norm > 0 ? " clipped" : "");
  return out.str();
}

double Outcome::bound(const Trial& trial) {
  switch (trial.way) {
    case Way::optimizer_fp16:
    case Way::tape_fp16:
    case Way::fp16_hook: return 1e-3;  // of 11 bits, 100 steps' roundings of either sign
    case Way::optimizer_bf16:
    case Way::tape_bf16:
    case Way::bf16_hook: return 1e-2;
    case Way::power_sgd: return trial.type == torch::kFloat64 ? 1e-6 : 1e-3;
    case Way::thin_power_sgd: return 0.2;
    default: return trial.type == torch::kFloat64 ? 1e-9 : 1e-4;
  }
}

std::string Outcome::text() const {
  std::ostringstream out;
  out << "loss x " << loss_ratio << ", relative error " << relative_error << (identical ? ", " : ", not ")
      << "the same on all ranks";
  return out.str();
}

Outcome compare_with_one_process(const Group& group, const Trial& trial) {
  auto net = make_net(trial, static_cast<std::uint64_t>(group.rank()));
  auto alone = make_net(trial, 0);
  Outcome outcome;
  const double loss_before = loss_of(alone, trial);
  const auto backward_of = [](torch::nn::Sequential& model) {
    return [&model](const torch::Tensor& x, const torch::Tensor& y) {
      torch::mse_loss(model->forward(x), y).backward();
    };
  };
  if (trial.sharded)
    train(*make_sharded(trial, net, group), backward_of(net), trial, group.rank(), group.size());
  else if (trial.way >= Way::tape)
    train_with_tape(group, net, trial);
  else if (trial.way >= Way::optimizer)
    train_with_optimizer(group, net, trial);
  else
    train_together(group, net, trial);
  const auto backward_and_clip = [&](const torch::Tensor& x, const torch::Tensor& y) {
    backward_of(alone)(x, y);
    if (trial.max_norm > 0) torch::nn::utils::clip_grad_norm_(alone->parameters(), trial.max_norm);
  };
  train(*make_optimizer(trial, alone), backward_and_clip, trial, 0, 1);
  outcome.loss_ratio = loss_of(net, trial) / loss_before;
  const auto expected = flat(alone).to(torch::kFloat64), found = flat(net).to(torch::kFloat64);
  outcome.relative_error = ((found - expected).norm() / expected.norm()).item<double>();
  outcome.identical = same_on_all_ranks(group, flat(net));
  return outcome;
}

}  // namespace lockstep::test
