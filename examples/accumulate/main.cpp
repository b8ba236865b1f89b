// Gradient accumulation: a batch that is too large for the memory goes through the model in parts, whose
// gradients add up. Ranks talk to each other once for the whole batch, and the model becomes what one large
// batch makes of it.
//
//   lockstep run -np 2 build/release/bin/accumulate --micro_batches 8
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstdio>

#include "examples/support/run.h"
#include "examples/support/teacher.h"

namespace {

struct Options {
  std::int64_t micro_batches = 4;
  std::int64_t micro_batch_size = 8;
  int steps = 50;
  double learning_rate = 0.1;
  double noise = 0.1;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
};

using Model = lockstep::DistributedDataParallel<torch::nn::SequentialImpl>;

/// Leaves the gradient of the whole batch in the parameters' grad(); returns this rank's mean loss.
double backward_in_parts(Model& ddp, const examples::Samples& batch, std::int64_t parts) {
  const auto xs = batch.x.chunk(parts), ys = batch.y.chunk(parts);
  double sum = 0;
  const auto backward = [&](std::size_t part) {
    // Divided by the number of parts, since what adds up is to be a mean.
    const auto loss = torch::mse_loss(ddp(xs[part]), ys[part]) / static_cast<double>(parts);
    loss.backward();
    sum += loss.item<double>();
  };
  {
    const auto alone = ddp.no_sync();  // as long as it lives, this rank's gradients only add up
    for (std::size_t part = 0; part + 1 < xs.size(); ++part) backward(part);
  }
  backward(xs.size() - 1);  // the last one averages the sums of all ranks
  return sum;
}

struct Trained {
  torch::Tensor parameters;
  double loss = 0;             // of the last step, mean over all ranks
  std::uint64_t averages = 0;  // how often gradients were averaged over ranks
};

Trained train(const lockstep::Group& world, const Options& options, std::int64_t parts) {
  torch::manual_seed(options.random_seed);  // the same task and weights for both trainings
  const examples::Teacher teacher(16, 4, options.noise);
  torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::Tanh(), torch::nn::Linear(32, 4));
  const auto device = lockstep::device_for(world, options.device);
  net->to(device);
  Model ddp(net, world, {.non_finite = lockstep::NonFinite::stop});
  torch::optim::SGD sgd(ddp.parameters(), options.learning_rate);

  torch::manual_seed(options.random_seed + 1 +
                     static_cast<std::uint64_t>(world.rank()));  // a rank's own samples
  const std::int64_t samples = options.micro_batches * options.micro_batch_size;
  const auto before = world.recorder().steps();
  double loss = 0;
  for (int step = 0; step < options.steps; ++step) {
    sgd.zero_grad();
    loss = backward_in_parts(ddp, teacher.draw(samples).to(device), parts);
    sgd.step();
  }
  return {torch::nn::utils::parameters_to_vector(ddp.parameters()).detach(),
          lockstep::metric_average(world, loss, static_cast<std::size_t>(samples)),
          world.recorder().steps() - before};
}

void print(const Trained& trained, std::int64_t parts, std::int64_t size) {
  std::printf("%3lld x %3lld samples a rank: loss %.4f, gradients averaged over ranks %llu times\n",
              static_cast<long long>(parts), static_cast<long long>(size), trained.loss,
              static_cast<unsigned long long>(trained.averages));
}

void compare(const Options& options) {
  const auto world = lockstep::init();
  const auto in_parts = train(world, options, options.micro_batches);
  const auto whole = train(world, options, 1);
  if (world.rank() != 0) return;
  print(in_parts, options.micro_batches, options.micro_batch_size);
  print(whole, 1, options.micro_batches * options.micro_batch_size);
  std::printf("parameters differ by at most %.1e\n",
              (in_parts.parameters - whole.parameters).abs().max().item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains twice, with a batch in parts and with the whole batch, and compares the models.");
  app.add_option("--micro_batches", options.micro_batches, "Parts of a batch")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--micro_batch_size", options.micro_batch_size, "Samples per process and part")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of the optimizer")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of SGD")->capture_default_str();
  app.add_option("--noise", options.noise, "Of the samples")
      ->check(examples::from_zero())
      ->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For task, weights and samples")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  return examples::run(app, argc, argv, [&] { compare(options); });
}
