// A rank of a parameter server's job: servers, the coordinator where KIND has one, and workers.
//
//   ps_rank KIND [NAME=VALUE ...]
//
//   alone                one worker, staleness=none: the bits of FusedSGD
//   together             workers, synchronous: what one process does with all their samples
//   bounded              workers, staleness=N: no read is older than N pushes
//   rows                 a table whose rows are pulled and pushed; rows_first=1: pulled before the others
//   count                tasks that count; die_percent=P: workers die at any moment of a task; throw_at=N: task N throws;
//                        nan_at=N: its gradient is no number
//   late                 tasks scheduled after others have been joined
//   save                 count, then save; again: count from there on
//   leaves               the coordinator goes without a word
//   loop                 workers pull and push, for ever or until=STEP; twice=1: pushes without a pull;
//                        thaw=STEP: a parameter that was frozen is trained from then on
//
//   device=other: workers compute on a made-up device; sparse=no: the table's gradient is dense
//   servers=1 staleness=0 steps=20 tasks=20 checkpoint=PATH other_model=RANK other_frozen=RANK non_finite=stop|skip
//   deed=DEED (die, stop, throw, nan) by=RANK at=STEP, or task; own=1: of this worker's tasks the one, from 1
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/train/tensor/fake_device_test.h"

namespace {

using lockstep::ParameterServer;
using lockstep::ParameterServerOptions;
using torch::Tensor;

std::map<std::string, std::string> settings;
int me = 0, ranks = 1;

std::string setting(const std::string& name, const std::string& otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() ? otherwise : found->second;
}
int number(const std::string& name, int otherwise) {
  return std::stoi(setting(name, std::to_string(otherwise)));
}

void say(const std::string& text) {
  std::cout << "rank " + std::to_string(me) + " " + text + "\n" << std::flush;
}
void require(bool holds, const std::string& text) {
  if (!holds) throw std::runtime_error(text);
}

ParameterServerOptions options(bool coordinator = false) {
  ParameterServerOptions all{.servers = number("servers", 1), .coordinator = coordinator};
  const std::string staleness = setting("staleness", "0");
  all.staleness = staleness == "none" ? std::nullopt : std::optional(std::stoi(staleness));
  all.most_attempts = number("attempts", 3);
  all.wait = std::chrono::seconds(number("wait", 60));
  const std::string policy = setting("non_finite", "");
  if (policy == "stop") all.non_finite = lockstep::NonFinite::stop;
  if (policy == "skip") all.non_finite = lockstep::NonFinite::skip;
  all.checkpoint = setting("checkpoint", "");
  return all;
}
int workers() { return ranks - number("servers", 1); }
int worker() { return me - number("servers", 1); }

/// Where this rank's model is.
torch::Device device() {
  if (setting("device", "cpu") == "other" && worker() >= 0) return lockstep::test::other_device(0);
  return torch::kCPU;
}

torch::nn::Sequential net() {
  torch::manual_seed(7);
  torch::nn::Sequential made(torch::nn::Linear(6, number("other_model", -1) == me ? 20 : 17),
                             torch::nn::Tanh(), torch::nn::Linear(17, 3));
  made->to(torch::kFloat64);
  if (const int other = number("other_frozen", -1); other >= 0) {
    if (other == me) made->parameters()[1].detach().fill_(1.0);
    made->parameters()[1].set_requires_grad(false);
  }
  return made;
}
Tensor samples(int step, int part) {
  return torch::randn({4, 6}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(1000 * step + part)),
                      torch::kFloat64);
}
Tensor loss_of(torch::nn::Sequential& model, const Tensor& x) {
  const Tensor input = x.to(model->parameters()[0].device());
  return torch::mse_loss(model->forward(input), input.narrow(1, 0, 3).sin());
}
double difference(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  double most = 0;
  for (std::size_t i = 0; i < a->parameters().size(); ++i) {
    const Tensor other = b->parameters()[i];
    most = std::max(most, ((a->parameters()[i].cpu() - other).norm() / other.norm()).item<double>());
  }
  return most;
}

/// Returns what gradients are to be multiplied by.
double act(int step) {
  if (number("by", -1) != me || number("at", 0) != step || lockstep::incarnation() > 0) return 1;
  const std::string deed = setting("deed", "");
  say("is at " + std::to_string(step));
  if (deed == "die") (void)raise(SIGKILL);
  if (deed == "stop") (void)raise(SIGSTOP);
  if (deed == "throw") throw std::runtime_error("told to throw");
  return deed == "nan" ? std::numeric_limits<double>::quiet_NaN() : 1;
}

