// One model on several ranks, each with some of its layers: a ResNet-18 in one process, naively split (one rank works while
// the others wait), and pipelined (parts of the batch follow each other), for several numbers of parts. What is pipelined
// ends with the bits of one process that runs the same parts one after the other.
//
//   lockstep run -np 2 build/release/bin/model_parallel --svg model_parallel.svg
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "examples/support/resnet.h"
#include "examples/support/run.h"
#include "picture.h"

namespace {

struct Options {
  std::int64_t image_size = 64, batch_size = 64, width = 64;
  int micro_batches = 8;
  int repeats = 3;
  std::vector<int> parts = {2, 4, 8, 16};
  std::string schedule = "1f1b", csv, svg, device = "cpu";
  double learning_rate = 0.01;
  std::uint64_t random_seed = 0;
};

constexpr std::int64_t classes = 10;

lockstep::Layers resnet18(std::int64_t width) {
  using examples::BasicBlock, examples::BasicBlockImpl;
  lockstep::Layers layers;
  layers.add([width] { return BasicBlockImpl::convolution(3, width, 7, 2); })
      .add<torch::nn::BatchNorm2d>(width)
      .add([](const torch::Tensor& x) { return torch::max_pool2d(torch::relu(x), 3, 2, 1); });
  std::int64_t in = width;
  for (std::int64_t out = width; out <= 8 * width; out *= 2) {
    layers.add<BasicBlock>(in, out, out == width ? 1 : 2).add<BasicBlock>(out, out, 1);
    in = out;
  }
  layers.add([](const torch::Tensor& x) { return torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1); });
  layers.add<torch::nn::Linear>(in, classes);
  return layers;
}

/// A way to run the model, ready for its steps.
class Way {
 public:
  /// `group`: its ranks; all others wait. `device`: this rank's.
  Way(std::string name, const lockstep::Group& group, const Options& options, torch::Device device,
      const std::string& schedule, int micro_batches, const std::vector<std::size_t>& cut)
      : name_(std::move(name)), micro_batches_(micro_batches), device_(device) {
    torch::manual_seed(options.random_seed);  // all begin with the same values
    pipe_ = std::make_unique<lockstep::Pipeline>(
        resnet18(options.width), group,
        lockstep::PipelineOptions{
            .schedule = schedule, .micro_batches = micro_batches, .cut = cut, .device = device});
    sgd_ = std::make_unique<torch::optim::SGD>(pipe_->parameters(), options.learning_rate);
  }

  void step(const torch::Tensor& images, const torch::Tensor& labels, bool is_counted) {
    lockstep::await_device(device_);
    const auto begin = std::chrono::steady_clock::now();
    sgd_->zero_grad();
    loss_ = pipe_->step(images, labels, [](const torch::Tensor& output, const torch::Tensor& target) {
      return torch::nn::functional::cross_entropy(output, target);
    });
    sgd_->step();
    lockstep::await_device(device_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (is_counted) seconds_.push_back(took.count());
  }

  Timing timing() const {
    Timing timing{.way = name_, .micro_batches = micro_batches_};
    for (const double each : seconds_) timing.seconds += each / static_cast<double>(seconds_.size());
    double squares = 0;
    for (const double each : seconds_) squares += (each - timing.seconds) * (each - timing.seconds);
    timing.deviation = std::sqrt(squares / static_cast<double>(seconds_.size()));
    return timing;
  }
  double loss() const { return loss_; }
  const lockstep::Pipeline& pipe() const { return *pipe_; }

 private:
  std::string name_;
  int micro_batches_;
  torch::Device device_;
  std::unique_ptr<lockstep::Pipeline> pipe_;
  std::unique_ptr<torch::optim::SGD> sgd_;
  std::vector<double> seconds_;
  double loss_ = 0;
};

/// Whether two models have the same bits, on rank 0.
bool are_same(const lockstep::StateDict& a, const lockstep::StateDict& b) {
  for (const auto& item : a) {
    if (!torch::equal(item.value(), b[item.key()])) return false;
  }
  return a.size() == b.size();
}

void write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path + "; is there room, and may you?");
}

/// The cut whose slowest stage is the quickest, by times of one part of the batch.
std::vector<std::size_t> measured_cut(const lockstep::Group& world, const Options& options,
                                      torch::Device device) {
  lockstep::PipelineOptions measured{.device = device};
  if (world.rank() == 0) {
    const std::int64_t part = std::max<std::int64_t>(options.batch_size / options.micro_batches, 1);
    measured.sample = torch::randn({part, 3, options.image_size, options.image_size});
  }
  return lockstep::Pipeline(resnet18(options.width), world, measured).cut();
}

