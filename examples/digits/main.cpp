// Trains a small convolutional network on handwritten digits, with any number of processes:
//
//   script/make-digits
//   lockstep run -np 4 build/release/bin/digits --epochs 20
//
// What makes it a distributed program are the lines marked with a number:
//   1  join the others                    4  each rank its share of the data
//   2  learning rate x processes          5  average what is measured
//   3  wrap the model                     6  rank 0 saves, and loads for all
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "communication.h"
#include "curves.h"
#include "examples/support/run.h"
#include "network.h"

namespace {

using torch::data::transforms::Stack;

struct Options {
  std::uint64_t epochs = 20;
  std::size_t batch_size = 32;
  double learning_rate = 0.02;
  std::uint64_t seed = 1;
  std::string data = "build/digits";
  std::string checkpoint;
  bool resume = false;
  std::string curves;
};

struct Epoch {
  double loss = 0;      // mean over the samples of all ranks
  double accuracy = 0;  // of the test set
  double seconds = 0;   // of training
  double images_per_second = 0;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Whatever else the files hold would fail in the middle of training, and say less.
void require_digits(lockstep::IdxDataset& set, const std::string& name) {
  for (std::size_t i = 0; i < *set.size(); ++i) {
    const auto sample = set.get(i);
    const auto label = sample.target.item<std::int64_t>();
    if (sample.data.sizes() != torch::IntArrayRef{1, 8, 8} || label < 0 || label > 9) {
      std::ostringstream found;
      found << name << ": expected images of 8 x 8 with labels 0 to 9, found image " << i << " of "
            << sample.data.sizes() << " with label " << label << "; script/make-digits makes the digits";
      throw std::invalid_argument(found.str());
    }
  }
}

class Training {
 public:
  Training(const Options& options, const lockstep::Group& world)
      : options_(options),
        world_(world),
        ddp_(net_, world, {.non_finite = lockstep::NonFinite::stop}),  // 3
        sgd_(net_->parameters(), torch::optim::SGDOptions(rate()).momentum(0.9)),
        train_set_(options.data + "/train", {.scale = 1.0F / 16}),
        test_set_(options.data + "/test", {.scale = 1.0F / 16}),
        sampler_(*train_set_.size(), world, {.seed = options.seed}),  // 4
        communication_(world) {
    require_digits(train_set_, options.data + "/train");
    require_digits(test_set_, options.data + "/test");
  }

  /// Returns the epoch to begin with.
  std::uint64_t resume() {
    const auto info = lockstep::load_checkpoint(options_.checkpoint, world_, net_, sgd_);  // 6
    for (auto& group : sgd_.param_groups())
      group.options().set_lr(rate());  // the number of processes may have changed
    return info.epoch;
  }

  Epoch run(std::uint64_t epoch) {
    sampler_.set_epoch(epoch);
    auto loader = torch::data::make_data_loader(train_set_.map(Stack<>()), sampler_, options_.batch_size);
    const auto begin = std::chrono::steady_clock::now();
    const double loss = train_on(*loader, epoch);
    const double seconds = seconds_since(begin);
    communication_.collect();
    seconds_ += seconds;
    const auto images = static_cast<double>(sampler_.size()) * world_.size();
    return {loss, evaluate(), seconds, images / seconds};
  }

  /// Accuracy on the test set, of which each rank evaluates a part.
  double evaluate() {
    ddp_.eval();
    const torch::NoGradGuard no_grad;
    std::vector<std::size_t> mine;
    for (auto i = static_cast<std::size_t>(world_.rank()); i < *test_set_.size();
         i += static_cast<std::size_t>(world_.size())) {
      mine.push_back(i);
    }
    double right = 0;
    if (!mine.empty()) {
      const auto batch = test_set_.map(Stack<>()).get_batch(mine);
      right = ddp_(batch.data).argmax(1).eq(batch.target).to(torch::kFloat64).mean().item<double>();
    }
    return lockstep::metric_average(world_, right, mine.size());  // 5
  }

  void save(std::uint64_t next_epoch) {
    lockstep::save_checkpoint(options_.checkpoint, world_, net_, sgd_, {.epoch = next_epoch});  // 6
  }

  /// One line for programs to read.
  std::string summary(const Epoch& last, std::uint64_t epochs) const {
    const double images = static_cast<double>(sampler_.size() * epochs) * world_.size();
    char line[400];
    std::snprintf(line, sizeof line,
                  "summary processes=%d accuracy=%.4f seconds=%.2f images_per_second=%.0f waiting_share=%.4f "
                  "exposed_us_per_step=%.0f overlap=%.2f",
                  world_.size(), last.accuracy, seconds_, seconds_ > 0 ? images / seconds_ : 0,
                  communication_.waiting_share(seconds_), communication_.exposed_us_per_step(),
                  communication_.overlap());
    return line;
  }

