#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"
#include "lockstep/train/tensor_parallel/differentiable.h"
#include "lockstep/train/tensor_parallel/grid.h"
#include "lockstep/train/tensor_parallel/parallel_layers.h"

namespace lockstep {
namespace {

using test::on_ranks;
using test::run_ranks;
using test::same_bits;
using ::testing::Contains;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using torch::Tensor;

Tensor numbers(torch::IntArrayRef sizes, std::uint64_t seed) {
  return torch::randn(sizes, at::detail::createCPUGenerator(seed), torch::kFloat64);
}

/// What each rank has, with a gradient.
Tensor leaf(const Group& world, torch::IntArrayRef sizes) {
  return numbers(sizes, 10 + static_cast<std::uint64_t>(world.rank())).set_requires_grad(true);
}
std::vector<Tensor> leaves_of_all(const Group& world, torch::IntArrayRef sizes) {
  std::vector<Tensor> all;
  for (int rank = 0; rank < world.size(); ++rank)
    all.push_back(numbers(sizes, 10 + static_cast<std::uint64_t>(rank)).set_requires_grad(true));
  return all;
}
/// Another weight for each rank's output, so that gradients differ.
Tensor weights(int rank, torch::IntArrayRef sizes) {
  return numbers(sizes, 50 + static_cast<std::uint64_t>(rank));
}

/// `mine` on every rank beside `all_at_once`, which computes all ranks' outputs in one process: the same outputs, and the same
/// gradients of the sum of all ranks' losses.
void expect_alike(const Group& world, torch::IntArrayRef sizes,
                  const std::function<Tensor(const Tensor&)>& mine,
                  const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& all_at_once) {
  const Tensor x = leaf(world, sizes);
  const Tensor output = mine(x);
  (output * weights(world.rank(), output.sizes())).sum().backward();
  const auto xs = leaves_of_all(world, sizes);
  const auto outputs = all_at_once(xs);
  Tensor loss = torch::zeros({}, torch::kFloat64);
  for (int rank = 0; rank < world.size(); ++rank) {
    const Tensor& each = outputs[static_cast<std::size_t>(rank)];
    loss = loss + (each * weights(rank, each.sizes())).sum();
  }
  loss.backward();
  const auto rank = static_cast<std::size_t>(world.rank());
  EXPECT_TRUE(torch::allclose(output, outputs[rank], 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(x.grad(), xs[rank].grad(), 1e-12, 1e-12));
}

TEST(Differentiable, CollectivesHaveTheGradientsOfOneProcess) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    on_ranks(ranks, [](const Group& world) {
      const auto p = static_cast<std::size_t>(world.size());
      const auto sum = [](const std::vector<Tensor>& xs) {
        Tensor all = xs[0];
        for (std::size_t i = 1; i < xs.size(); ++i) all = all + xs[i];
        return all;
      };
      expect_alike(
          world, {3, 4}, [&](const Tensor& x) { return differentiable::all_reduce(world, x); },
          [&](const auto& xs) { return std::vector<Tensor>(p, sum(xs)); });
      for (const std::int64_t dim : {0, 1, -1}) {
        expect_alike(
            world, {3, 4}, [&](const Tensor& x) { return differentiable::all_gather(world, x, dim); },
            [&](const auto& xs) { return std::vector<Tensor>(p, torch::cat(xs, dim)); });
        expect_alike(
            world, {12, 12}, [&](const Tensor& x) { return differentiable::reduce_scatter(world, x, dim); },
            [&](const auto& xs) { return sum(xs).split(12 / static_cast<std::int64_t>(p), dim); });
      }
      // With gaps in memory, and twice in one graph.
      expect_alike(
          world, {4, 3},
          [&](const Tensor& x) {
            return differentiable::all_reduce(world, differentiable::all_reduce(world, x.t()) * x.t());
          },
          [&](const auto& xs) {
            std::vector<Tensor> products;
            for (const Tensor& x : xs) products.push_back(sum(xs).t() * x.t());
            return std::vector<Tensor>(p, sum(products));
          });
    });
  }
}

TEST(Differentiable, MessagesCarryGradientsBack) {
  on_ranks(2, [](const Group& world) {
    const Tensor x = numbers({2, 3}, 1), w = numbers({3, 2}, 2);
    if (world.rank() == 0) {
      const Tensor mine = x.clone().set_requires_grad(true);
      differentiable::send(world, torch::tanh(mine), 1, 5).backward();
      const Tensor here = x.clone().set_requires_grad(true);
      torch::tanh(here).matmul(w).pow(2).sum().backward();
      EXPECT_TRUE(torch::allclose(mine.grad(), here.grad()));
    } else {
      const Tensor there = differentiable::recv(world, torch::empty({2, 3}, torch::kFloat64), 0, 5);
      EXPECT_TRUE(same_bits(there, torch::tanh(x)));
      there.matmul(w).pow(2).sum().backward();
    }
  });
}

TEST(Differentiable, WhatCannotBeIsRefused) {
  const auto text = [](const std::function<void(const Group&)>& call) { return run_ranks(2, call)[1].text; };
  EXPECT_THAT(text([](const Group& world) {
                differentiable::reduce_scatter(world, torch::ones({3, 2}));
              }),
              HasSubstr("dimension 0 of a tensor [3, 2] is 3 long, which 2 ranks do not divide"));
  EXPECT_THAT(text([](const Group& world) {
                differentiable::scatter(world, torch::ones({2, 3}));
              }),
              HasSubstr("dimension 1 of a tensor"));
  EXPECT_THAT(text([](const Group& world) { differentiable::all_reduce(world, Tensor()); }),
              HasSubstr("a tensor is undefined"));
}

/// Embedding, two layers with tanh between, and sums: serial.
struct Serial {
  Tensor embedding, weight1, bias1, weight2, bias2;
  Tensor loss(const Tensor& words, const Tensor& target) const {
    const Tensor hidden = torch::tanh(torch::linear(torch::embedding(embedding, words), weight1, bias1));
    return torch::mse_loss(torch::linear(hidden, weight2, bias2), target);
  }
  std::vector<Tensor> parameters() const { return {embedding, weight1, bias1, weight2, bias2}; }
};

struct SpreadImpl : torch::nn::Module {
  explicit SpreadImpl(const Group& group)
      : embedding(11, 6, group), first(6, 12, group), second(12, 4, group) {
    register_module("embedding", embedding);
    register_module("first", first);
    register_module("second", second);
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& words) { return second(torch::tanh(first(embedding(words)))); }
  VocabParallelEmbedding embedding;
  ColumnParallelLinear first;
  RowParallelLinear second;
};
TORCH_MODULE(Spread);

std::filesystem::path file_of_this_test() {
  return std::filesystem::temp_directory_path() / ("lockstep-spread-" + std::to_string(::getpid()) + ".pth");
}

TEST(TensorParallel, TrainsAsTheSerialModelAndFilesFitAnyNumberOfRanks) {
  const auto file = file_of_this_test();
  on_ranks(1, [&](const Group& world) {
    Spread net(world);
    save_whole_state_dict(file, world, *net);
  });
  const StateDict before = read_pth(file);
  Serial serial{before["embedding.weight"].clone(), before["first.weight"].clone(),
                before["first.bias"].clone(), before["second.weight"].clone(), before["second.bias"].clone()};
  for (const Tensor& parameter : serial.parameters()) parameter.set_requires_grad(true);
  const auto words = [](int step) {
    return torch::randint(11, {8}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(step)),
                          torch::kInt64);
  };
  const auto target = [](int step) { return numbers({8, 4}, 1000 + static_cast<std::uint64_t>(step)); };
  torch::optim::SGD sgd(serial.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> norms;
  for (int step = 0; step < 100; ++step) {
    sgd.zero_grad();
    serial.loss(words(step), target(step)).backward();
    norms.push_back(torch::nn::utils::clip_grad_norm_(serial.parameters(), 0.5));
    sgd.step();
  }
  EXPECT_THAT(norms, Contains(Gt(0.5)));
  EXPECT_THAT(norms, Contains(Lt(0.5)));
  for (const int ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [&](const Group& world) {
      Spread net(world);
      load_whole_state_dict(file, world, *net);
      EXPECT_EQ(net->first->weight.size(0), 12 / ranks);
      torch::optim::SGD mine(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 100; ++step) {
        mine.zero_grad();
        torch::mse_loss(net(words(step)), target(step)).backward();
        EXPECT_NEAR(clip_grad_norm(world, net, 0.5), norms[static_cast<std::size_t>(step)], 1e-9);
        mine.step();
      }
      save_whole_state_dict(file.string() + std::to_string(ranks), world, *net);
    });
    const StateDict after = read_pth(file.string() + std::to_string(ranks));
    const auto expected = serial.parameters();
    const char* const names[] = {"embedding.weight", "first.weight", "first.bias", "second.weight",
                                 "second.bias"};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = ((after[names[i]] - expected[i]).norm() / expected[i].norm()).item<double>();
      EXPECT_LE(error, 1e-9) << ranks << " ranks, " << names[i];
    }
    std::filesystem::remove(file.string() + std::to_string(ranks));
  }
  std::filesystem::remove(file);
}

