// A rank of a model that is spread over ranks: by a pipeline, by tensor parallelism, or trained with DiLoCo.
//
//   strategy_rank same KIND      trains, and compares with one process; prints "pipeline: the same"
//   strategy_rank soak KIND      trains until a soak hurts a rank
//   strategy_rank refused WHAT   of a pipeline of tensor-parallel layers: bare (without that group), file
//
// KIND: pipeline (1F1B), interleaved, tensor, grid (a pipeline of tensor-parallel layers, clipped), diloco.
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/soak/victim.h"

namespace {

using lockstep::Group;
using torch::Tensor;

volatile std::sig_atomic_t told = 0;  // SIGUSR1: to throw, SIGUSR2: to have numbers that are none

Tensor as_told(const Tensor& x) {
  if (told == SIGUSR1) throw std::runtime_error("told to throw");
  return told == SIGUSR2 ? x * std::numeric_limits<double>::quiet_NaN() : x * 1;
}

Tensor mse(const Tensor& output, const Tensor& target) { return torch::mse_loss(output, target); }

Tensor numbers(std::int64_t rows, std::int64_t width, std::uint64_t seed) {
  return torch::randn({rows, width}, at::detail::createCPUGenerator(seed), torch::kFloat64);
}

/// A model that trains a step at a time.
struct Learner {
  std::function<void(std::uint64_t)> step;
  std::function<std::vector<Tensor>()> whole;  ///< collective: the whole model's parameters, on rank 0
  std::vector<Tensor> parameters = {};         ///< of this rank
};

/// As many layers as the longest pipeline here has stages.
lockstep::Layers layers() {
  lockstep::Layers all;
  for (int i = 0; i < 8; ++i) {
    all.add([i] {
      torch::nn::Linear layer(32, 32);
      layer->to(torch::kFloat64);
      return layer;
    });
    all.add([](const Tensor& x) { return as_told(torch::tanh(x)); });
  }
  return all;
}

std::vector<Tensor> values_of(const lockstep::StateDict& state) {
  std::vector<Tensor> values;
  for (const auto& item : state) values.push_back(item.value().detach().clone());
  return values;
}

Learner pipeline(const Group& world, const std::string& schedule) {
  const auto pipe = std::make_shared<lockstep::Pipeline>(
      layers(), world,
      lockstep::PipelineOptions{.schedule = schedule,
                                .micro_batches = 5,
                                .stages_per_rank = schedule == "interleaved" ? 2 : 1,
                                .non_finite = lockstep::NonFinite::stop});
  const auto sgd = std::make_shared<torch::optim::SGD>(pipe->parameters(), 0.05);
  return {.step =
              [=](std::uint64_t step) {
                sgd->zero_grad();
                pipe->step(numbers(17, 32, step), numbers(17, 32, 1'000'000 + step), mse);
                sgd->step();
              },
          .whole = [=] { return values_of(pipe->gather_state()); },
          .parameters = pipe->parameters()};
}

struct SpreadImpl : torch::nn::Module {
  explicit SpreadImpl(const Group& group) : up(32, 96, group), down(96, 32, group) {
    register_module("up", up);
    register_module("down", down);
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return down(as_told(torch::tanh(up(x)))); }
  lockstep::ColumnParallelLinear up;
  lockstep::RowParallelLinear down;
};
TORCH_MODULE(Spread);

Learner tensor_parallel(const Group& world) {
  Spread net(world);
  const auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.05);
  return {.step =
              [=](std::uint64_t step) mutable {
                sgd->zero_grad();
                const auto loss = mse(net(numbers(17, 32, step)), numbers(17, 32, 1'000'000 + step));
                if (!loss.isfinite().item<bool>())
                  throw lockstep::Error(lockstep::ErrorCode::invalid_argument, "a loss that is no number");
                loss.backward();
                sgd->step();
              },
          .whole =
              [=] {
                std::vector<Tensor> whole;
                for (const auto& [tensor, dim] :
                     {std::pair(net->up->weight, 0), {net->up->bias, 0}, {net->down->weight, 1}})
                  whole.push_back(lockstep::differentiable::gather(world, tensor.detach(), dim));
                whole.push_back(net->down->bias.detach().clone());
                return whole;
              },
          .parameters = net->parameters()};
}

