// A rank of the tests of checkpoints in the middle of a training: saving_rank ACTION FILE [WORD...]
//
//   straight FILE WORD...  trains 15 steps, 5 to an epoch, and saves after the 7th
//   resume FILE WORD...    goes on from there
//     Both print for each step this rank's loss, to the last bit, and the mean of all ranks; in the end a
//     hash of the parameters. Words: "sharded" for a ShardedOptimizer, or else DistributedDataParallel;
//     "behind" for an AsyncCheckpoint; "dropout".
//   save-on FILE VALUE [sharded]   saves models full of VALUE, VALUE + 1, ... until it is killed; prints
//   which
//                                  are in place
//   check FILE [sharded]           prints the value of that model, which must be everywhere the same
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/hash.h"

namespace {

using lockstep::AsyncCheckpoint;
using lockstep::Group;
using lockstep::ShardedOptimizer;

constexpr std::uint64_t epochs = 3, saved_step = 7;
constexpr std::size_t samples = 40, batch_of_all = 8;

struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(std::size_t index) override {
    const auto x = torch::sin(torch::arange(8, torch::kFloat32) * (0.37 * static_cast<double>(index + 1)));
    return {x, torch::cos(x.narrow(0, 0, 4) * 2)};
  }
  std::optional<std::size_t> size() const override { return samples; }
};

struct Words {
  bool is_sharded = false;
  bool is_behind = false;
  bool drops_out = false;
};

class Training {
 public:
  Training(const Group& world, const Words& words)
      : world_(world), words_(words), sampler_(samples, world, {.seed = 9}), checkpoint_(world) {
    torch::manual_seed(1);
    net_ = torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::Tanh(),
                                 torch::nn::Dropout(words.drops_out ? 0.3 : 0.0), torch::nn::Linear(32, 4));
    torch::manual_seed(100 + static_cast<std::uint64_t>(world.rank()));
    if (words.is_sharded) {
      optimizer_ = std::make_unique<ShardedOptimizer<torch::optim::Adam>>(*net_, world,
                                                                          torch::optim::AdamOptions(0.01));
    } else {
      ddp_.emplace(net_, world);
      optimizer_ = std::make_unique<torch::optim::SGD>(net_->parameters(),
                                                       torch::optim::SGDOptions(0.1).momentum(0.9));
    }
    schedule_ = std::make_unique<torch::optim::StepLR>(*optimizer_, 2U, 0.9);
  }

  void resume(const std::string& file) {
    const auto info = lockstep::load_checkpoint(file, world_, net_, *optimizer_);
    const auto& training = info.training.value();
    epoch_ = info.epoch;
    step_ = training.step;
    sampler_.resume(training.sampler.value());
    lockstep::set_random_state(training.random);
    lockstep::advance_schedule(*schedule_, *optimizer_, training.schedule_step);
  }

  /// Saves on the way, if there is a file.
  void run(const std::optional<std::string>& file) {
    const auto batch_size = batch_of_all / static_cast<std::size_t>(world_.size());
    auto loader =
        torch::data::make_data_loader(Waves().map(torch::data::transforms::Stack<>()), sampler_, batch_size);
    for (; epoch_ < epochs; ++epoch_) {
      sampler_.set_epoch(epoch_);
      for (const auto& batch : *loader) {
        take_step(batch);
        if (file && step_ == saved_step) save(*file);
      }
    }
    checkpoint_.wait();
    std::string bytes;
    for (const auto& parameter : net_->parameters())
      bytes.append(static_cast<const char*>(parameter.const_data_ptr()), parameter.nbytes());
    std::printf("end %08x\n", static_cast<unsigned>(lockstep::fnv1a_32(bytes)));
  }

 private:
  void take_step(const torch::data::Example<>& batch) {
    optimizer_->zero_grad();
    const auto output = ddp_ ? (*ddp_)(batch.data) : net_->forward(batch.data);
    const auto loss = torch::mse_loss(output, batch.target);
    loss.backward();
    optimizer_->step();
    schedule_->step();
    ++step_;
    const double mine = loss.item<double>();
    std::printf("step %llu loss %a mean %.9f\n", static_cast<unsigned long long>(step_), mine,
                lockstep::metric_average(world_, mine, 1));
  }

  void save(const std::string& file) {
    const lockstep::CheckpointInfo info = {
        .epoch = epoch_,
        .training = lockstep::TrainingState{.step = step_,
                                            .schedule_step = step_,
                                            .sampler = sampler_.position(),
                                            .random = lockstep::random_state()}};
    const lockstep::CheckpointOptions options = {.sharded = words_.is_sharded};
    if (words_.is_behind)
      checkpoint_.save(file, net_, *optimizer_, info, options);
    else
      lockstep::save_checkpoint(file, world_, net_, *optimizer_, info, options);
  }

  Group world_;
  Words words_;
  torch::nn::Sequential net_;
  std::optional<lockstep::DistributedDataParallel<torch::nn::SequentialImpl>> ddp_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<torch::optim::LRScheduler> schedule_;
  lockstep::DistributedSampler sampler_;
  AsyncCheckpoint checkpoint_;
  std::uint64_t epoch_ = 0, step_ = 0;
};

