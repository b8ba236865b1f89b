// The time of training steps on each rank, in one of the ways to train; benchmarks/training/run starts it
// under `lockstep run`.
#include <sys/resource.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.h"
#include "lockstep/train.h"
#include "training/agreement.h"
#include "training/models.h"
#include "training/way.h"

namespace {

using bench::Options;

long faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of the group's record, microseconds of the last steps that nothing covered; 0 of programs that are not
/// connected.
double exposed_us(const lockstep::Group& world, std::size_t steps) {
  const auto events = world.recorder().steps_since(0);
  std::vector<double> exposed = {0};
  for (std::size_t i = events.size() - std::min(events.size(), steps); i < events.size(); ++i)
    exposed.push_back(static_cast<double>(events[i].exposed_wait_ns + events[i].exposed_work_ns) / 1000);
  return median(std::move(exposed));
}

/// What it takes, in microseconds, to agree on as many names: their tensors have one element.
double control_us(const lockstep::NamedCollectives& named, std::size_t names) {
  std::vector<float> values(names, 1.0F);
  std::vector<double> times;
  for (int round = -10; round < 100; ++round) {
    named.barrier("round").wait();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<lockstep::Work> works;
    for (std::size_t i = 0; i < names; ++i)
      works.push_back(named.all_reduce("value " + std::to_string(i), std::span(values).subspan(i, 1)));
    lockstep::Work::all(std::move(works)).wait();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (round >= 0) times.push_back(took.count());
  }
  return median(std::move(times));
}

/// The most that this process has had resident, of what it shares its part, since this was made: looked at every millisecond.
class MemoryWatch {
 public:
  MemoryWatch()
      : thread_([this](const std::stop_token& stops) {
          while (!stops.stop_requested()) {
            most_ = std::max(most_, resident_bytes());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}

  double end() {
    thread_.request_stop();
    thread_.join();
    return most_;
  }

 private:
  static double resident_bytes() {
    std::ifstream lines("/proc/self/smaps_rollup");
    for (std::string word; lines >> word;) {
      double kilobytes = 0;
      if (word == "Pss:" && lines >> kilobytes) return kilobytes * 1024;
    }
    throw std::runtime_error("/proc/self/smaps_rollup has no Pss");
  }

  double most_ = 0;
  std::jthread thread_;
};

struct Figures {
  double step_s = 0;
  double faults_per_step = 0;
  double exposed_us = 0;
  double resident_bytes = 0;  // at the most, of all ranks, what they share once; if it was asked for
};

Figures measure(const Options& options, const lockstep::Group& world, bench::Way& way,
                const bench::Batch& batch) {
  std::vector<double> seconds;
  long faults_before = 0;
  std::optional<MemoryWatch> memory;
  if (options.watch_memory) memory.emplace();
  for (int step = -options.warm_up; step < options.steps; ++step) {
    if (step == 0) faults_before = faults();
    const auto begin = std::chrono::steady_clock::now();
    way.step(batch);
    if (batch.input.is_cuda()) torch::cuda::synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (step >= 0) seconds.push_back(took.count());
  }
  const double faulted = static_cast<double>(faults() - faults_before) / options.steps;
  const std::vector<double> means = lockstep::metric_average(world, std::vector{median(seconds), faulted}, 1);
  std::array<double, 1> resident{memory ? memory->end() : 0};
  all_reduce(world, resident).wait();
  return {means[0], means[1], exposed_us(world, seconds.size()), resident[0]};
}

/// As Python's JSON has it, also of a training that came to no number.
std::string number(double value) {
  std::ostringstream text;
  text << value;
  return std::isfinite(value) ? text.str() : "NaN";
}

void run(const Options& options) {
  torch::set_num_threads(1);
  const auto world = lockstep::init();
  const auto device = lockstep::device_for(world, options.device);
  bench::Way way(options, world, device);
  bench::Batch batch = bench::batch_of(bench::model_named(options.model), world.rank());
  batch = {batch.input.to(device), batch.target.to(device)};
  const Figures figures = measure(options, world, way, batch);
  const bool heap = lockstep::SharedHeap::unless_there_is_one(world) == nullptr;
  const auto left = bench::flat_parameters(way.net());
  const double difference = bench::difference_between_ranks(world, left);
  const double error = options.check ? bench::error_to_one_process(options, world.size(), device, left) : -1;
  const auto& named = way.named();
  const double control_share =
      named ? control_us(*named, way.net()->parameters().size()) * 1e-6 / figures.step_s : 0;
  if (world.rank() != 0) return;
  const double images = static_cast<double>(batch.input.size(0)) * world.size();
  std::printf("{\"images_per_s\": %.1f, \"exposed_us\": %.1f, \"faults_per_step\": %.1f, ",
              images / figures.step_s, figures.exposed_us, figures.faults_per_step);
  std::printf("\"step_us\": %.1f, \"parameter_bytes\": %lld, ", figures.step_s * 1e6,
              static_cast<long long>(left.numel() * left.element_size()));
  if (options.watch_memory) std::printf("\"resident_bytes\": %.0f, ", figures.resident_bytes);
  std::printf("\"control_share\": %.5f, \"shared_heap\": %s, ", control_share, heap ? "true" : "false");
  std::printf("\"difference_between_ranks\": %s, ", number(difference).c_str());
  if (options.check) std::printf("\"error_to_one_process\": %s, ", number(error).c_str());
  std::printf("\"torch\": \"%s\"}\n", TORCH_VERSION);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures training steps.");
  app.add_option("--model", options.model)->check(CLI::IsMember(bench::model_names()));
  app.add_option("--mode", options.mode)
      ->check(CLI::IsMember({"unconnected", "unconnected_heap", "unconnected_in_step", "unconnected_tuned",
                             "ddp", "sharded", "distributed_optimizer", "named"}));
  app.add_option("--optimizer", options.optimizer)->check(CLI::IsMember({"sgd", "adamw"}));
  app.add_option("--device", options.device);
  app.add_option("--steps", options.steps);
  app.add_option("--warm-up", options.warm_up);
  app.add_flag("--check", options.check, "compare what is left with one process's");
  app.add_flag("--watch-memory", options.watch_memory, "say what all ranks have resident at the most");
  app.add_flag("--without-averaging", options.without_averaging, "for a test: leave ranks apart");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "training_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
