// MNIST with a gradient tape: the program asks for gradients and applies them itself, as those who come from
// TensorFlow do. What Horovod's tape does there DistributedGradientTape does here.
//
//   lockstep run -np 2 build/release/bin/mnist_gradient_tape --data FOLDER
//   lockstep run -np 2 build/release/bin/mnist_gradient_tape --synthetic
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include "examples/support/mnist.h"
#include "examples/support/run.h"

namespace {

struct Options {
  std::uint64_t epochs = 10;
  std::size_t batch_size = 256;
  double learning_rate = 0.001;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
  bool fp16_allreduce = false;
  examples::ImageFlags images = examples::mnist_flags();
};

void train(const Options& options) {
  const auto world = lockstep::init();
  const auto device = lockstep::device_for(world, options.device);
  torch::manual_seed(options.random_seed + static_cast<std::uint64_t>(world.rank()));
  auto net = examples::mnist_network();
  net->to(device);
  const auto parameters = net->parameters();
  torch::optim::Adam adam(parameters, options.learning_rate * world.size());
  lockstep::DistributedGradientTape tape(
      world,
      {.compression = options.fp16_allreduce ? lockstep::Compression::fp16 : lockstep::Compression::none,
       .non_finite = lockstep::NonFinite::stop});

  // Each process draws batches from the whole set, by a seed of its own, and takes samples / processes of
  // them in an epoch.
  const auto images = examples::mnist(options.images, examples::Part::train);
  const auto test = examples::mnist(options.images, examples::Part::test);
  lockstep::DistributedSampler sampler(images.size, world,
                                       {.seed = options.random_seed, .sharing = lockstep::Sharing::random});
  lockstep::DataLoader batches(images.batch, sampler, {.batch_size = options.batch_size});

  bool is_first = true;
  for (std::uint64_t epoch = 0; epoch < options.epochs; ++epoch) {
    double loss_sum = 0;
    for (auto& batch : batches) {
      const auto output = net->forward(batch.data.to(device));
      const auto loss = torch::nn::functional::cross_entropy(output, batch.target.to(device));
      lockstep::apply_gradients(adam, parameters, tape.gradient(loss, parameters));
      loss_sum += loss.item<double>() * static_cast<double>(batch.data.size(0));
      if (!is_first) continue;
      // After the first step: before it, Adam has no state that could be made everybody's.
      lockstep::broadcast_parameters(world, net);
      lockstep::broadcast_optimizer_state(world, adam);
      is_first = false;
    }
    const double loss =
        lockstep::metric_average(world, loss_sum / static_cast<double>(sampler.size()), sampler.size());
    const double accuracy = examples::accuracy(world, net, test, device);
    if (world.rank() == 0) examples::print(epoch, options.epochs, loss, accuracy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small convolutional network on MNIST, with DistributedGradientTape.");
  app.add_option("--epochs", options.epochs, "Passes through the training set")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "Images per process and step")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate,
                 "Of one process; multiplied by the number of processes")
      ->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For weights and batches")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  app.add_flag("--fp16_allreduce", options.fp16_allreduce, "Send gradients as halves");
  examples::add_mnist_flags(app, options.images);
  return examples::run(app, argc, argv, [&] { train(options); });
}
