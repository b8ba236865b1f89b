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

#include "examples/support/images.h"

namespace examples {

inline ImageFlags mnist_flags() { return {.data = "data/mnist"}; }
inline void add_mnist_flags(CLI::App& app, ImageFlags& flags) {
  add_image_flags(app, flags, "Folder with MNIST's four files");
}

inline Images mnist(const ImageFlags& flags, Part part) {
  if (flags.synthetic) return made_up_images(flags, part, {1, 28, 28});
  return images_from_files(
      "take the four files of https://ossci-datasets.s3.amazonaws.com/mnist/ (train-images-idx3-ubyte.gz, "
      "...), "
      "unpack them with gunzip in --data, or train with --synthetic",
      [&] {
        const auto prefix = std::filesystem::path(flags.data) / (part == Part::test ? "t10k" : "train");
        lockstep::IdxDataset set(prefix, {.classes = 10});
        const auto first = set.get(0).data;
        if (first.sizes() != torch::IntArrayRef{1, 28, 28}) {
          std::ostringstream text;
          text << prefix.string() << ": expected images [1, 28, 28], found " << first.sizes();
          lockstep::throw_invalid_argument(text.str());
        }
        return set;
      });
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
