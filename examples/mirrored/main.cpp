// One process, several devices, a copy of the model on each: what TensorFlow calls MirroredStrategy. The program stays as
// it was: the loss sees the outputs of the whole batch. Trains on one device and on all of them, and compares.
//
//   build/release/bin/mirrored --devices cpu:2
#include <lockstep/train.h>

#include "examples/support/one_process.h"

namespace {

examples::TrainedOnDevices train(const examples::DeviceFlags& flags, const std::string& devices) {
  torch::manual_seed(flags.random_seed);
  lockstep::DataParallel net(examples::device_network, lockstep::devices(devices),
                             {.variables = lockstep::Variables::mirrored});
  torch::optim::SGD sgd(net.parameters(), flags.learning_rate);
  const auto step = [&](const torch::Tensor& x, const torch::Tensor& y) {
    const auto output = net(x);  // each device computes its part of the batch; on the first one
    auto loss = torch::mse_loss(output, y.to(output.device()));
    loss.backward();  // all backwards at once; grad() is the whole batch's
    return loss.item<double>();
  };
  return examples::train_on_devices(flags, net.parameters(), sgd, step);
}

void compare(const examples::DeviceFlags& flags) {
  examples::require_one_process();
  const auto on_one = train(flags, "cpu");
  const auto on_all = train(flags, flags.devices);
  examples::print("cpu", on_one);
  examples::print(flags.devices, on_all);
  examples::print_difference(on_one, on_all);
}

}  // namespace

int main(int argc, char** argv) {
  examples::DeviceFlags flags;
  CLI::App app("Trains one model on one device and on several devices of one process, and compares.");
  examples::add_device_flags(app, flags);
  return examples::run(app, argc, argv, [&] { compare(flags); });
}
