// A training with one thing wrong with it, as flags say, for reports to find. With none nothing is wrong.
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace {

struct Stage {
  int steps = 60;
  std::int64_t batch = 128, width = 512, layers = 6;
  std::vector<int> slow_forward, slow_loader;  // rank, milliseconds
  int paced_ms = 0;                            // every forward takes this long, however fast its core is
  int busy_core = -1;                          // rank
  bool reversed = false;                       // after the first step gradients come in the other order
  std::size_t bucket_bytes = std::size_t{1} << 20;
};

class StackImpl : public torch::nn::Module {
 public:
  StackImpl(const Stage& stage, int slow_ms) : slow_ms_(slow_ms), paced_ms_(stage.paced_ms) {
    for (std::int64_t i = 0; i < stage.layers; ++i)
      layers_->push_back(torch::nn::Linear(stage.width, stage.width));
    register_module("layers", layers_);
  }

  torch::Tensor forward(torch::Tensor x) {  // [N, width] to [N, width]
    const auto paced = std::chrono::steady_clock::now() + std::chrono::milliseconds(paced_ms_);
    const std::size_t count = layers_->size();
    for (std::size_t i = 0; i < count; ++i)
      x = torch::relu(layers_[is_reversed ? count - 1 - i : i]->as<torch::nn::Linear>()->forward(x));
    const auto until =
        std::max(paced, std::chrono::steady_clock::now() + std::chrono::milliseconds(slow_ms_));
    while (std::chrono::steady_clock::now() < until) continue;  // works, as a slow forward does
    return x;
  }

  bool is_reversed = false;

 private:
  int slow_ms_, paced_ms_;
  torch::nn::ModuleList layers_;
};
TORCH_MODULE(Stack);

int of_rank(const std::vector<int>& flag, int rank) {
  return flag.size() == 2 && flag[0] == rank ? flag[1] : 0;
}

/// Samples that take `slow_ms` a batch to make.
lockstep::BatchMaker samples(const Stage& stage, int slow_ms) {
  return [=](torch::ArrayRef<std::size_t> indices) {
    std::this_thread::sleep_for(std::chrono::milliseconds(slow_ms));
    const auto shape = {static_cast<std::int64_t>(indices.size()), stage.width};
    return torch::data::Example<>(torch::ones(shape), torch::zeros(shape));
  };
}

/// A process that wants the core of this one all the time; it ends with this object.
class Neighbour {
 public:
  Neighbour() : pid_(::fork()) {
    if (pid_ == 0) {
      for (const auto parent = ::getppid(); ::getppid() == parent;) continue;
      ::_exit(0);
    }
  }
  ~Neighbour() { (void)::kill(pid_, SIGKILL); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  pid_t pid_;
};

void train(const Stage& stage) {
  const auto world = lockstep::init();
  at::set_num_threads(1);
  torch::manual_seed(1);
  std::optional<Neighbour> neighbour;
  if (stage.busy_core == world.rank()) neighbour.emplace();
  Stack model(stage, of_rank(stage.slow_forward, world.rank()));
  lockstep::DistributedDataParallel ddp(
      model, world, {.first_bucket_bytes = stage.bucket_bytes, .bucket_cap_bytes = stage.bucket_bytes});
  torch::optim::SGD sgd(ddp.parameters(), 1e-4);
  const auto samples_of_rank = static_cast<std::size_t>(stage.batch * stage.steps);
  lockstep::DistributedSampler sampler(samples_of_rank * static_cast<std::size_t>(world.size()), world);
  lockstep::DataLoader batches(samples(stage, of_rank(stage.slow_loader, world.rank())), sampler,
                               {.batch_size = static_cast<std::size_t>(stage.batch)});
  for (auto& batch : batches) {
    sgd.zero_grad();
    torch::mse_loss(ddp(batch.data), batch.target).backward();
    sgd.step();
    model->is_reversed = stage.reversed;
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Stage stage;
  CLI::App app("Trains with one thing wrong.");
  app.add_option("--steps", stage.steps);
  app.add_option("--batch", stage.batch);
  app.add_option("--width", stage.width);
  app.add_option("--layers", stage.layers);
  app.add_option("--slow-forward", stage.slow_forward, "RANK MS")->expected(2);
  app.add_option("--slow-loader", stage.slow_loader, "RANK MS")->expected(2);
  app.add_option("--paced", stage.paced_ms, "MS");
  app.add_option("--busy-core", stage.busy_core, "RANK");
  app.add_option("--bucket-bytes", stage.bucket_bytes);
  app.add_flag("--reversed", stage.reversed);
  CLI11_PARSE(app, argc, argv);
  train(stage);
  return 0;
} catch (const std::exception& error) {
  (void)std::fprintf(stderr, "staged_rank: %s\n", error.what());
  return 1;
}
