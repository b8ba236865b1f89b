// What two examples train on, and what they train: MNIST, or images made up in its place, and a small network
// for images of 28 x 28.
#pragma once

#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "examples/support/run.h"

namespace examples {

struct ImageFlags {
  std::string data = "data/mnist";
  bool synthetic = false;
  std::size_t samples = 10'000;
  float noise = 1;
};

inline void add_image_flags(CLI::App& app, ImageFlags& flags) {
  app.add_option("--data", flags.data, "Folder with MNIST's four files")->capture_default_str();
  app.add_flag("--synthetic", flags.synthetic, "Train on images that are made up");
  app.add_option("--samples", flags.samples, "Of these, so many; a fifth as many to test")
      ->check(count_from(5))
      ->capture_default_str();
  app.add_option("--noise", flags.noise, "Of these; what they show is 0.58 strong")->capture_default_str();
}

struct Images {
  lockstep::BatchMaker batch;
  std::size_t size = 0;
};

enum class Part { train, test };

inline Images images(const ImageFlags& flags, Part part) {
  const bool is_test = part == Part::test;
  if (flags.synthetic) {
    lockstep::SyntheticImages made_up({.samples = is_test ? flags.samples / 5 : flags.samples,
                                       .shape = {1, 28, 28},
                                       .noise = flags.noise,
                                       .first = is_test ? flags.samples : 0});
    return {lockstep::batch_maker(made_up), *made_up.size()};
  }
  const auto prefix = std::filesystem::path(flags.data) / (is_test ? "t10k" : "train");
  try {
    lockstep::IdxDataset mnist(prefix, {.classes = 10});
    if (const auto shape = mnist.get(0).data.sizes().vec(); shape != std::vector<std::int64_t>{1, 28, 28}) {
      std::ostringstream text;
      text << prefix.string() << ": expected images [1, 28, 28], found " << mnist.get(0).data.sizes();
      lockstep::throw_invalid_argument(text.str());
    }
    return {lockstep::batch_maker(mnist), *mnist.size()};
  } catch (const lockstep::Error& error) {
    if (error.code() != lockstep::ErrorCode::invalid_argument) throw;
    lockstep::throw_invalid_argument(
        std::string(error.what()) +
        "; take the four files of https://ossci-datasets.s3.amazonaws.com/mnist/ "
        "(train-images-idx3-ubyte.gz, ...), unpack them with gunzip in --data, or "
        "train with --synthetic");
  }
}

inline torch::nn::Sequential mnist_network() {
  using namespace torch::nn;
  return Sequential(Conv2d(1, 10, 5), MaxPool2d(2), ReLU(), Conv2d(10, 20, 5), MaxPool2d(2), ReLU(),
                    Flatten(), Linear(320, 50), ReLU(), Dropout(0.5), Linear(50, 10));
}

/// How many of the images the network names rightly. Each rank looks at its share.
inline double accuracy(const lockstep::Group& world, torch::nn::Sequential& net, const Images& test,
                       torch::Device device) {
  const torch::NoGradGuard no_grad;
  net->eval();
  double right = 0;
  std::size_t seen = 0;
  const lockstep::DistributedSampler sampler(test.size, world, {.shuffle = false});
  for (auto& batch : lockstep::DataLoader(test.batch, sampler, {.batch_size = 1000})) {
    const auto found = net->forward(batch.data.to(device)).argmax(1);
    right += found.eq(batch.target.to(device)).sum().item<double>();
    seen += static_cast<std::size_t>(batch.data.size(0));
  }
  net->train();
  return lockstep::metric_average(world, right / static_cast<double>(seen), seen);
}

inline void print(std::uint64_t epoch, std::uint64_t epochs, double loss, double accuracy) {
  std::printf("epoch %2llu/%llu  loss %.4f  accuracy %.4f\n", static_cast<unsigned long long>(epoch + 1),
              static_cast<unsigned long long>(epochs), loss, accuracy);
  std::fflush(stdout);
}

}  // namespace examples
