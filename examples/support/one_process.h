// What the examples of one process with several devices have in common: a task, a network without random numbers, and a
// clock.
#pragma once

#include <lockstep/train.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "examples/support/run.h"
#include "examples/support/teacher.h"

namespace examples {

struct DeviceFlags {
  std::string devices = "cpu:2";
  int steps = 60;
  std::int64_t batch_size = 256;
  double learning_rate = 0.1;
  double noise = 0.1;
  std::uint64_t random_seed = 0;
};

inline void add_device_flags(CLI::App& app, DeviceFlags& flags) {
  app.add_option("--devices", flags.devices,
                 "cpu:N for N slots of the CPU, cuda for all GPUs, cuda:0,cuda:1 for these")
      ->capture_default_str();
  app.add_option("--steps", flags.steps, "Steps of the optimizer")
      ->check(count_from(1))
      ->capture_default_str();
  app.add_option("--batch_size", flags.batch_size, "Samples of all devices")
      ->check(count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", flags.learning_rate, "Of SGD")->capture_default_str();
  app.add_option("--noise", flags.noise, "Of the samples")->check(from_zero())->capture_default_str();
  app.add_option("--random_seed", flags.random_seed, "For task, weights and samples")
      ->check(count_from(0))
      ->capture_default_str();
}

/// Each rank would train the same.
inline void require_one_process() {
  const char* const ranks = std::getenv("WORLD_SIZE");
  if (ranks != nullptr && std::atoi(ranks) > 1)
    throw std::runtime_error(
        "this is one process with several devices: start it without lockstep run, or with -np 1");
}

inline torch::nn::Sequential device_network() {
  return torch::nn::Sequential(torch::nn::Linear(64, 512), torch::nn::Tanh(), torch::nn::Linear(512, 512),
                               torch::nn::Tanh(), torch::nn::Linear(512, 8));
}

struct TrainedOnDevices {
  torch::Tensor parameters;
  double loss = 0;  // of the last batch
  double samples_per_second = 0;
};

/// `step(x, y)` leaves gradients and returns the loss.
template <class Optimizer, class Step>
TrainedOnDevices train_on_devices(const DeviceFlags& flags, const std::vector<torch::Tensor>& parameters,
                                  Optimizer& optimizer, const Step& step) {
  torch::manual_seed(flags.random_seed + 1);
  const Teacher teacher(64, 8, flags.noise);
  TrainedOnDevices trained;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < flags.steps; ++i) {
    const auto batch = teacher.draw(flags.batch_size);
    optimizer.zero_grad();
    trained.loss = step(batch.x, batch.y);
    optimizer.step();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  require_number(trained.loss, flags.steps);
  trained.samples_per_second = flags.steps * static_cast<double>(flags.batch_size) / took.count();
  trained.parameters = torch::nn::utils::parameters_to_vector(parameters)
                           .detach()
                           .to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
  return trained;
}

inline void print(const std::string& where, const TrainedOnDevices& trained) {
  std::printf("%-18s loss %.4f  %8.0f samples/s\n", (where + ":").c_str(), trained.loss,
              trained.samples_per_second);
}

inline void print_difference(const TrainedOnDevices& a, const TrainedOnDevices& b) {
  std::printf("parameters differ by at most %.1e\n",
              (a.parameters - b.parameters).abs().max().item<double>());
}

}  // namespace examples
