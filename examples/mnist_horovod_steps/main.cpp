// MNIST as Horovod's users know it: a training for one process, and the eight steps that make it one for any
// number. Each is a line or two, and has its number.
//
//   lockstep run -np 2 build/release/bin/mnist_horovod_steps --data FOLDER
//   lockstep run -np 2 build/release/bin/mnist_horovod_steps --synthetic
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include "examples/support/mnist.h"
#include "examples/support/run.h"

namespace {

struct Options {
  std::uint64_t epochs = 10;
  std::size_t batch_size = 64;
  double learning_rate = 0.01;
  double momentum = 0.5;
  std::uint64_t random_seed = 42;
  std::string device = "cpu";
  std::string checkpoint;
  bool resume = false;
  bool fp16_allreduce = false;
  bool use_adasum = false;
  examples::ImageFlags images = examples::mnist_flags();
};

void train(const Options& options) {
  // 1. Join the other processes.
  const auto world = lockstep::init();

  // 2. Each process of a host has a device of its own, by its local rank.
  const auto device = lockstep::device_for(world, options.device);

  torch::manual_seed(options.random_seed + static_cast<std::uint64_t>(world.rank()));
  auto net = examples::mnist_network();
  net->to(device);

  // 3. As many processes take as many samples in a step: the learning rate grows with them. (Adasum finds the
  // length of a step itself.)
  const double rate = options.learning_rate * (options.use_adasum ? 1 : world.size());
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(rate).momentum(options.momentum));

  // 4. Wrap the optimizer: gradients are averaged over all processes before it steps.
  lockstep::DistributedOptimizer optimizer(
      sgd, *net, world,
      {.op = options.use_adasum ? lockstep::GradientOp::adasum : lockstep::GradientOp::average,
       .compression = options.fp16_allreduce ? lockstep::Compression::fp16 : lockstep::Compression::none,
       .non_finite = lockstep::NonFinite::stop});

  std::uint64_t epoch = 0;
  const bool goes_on = options.resume || (lockstep::restarts() > 0 && !options.checkpoint.empty() &&
                                          lockstep::checkpoint_exists(options.checkpoint, world));
  if (goes_on) epoch = lockstep::load_checkpoint(options.checkpoint, world, net, sgd).epoch;

  // 5. All begin with rank 0's parameters and its optimizer's state.
  lockstep::broadcast_parameters(world, net);
  lockstep::broadcast_optimizer_state(world, optimizer);

  // 6. Each process has its share of the samples, another one in each epoch, and all take as many steps.
  const auto images = examples::mnist(options.images, examples::Part::train);
  const auto test = examples::mnist(options.images, examples::Part::test);
  lockstep::DistributedSampler sampler(images.size, world, {.seed = options.random_seed});
  lockstep::DataLoader batches(images.batch, sampler, {.batch_size = options.batch_size});

  for (; epoch < options.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    double loss_sum = 0;
    for (auto& batch : batches) {
      optimizer.zero_grad();
      const auto output = net->forward(batch.data.to(device));
      const auto loss = torch::nn::functional::cross_entropy(output, batch.target.to(device));
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>() * static_cast<double>(batch.data.size(0));
    }

    // 7. Rank 0 writes the checkpoint; all call this, so that all know when it is done.
    if (!options.checkpoint.empty())
      lockstep::save_checkpoint(options.checkpoint, world, net, sgd, {.epoch = epoch + 1});

    // 8. What is measured is averaged over all processes, and printed by one.
    const double loss =
        lockstep::metric_average(world, loss_sum / static_cast<double>(sampler.size()), sampler.size());
    const double accuracy = examples::accuracy(world, net, test, device);
    if (world.rank() == 0) examples::print(epoch, options.epochs, loss, accuracy);
  }
}

void add_flags(CLI::App& app, Options& options) {
  app.add_option("--epochs", options.epochs, "Passes through the training set")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "Images per process and step")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate,
                 "Of one process; multiplied by the number of processes")
      ->capture_default_str();
  app.add_option("--momentum", options.momentum, "Of SGD")->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For weights and the order of the images")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  auto* const checkpoint =
      app.add_option("--checkpoint", options.checkpoint, "File to save to after each epoch (default: none)");
  app.add_flag("--resume", options.resume, "Go on from the checkpoint")->needs(checkpoint);
  app.add_flag("--fp16_allreduce", options.fp16_allreduce, "Send gradients as halves");
  app.add_flag("--use_adasum", options.use_adasum, "Bring steps together by Adasum")
      ->excludes("--fp16_allreduce");
  examples::add_mnist_flags(app, options.images);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small convolutional network on MNIST, with DistributedOptimizer.");
  add_flags(app, options);
  return examples::run(app, argc, argv, [&] { train(options); });
}