void compare(const Options& options) {
  const auto world = lockstep::init();
  torch::set_num_threads(1);
  if (options.batch_size < options.micro_batches)
    throw std::runtime_error("--micro_batches " + std::to_string(options.micro_batches) +
                             " are more than the images of a batch, --batch_size " +
                             std::to_string(options.batch_size));
  const auto alone = *world.split(world.rank());
  const auto device = lockstep::device_for(world, options.device);
  const auto cut = measured_cut(world, options, device);

  Way single("single", alone, options, device, "naive", 1, {});
  Way accumulating("accumulating", alone, options, device, "naive", options.micro_batches, {});
  Way naive("naive split", world, options, device, "naive", 1, cut);
  std::vector<std::unique_ptr<Way>> pipelined;
  std::size_t compared = options.parts.size();  // the one with as many parts as `accumulating`
  for (const int parts : options.parts) {
    if (parts > options.batch_size) {
      if (world.rank() == 0)
        std::printf("left out: pipelined, %d parts; a batch has %lld images\n", parts,
                    static_cast<long long>(options.batch_size));
      continue;
    }
    if (parts == options.micro_batches) compared = pipelined.size();
    pipelined.push_back(
        std::make_unique<Way>("pipelined", world, options, device, options.schedule, parts, cut));
  }

  torch::manual_seed(options.random_seed + 1);  // the same batch on all ranks
  const auto images = torch::randn({options.batch_size, 3, options.image_size, options.image_size});
  const auto labels = torch::randint(classes, {options.batch_size}, torch::kInt64);
  for (int round = 0; round <= options.repeats;
       ++round) {  // one after the other, so that all have the same weather
    for (Way* way : {&single, &accumulating}) {
      if (world.rank() == 0) way->step(images, labels, round > 0);
      lockstep::barrier(world).wait();
    }
    naive.step(images, labels, round > 0);
    for (auto& way : pipelined) way->step(images, labels, round > 0);
  }

  const auto expected = accumulating.pipe().gather_state();
  const auto found =
      compared < pipelined.size() ? pipelined[compared]->pipe().gather_state() : lockstep::StateDict();
  if (world.rank() != 0) return;
  examples::require_number(accumulating.loss(), options.repeats + 1);
  std::vector<Timing> timings = {single.timing(), accumulating.timing(), naive.timing()};
  for (const auto& way : pipelined) timings.push_back(way->timing());
  std::string layers;
  for (const std::size_t count : cut) layers += (layers.empty() ? "" : " + ") + std::to_string(count);
  std::printf("ResNet-18 on %d ranks, %s layers; a batch of %lld images, %lld x %lld\n%s", world.size(),
              layers.c_str(), static_cast<long long>(options.batch_size),
              static_cast<long long>(options.image_size), static_cast<long long>(options.image_size),
              bars(timings).c_str());
  if (compared < pipelined.size()) {
    std::printf(
        "pipelined is %.2f times as fast as one process with the same %d parts; its parameters are %s\n",
        accumulating.timing().seconds / pipelined[compared]->timing().seconds, options.micro_batches,
        are_same(expected, found) ? "the same bits" : "others");
  }
  write(options.csv, csv(timings));
  write(options.svg, svg(timings, "ResNet-18, a step on " + std::to_string(world.size()) + " ranks"));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Runs a model in one process, naively split and pipelined, and compares.");
  const auto count = [&](const char* name, auto& value, const char* text) {
    app.add_option(name, value, text)->check(examples::count_from(1))->capture_default_str();
  };
  count("--image_size", options.image_size, "Pixels of a side");
  count("--batch_size", options.batch_size, "Images of a step");
  count("--width", options.width, "Channels of the first layers; ResNet-18 has 64");
  count("--micro_batches", options.micro_batches, "Parts of the batch in one process");
  count("--repeats", options.repeats, "Steps that are timed, after one that is not");
  count("--parts", options.parts, "Parts of the batch for pipelines, one or several numbers");
  app.add_option("--schedule", options.schedule,
                 "Of pipelines: gpipe, 1f1b and others; lockstep pipelines draws them")
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of SGD")->capture_default_str();
  examples::add_device_flag(app, options.device);
  app.add_option("--csv", options.csv, "File for the times")->check(examples::file_to_write());
  app.add_option("--svg", options.svg, "File for the picture")->check(examples::file_to_write());
  app.add_option("--random_seed", options.random_seed, "For weights and images")
      ->check(examples::count_from(0))
      ->capture_default_str();
  return examples::run(app, argc, argv, [&] { compare(options); });
}
