// Batch normalisation over all ranks' samples. Each rank has one part of a batch, and the parts are not
// alike: with mean and variance of its own part alone, each rank normalises differently, and the model is
// another one than one process with the whole batch would have.
//
//   lockstep run -np 2 build/release/bin/sync_batch_norm
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstdio>

#include "examples/support/run.h"
#include "examples/support/teacher.h"

namespace {

struct Options {
  std::int64_t batch_size = 8;
  int steps = 50;
  double learning_rate = 0.05;
  double noise = 0.1;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
};

struct Trained {
  torch::Tensor parameters, mean, variance;  // the last two: what batch norm has seen, rank 0's
  double loss = 0;                           // of the last step, mean over all samples
};

/// `ranks`: parts of each whole batch, of which `group` has all (one process), or each of its ranks one.
Trained train(const lockstep::Group& group, const Options& options, torch::Device device, int ranks,
              bool synchronised) {
  torch::manual_seed(options.random_seed);  // everybody draws the same task, weights and whole batches
  const examples::Teacher teacher(8, 2, options.noise);
  torch::nn::BatchNorm1d norm(16);
  torch::nn::Sequential net(torch::nn::Linear(8, 16), norm, torch::nn::Tanh(), torch::nn::Linear(16, 2));
  net->to(device);
  if (synchronised) lockstep::convert_sync_batch_norm(*net, group);
  lockstep::DistributedDataParallel ddp(net, group, {.non_finite = lockstep::NonFinite::stop});
  torch::optim::SGD sgd(ddp.parameters(), options.learning_rate);

  const std::int64_t mine = options.batch_size * ranks / group.size(), first = mine * group.rank();
  const auto shifts = torch::arange(ranks).repeat_interleave(options.batch_size).unsqueeze(1);
  double loss = 0;
  for (int step = 0; step < options.steps; ++step) {
    const auto whole = teacher.draw(options.batch_size * ranks);
    const auto x = (whole.x + shifts).narrow(0, first, mine);  // each part has another mean
    sgd.zero_grad();
    const auto error = torch::mse_loss(ddp(x.to(device)), whole.y.narrow(0, first, mine).to(device));
    error.backward();
    sgd.step();
    loss = error.item<double>();
  }
  return {torch::nn::utils::parameters_to_vector(ddp.parameters()).detach(), norm->running_mean.clone(),
          norm->running_var.clone(), lockstep::metric_average(group, loss, static_cast<std::size_t>(mine))};
}

void print(const char* name, const Trained& trained, const Trained& one) {
  const auto difference = [](const torch::Tensor& a, const torch::Tensor& b) {
    return (a - b).abs().max().item<double>();
  };
  std::printf("%-24s loss %.4f; from one process differ: means %.0e, variances %.0e, parameters %.0e\n", name,
              trained.loss, difference(trained.mean, one.mean), difference(trained.variance, one.variance),
              difference(trained.parameters, one.parameters));
}

void compare(const Options& options) {
  const auto world = lockstep::init();
  const auto device = lockstep::device_for(world, options.device);
  const auto unsynchronised = train(world, options, device, world.size(), false);
  const auto synchronised = train(world, options, device, world.size(), true);
  if (world.rank() != 0) return;
  const auto one =
      train(lockstep::Group(), options, device, world.size(), false);  // a world of one, and the whole batch
  std::printf("%-24s loss %.4f\n", "one process, whole batch", one.loss);
  print("each rank its own", unsynchronised, one);
  print("synchronised", synchronised, one);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains with one process, and on all ranks without and with synchronised batch norm.");
  app.add_option("--batch_size", options.batch_size, "Samples per process and step")
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
