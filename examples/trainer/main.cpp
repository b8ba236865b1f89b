// Trains a small network on handwritten digits, with any number of processes. The Trainer does what
// examples/digits writes out: learning rate, evaluation, progress, curve, checkpoint.
//
//   script/make-digits
//   lockstep run -np 4 build/release/bin/trainer --curve curve.svg
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include "examples/support/run.h"

namespace {

namespace nn = torch::nn;
using torch::data::make_data_loader;
using torch::data::transforms::Stack;

void train(const std::string& data, const std::string& device, double rate,
           lockstep::TrainerOptions options) {
  auto world = lockstep::init();
  torch::manual_seed(1);
  nn::Sequential net(nn::Flatten(), nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10));
  net->to(lockstep::device_for(world, device));  // where the Trainer takes the batches, too
  lockstep::DistributedDataParallel ddp(net, world, {.non_finite = lockstep::NonFinite::stop});
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(rate).momentum(0.9));

  auto digits = lockstep::IdxDataset(data + "/train", {.scale = 1.0F / 16, .classes = 10}).map(Stack<>());
  auto others = lockstep::IdxDataset(data + "/test", {.scale = 1.0F / 16, .classes = 10}).map(Stack<>());
  lockstep::DistributedSampler order(*digits.size(), world);
  auto training = make_data_loader(digits, order, 32);
  auto test =
      make_data_loader(others, lockstep::DistributedSampler(*others.size(), world, {.shuffle = false}), 256);

  const std::uint64_t steps = (order.size() + 31) / 32;  // of an epoch
  options.schedule = lockstep::LearningRate::cosine(rate, options.epochs * steps).scaled(world.size(), steps);
  options.before_epoch = [&](std::uint64_t epoch) { order.set_epoch(epoch); };
  options.title = "Handwritten digits";
  lockstep::Trainer(world, ddp, sgd, options).fit(*training, *test);
}

}  // namespace

int main(int argc, char** argv) {
  std::string data = "build/digits", device = "cpu";
  double rate = 0.02;
  lockstep::TrainerOptions options{.epochs = 10};
  CLI::App app("Trains a small network on handwritten digits.");
  app.add_option("--data", data, "Folder that script/make-digits has filled")->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes through the training set")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", rate, "Of one process; multiplied by the number of processes")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint, "File to save to after each epoch");
  app.add_flag("--resume", options.resume, "Go on from the checkpoint");
  app.add_option("--curve", options.curve, "SVG of loss and accuracy");
  app.add_option("--tensorboard", options.tensorboard, "Folder for TensorBoard's event file");
  examples::add_device_flag(app, device);
  return examples::run(app, argc, argv, [&] { train(data, device, rate, options); });
}