/// The same as one process that has all workers' samples.
void train(bool exactly) {
  auto model = net();
  model->to(device());
  ParameterServer server(*model, torch::optim::SGDOptions(0.1).momentum(0.9), options());
  if (server.is_server()) return server.serve();
  const int steps = number("steps", 20);
  for (int step = 0; step < steps; ++step) {
    server.pull();
    (void)act(step);
    loss_of(model, samples(step, worker())).backward();
    server.push();
  }
  server.pull();
  auto serial = net();
  lockstep::FusedSGD sgd(serial->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    for (int part = 0; part < workers(); ++part)
      (loss_of(serial, samples(step, part)) / workers()).backward();
    sgd.step();
  }
  server.leave();
  for (const Tensor& parameter : model->parameters())
    require(parameter.device() == device(), "a parameter has moved to " + parameter.device().str());
  const double found = difference(model, serial);
  require(found <= (exactly ? 0 : 1e-12), "parameters differ by " + std::to_string(found));
  say("the same");
}

struct CounterImpl : torch::nn::Module {
  explicit CounterImpl(std::int64_t counts) {
    count = register_parameter("count", torch::zeros({counts}, torch::kFloat64));
  }
  Tensor count;
};
TORCH_MODULE(Counter);

/// Each worker has a count of its pushes, which all see.
void bounded() {
  Counter counter(workers());
  // Synchronous gradients are averaged.
  ParameterServer server(counter, torch::optim::SGDOptions(number("staleness", 0) == 0 ? workers() : 1.0),
                         options());
  if (server.is_server()) return server.serve();
  const int bound = number("staleness", 0), steps = number("steps", 200);
  std::mt19937 random(static_cast<unsigned>(me));
  int furthest = 0;
  for (int step = 0; step < steps; ++step) {
    server.pull();
    const Tensor seen = counter->count.detach();
    require(std::lround(seen[worker()].item<double>()) == step, "a worker does not see its own push");
    for (int other = 0; other < workers(); ++other) {
      const int behind = step - static_cast<int>(std::lround(seen[other].item<double>()));
      require(behind <= bound,
              "a read at clock " + std::to_string(step) + " is " + std::to_string(behind) + " older");
      furthest = std::max(furthest, behind);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    counter->count.mutable_grad() = torch::zeros_like(seen);
    counter->count.mutable_grad()[worker()] = -1.0;
    server.push();
  }
  server.leave();
  say("was " + std::to_string(furthest) + " ahead of the slowest");
}

struct WordsImpl : torch::nn::Module {
  WordsImpl() {
    torch::manual_seed(2);
    const bool is_sparse = setting("sparse", "yes") == "yes";
    embedding = register_module("embedding",
                                torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 3).sparse(is_sparse)));
    head = register_module("head", torch::nn::Linear(3, 1));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& words) { return head(embedding(words)); }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Words);

void rows() {
  const auto words_of = [](int step, int part) {
    return torch::randint(0, 11, {4},
                          at::detail::createCPUGenerator(static_cast<std::uint64_t>(10 * step + part)),
                          torch::kInt64);
  };
  Words model;
  model->to(device());
  auto all = options();
  all.tables = {"embedding.weight"};
  ParameterServer server(model, torch::optim::SGDOptions(0.1), all);
  if (server.is_server()) return server.serve();
  for (int step = 0; step < 20; ++step) {
    const Tensor words = words_of(step, worker()).to(device());
    const bool rows_come_first = number("rows_first", 0) != 0;
    if (rows_come_first) server.pull_rows("embedding.weight", words);
    server.pull();
    if (!rows_come_first) server.pull_rows("embedding.weight", words);
    model(words).pow(2).mean().backward();
    server.push();
  }
  server.pull();
  server.pull_rows("embedding.weight", torch::arange(11));
  for (const std::int64_t row : {-1, 11}) {
    try {
      server.pull_rows("embedding.weight", torch::tensor({row}));
      throw std::runtime_error("a row that is not there was pulled");
    } catch (const lockstep::Error& error) {
      if (error.code() != lockstep::ErrorCode::invalid_argument) throw;
    }
  }
  server.leave();
  Words serial;
  lockstep::FusedSGD sgd(serial->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 20; ++step) {
    sgd.zero_grad();
    for (int part = 0; part < workers(); ++part)
      (serial(words_of(step, part)).pow(2).mean() / workers()).backward();
    sgd.step();
  }
  for (std::size_t i = 0; i < serial->parameters().size(); ++i)
    require(torch::allclose(model->parameters()[i].cpu(), serial->parameters()[i], 1e-12, 1e-12),
            "parameters differ");
  say("the same");
}

