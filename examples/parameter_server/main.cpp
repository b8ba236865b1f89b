// A parameter server with workers that are small devices, not to be relied on: they stall, die and are back, and one comes late. The
// coordinator gives out batches as tasks, each of which counts once, and looks how the loss falls.
//
//   lockstep run --role server:1 --role coordinator:1 --role worker:4 --restart worker --max-restarts 100
//     build/release/bin/parameter_server --staleness none --csv unbounded.csv
//   build/release/bin/parameter_server --draw synchronous.csv,unbounded.csv --svg losses.svg
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "examples/support/run.h"
#include "picture.h"

namespace {

struct Options {
  int tasks = 600;
  int batch = 64;
  int servers = 1;
  std::string staleness = "0";
  double learning_rate = 0.05;
  int stall_percent = 5;  // of tasks
  int die_percent = 1;
  int late_ms = 300;  // of the last rank
  std::string checkpoint, csv, device = "cpu";
  std::vector<std::string> draw;
  std::string svg = "losses.svg";
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("in", in);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(in(x))); }
  torch::nn::Linear in{16, 128}, out{128, 1};
};
TORCH_MODULE(Net);

torch::Tensor samples(std::int64_t count, std::uint64_t seed) {
  return torch::randn({count, 16}, at::detail::createCPUGenerator(seed));
}
torch::Tensor answers(const torch::Tensor& x) {
  return x.narrow(1, 0, 4).sum(1, true).sin() + x.select(1, 5).unsqueeze(1);
}
torch::Tensor loss_of(Net& net, const torch::Tensor& x) {
  const auto device = net->out->weight.device();
  return torch::mse_loss(net(x.to(device)), answers(x).to(device));
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void work(lockstep::ParameterServer& server, Net& net, const Options& options) {
  std::mt19937 chance(std::random_device{}());
  const auto happens = [&](int percent) { return static_cast<int>(chance() % 100) < percent; };
  server.on("train", [&](const lockstep::ParameterTask& task) {
    server.pull();
    if (happens(options.stall_percent)) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    if (happens(options.die_percent)) {
      std::cerr << "a worker dies, as --die_percent has it\n";
      (void)raise(SIGKILL);
    }
    auto loss = loss_of(net, samples(options.batch, static_cast<std::uint64_t>(task.argument.toInt())));
    loss.backward();
    server.push();
    return c10::IValue(loss.item<double>());
  });
  (void)server.run();
}

void coordinate(lockstep::ParameterServer& server, Net& net, const Options& options) {
  for (std::int64_t batch = 0; batch < options.tasks; ++batch) server.schedule("train", c10::IValue(batch));
  const auto held_out = samples(1000, 1'000'000);
  const auto begin = std::chrono::steady_clock::now();
  Losses losses;
  const auto look = [&] {
    const torch::NoGradGuard no_grad;
    server.pull();
    losses.seconds.push_back(seconds_since(begin));
    losses.losses.push_back(loss_of(net, held_out).item<double>());
  };
  look();
  while (server.open_tasks() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    look();
  }
  if (!options.checkpoint.empty()) server.save();
  int again = 0, failed = 0;
  std::string why;
  for (const auto& result : server.run()) {
    again += result.attempts > 1 ? 1 : 0;
    failed += result.error.empty() ? 0 : 1;
    if (why.empty()) why = result.error;
  }
  std::printf("%d tasks in %.2f s: loss %.4f, from %.4f; begun again %d, given up %d\n", options.tasks,
              losses.seconds.back(), losses.losses.back(), losses.losses.front(), again, failed);
  if (!options.csv.empty()) write_losses(options.csv, losses);
  if (failed > 0) throw std::runtime_error("a task was given up: " + why);
}

void draw(const Options& options) {
  std::vector<Losses> trainings;
  for (const std::string& path : options.draw) trainings.push_back(read_losses(path));
  std::ofstream file(options.svg);
  file << svg(trainings, "Loss over time, of workers that stall, die and come late");
  if (!file.flush()) throw std::runtime_error("'" + options.svg + "' cannot be written");
  std::cout << "the picture is in " << options.svg << "\n";
}

void run(const Options& options) {
  if (!options.draw.empty()) return draw(options);
  std::optional<int> staleness;
  if (options.staleness != "none") staleness = std::stoi(options.staleness);
  torch::set_num_threads(1);
  torch::manual_seed(1);
  Net net;
  if (lockstep::role() ==
      "worker")  // others compute nothing; a group of one, so that "cuda" is the first GPU for all
    net->to(lockstep::device_for(lockstep::Group(), options.device));
  if (lockstep::role() == "worker" && lockstep::incarnation() == 0 && std::getenv("RANK") != nullptr &&
      std::atoi(std::getenv("RANK")) + 1 == std::atoi(std::getenv("WORLD_SIZE")))
    std::this_thread::sleep_for(std::chrono::milliseconds(options.late_ms));
  lockstep::ParameterServer server(*net, torch::optim::SGDOptions(options.learning_rate),
                                   {.servers = options.servers,
                                    .coordinator = true,
                                    .staleness = staleness,
                                    .most_attempts = 20,
                                    .non_finite = lockstep::NonFinite::stop,
                                    .checkpoint = options.checkpoint});
  if (server.is_worker()) return work(server, net, options);
  if (server.is_coordinator()) return coordinate(server, net, options);
  server.serve();
  const auto seen = server.statistics();
  std::printf("server: %d pulls, %d pushes, repeated %d\n", static_cast<int>(seen.pulls),
              static_cast<int>(seen.pushes), static_cast<int>(seen.repeated_pushes));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains with a parameter server; start it with lockstep run --role server:1 --role coordinator:1 "
      "--role worker:N.");
  const auto count = [&](const char* name, int& value, const char* text, int least = 1) {
    app.add_option(name, value, text)->check(examples::count_from(least))->capture_default_str();
  };
  count("--tasks", options.tasks, "Batches to train with");
  count("--batch", options.batch, "Samples a task");
  count("--servers", options.servers, "The first ranks");
  app.add_option("--staleness", options.staleness,
                 "0: synchronous; a number: how far workers may be apart; none: any")
      ->check(CLI::Validator(
          [](const std::string& word) {
            return word == "none" || (!word.empty() && word.size() < 7 &&
                                      word.find_first_not_of("0123456789") == std::string::npos)
                       ? std::string()
                       : "'" + word + "' is neither a number from 0 on nor none";
          },
          "N|none"))
      ->capture_default_str();
  app.add_option("--learning_rate", options.learning_rate, "Of SGD")->capture_default_str();
  const auto percent = [&](const char* name, int& value, const char* text) {
    app.add_option(name, value, text)->check(examples::percent())->capture_default_str();
  };
  percent("--stall_percent", options.stall_percent, "Of tasks, in which a worker stalls for 40 ms");
  percent("--die_percent", options.die_percent, "Of tasks, in which a worker dies");
  count("--late_ms", options.late_ms, "When the last rank comes", 0);
  app.add_option("--device", options.device, "Of workers: cpu, cuda (the first one) or cuda:1")
      ->capture_default_str();
  app.add_option("--checkpoint", options.checkpoint,
                 "Where the servers begin, if it is there, and what they leave: a file for each")
      ->check(examples::file_to_write());
  app.add_option("--csv", options.csv, "Writes the loss over time there")->check(examples::file_to_write());
  app.add_option("--draw", options.draw, "Trains nothing, but draws such files")->delimiter(',');
  app.add_option("--svg", options.svg, "Where --draw writes")
      ->check(examples::file_to_write())
      ->capture_default_str();
  return examples::run(app, argc, argv, [&] { run(options); });
}
