// ResNet-18 on CIFAR-10, as those write it who come from torch.distributed: the model is wrapped, local rank
// 0 evaluates and saves before each epoch, and the file that it saves is one for Python's torch.load().
//
//   lockstep run -np 2 build/release/bin/cifar10_resnet18 --data FOLDER
//   torchrun --no_python --nproc_per_node 2 build/release/bin/cifar10_resnet18 --data FOLDER
//   lockstep run -np 2 build/release/bin/cifar10_resnet18 --synthetic
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>

#include "examples/support/images.h"
#include "examples/support/resnet.h"

namespace {

struct Options {
  std::optional<int> local_rank;
  std::uint64_t num_epochs = 5;
  std::size_t batch_size = 256;
  double learning_rate = 0.1;
  std::uint64_t random_seed = 0;
  std::filesystem::path model_dir = "saved_models";
  std::string model_filename = "resnet_distributed.pth";
  bool resume = false;
  std::string device = "cpu";
  examples::ImageFlags images{.data = "data/cifar-10-batches-bin"};
  std::size_t workers = 1;
};

using Model = lockstep::DistributedDataParallel<examples::ResNet18Impl>;

const lockstep::Normalize normalize({0.4914, 0.4822, 0.4465}, {0.2023, 0.1994, 0.2010});

examples::Images images(const examples::ImageFlags& flags, examples::Part part) {
  if (flags.synthetic) return examples::made_up_images(flags, part, {3, 32, 32});
  return examples::images_from_files("or train with --synthetic", [&] {
    const bool is_test = part == examples::Part::test;
    return lockstep::Cifar10Dataset(flags.data,
                                    is_test ? lockstep::Cifar10Part::test : lockstep::Cifar10Part::train);
  });
}

/// Of one rank alone: a model that evaluates talks to no other.
double accuracy(Model& ddp, const examples::Images& test, torch::Device device) {
  const torch::NoGradGuard no_grad;
  ddp.eval();
  double right = 0;
  for (std::size_t begin = 0; begin < test.size; begin += 128) {
    std::vector<std::size_t> samples(std::min<std::size_t>(128, test.size - begin));
    std::iota(samples.begin(), samples.end(), begin);
    auto batch = test.batch(samples);
    normalize(batch.data);
    right += ddp(batch.data.to(device)).argmax(1).eq(batch.target.to(device)).sum().item<double>();
  }
  ddp.train();
  return right / static_cast<double>(test.size);
}

/// As the launcher counts, which may take one host for two.
int local_rank_of(const lockstep::Group& world, std::optional<int> flag) {
  const char* const said = std::getenv("LOCAL_RANK");
  const int local_rank = said != nullptr ? std::atoi(said) : world.local_rank();
  if (flag && *flag != local_rank) {
    lockstep::throw_invalid_argument("--local_rank is " + std::to_string(*flag) +
                                     ", but this is local rank " + std::to_string(local_rank) +
                                     "; leave the flag to the launcher");
  }
  return local_rank;
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    lockstep::throw_invalid_argument("cannot make the folder " + folder.string() + ": " + failure.message() +
                                     "; give another --model_dir");
  }
}

void train(const Options& options) {
  const auto world = lockstep::init();
  const int local_rank = local_rank_of(world, options.local_rank);
  const auto device = lockstep::device_for(world, options.device);
  const auto file = options.model_dir / options.model_filename;

  torch::manual_seed(options.random_seed);
  examples::ResNet18 net;
  net->to(device);
  Model ddp(net, world, {.non_finite = lockstep::NonFinite::stop});
  if (options.resume) lockstep::load_state_dict(file, world, ddp);
  torch::optim::SGD sgd(ddp.parameters(),
                        torch::optim::SGDOptions(options.learning_rate).momentum(0.9).weight_decay(1e-5));

  const auto training = images(options.images, examples::Part::train);
  const auto test = images(options.images, examples::Part::test);
  lockstep::DistributedSampler sampler(training.size, world, {.seed = options.random_seed});
  lockstep::DataLoader batches(
      training.batch, sampler,
      {.batch_size = options.batch_size,
       .workers = options.workers,
       .transforms = {lockstep::RandomCrop(32, 4), lockstep::RandomHorizontalFlip(), normalize}});

  // The others go on meanwhile, and wait at the first gradients.
  const auto evaluate_and_save = [&](std::uint64_t epoch) {
    if (local_rank != 0) return;
    const double right = accuracy(ddp, test, device);
    lockstep::write_pth(file, lockstep::state_dict(ddp));
    std::printf("epoch %llu  accuracy %.4f  saved %s\n", static_cast<unsigned long long>(epoch), right,
                file.c_str());
    std::fflush(stdout);
  };

  if (local_rank == 0) make_folder(options.model_dir);
  for (std::uint64_t epoch = 0; epoch < options.num_epochs; ++epoch) {
    evaluate_and_save(epoch);
    const auto begin = std::chrono::steady_clock::now();
    for (auto& batch : batches) {
      sgd.zero_grad();
      const auto output = ddp(batch.data.to(device));
      torch::nn::functional::cross_entropy(output, batch.target.to(device)).backward();
      sgd.step();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("Local rank %d, epoch %llu: %.2f seconds, %.0f images/s\n", local_rank,
                static_cast<unsigned long long>(epoch), seconds.count(),
                static_cast<double>(sampler.size()) / seconds.count());
    std::fflush(stdout);
  }
  evaluate_and_save(options.num_epochs);
}

void add_flags(CLI::App& app, Options& options) {
  app.add_option("--local_rank", options.local_rank,
                 "What torch.distributed.launch passes; others say it in the environment");
  app.add_option("--num_epochs", options.num_epochs, "Passes through the training set")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "Images per process and step")
      ->check(examples::count_from(1))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of SGD")->capture_default_str();
  app.add_option("--random_seed", options.random_seed, "For weights and the order of the images")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option("--model_dir", options.model_dir, "Folder for the model, made if there is none")
      ->capture_default_str();
  app.add_option("--model_filename", options.model_filename, "The model's file in it")->capture_default_str();
  app.add_flag("--resume", options.resume, "Begin with the model that is there");
  examples::add_device_flag(app, options.device);
  examples::add_image_flags(app, options.images, "Folder with CIFAR-10's binary version");
  app.add_option("--workers", options.workers, "Threads that make batches; 0: the one that trains does")
      ->check(examples::count_from(0))
      ->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains ResNet-18 on CIFAR-10.");
  add_flags(app, options);
  return examples::run(app, argc, argv, [&] { train(options); });
}