using ShardedSgd = ShardedOptimizer<torch::optim::SGD>;

/// Steps leave its parameters alone; its state is then the last gradient.
torch::optim::SGDOptions no_rate() { return torch::optim::SGDOptions(0).momentum(1e-30); }

void fill(torch::nn::Linear& net, double value) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.fill_(value);
}

[[noreturn]] void save_on(const Group& world, const std::string& file, std::uint64_t value, bool is_sharded) {
  torch::nn::Linear net(1024, 1024);
  std::optional<ShardedSgd> sgd;
  if (is_sharded) sgd.emplace(*net, world, no_rate());
  AsyncCheckpoint checkpoint(world);
  std::printf("pid %d\n", ::getpid());
  std::fflush(stdout);
  lockstep::barrier(world).wait();  // nobody has saved anything before all have said who they are
  for (;; ++value) {
    fill(net, static_cast<double>(value));
    if (sgd) {
      for (auto& parameter : net->parameters())
        parameter.mutable_grad() = torch::full_like(parameter.detach(), static_cast<double>(value));
      sgd->step();
      checkpoint.save(file, net, *sgd, {.epoch = value}, {.sharded = true});
    } else {
      checkpoint.save(file, net, {.epoch = value});
    }
    std::printf("saved %llu\n", static_cast<unsigned long long>(value - 1));
    std::fflush(stdout);
  }
}

int check(const Group& world, const std::string& file, bool is_sharded) {
  torch::nn::Linear net(1024, 1024);
  fill(net, -1);
  std::optional<ShardedSgd> sgd;
  if (is_sharded) sgd.emplace(*net, world, no_rate());
  const auto info =
      sgd ? lockstep::load_checkpoint(file, world, net, *sgd) : lockstep::load_checkpoint(file, world, net);
  const auto is_value = [&](const torch::Tensor& tensor) {
    return tensor.eq(static_cast<double>(info.epoch)).all().item<bool>();
  };
  for (const auto& parameter : net->parameters()) {
    bool is_whole = is_value(parameter);
    if (sgd) {
      const auto& state = *sgd->state().at(parameter.unsafeGetTensorImpl());
      is_whole &= is_value(static_cast<const torch::optim::SGDParamState&>(state).momentum_buffer());
    }
    if (!is_whole) return 2;
  }
  std::printf("value %llu\n", static_cast<unsigned long long>(info.epoch));
  return 0;
}

int run(const std::vector<std::string>& words) {
  const auto world = lockstep::init();
  const std::string& action = words.at(0);
  const std::string& file = words.at(1);
  const auto has = [&](std::string_view word) { return std::ranges::count(words, word) > 0; };
  if (action == "save-on") save_on(world, file, std::stoull(words.at(2)), has("sharded"));
  if (action == "check") return check(world, file, has("sharded"));
  if (action != "straight" && action != "resume") throw std::runtime_error("unknown action " + action);
  Training training(world,
                    {.is_sharded = has("sharded"), .is_behind = has("behind"), .drops_out = has("dropout")});
  if (action == "resume") training.resume(file);
  training.run(action == "resume" ? std::nullopt : std::optional(file));
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  torch::set_num_threads(1);
  return run({argv + 1, argv + argc});
} catch (const std::exception& error) {
  std::cerr << "saving_rank: " << error.what() << std::endl;
  return 1;
}
