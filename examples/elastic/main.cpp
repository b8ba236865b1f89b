// A training that ranks leave and join while it goes on, whose model has the same bits as one that nobody disturbed.
//
//   build/release/bin/elastic                                                        alone
//   lockstep run -np 3 --min-np 1 --max-restarts 9 build/release/bin/elastic --kill 1   rank 1 dies half-way, and comes back
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "examples/support/run.h"

namespace {

struct Options {
  int steps = 300;
  int parts = 12;
  int batch = 96;
  int width = 64;
  int least = 1;
  int kill = -1;  // the rank that kills itself half-way, in its first life
  bool spread_state = false;
  bool tells_steps = false;
  std::string device = "cpu";
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int width) : in(16, width), out(width, 1) {
    register_module("in", in);
    register_module("dropout", dropout);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(dropout(torch::relu(in(x)))); }
  torch::nn::Linear in, out;
  torch::nn::Dropout dropout{0.1};
};
TORCH_MODULE(Net);

/// One number for all bits of the model.
std::uint64_t bits_of(const torch::nn::Module& net) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const torch::Tensor& parameter : net.parameters()) {
    const auto values = parameter.detach().cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.data_ptr());
    for (std::size_t i = 0; i < values.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211U;
  }
  return hash;
}

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text.empty() ? "nobody" : text;
}

/// All that live; one that dies while they come is no reason to give up.
lockstep::Group those_that_live() {
  for (;;) {
    try {
      return lockstep::init();
    } catch (const lockstep::Error& error) {
      if (error.code() != lockstep::ErrorCode::peer_lost) throw;
    }
  }
}

void run(const Options& options) {
  torch::set_num_threads(1);  // the same sums on each rank
  torch::manual_seed(1);
  auto x = torch::randn({4096, 16});
  auto y = torch::sin(x.sum(1, true)) + x.select(1, 0).unsqueeze(1);

  Net net(options.width);
  std::optional world = those_that_live();  // it knows where this rank is on its host
  const auto device = lockstep::device_for(*world, options.device);
  net->to(device);
  x = x.to(device), y = y.to(device);
  torch::optim::Adam adam(net->parameters(), 0.003);
  lockstep::Elastic job(
      net, adam, {.parts = options.parts, .least = options.least, .spread_state = options.spread_state});
  world.reset();  // the job has it, and leaves it when ranks come or go
  lockstep::PartSampler sampler(static_cast<std::size_t>(x.size(0)), static_cast<std::size_t>(options.batch));
  const int me = job.world().world_rank(job.world().rank());
  if (options.kill >= job.world().size() && lockstep::incarnation() == 0)
    throw std::runtime_error("--kill " + std::to_string(options.kill) + ": ranks are 0 to " +
                             std::to_string(job.world().size() - 1));
  if (job.steps() > 0) std::printf("rank %d comes at step %d\n", me, static_cast<int>(job.steps()));
  job.on_change([&](const lockstep::ElasticChange& change) {
    if (job.world().rank() == 0)
      std::printf("step %d: %d ranks train; came: %s; went: %s\n", static_cast<int>(change.steps),
                  change.size, listed(change.came).c_str(), listed(change.went).c_str());
    (void)std::fflush(stdout);  // it may die any time
  });

  double loss = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto first = job.steps(), last = static_cast<std::uint64_t>(options.steps);
  while (job.steps() < last) {
    if (me == options.kill && job.steps() == last / 2 && lockstep::incarnation() == 0) (void)raise(SIGKILL);
    loss = job.step([&](const lockstep::ElasticPart& part) {
      const auto indices = sampler.indices(part);
      const auto chosen = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end())).to(device);
      auto error = torch::mse_loss(net(x.index_select(0, chosen)), y.index_select(0, chosen));
      error.backward();
      return error;
    });
    if (options.tells_steps) {
      std::printf("took step %d\n", static_cast<int>(job.steps()));
      (void)std::fflush(stdout);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (job.world().rank() != 0) return;
  std::printf("%d steps, the last loss %.4f, %.0f steps/s, repeated %d\n", options.steps, loss,
              static_cast<double>(last - first) / seconds.count(), static_cast<int>(job.repeated()));
  std::printf("the model's bits: %016llx\n", static_cast<unsigned long long>(bits_of(*net)));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains on the ranks that live; start it with lockstep run --min-np N --max-restarts M.");
  const auto count = [&](const char* name, int& value, const char* text) {
    app.add_option(name, value, text)->check(examples::count_from(1))->capture_default_str();
  };
  count("--steps", options.steps, "Steps of the optimizer");
  count("--parts", options.parts, "Parts of each step's batch, dealt to the ranks that live");
  count("--batch", options.batch, "Samples a step, a multiple of the parts");
  count("--width", options.width, "Of the hidden layer");
  count("--least", options.least, "Fewer ranks wait for others");
  app.add_option("--kill", options.kill, "The rank that kills itself half-way, in its first life")
      ->check(examples::count_from(0));
  examples::add_device_flag(app, options.device);
  app.add_flag("--spread_state", options.spread_state,
               "Each parameter's optimizer state is on two ranks only");
  app.add_flag("--tell_steps", options.tells_steps, "A line for each step, on each rank");
  return examples::run(app, argc, argv, [&] { run(options); });
}
