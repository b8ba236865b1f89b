// The least there is to data parallelism: one program starts its own ranks; each runs one forward, one
// backward and one step of the optimizer with samples of its own, and all end with the same model.
//
//   build/release/bin/toy_model
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "examples/support/run.h"

namespace {

struct Options {
  int ranks = 2;
  int steps = 1;
  double learning_rate = 0.001;
  std::uint64_t random_seed = 0;
  std::string device = "cpu";
};

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  torch::Tensor forward(const torch::Tensor& x) { return net2(torch::relu(net1(x))); }  // [N, 10] to [N, 5]

  torch::nn::Linear net1{10, 10};
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyModel);

/// Whether all ranks have the same bits in their parameters.
bool are_equal(const lockstep::Group& world, const ToyModel& model) {
  const torch::NoGradGuard no_grad;
  const auto mine = torch::nn::utils::parameters_to_vector(model->parameters());
  const auto all = torch::empty({world.size(), mine.numel()}, mine.options());
  lockstep::all_gather(world, mine, all).wait();
  return torch::equal(all, mine.expand_as(all));
}

/// What each rank does, in a process of its own.
void train(int rank, const Options& options) {
  const auto world = lockstep::init();
  torch::manual_seed(options.random_seed + static_cast<std::uint64_t>(rank));  // other samples on each rank

  const auto device = lockstep::device_for(world, options.device);
  ToyModel model;  // other weights, too: wrapping it makes them rank 0's
  model->to(device);
  lockstep::DistributedDataParallel ddp(model, world, {.non_finite = lockstep::NonFinite::stop});
  torch::optim::SGD sgd(ddp.parameters(), options.learning_rate);

  torch::Tensor loss;
  for (int step = 0; step < options.steps; ++step) {
    sgd.zero_grad();
    loss = torch::mse_loss(ddp(torch::randn({20, 10}).to(device)), torch::randn({20, 5}).to(device));
    loss.backward();  // every grad() is the average over all ranks now
    sgd.step();
  }

  if (!are_equal(world, model)) throw std::runtime_error("the replicas differ");
  std::printf("rank %d of %d: its own loss is %.4f, and the replicas are equal\n", rank, world.size(),
              loss.item<double>());
}

/// What spawn() refuses is how this program was started, as are wrong flags.
void start_ranks(const Options& options) try {
  lockstep::spawn(options.ranks, train, options);
} catch (const lockstep::Error& error) {
  if (error.code() != lockstep::ErrorCode::invalid_argument) throw;
  throw CLI::ParseError(error.what(), CLI::ExitCodes::BaseClass);
}

std::string say_how_to_start(const CLI::App* app, const CLI::Error& error) {
  const std::string program = app->get_name();
  return program + ": " + error.what() + "\n" + program +
         " is started alone, without a launcher, and starts its ranks itself: `" + program +
         " --ranks 4`; --help lists all flags.\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a model of two layers on ranks that it starts itself.");
  app.add_option("--ranks", options.ranks, "Processes to start")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Steps of the optimizer")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of SGD")->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For weights and samples")
      ->check(examples::count_from(0))
      ->capture_default_str();
  examples::add_device_flag(app, options.device);
  app.failure_message(say_how_to_start);
  return examples::run(app, argc, argv, [&] { start_ranks(options); });
}