/// A worker that may die anywhere in its task.
void count(const std::string& kind) {
  Counter counter(1);
  ParameterServer server(counter, torch::optim::SGDOptions(1.0), options(true));
  const int die_percent = number("die_percent", 0);
  std::mt19937 random(std::random_device{}());
  const auto maybe_die = [&] {
    if (static_cast<int>(random() % 400) < die_percent) (void)raise(SIGKILL);
  };
  int own = 0;
  server.on("count", [&](const lockstep::ParameterTask& task) {
    double factor = act(number("own", 0) != 0 ? ++own : static_cast<int>(task.number));
    if (number("nan_at", -1) == static_cast<int>(task.number))
      factor = std::numeric_limits<double>::quiet_NaN();
    if (number("throw_at", -1) == static_cast<int>(task.number)) throw std::runtime_error("told to throw");
    maybe_die();
    server.pull();
    maybe_die();
    counter->count.mutable_grad() =
        -factor * static_cast<double>(task.argument.toInt()) * torch::ones({1}, torch::kFloat64);
    std::thread killer;  // in the middle of the push
    if (static_cast<int>(random() % 400) < die_percent)
      killer = std::thread([after = std::chrono::microseconds(random() % 200)] {
        std::this_thread::sleep_for(after);
        (void)raise(SIGKILL);
      });
    server.push();
    maybe_die();
    if (killer.joinable()) killer.join();
    return c10::IValue(static_cast<std::int64_t>(2 * task.number));
  });
  const int tasks = number("tasks", 20);
  int done = 0, failed = 0;
  const auto take = [&](const std::vector<lockstep::ParameterTaskResult>& results) {
    for (const auto& result : results) {
      if (result.error.empty()) {
        ++done;
        require(result.value.toInt() == static_cast<std::int64_t>(2 * result.number),
                "another task's result");
      } else {
        ++failed;
        say("task " + std::to_string(result.number) + " (" + result.name + ") failed after " +
            std::to_string(result.attempts) + " attempts: " + result.error);
      }
    }
  };
  if (server.is_coordinator()) {
    if (kind == "leaves") return;
    std::this_thread::sleep_for(std::chrono::milliseconds(number("idle_ms", 0)));
    for (int i = 0; i < tasks; ++i) server.schedule("count", c10::IValue(1));
    if (kind == "late") {
      take(server.join());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // workers rest
      for (int i = 0; i < tasks; ++i) server.schedule("count", c10::IValue(1));
    }
    (void)act(0);
    if (kind == "unknown") server.schedule("other");
    take(server.join());
    server.pull();
    if (kind == "save") server.save();
    say("counted " + std::to_string(counter->count[0].item<int>()) + ", done " + std::to_string(done) +
        ", failed " + std::to_string(failed));
  }
  (void)server.run();
  if (server.is_server()) {
    const auto seen = server.statistics();
    say("served " + std::to_string(seen.pushes) + " pushes, repeated " +
        std::to_string(seen.repeated_pushes));
  }
}

void loop() {
  auto model = net();
  if (number("thaw", -1) >= 0) model->parameters()[0].set_requires_grad(false);
  ParameterServer server(*model, torch::optim::SGDOptions(0.01), options());
  if (server.is_server()) {
    const std::jthread actor([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      (void)act(0);
    });
    return server.serve();
  }
  for (int step = 0; step != number("until", -1); ++step) {
    server.pull();
    const double factor = act(step);
    if (step == number("thaw", -1)) model->parameters()[0].set_requires_grad(true);
    (factor * loss_of(model, samples(step, worker()))).backward();
    server.push();
    if (number("twice", 0) != 0) server.push();
    if (step == 200) say("is past 200");
  }
  server.leave();
  say("is done");
}

void run(const std::string& kind) {
  if (kind == "alone") return train(true);
  if (kind == "together") return train(false);
  if (kind == "bounded") return bounded();
  if (kind == "rows") return rows();
  if (kind == "loop") return loop();
  count(kind);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    settings[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  if (const char* const rank = std::getenv("RANK")) me = std::stoi(rank);
  if (const char* const size = std::getenv("WORLD_SIZE")) ranks = std::stoi(size);
  torch::set_num_threads(1);
  try {
    run(argc > 1 ? argv[1] : "together");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "rank " + std::to_string(me) + " failed: " + error.what() + "\n";
    return 1;
  }
}
