// One process, several devices, the variables in one place, which all of them read: what TensorFlow calls
// CentralStorageStrategy. Each device runs a step of its own (strategy.run), and what the steps return is reduced.
// Trains with central and with mirrored variables, and compares.
//
//   build/release/bin/central_storage --devices cpu:2
#include <lockstep/train.h>

#include "examples/support/one_process.h"

namespace {

examples::TrainedOnDevices train(const examples::DeviceFlags& flags, lockstep::Variables variables) {
  torch::manual_seed(flags.random_seed);
  lockstep::DataParallel net(examples::device_network, lockstep::devices(flags.devices),
                             {.variables = variables});
  torch::optim::SGD sgd(net.parameters(), flags.learning_rate);
  // On each device's thread, with its replica and its part of the batch.
  const auto step_of_replica = [](auto& replica, const torch::Tensor& x, const torch::Tensor& y) {
    auto loss = torch::mse_loss(replica.forward(x), y);
    loss.backward();
    return loss.template item<double>();
  };
  const auto step = [&](const torch::Tensor& x, const torch::Tensor& y) {
    const auto losses = net.run(step_of_replica, x, y);
    return losses.mean();  // weighted: the last part of a batch may be smaller
  };
  return examples::train_on_devices(flags, net.parameters(), sgd, step);
}

void compare(const examples::DeviceFlags& flags) {
  examples::require_one_process();
  const auto central = train(flags, lockstep::Variables::central);
  const auto mirrored = train(flags, lockstep::Variables::mirrored);
  examples::print("central variables", central);
  examples::print("mirrored", mirrored);
  examples::print_difference(central, mirrored);
}

}  // namespace

int main(int argc, char** argv) {
  examples::DeviceFlags flags;
  CLI::App app(
      "Trains one model on several devices of one process, with central and with mirrored variables.");
  examples::add_device_flags(app, flags);
  return examples::run(app, argc, argv, [&] { compare(flags); });
}
