// A rank of the tests in this folder: training_rank ACTION [ARGUMENT]
//
//   equivalence          trains beside one process, as in lockstep/train/trials/trial_test.h: "passed N trials"
//   sabotage             the same with each sabotage: "noticed N sabotages"
//   overlap              trains a network of 8 buckets; prints medians of what the record says of a step
//   save FILE VALUE [behind]     saves a model full of VALUE; "behind": by an AsyncCheckpoint
//   load FILE            prints the VALUE of that model
//   save-sharded, load-sharded   the same with a ShardedOptimizer whose state is full of VALUE, too
//   same FILE FILE       "same" if two checkpoints of examples/digits hold the same model, bit for bit
//   rewrite FILE OTHER [KEY]     reads a .pth file, or the dict under KEY in it, and writes it as OTHER
//   adopt FILE OTHER     loads a .pth file into the model of torch_files.py, and saves it as OTHER
//   soak FILE [sharded]  trains on, saving to FILE every few steps, until a soak hurts a rank
//   losses OPTIMIZER HOW the training of torch_losses.py: sgd|adamw, ddp|sharded; prints each step's loss
//   steps COUNT HOW      trains, ddp|sharded; prints the memory in use after each tenth of the steps, in KiB
//   return-in-training   rank 1 returns from main after three steps
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include "examples/digits/network.h"
#include "lockstep/train/trials/trial_test.h"
#include "tests/soak/victim.h"

namespace {

using lockstep::Group;
using lockstep::test::Rule;
using lockstep::test::Sabotage;
using lockstep::test::Trial;

int equivalence(const Group& world) {
  int passed = 0;
  for (const auto rule : {Rule::sgd, Rule::adam}) {
    for (const auto type : {torch::kFloat64, torch::kFloat32}) {
      for (const bool set_to_none : {true, false}) {
        for (const bool sharded : {false, true}) {
          const Trial trial{.rule = rule, .sharded = sharded, .type = type, .set_to_none = set_to_none};
          const auto outcome = compare_with_one_process(world, trial);
          if (outcome.passes(trial))
            ++passed;
          else
            std::cerr << to_string(trial) << ": " << outcome.text() << std::endl;
        }
      }
    }
  }
  std::cout << "passed " << passed << " trials" << std::endl;
  return 0;
}

int sabotage(const Group& world) {
  int noticed = 0;
  for (const auto sabotage : {Sabotage::sum, Sabotage::no_broadcast, Sabotage::same_shard,
                              Sabotage::one_bucket_left_out, Sabotage::doubled_gradients}) {
    const Trial trial{.set_to_none = false, .sabotage = sabotage};
    // Some are seen on all ranks, some only on those that went astray.
    const bool passes = compare_with_one_process(world, trial).passes(trial);
    if (lockstep::metric_average(world, passes ? 1 : 0, 1) < 1) ++noticed;
  }
  std::cout << "noticed " << noticed << " sabotages" << std::endl;
  return 0;
}

template <class Value>
Value median(std::vector<Value> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Eight equal layers, a bucket each.
int overlap(const Group& world) {
  torch::set_num_threads(1);
  torch::nn::Sequential net;
  for (int i = 0; i < 8; ++i)
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(512, 512).bias(false)));
  lockstep::DistributedDataParallel ddp(net, world, {.first_bucket_bytes = 1, .bucket_cap_bytes = 1});
  const auto input = torch::ones({64, 512});
  const auto position = world.recorder().steps();
  for (int step = 0; step < 50; ++step) {
    net->zero_grad(false);
    ddp(input).sum().backward();
    lockstep::barrier(world).wait();
  }
  std::vector<std::uint32_t> complete;
  std::vector<std::uint64_t> work, wait, length;
  for (const auto& step : world.recorder().steps_since(position)) {
    complete.push_back(step.buckets_complete_at_last_gradient);
    work.push_back(step.exposed_work_ns / 1000);
    wait.push_back(step.exposed_wait_ns / 1000);
    length.push_back((step.end_ns - step.begin_ns) / 1000);
  }
  std::cout << "steps " << complete.size() << " complete " << median(complete) << " step_us "
            << median(length) << " exposed_work_us " << median(work) << " exposed_wait_us " << median(wait)
            << std::endl;
  return 0;
}