 private:
  double rate() const { return options_.learning_rate * world_.size(); }  // 2

  template <class Loader>
  double train_on(Loader& loader, std::uint64_t epoch) {
    ddp_.train();
    double loss_sum = 0;
    std::size_t samples = 0;
    for (auto& batch : loader) {
      sgd_.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(ddp_(batch.data), batch.target);
      loss.backward();
      sgd_.step();
      const auto size = static_cast<std::size_t>(batch.data.size(0));
      loss_sum += loss.template item<double>() * static_cast<double>(size);
      samples += size;
      show_progress(epoch, samples);
    }
    return lockstep::metric_average(world_, loss_sum / static_cast<double>(samples), samples);  // 5
  }

  void show_progress(std::uint64_t epoch, std::size_t samples) const {
    if (world_.rank() != 0 || ::isatty(STDOUT_FILENO) == 0) return;
    std::printf("\repoch %3llu/%llu  %3zu %%", static_cast<unsigned long long>(epoch + 1),
                static_cast<unsigned long long>(options_.epochs), 100 * samples / sampler_.size());
    std::fflush(stdout);
  }

  Options options_;
  lockstep::Group world_;
  DigitsNet net_;
  lockstep::DistributedDataParallel<DigitsNetImpl> ddp_;
  torch::optim::SGD sgd_;
  lockstep::IdxDataset train_set_;
  lockstep::IdxDataset test_set_;
  lockstep::DistributedSampler sampler_;
  Communication communication_;
  double seconds_ = 0;
};

void add_flags(CLI::App& app, Options& options) {
  app.footer(
      "The line that begins with \"summary\" is about the whole training, from the record of each step:\n"
      "  waiting_share        part of the time spent waiting for other processes\n"
      "  exposed_us_per_step  time per step that averaging gradients took after backward had ended\n"
      "  overlap              part of the gradient buckets that were averaged before; this network is so "
      "small\n"
      "                       that all gradients are one bucket, so there is nothing to overlap");
  app.add_option("--epochs", options.epochs, "Passes through the training set")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size, "Images per process and step")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate,
                 "Of one process; multiplied by the number of processes")
      ->check(CLI::Range(1e-9, 1e3))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "For the first weights and the order of the images")
      ->check(examples::count_from(0))
      ->capture_default_str();
  app.add_option("--data", options.data, "Folder that script/make-digits has filled")->capture_default_str();
  auto* const checkpoint =
      app.add_option("--checkpoint", options.checkpoint, "File to save to after each epoch (default: none)");
  app.add_flag(
         "--resume", options.resume,
         "Go on from the checkpoint; started again by `lockstep run --max-restarts` it does so by itself")
      ->needs(checkpoint);
  app.add_option("--curves", options.curves,
                 "Folder for this run's learning curve and a picture of it beside those of other runs there, "
                 "one for each number of processes (default: none)");
}

void run(const Options& options) {
  const auto world = lockstep::init();  // 1
  torch::manual_seed(options.seed);
  Training training(options, world);
  if (!options.checkpoint.empty()) lockstep::remove_checkpoint_leftovers(options.checkpoint, world);
  const bool goes_on = options.resume || (lockstep::restarts() > 0 && !options.checkpoint.empty() &&
                                          lockstep::checkpoint_exists(options.checkpoint, world));
  const std::uint64_t first = goes_on ? training.resume() : 0;
  Epoch result;
  std::vector<lockstep::EpochResult> history;
  if (first >= options.epochs) result.accuracy = training.evaluate();  // nothing is left to train
  for (std::uint64_t epoch = first; epoch < options.epochs; ++epoch) {
    result = training.run(epoch);
    if (!options.checkpoint.empty()) training.save(epoch + 1);
    if (world.rank() != 0) continue;
    history.push_back({.epoch = epoch,
                       .train_loss = result.loss,
                       .eval_accuracy = result.accuracy,
                       .images_per_second = result.images_per_second});
    std::printf("%sepoch %3llu/%llu  loss %.4f  accuracy %.4f  %.0f images/s\n",
                ::isatty(STDOUT_FILENO) ? "\r" : "", static_cast<unsigned long long>(epoch + 1),
                static_cast<unsigned long long>(options.epochs), result.loss, result.accuracy,
                result.images_per_second);
    std::fflush(stdout);
  }
  const std::string summary = training.summary(result, options.epochs - std::min(first, options.epochs));
  if (world.rank() != 0) return;
  std::puts(summary.c_str());
  if (!options.curves.empty()) add_to_curves(options.curves, world.size(), history);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small convolutional network on handwritten digits.");
  add_flags(app, options);
  return examples::run(app, argc, argv, [&] { run(options); });
}
