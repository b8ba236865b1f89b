// Gradients that travel in few bytes: PowerSGD sends each matrix as a product of two thin ones, and adds what
// that loses to the next step's gradient.
//
//   lockstep run -np 2 build/release/bin/powersgd --rank 1
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstdio>
#include <memory>

#include "examples/support/run.h"
#include "examples/support/teacher.h"

namespace {

struct Options {
  std::int64_t rank = 2;
  std::uint64_t start_after = 10;
  int steps = 300;
  std::int64_t batch_size = 32;
  double learning_rate = 0.05;
  double noise = 0.1;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
};

struct Trained {
  double loss = 0;  // of samples that no rank has seen
  std::size_t bytes = 0;
};

/// What this rank gave to all_reduce since `position` of its record.
std::size_t bytes_since(const lockstep::Group& world, std::uint64_t position) {
  std::size_t bytes = 0;
  for (const auto& call : world.recorder().collectives_since(position)) {
    if (call.operation == lockstep::Operation::all_reduce) bytes += call.elements * size_of(call.dtype);
  }
  return bytes;
}

Trained train(const lockstep::Group& world, const Options& options,
              std::shared_ptr<lockstep::CommunicationHook> hook) {
  torch::manual_seed(options.random_seed);
  const examples::Teacher teacher(64, 8, options.noise);
  const auto device = lockstep::device_for(world, options.device);
  const auto unseen = teacher.draw(1000).to(device);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::Tanh(), torch::nn::Linear(256, 256),
                            torch::nn::Tanh(), torch::nn::Linear(256, 8));
  net->to(device);
  lockstep::DistributedDataParallel ddp(
      net, world, {.non_finite = lockstep::NonFinite::stop, .communication_hook = std::move(hook)});
  torch::optim::SGD sgd(ddp.parameters(), torch::optim::SGDOptions(options.learning_rate).momentum(0.9));

  torch::manual_seed(options.random_seed + 1 +
                     static_cast<std::uint64_t>(world.rank()));  // a rank's own samples
  std::uint64_t position = 0;
  for (int step = 0; step < options.steps; ++step) {
    position = world.recorder().collectives();
    const auto batch = teacher.draw(options.batch_size).to(device);
    sgd.zero_grad();
    torch::mse_loss(ddp(batch.x), batch.y).backward();
    sgd.step();
  }
  const std::size_t bytes = bytes_since(world, position);  // of the last step
  const torch::NoGradGuard no_grad;
  return {torch::mse_loss(ddp(unseen.x), unseen.y).item<double>(), bytes};
}

void compare(const Options& options) {
  const auto world = lockstep::init();
  // AllReduceHook does what happens without a hook, by calls that the record counts.
  const auto whole = train(world, options, std::make_shared<lockstep::AllReduceHook>());
  const auto thin =
      train(world, options,
            std::make_shared<lockstep::PowerSgdHook>(lockstep::PowerSgdOptions{
                .rank = options.rank, .start_after = options.start_after, .seed = options.random_seed}));
  if (world.rank() != 0) return;
  std::printf("whole gradients: loss %.4f, %zu bytes a step\n", whole.loss, whole.bytes);
  std::printf("PowerSGD: loss %.4f, %zu bytes a step\n", thin.loss, thin.bytes);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains twice, with whole gradients and with PowerSGD, and compares loss and bytes.");
  app.add_option("--rank", options.rank, "Columns of the thin matrices")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--start_after", options.start_after, "Steps with whole gradients at the beginning")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of the optimizer")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "Samples per process and step")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of SGD with momentum 0.9")->capture_default_str();
  app.add_option("--noise", options.noise, "Of the samples")
      ->check(examples::from_zero())
      ->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For task, weights and samples")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  return examples::run(app, argc, argv, [&] { compare(options); });
}