torch::nn::Linear filled(double value) {
  torch::nn::Linear net(64, 64);
  const torch::NoGradGuard no_grad;
  for (auto& p : net->parameters()) p.fill_(value);
  return net;
}

int save(const Group& world, const std::string& file, double value, bool is_behind) {
  const auto net = filled(value);
  const lockstep::CheckpointInfo info = {.epoch = static_cast<std::uint64_t>(value)};
  lockstep::AsyncCheckpoint behind(world);
  if (is_behind)
    behind.save(file, net, info);
  else
    lockstep::save_checkpoint(file, world, net, info);
  behind.wait();
  return 0;
}

int load(const Group& world, const std::string& file) {
  auto net = filled(-1);
  const auto info = lockstep::load_checkpoint(file, world, net);
  const double value = net->bias[0].item<double>();
  for (const auto& p : net->parameters()) {
    if (!p.eq(value).all().item<bool>()) return 2;
  }
  std::cout << "value " << value << " epoch " << info.epoch << std::endl;
  return 0;
}

using ShardedSgd = lockstep::ShardedOptimizer<torch::optim::SGD>;

int save_sharded(const Group& world, const std::string& file, double value, bool is_behind) {
  const auto net = filled(value);
  ShardedSgd sgd(*net, world, torch::optim::SGDOptions(0).momentum(0.9));  // steps change its state alone
  for (auto& p : net->parameters()) p.mutable_grad() = torch::full_like(p.detach(), value);
  sgd.step();
  const lockstep::CheckpointInfo info = {.epoch = static_cast<std::uint64_t>(value)};
  lockstep::AsyncCheckpoint behind(world);
  if (is_behind)
    behind.save(file, net, sgd, info, {.sharded = true});
  else
    lockstep::save_checkpoint(file, world, net, sgd, info, {.sharded = true});
  behind.wait();
  return 0;
}

int load_sharded(const Group& world, const std::string& file) {
  auto net = filled(-1);
  ShardedSgd sgd(*net, world, torch::optim::SGDOptions(0));
  const auto info = lockstep::load_checkpoint(file, world, net, sgd);
  const double value = net->bias[0].item<double>();
  for (const auto& p : net->parameters()) {
    const auto& state =
        static_cast<const torch::optim::SGDParamState&>(*sgd.state().at(p.unsafeGetTensorImpl()));
    if (!p.eq(value).all().item<bool>() || !state.momentum_buffer().eq(value).all().item<bool>()) return 2;
  }
  std::cout << "value " << value << " epoch " << info.epoch << std::endl;
  return 0;
}

int same(const Group& world, const std::string& file, const std::string& other) {
  DigitsNet a, b;
  lockstep::load_checkpoint(file, world, a);
  lockstep::load_checkpoint(other, world, b);
  bool equal = true;
  for (std::size_t i = 0; i < a->parameters().size(); ++i)
    equal &= torch::equal(a->parameters()[i], b->parameters()[i]);
  std::cout << (equal ? "same" : "different") << std::endl;
  return 0;
}

int rewrite(const std::string& file, const std::string& other, const std::string& key) {
  lockstep::write_pth(other, lockstep::read_pth(file, key));
  return 0;
}

/// Modules whose state has no two names in another order than in Python.
int adopt(const Group& world, const std::string& file, const std::string& other) {
  namespace nn = torch::nn;
  nn::Sequential net(nn::Conv2d(1, 2, 3), nn::BatchNorm2d(2), nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2)),
                     nn::LayerNorm(nn::LayerNormOptions({4})), nn::Embedding(5, 4),
                     nn::MultiheadAttention(4, 2));
  lockstep::load_state_dict(file, world, net);
  lockstep::save_state_dict(other, world, net);
  return 0;
}

volatile std::sig_atomic_t told = 0;  // SIGUSR1: to throw, SIGUSR2: to have a gradient that is no number

bool may_be_saved(const torch::optim::Optimizer& optimizer) try {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  return true;
} catch (const lockstep::Error& error) {
  return error.code() != lockstep::ErrorCode::aborted;
}