std::shared_ptr<lockstep::Pipeline> pipeline_of_spread(const lockstep::Grid& grid, bool knows_parts = true) {
  lockstep::Layers all;
  for (int i = 0; i < 2; ++i) {
    all.add([group = grid.tensor] { return Spread(group); });
    all.add([](const Tensor& x) { return as_told(torch::tanh(x)); });
  }
  return std::make_shared<lockstep::Pipeline>(
      all, grid.pipeline,
      lockstep::PipelineOptions{.micro_batches = 5,
                                .non_finite = lockstep::NonFinite::stop,
                                .tensor = knows_parts ? std::optional(grid.tensor) : std::nullopt});
}

/// A parameter that is cut in `dim`, or, below 0, whole, wherever its layer is.
Tensor whole_of(const lockstep::Grid& grid, const lockstep::Pipeline& pipe, const std::string& layer,
                const std::string& name, std::int64_t dim) {
  const auto parameters = pipe.named_parameters();
  const Tensor* const mine = parameters.find(layer + "." + name);
  const int owner = layer == "0" ? 0 : grid.pipeline.size() - 1;
  Tensor whole;
  if (mine != nullptr) {
    whole = mine->detach().clone();
    if (dim >= 0) whole = lockstep::differentiable::gather(grid.tensor, whole, dim).detach().contiguous();
  }
  const std::map<std::string, std::vector<std::int64_t>> sizes = {
      {"up.weight", {96, 32}}, {"up.bias", {96}}, {"down.weight", {32, 96}}, {"down.bias", {32}}};
  if (mine == nullptr) whole = torch::empty(sizes.at(name), torch::kFloat64);
  lockstep::broadcast(grid.pipeline, whole, owner).wait();
  return whole;
}

constexpr double most_norm = 0.05;

Learner grid(const Group& world) {
  const int stages = std::min(world.size(), 2);
  const lockstep::Grid all(world, {.pipeline = stages, .tensor = world.size() / stages});
  const auto pipe = pipeline_of_spread(all);
  const auto sgd = std::make_shared<torch::optim::SGD>(pipe->parameters(), 0.05);
  return {.step =
              [=](std::uint64_t step) {
                sgd->zero_grad();
                pipe->step(numbers(17, 32, step), numbers(17, 32, 1'000'000 + step), mse);
                pipe->clip_grad_norm(most_norm);
                sgd->step();
              },
          .whole =
              [=] {
                std::vector<Tensor> whole;
                for (const std::string layer : {"0", "2"}) {
                  for (const auto& [name, dim] :
                       {std::pair("up.weight", 0), {"up.bias", 0}, {"down.weight", 1}, {"down.bias", -1}})
                    whole.push_back(whole_of(all, *pipe, layer, name, dim));
                }
                return whole;
              },
          .parameters = pipe->parameters()};
}

Learner diloco(const Group& world) {
  torch::nn::Linear net(32, 32);
  net->to(torch::kFloat64);
  const auto outer = std::make_shared<lockstep::DiLoCo>(
      *net, world, torch::optim::SGDOptions(1.0),
      lockstep::DiLoCoOptions{.every = 1, .non_finite = lockstep::NonFinite::stop});
  const auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.05);
  return {.step =
              [=](std::uint64_t step) mutable {
                sgd->zero_grad();
                const auto part = [&](const Tensor& whole) {
                  return whole.tensor_split(world.size())[static_cast<std::size_t>(world.rank())];
                };
                mse(as_told(net(part(numbers(24, 32, step)))), part(numbers(24, 32, 1'000'000 + step)))
                    .backward();
                sgd->step();
                outer->step();
              },
          .whole =
              [=] {
                return std::vector<Tensor>{net->weight.detach().clone(), net->bias.detach().clone()};
              },
          .parameters = net->parameters()};
}