TEST(TensorParallel, BeginsWithRank0sSerialWeights) {
  torch::manual_seed(100);
  const torch::nn::Linear serial(6, 4);
  const Tensor next = torch::rand(1);
  on_ranks(1, [&](const Group& world) {
    torch::manual_seed(100);
    const ColumnParallelLinear columns(6, 4, world);
    EXPECT_TRUE(same_bits(columns->weight, serial->weight));
    EXPECT_TRUE(same_bits(columns->bias, serial->bias));
    EXPECT_TRUE(same_bits(torch::rand(1), next));
  });
}

TEST(TensorParallel, TakesAndGivesWholeTensorsWhereAsked) {
  on_ranks(2, [](const Group& world) {
    ColumnParallelLinear columns(4, 6, world, ColumnParallelOptions{.bias = false, .gather_output = true});
    RowParallelLinear rows(6, 3, world, RowParallelOptions{.bias = false, .input_is_parallel = false});
    const Tensor x = torch::ones({2, 4});
    const Tensor wide = columns(x);
    EXPECT_EQ(wide.size(1), 6);
    EXPECT_EQ(rows(wide).size(1), 3);
    rows(wide).sum().backward();
    EXPECT_TRUE(columns->weight.grad().defined());
  });
}

TEST(TensorParallel, RefusesWhatDoesNotFit) {
  const auto text = [](const std::function<void(const Group&)>& call) { return run_ranks(2, call)[1].text; };
  EXPECT_THAT(text([](const Group& world) { ColumnParallelLinear(4, 5, world); }),
              HasSubstr("ColumnParallelLinear: out is 5, which 2 ranks do not divide"));
  EXPECT_THAT(text([](const Group& world) { RowParallelLinear(3, 4, world); }),
              HasSubstr("RowParallelLinear: in is 3"));
  EXPECT_THAT(text([](const Group& world) { VocabParallelEmbedding(1, 4, world); }),
              HasSubstr("1 words on 2 ranks"));
  EXPECT_THAT(text([](const Group& world) { VocabParallelEmbedding(4, 4, world)(torch::tensor({4})); }),
              HasSubstr("an index is not from 0 to 3"));
  const auto file = file_of_this_test();
  on_ranks(
      2, [&](const Group& world) { save_whole_state_dict(file, world, *ColumnParallelLinear(4, 6, world)); });
  EXPECT_THAT(text([&](const Group& world) {
                load_whole_state_dict(file, world, *ColumnParallelLinear(4, 8, world));
              }),
              HasSubstr("\"weight\" is f32 [6, 4] there and [8, 4] here"));
  EXPECT_THAT(text([&](const Group& world) {
                load_whole_state_dict(file, world,
                                      *RowParallelLinear(6, 4, world, RowParallelOptions{.bias = false}));
              }),
              HasSubstr("is of another model: "));
  std::filesystem::remove(file);
}

TEST(GridOfRanks, HasAGroupInEachDirection) {
  on_ranks(8, [](const Group& world) {
    const Grid grid(world, {.data = 2, .pipeline = 2, .tensor = 2});
    const int rank = world.rank();
    EXPECT_EQ(grid.tensor.rank(), rank % 2);
    EXPECT_EQ(grid.pipeline.rank(), rank / 2 % 2);
    EXPECT_EQ(grid.data.rank(), rank / 4);
    for (const Group* group : {&grid.data, &grid.pipeline, &grid.tensor}) EXPECT_EQ(group->size(), 2);
    EXPECT_EQ(grid.tensor.world_rank(1 - grid.tensor.rank()), rank ^ 1);
    EXPECT_EQ(grid.pipeline.world_rank(1 - grid.pipeline.rank()), rank ^ 2);
    EXPECT_EQ(grid.data.world_rank(1 - grid.data.rank()), rank ^ 4);
  });
  EXPECT_THAT(run_ranks(2, [](const Group& world) { Grid(world, {.data = 2, .tensor = 2}); })[0].text,
              HasSubstr("Grid: 2 x 1 x 2 (data, pipeline, tensor) on 2 ranks"));
}

}  // namespace
}  // namespace lockstep