/// Goes on from what an earlier one saved, with DistributedDataParallel or ShardedOptimizer.
int train_until_hurt(const Group& world, const std::string& file, bool is_sharded) {
  for (const int signal : {SIGUSR1, SIGUSR2}) (void)std::signal(signal, [](int number) { told = number; });
  torch::nn::Sequential net(torch::nn::Linear(64, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
                            torch::nn::ReLU(), torch::nn::Linear(512, 64));
  const auto options = torch::optim::SGDOptions(1e-3).momentum(0.9);
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp;
  std::unique_ptr<torch::optim::Optimizer> sgd;
  if (is_sharded) {
    sgd = std::make_unique<lockstep::ShardedOptimizer<torch::optim::SGD>>(
        *net, world, options, lockstep::ShardedOptions{.non_finite = lockstep::NonFinite::stop});
  } else {
    ddp.emplace(net, world,
                lockstep::DataParallelOptions{.first_bucket_bytes = 1 << 16,
                                              .bucket_cap_bytes = 1 << 19,
                                              .non_finite = lockstep::NonFinite::stop});
    sgd = std::make_unique<torch::optim::SGD>(net->parameters(), options);
  }
  lockstep::remove_checkpoint_leftovers(file, world);
  if (lockstep::metric_average(world, std::filesystem::exists(file) ? 1 : 0, 1) > 0)
    lockstep::load_checkpoint(file, world, net, *sgd);
  std::uint64_t steps = 0;
  const auto as_told = [](const torch::Tensor& gradient) {
    if (told == SIGUSR1) throw std::runtime_error("told to throw");
    return told == SIGUSR2 ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
  };
  const auto step = [&] {
    sgd->zero_grad();
    const auto input = torch::randn({16, 64});
    const auto output = ddp ? (*ddp)(input) : net->forward(input);
    output.register_hook(as_told);
    output.square().mean().backward();
    sgd->step();
    if (++steps % 5 == 0) lockstep::save_checkpoint(file, world, net, *sgd, {.epoch = steps});
  };
  lockstep::ArenaBuffer<float> fresh;
  std::vector<torch::Tensor> parameters;
  bool was_model = false;
  const auto take_memory = [&] {
    fresh = world.allocate<float>(1'000'000);
    std::fill(fresh.begin(), fresh.end(), 7.0F);
    // In this order: a model stays one, but a rank that was stopped in a step may end it meanwhile.
    was_model = may_be_saved(*sgd);
    for (const auto& p : net->parameters()) parameters.push_back(p.detach().clone());
  };
  const auto is_whole = [&] {
    bool whole = std::count(fresh.begin(), fresh.end(), 7.0F) == 1'000'000;
    if (!was_model) return whole;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      whole &= torch::equal(parameters[i], net->parameters()[i]);
    return whole;
  };
  return soak::loop_until_hurt(world, step, take_memory, is_whole);
}

torch::Tensor wave(std::int64_t count, double factor, double shift) {
  return torch::sin(torch::arange(count, torch::kFloat64) * factor + shift);
}

/// The training of torch_losses.py.
int losses(const Group& world, bool is_adamw, bool is_sharded) {
  constexpr std::int64_t steps = 50, batch = 16;
  constexpr std::array<std::int64_t, 4> sizes = {8, 32, 32, 4};
  torch::nn::Sequential net;
  for (std::size_t number = 0; number + 1 < sizes.size(); ++number) {
    torch::nn::Linear linear(sizes[number], sizes[number + 1]);
    const torch::NoGradGuard no_grad;
    const auto shift = static_cast<double>(number);
    linear->weight.copy_(wave(linear->weight.numel(), 0.7, shift).view_as(linear->weight) * 0.3);
    linear->bias.copy_(wave(linear->bias.numel(), 0.3, shift) * 0.1);
    net->push_back(linear);
    if (number + 2 < sizes.size()) net->push_back(torch::nn::Tanh());
  }
  const auto sgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3);
  const auto adamw = torch::optim::AdamWOptions(0.01);
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (!is_sharded) {
    ddp.emplace(net, world);
    if (is_adamw)
      optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), adamw);
    else
      optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), sgd);
  } else if (is_adamw) {
    optimizer = std::make_unique<lockstep::ShardedOptimizer<torch::optim::AdamW>>(*net, world, adamw);
  } else {
    optimizer = std::make_unique<lockstep::ShardedOptimizer<torch::optim::SGD>>(*net, world, sgd);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto shift = static_cast<double>(step * 2 + world.rank());
    const auto x = wave(batch * sizes[0], 0.37, shift).view({batch, sizes[0]}).to(torch::kFloat32);
    const auto y = torch::cos(x.narrow(1, 0, 4) * 2);
    optimizer->zero_grad();
    const auto loss = torch::mse_loss(ddp ? (*ddp)(x) : net->forward(x), y);
    loss.backward();
    optimizer->step();
    const double mean = lockstep::metric_average(world, loss.item<double>(), 1);
    if (world.rank() == 0) std::printf("loss %.9f\n", mean);
  }
  return 0;
}