Learner learner(const Group& world, const std::string& kind) {
  if (kind == "pipeline") return pipeline(world, "1f1b");
  if (kind == "interleaved") return pipeline(world, "interleaved");
  if (kind == "tensor") return tensor_parallel(world);
  if (kind == "grid") return grid(world);
  if (kind == "diloco") return diloco(world);
  throw std::invalid_argument("there is no strategy " + kind);
}

/// The same steps in one process, from `values`.
void train_alone(std::vector<Tensor>& values, const std::string& kind, std::uint64_t steps) {
  for (Tensor& value : values) value.set_requires_grad(true);
  torch::optim::SGD sgd(values, 0.05);
  for (std::uint64_t step = 0; step < steps; ++step) {
    sgd.zero_grad();
    const std::int64_t rows = kind == "diloco" ? 24 : 17;
    const Tensor x = numbers(rows, 32, step), y = numbers(rows, 32, 1'000'000 + step);
    const int parts = kind == "pipeline" || kind == "interleaved" || kind == "grid" ? 5 : 1;
    const auto xs = x.tensor_split(parts), ys = y.tensor_split(parts);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      Tensor output = xs[i];
      for (std::size_t layer = 0; layer + 1 < values.size(); layer += 2) {
        output = torch::linear(output, values[layer], values[layer + 1]);
        const bool is_last = layer + 2 == values.size();
        if (!is_last || parts > 1) output = torch::tanh(output);
      }
      (mse(output, ys[i]) * (static_cast<double>(xs[i].size(0)) / static_cast<double>(rows))).backward();
    }
    if (kind == "grid") (void)torch::nn::utils::clip_grad_norm_(values, most_norm);
    sgd.step();
  }
}

int compare(const Group& world, const std::string& kind) {
  const Learner mine = learner(world, kind);
  std::vector<Tensor> alone = mine.whole();
  constexpr std::uint64_t steps = 20;
  for (std::uint64_t step = 0; step < steps; ++step) mine.step(step);
  const std::vector<Tensor> together = mine.whole();
  if (world.rank() != 0) return 0;
  train_alone(alone, kind, steps);
  // A pipeline has the very bits; sums over ranks come in another order.
  const double bound = kind == "pipeline" || kind == "interleaved" ? 0 : 1e-12;
  double most = 0;
  for (std::size_t i = 0; i < alone.size(); ++i)
    most = std::max(most, ((alone[i] - together.at(i)).norm() / alone[i].norm()).item<double>());
  std::cout << kind << ": " << (most <= bound ? "the same" : "differs by " + std::to_string(most))
            << std::endl;
  return most <= bound ? 0 : 1;
}

int make_what_is_refused(const Group& world, const std::string& what) {
  const lockstep::Grid grid(world, {.tensor = world.size()});
  const auto pipe = pipeline_of_spread(grid, what != "bare");
  (void)pipe->gather_state();
  return 0;
}

int train_until_hurt(const Group& world, const std::string& kind) {
  for (const int signal : {SIGUSR1, SIGUSR2}) (void)std::signal(signal, [](int number) { told = number; });
  const Learner mine = learner(world, kind);
  std::uint64_t steps = 0;
  std::vector<Tensor> before;
  const auto take = [&] {
    for (const Tensor& parameter : mine.parameters) before.push_back(parameter.detach().clone());
  };
  const auto is_whole = [&] {
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!torch::equal(before[i], mine.parameters[i])) return false;
    }
    return true;
  };
  return soak::loop_until_hurt(
      world, [&] { mine.step(steps++); }, take, is_whole);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 2) throw std::invalid_argument("usage: strategy_rank same|soak|refused KIND");
  torch::set_num_threads(1);
  const Group world = lockstep::init();
  if (words[0] == "same") return compare(world, words[1]);
  if (words[0] == "refused") return make_what_is_refused(world, words[1]);
  if (words[0] == "soak") return train_until_hurt(world, words[1]);
  throw std::invalid_argument("there is no action " + words[0]);
} catch (const std::exception& error) {
  std::cerr << "strategy_rank: " << error.what() << std::endl;
  return 1;
}
