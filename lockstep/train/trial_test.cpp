#include "lockstep/train/trial_test.h"

#include <ATen/CPUGeneratorImpl.h>

#include <memory>

#include "lockstep/group/collectives.h"
#include "lockstep/train/data_parallel.h"
#include "lockstep/train/sharded_optimizer.h"
#include "lockstep/train/tensor_collectives.h"

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

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Trial& trial, torch::nn::Sequential& net) {
  if (trial.adam) return std::make_unique<torch::optim::Adam>(net->parameters(), 0.003);
  return std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

std::unique_ptr<torch::optim::Optimizer> make_sharded(const Trial& trial, torch::nn::Sequential& net,
                                                      const Group& group) {
  if (trial.adam) {
    return std::make_unique<ShardedOptimizer<torch::optim::Adam>>(*net, group,
                                                                  torch::optim::AdamOptions(0.003));
  }
  return std::make_unique<ShardedOptimizer<torch::optim::SGD>>(*net, group,
                                                               torch::optim::SGDOptions(0.05).momentum(0.9));
}

/// 100 steps on part `part` of `parts` of each batch.
template <class Forward>
void train(torch::optim::Optimizer& optimizer, Forward&& forward, const Trial& trial, std::int64_t part,
           std::int64_t parts) {
  const Data data(trial);
  const std::int64_t size = batch / parts;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto x = data.inputs[step % batches].narrow(0, part * size, size);
    const auto y = data.targets[step % batches].narrow(0, part * size, size);
    optimizer.zero_grad(trial.set_to_none);
    torch::mse_loss(forward(x), y).backward();
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
    return bucket.number == 1 ? Work() : average(bucket, bucket.flat);
  }
};

DataParallelOptions options_for(const Trial& trial) {
  DataParallelOptions options{.first_bucket_bytes = 256, .bucket_cap_bytes = 2048};  // several buckets
  const Sabotage sabotage = trial.sabotage;
  // Gradients in a shared heap are not copied, neither rightly nor wrongly.
  options.shared_heap = trial.shared_heap && sabotage != Sabotage::doubled_gradients;
  if (sabotage == Sabotage::sum) options.communication_hook = std::make_shared<SumHook>();
  if (sabotage == Sabotage::one_bucket_left_out)
    options.communication_hook = std::make_shared<ForgetfulHook>();
  return options;
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
  const auto plain_forward = [](torch::nn::Sequential& model) {
    return [&model](const torch::Tensor& x) { return model->forward(x); };
  };
  if (trial.sharded) {
    train(*make_sharded(trial, net, group), plain_forward(net), trial, group.rank(), group.size());
  } else {
    DistributedDataParallel ddp(net, group, options_for(trial),
                                {.broadcast = trial.sabotage != Sabotage::no_broadcast,
                                 .copy_over_gradients = trial.sabotage == Sabotage::doubled_gradients});
    const std::int64_t shard = trial.sabotage == Sabotage::same_shard && group.rank() == 1 ? 0 : group.rank();
    train(*make_optimizer(trial, net), ddp, trial, shard, group.size());
  }
  train(*make_optimizer(trial, alone), plain_forward(alone), trial, 0, 1);
  outcome.loss_ratio = loss_of(net, trial) / loss_before;
  const auto expected = flat(alone).to(torch::kFloat64), found = flat(net).to(torch::kFloat64);
  outcome.relative_error = ((found - expected).norm() / expected.norm()).item<double>();
  outcome.identical = same_on_all_ranks(group, flat(net));
  return outcome;
}

}  // namespace lockstep::test