std::size_t resident_kib() {
  std::ifstream file("/proc/self/status");
  std::string word;
  std::size_t kib = 0;
  while (file >> word && word != "VmRSS:") {
  }
  file >> kib;
  return kib;
}

/// Inputs of three sizes in turns, as the last batch of an epoch is smaller.
int many_steps(const Group& world, std::size_t count, bool is_sharded) {
  torch::nn::Sequential net(torch::nn::Conv2d(1, 8, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(8 * 6 * 6, 10));
  const auto options = torch::optim::SGDOptions(1e-3).momentum(0.9);
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp;
  std::unique_ptr<torch::optim::Optimizer> sgd;
  if (is_sharded) {
    sgd = std::make_unique<lockstep::ShardedOptimizer<torch::optim::SGD>>(*net, world, options);
  } else {
    ddp.emplace(net, world);
    sgd = std::make_unique<torch::optim::SGD>(net->parameters(), options);
  }
  for (std::size_t step = 1; step <= count; ++step) {
    const auto input = torch::ones({static_cast<std::int64_t>(16 - step % 3), 1, 8, 8});
    sgd->zero_grad();
    (ddp ? (*ddp)(input) : net->forward(input)).square().mean().backward();
    sgd->step();
    if (step % (count / 10) == 0) std::cout << "kib " + std::to_string(resident_kib()) + "\n" << std::flush;
  }
  return 0;
}

int return_in_training(const Group& world) {
  auto net = filled(1);
  lockstep::DistributedDataParallel ddp(net, world);
  for (int step = 0; step < 1000; ++step) {
    if (world.rank() == 1 && step == 3) return 0;
    ddp(torch::ones({4, 64})).sum().backward();
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  const auto world = lockstep::init();
  const std::string action = words.at(0);
  if (action == "equivalence") return equivalence(world);
  if (action == "sabotage") return sabotage(world);
  if (action == "overlap") return overlap(world);
  if (action == "soak") return train_until_hurt(world, words.at(1), words.size() > 2);
  if (action == "losses") return losses(world, words.at(1) == "adamw", words.at(2) == "sharded");
  if (action == "steps") return many_steps(world, std::stoul(words.at(1)), words.at(2) == "sharded");
  if (action == "save") return save(world, words.at(1), std::stod(words.at(2)), words.size() > 3);
  if (action == "load") return load(world, words.at(1));
  if (action == "save-sharded")
    return save_sharded(world, words.at(1), std::stod(words.at(2)), words.size() > 3);
  if (action == "load-sharded") return load_sharded(world, words.at(1));
  if (action == "rewrite") return rewrite(words.at(1), words.at(2), words.size() > 3 ? words.at(3) : "");
  if (action == "adopt") return adopt(world, words.at(1), words.at(2));
  if (action == "same") return same(world, words.at(1), words.at(2));
  if (action == "return-in-training") return return_in_training(world);
  throw std::runtime_error("unknown action " + action);
}

}  // namespace

int main(int argc, char** argv) try {
  torch::set_num_threads(1);
  return run({argv + 1, argv + argc});
} catch (const std::exception& error) {
  std::cerr << "training_rank: " << error.what() << std::endl;
  return 1;
}
