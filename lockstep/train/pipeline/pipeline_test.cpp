#include "lockstep/train/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "lockstep/base/folder_test.h"
#include "lockstep/train/replicas/mixed_precision.h"
#include "lockstep/train/tensor/ranks_test.h"
#include "lockstep/train/tensor/tensor_collectives.h"

namespace lockstep {
namespace {

using test::Ending;
using test::on_ranks;
using test::run_ranks;
using test::same_bits;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::Linear;

torch::Tensor mse(const Tensor& output, const Tensor& target) { return torch::mse_loss(output, target); }

/// Eight layers, of which four have parameters.
Layers make_layers() {
  Layers layers;
  layers.add<Linear>(6, 12)
      .add(torch::tanh)
      .add<Linear>(12, 12)
      .add(torch::relu)
      .add<Linear>(12, 8)
      .add(torch::tanh)
      .add<Linear>(8, 3);
  layers.add([](const Tensor& x) { return x * 2; });
  return layers;
}

Tensor samples(std::int64_t count, std::int64_t width, std::uint64_t seed) {
  return torch::randn({count, width}, at::detail::createCPUGenerator(seed));
}

/// The whole model, and one step after the other.
class Reference {
 public:
  explicit Reference(const StateDict& state) {
    for (const auto& item : state)
      parameters_.push_back(item.value().detach().clone().set_requires_grad(true));
  }
  Tensor forward(Tensor x) const {
    x = torch::tanh(torch::linear(x, parameters_[0], parameters_[1]));
    x = torch::relu(torch::linear(x, parameters_[2], parameters_[3]));
    x = torch::tanh(torch::linear(x, parameters_[4], parameters_[5]));
    return torch::linear(x, parameters_[6], parameters_[7]) * 2;
  }
  double step(const Tensor& x, const Tensor& y, int micro_batches, torch::optim::Optimizer& optimizer) const {
    optimizer.zero_grad();
    double mean = 0;
    const auto xs = x.tensor_split(micro_batches), ys = y.tensor_split(micro_batches);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      const double share = static_cast<double>(xs[i].size(0)) / static_cast<double>(x.size(0));
      const Tensor loss = mse(forward(xs[i]), ys[i]);
      (loss * share).backward();
      mean += share * loss.item<double>();
    }
    optimizer.step();
    return mean;
  }
  const std::vector<Tensor>& parameters() const { return parameters_; }

 private:
  std::vector<Tensor> parameters_;
};

struct Case {
  const char* schedule;
  int stages_per_rank;
};
std::ostream& operator<<(std::ostream& out, const Case& each) { return out << each.schedule; }

class Pipelines : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(By, Pipelines,
                         ::testing::Values(Case{"naive", 1}, Case{"gpipe", 1}, Case{"1f1b", 1},
                                           Case{"interleaved", 2}));

TEST_P(Pipelines, EndWithTheBitsOfOneProcess) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      on_ranks(ranks, [&](const Group& world) {
        Pipeline pipe(make_layers(), world,
                      {.schedule = GetParam().schedule,
                       .micro_batches = micro_batches,
                       .stages_per_rank = GetParam().stages_per_rank});
        const Reference reference(pipe.gather_state());  // on rank 0
        torch::optim::SGD sgd(pipe.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
        std::optional<torch::optim::SGD> reference_sgd;
        if (world.rank() == 0)
          reference_sgd.emplace(reference.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
        for (std::uint64_t i = 0; i < 5; ++i) {
          const std::int64_t count = i % 2 == 0 ? 18 : 11;  // uneven, too
          const Tensor x = samples(count, 6, 10 + i), y = samples(count, 3, 20 + i);
          sgd.zero_grad();
          const double loss = pipe.step(x, y, mse);
          sgd.step();
          if (reference_sgd) {
            EXPECT_EQ(loss, reference.step(x, y, micro_batches, *reference_sgd));
          }
        }
        const StateDict state = pipe.gather_state();
        if (world.rank() != 0) return;
        ASSERT_EQ(state.size(), reference.parameters().size());
        for (std::size_t i = 0; i < state.size(); ++i)
          EXPECT_TRUE(same_bits(state[i].value(), reference.parameters()[i]))
              << ranks << " ranks, " << micro_batches << ", " << state[i].key();
      });
    }
  }
}

TEST(Pipeline, HasTheWholeModelsNamesHoweverItIsCut) {
  std::vector<std::vector<std::string>> names;
  for (const std::vector<std::size_t>& cut : {std::vector<std::size_t>{8}, {3, 5}, {1, 1, 6}}) {
    on_ranks(static_cast<int>(cut.size()), [&](const Group& world) {
      Pipeline pipe(make_layers(), world, {.cut = cut});
      EXPECT_EQ(pipe.cut(), cut);
      const StateDict state = pipe.gather_state();
      if (world.rank() != 0) return;
      names.push_back(state.keys());
    });
  }
  EXPECT_THAT(names[0], ElementsAre("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias",
                                    "6.weight", "6.bias"));
  EXPECT_EQ(names[1], names[0]);
  EXPECT_EQ(names[2], names[0]);
}

TEST(Pipeline, LoadsFilesOfAnotherCut) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep-pipeline-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto file = folder / "model.pth";
  StateDict saved;
  on_ranks(3, [&](const Group& world) {
    Pipeline pipe(make_layers(), world);
    save_state_dict(file, pipe);
    auto state = pipe.gather_state();
    if (world.rank() == 0) saved = std::move(state);
  });
  on_ranks(2, [&](const Group& world) {
    Pipeline pipe(make_layers(), world);
    load_state_dict(file, pipe);
    const auto state = pipe.gather_state();
    if (world.rank() == 0) {
      for (const auto& item : saved) EXPECT_TRUE(same_bits(state[item.key()], item.value()));
    }
  });
  for (const Ending& ending : run_ranks(2, [&](const Group& world) {
         Layers other;
         other.add<Linear>(6, 12).add<Linear>(12, 3);
         Pipeline pipe(other, world);
         load_state_dict(file, pipe);
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_THAT(ending.text, HasSubstr("the state dict is of another model: \"1.weight\" is missing"));
  }
  std::filesystem::remove_all(folder);
}

class PipelineFiles : public test::FolderTest {
 protected:
  std::filesystem::path file() const { return folder_ / "model.ckpt"; }
};

void train(Pipeline& pipe, torch::optim::Optimizer& optimizer, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t i = begin; i < end; ++i) {
    optimizer.zero_grad();
    pipe.step(samples(12, 6, 10 + i), samples(12, 3, 20 + i), mse);
    optimizer.step();
  }
}

/// make_layers() as a model that is not cut.
torch::nn::Sequential make_whole() {
  return torch::nn::Sequential(Linear(6, 12), torch::nn::Functional(torch::tanh), Linear(12, 12),
                               torch::nn::Functional(torch::relu), Linear(12, 8),
                               torch::nn::Functional(torch::tanh), Linear(8, 3));
}

TEST_F(PipelineFiles, GoOnInAnotherCutWithTheOptimizersState) {
  const auto adam_of = [](const std::vector<Tensor>& parameters, double rate) {
    return torch::optim::Adam(parameters, torch::optim::AdamOptions(rate));
  };
  StateDict expected;
  on_ranks(3, [&](const Group& world) {
    Pipeline pipe(make_layers(), world, {.micro_batches = 3});
    auto adam = adam_of(pipe.parameters(), 0.01);
    train(pipe, adam, 0, 3);
    save_checkpoint(file(), pipe, adam, {.epoch = 7, .metadata = {{"note", "cut in three"}}});
    train(pipe, adam, 3, 6);
    StateDict state = pipe.gather_state();
    if (world.rank() == 0) expected = std::move(state);
  });
  for (const int ranks : {1, 2, 4}) {
    on_ranks(ranks, [&](const Group& world) {
      Pipeline pipe(make_layers(), world, {.micro_batches = 3});
      auto adam = adam_of(pipe.parameters(), 0.5);  // the file's is taken
      train(pipe, adam, 50, 52);
      const CheckpointInfo info = load_checkpoint(file(), pipe, adam);
      EXPECT_EQ(info.epoch, 7U);
      EXPECT_EQ(info.metadata.at("note"), "cut in three");
      train(pipe, adam, 3, 6);
      const StateDict state = pipe.gather_state();
      if (world.rank() != 0) return;
      for (const auto& item : expected)
        EXPECT_TRUE(same_bits(state[item.key()], item.value())) << ranks << " ranks: " << item.key();
    });
  }
}

TEST_F(PipelineFiles, AreThoseOfAModelThatIsNotCut) {
  on_ranks(1, [&](const Group& world) {
    auto net = make_whole();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    net->forward(samples(4, 6, 1)).sum().backward();
    sgd.step();
    save_checkpoint(file(), world, net, sgd, {.epoch = 2});
  });
  StateDict of_pipeline;
  on_ranks(2, [&](const Group& world) {
    Pipeline pipe(make_layers(), world);
    torch::optim::SGD sgd(pipe.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    EXPECT_EQ(load_checkpoint(file(), pipe, sgd).epoch, 2U);
    train(pipe, sgd, 0, 2);
    save_checkpoint(file(), pipe, sgd, {.epoch = 4});
    train(pipe, sgd, 2, 3);
    StateDict state = pipe.gather_state();
    if (world.rank() == 0) of_pipeline = std::move(state);
  });
  on_ranks(1, [&](const Group& world) {
    auto net = make_whole();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    EXPECT_EQ(load_checkpoint(file(), world, net, sgd).epoch, 4U);
    sgd.zero_grad();
    mse(net->forward(samples(12, 6, 12)) * 2, samples(12, 3, 22)).backward();
    sgd.step();
    for (const auto& item : net->named_parameters())
      EXPECT_TRUE(same_bits(of_pipeline[item.key()], item.value())) << item.key();
  });
}

TEST_F(PipelineFiles, ThatDoNotFitAreRefusedByAllRanks) {
  on_ranks(2, [&](const Group& world) {
    Pipeline pipe(make_layers(), world);
    torch::optim::Adam adam(pipe.parameters());
    save_checkpoint(file(), pipe, adam);
  });
  const auto refusal = [&](const std::function<void(Pipeline&, const Group&)>& act) {
    return run_ranks(2, [&](const Group& world) {
      Pipeline pipe(make_layers(), world);
      act(pipe, world);
    });
  };
  const std::pair<std::function<void(Pipeline&, const Group&)>, const char*> cases[] = {
      {[&](Pipeline& pipe, const Group&) {
         torch::optim::SGD sgd(pipe.parameters(), 0.1);
         load_checkpoint(file(), pipe, sgd);
       },
       "holds the state of an optimizer Adam, here it is SGD"},
      {[&](Pipeline& pipe, const Group& world) {
         torch::optim::SGD sgd(pipe.parameters(), world.rank() == 0 ? 0.1 : 0.2);
         save_checkpoint(file(), pipe, sgd);
       },
       "rank 1's learning rate is 0.2, rank 0's is 0.1"},
      {[&](Pipeline& pipe, const Group&) {
         torch::optim::Adagrad adagrad(pipe.parameters());
         save_checkpoint(file(), pipe, adagrad);
       },
       "only SGD, Adam and AdamW are done here"},
      {[&](Pipeline& pipe, const Group&) {
         torch::optim::SGD sgd({torch::zeros({3})}, 0.1);
         save_checkpoint(file(), pipe, sgd);
       },
       "the optimizer has a parameter, f32 [3], that is none of the pipeline's"},
      {[&](Pipeline& pipe, const Group&) {
         torch::optim::Adam adam(pipe.parameters());
         load_checkpoint(file().string() + "x", pipe, adam);
       },
       "No such file"},
  };
  for (const auto& [act, text] : cases) {
    for (const Ending& ending : refusal(act)) {
      EXPECT_FALSE(ending.ok) << text;
      EXPECT_THAT(ending.text, HasSubstr(text));
    }
  }
}

TEST(Pipeline, UnderAutocastHasTheBitsOfOneProcess) {
  on_ranks(2, [](const Group& world) {
    Pipeline pipe(make_layers(), world, {.micro_batches = 4});
    const Reference reference(pipe.gather_state());
    torch::optim::SGD sgd(pipe.parameters(), 0.1);
    std::optional<torch::optim::SGD> reference_sgd;
    if (world.rank() == 0) reference_sgd.emplace(reference.parameters(), 0.1);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const Tensor x = samples(8, 6, i), y = samples(8, 3, 10 + i);
      sgd.zero_grad();
      {
        const Autocast halves(torch::kBFloat16);
        const double loss = pipe.step(x, y, mse);
        if (reference_sgd) {
          EXPECT_EQ(loss, reference.step(x, y, 4, *reference_sgd));
        }
      }
      sgd.step();
    }
    const StateDict state = pipe.gather_state();
    if (world.rank() != 0) return;
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_TRUE(same_bits(state[i].value(), reference.parameters()[i])) << state[i].key();
  });
}

TEST(Pipeline, TakesStepsOfScaledGradientsOnAllStagesOrOnNone) {
  on_ranks(2, [](const Group& world) {
    Pipeline pipe(make_layers(), world, {.micro_batches = 2});
    const Reference reference(pipe.gather_state());
    torch::optim::SGD sgd(pipe.parameters(), 0.1);
    std::optional<torch::optim::SGD> reference_sgd;
    if (world.rank() == 0) reference_sgd.emplace(reference.parameters(), 0.1);
    GradientScaler scaler({.initial_scale = 64}, world);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const Tensor x = samples(8, 6, i), y = samples(8, 3, 10 + i);
      const bool is_bad = i == 1;  // on the last stage alone
      sgd.zero_grad();
      pipe.step(x, y, [&](const Tensor& output, const Tensor& target) {
        return scaler.scale(mse(output, target));
      });
      if (is_bad && world.rank() == 1) pipe.parameters().back().mutable_grad().fill_(INFINITY);
      EXPECT_EQ(scaler.step(sgd), !is_bad);
      scaler.update();
      if (reference_sgd && !is_bad) reference.step(x, y, 2, *reference_sgd);
    }
    EXPECT_EQ(scaler.factor(), 32);
    const StateDict state = pipe.gather_state();
    if (world.rank() != 0) return;
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_TRUE(torch::allclose(state[i].value(), reference.parameters()[i])) << state[i].key();
  });
}

struct SplitImpl : torch::nn::Module {
  SplitImpl() { register_module("linear", linear); }
  std::tuple<Tensor, Tensor> forward(const Tensor& x) { return {linear(x), x}; }
  Linear linear{4, 4};
};
TORCH_MODULE(Split);

TEST(Pipeline, HandsOnSkipConnections) {
  on_ranks(3, [](const Group& world) {
    Layers layers;
    layers.add<Split>().add([](const Tensor& x, const Tensor& skip) {
      return std::vector{torch::tanh(x), skip, skip.argmax(1)};
    });
    layers.add(
        [](const Tensor& x, const Tensor& skip, const Tensor& most) { return x + skip + most.unsqueeze(1); });
    Pipeline pipe(layers, world, {.micro_batches = 2});
    const Tensor x = samples(6, 4, 1), y = samples(6, 4, 2);
    const double loss = pipe.step(x, y, mse);
    const auto state = pipe.gather_state();
    if (world.rank() != 0) return;
    const Tensor weight = state["0.linear.weight"].detach().clone().set_requires_grad(true);
    const Tensor expected = mse(
        torch::tanh(torch::linear(x, weight, state["0.linear.bias"].detach())) + x + x.argmax(1).unsqueeze(1),
        y);
    EXPECT_NEAR(loss, expected.item<double>(), 1e-5);
    expected.backward();
    EXPECT_TRUE(torch::allclose(pipe.parameters()[0].grad(), weight.grad(), 1e-5, 1e-6));
  });
}

struct TwoImpl : torch::nn::Module {
  TwoImpl() {
    register_module("used", used);
    register_module("unused", unused);
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& x) { return {used(x), unused(x)}; }
  Linear used{4, 4}, unused{4, 4};
};
TORCH_MODULE(Two);

// No gradient is another one than zeros: weights do not decay.
TEST(Pipeline, LeavesWhatNobodyUsesWithoutGradient) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    on_ranks(ranks, [&](const Group& world) {
      const bool has_replicas = world.size() == 4;
      const Group stages = has_replicas ? *world.split(world.rank() / 2) : world;
      Layers layers;
      layers.add<Two>().add([](const Tensor& x, const Tensor&) { return x * 1; }).add<Linear>(4, 4);
      layers.tie("0.unused.bias", "2.bias");
      PipelineOptions options{.micro_batches = 2};
      if (has_replicas) options.replicas = *world.split(world.rank() % 2);
      Pipeline pipe(layers, stages, options);
      pipe.step(samples(6, 4, 1), samples(6, 4, 2), mse);
      for (const auto& item : pipe.named_parameters())
        EXPECT_EQ(item.value().grad().defined(), item.key() != "0.unused.weight") << item.key();
    });
  }
}

// Of which one is only used by the first replica.
TEST(Pipeline, AveragesSparseGradientsAndThoseThatNotAllReplicasHave) {
  on_ranks(2, [](const Group& world) {
    const Group alone = *world.split(world.rank());
    Layers layers;
    layers.add<torch::nn::Embedding>(torch::nn::EmbeddingOptions(5, 4).sparse(true)).add<Two>();
    layers.add([&](const Tensor& x, const Tensor& y) { return world.rank() == 0 ? x + y : x * 1; });
    Pipeline pipe(layers, alone, {.micro_batches = 1, .replicas = world});
    const Tensor words =
        world.rank() == 0 ? torch::tensor({1, 1, 3}, torch::kInt64) : torch::tensor({0, 3, 4}, torch::kInt64);
    pipe.step(words, torch::zeros({3, 4}), mse);
    for (const auto& item : pipe.named_parameters()) {
      const Tensor gradient = item.value().grad();
      ASSERT_TRUE(gradient.defined()) << item.key();
      EXPECT_GT(gradient.abs().sum().item<double>(), 0) << item.key();
      Tensor firsts = gradient.clone();
      broadcast(world, firsts, 0).wait();
      EXPECT_TRUE(same_bits(firsts, gradient)) << item.key();
    }
    const Tensor rows = pipe.named_parameters()["0.weight"].grad().abs().sum(1);
    for (std::int64_t row = 0; row < 5; ++row) EXPECT_EQ(rows[row].item<float>() > 0, row != 2) << row;
  });
}

TEST(Pipeline, TiesParameters) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    on_ranks(ranks, [&](const Group& world) {
      Layers layers;
      layers.add<Linear>(4, 4).add(torch::tanh).add<Linear>(4, 4).tie("0.weight", "2.weight");
      Pipeline pipe(layers, world, {.micro_batches = 2});
      torch::optim::SGD sgd(pipe.parameters(), 0.1);
      const auto before = pipe.gather_state();
      Tensor weight, bias0, bias2;
      if (world.rank() == 0) {
        EXPECT_TRUE(same_bits(before["0.weight"], before["2.weight"]));
        weight = before["0.weight"].detach().clone().set_requires_grad(true);
        bias0 = before["0.bias"].detach().clone().set_requires_grad(true);
        bias2 = before["2.bias"].detach().clone().set_requires_grad(true);
      }
      for (std::uint64_t i = 0; i < 3; ++i) {
        const auto batch = [i](std::uint64_t part) {
          return std::pair(samples(6, 4, 10 * i + part), samples(6, 4, 100 + 10 * i + part));
        };
        constexpr std::uint64_t parts = 3;  // whose gradients are added up
        sgd.zero_grad();
        for (std::uint64_t part = 0; part < parts; ++part) {
          const auto [x, y] = batch(part);
          pipe.step(x, y, mse);
        }
        const double norm = pipe.clip_grad_norm(0.5);
        sgd.step();
        if (world.rank() != 0) continue;
        std::vector<Tensor> all = {weight, bias0, bias2};
        for (Tensor& tensor : all) tensor.mutable_grad().reset();
        for (std::uint64_t part = 0; part < parts; ++part) {
          const auto [x, y] = batch(part);
          mse(torch::linear(torch::tanh(torch::linear(x, weight, bias0)), weight, bias2), y).backward();
        }
        EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(all, 0.5), 1e-5);
        torch::optim::SGD(all, 0.1).step();
      }
      const auto after = pipe.gather_state();
      if (world.rank() != 0) return;
      EXPECT_TRUE(same_bits(after["0.weight"], after["2.weight"]));
      EXPECT_TRUE(torch::allclose(after["0.weight"], weight, 1e-5, 1e-6));
      EXPECT_TRUE(torch::allclose(after["2.bias"], bias2, 1e-5, 1e-6));
    });
  }
}

TEST(Pipeline, LeavesTiedParametersThatAreFrozenWithoutGradient) {
  on_ranks(2, [](const Group& world) {
    Layers layers;
    layers.add<Linear>(4, 4).add(torch::tanh).add<Linear>(4, 4).tie("0.weight", "2.weight");
    Pipeline pipe(layers, world, {.micro_batches = 2});
    for (const auto& item : pipe.named_parameters()) {
      if (item.key().ends_with("weight")) item.value().requires_grad_(false);
    }
    pipe.step(samples(6, 4, 1), samples(6, 4, 2), mse);
    for (const auto& item : pipe.named_parameters())
      EXPECT_EQ(item.value().grad().defined(), item.key().ends_with("bias")) << item.key();
  });
}

TEST(Pipeline, AveragesOverReplicas) {
  on_ranks(4, [](const Group& world) {
    const Group stages = *world.split(world.rank() / 2), replicas = *world.split(world.rank() % 2);
    Pipeline pipe(make_layers(), stages, {.micro_batches = 2, .replicas = replicas});
    const Tensor x = samples(8, 6, 1), y = samples(8, 3, 2);
    const int half = world.rank() / 2;
    pipe.step(x.narrow(0, 4 * half, 4), y.narrow(0, 4 * half, 4), mse);
    const auto state = pipe.gather_state();
    if (world.rank() != 0) return;
    const Reference whole(state);
    mse(whole.forward(x), y).backward();
    for (std::size_t i = 0; i < pipe.parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(pipe.parameters()[i].grad(), whole.parameters()[i].grad(), 1e-4, 1e-6));
  });
}

TEST(Pipeline, ReplicasMayHaveSeenOtherBatches) {
  on_ranks(4, [](const Group& world) {
    const Group stages = *world.split(world.rank() / 2), replicas = *world.split(world.rank() % 2);
    Layers layers;
    layers.add<torch::nn::BatchNorm1d>(6).add<Linear>(6, 3);
    Pipeline pipe(layers, stages, {.micro_batches = 2, .replicas = replicas});
    torch::optim::SGD sgd(pipe.parameters(), 0.1);
    const Tensor x = samples(8, 6, 1 + world.rank() / 2), y = samples(8, 3, 2);
    for (int step = 0; step < 5; ++step) {  // statistics differ, and are no parameters
      sgd.zero_grad();
      pipe.step(x, y, mse);
      sgd.step();
    }
  });
}

TEST(Pipeline, ReplicasThatAreNoLongerEqualAreToldSo) {
  const auto errors = test::run_ranks(4, [](const Group& world) {
    const Group stages = *world.split(world.rank() / 2), replicas = *world.split(world.rank() % 2);
    Pipeline pipe(make_layers(), stages, {.micro_batches = 2, .replicas = replicas});
    torch::optim::SGD sgd(pipe.parameters(), world.rank() == 3 ? 0.2 : 0.1);
    const Tensor x = samples(4, 6, 1), y = samples(4, 3, 2);
    for (int step = 0; step < 2; ++step) {
      sgd.zero_grad();
      pipe.step(x, y, mse);
      sgd.step();
    }
  });
  for (const int rank : {1, 3})
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)].text,
                AllOf(HasSubstr("has drifted apart: after 1 averaged backwards"), HasSubstr("on rank 1 and"),
                      HasSubstr("on rank 3.")));
  for (const auto& error : errors) EXPECT_THAT(error.text, HasSubstr("has drifted apart"));
}

TEST(Pipeline, CutsByMeasuredTimes) {
  on_ranks(2, [](const Group& world) {
    const auto slow = [](const Tensor& x) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return x;
    };
    // Evenly they would be cut after the third. Noise cuts elsewhere only where it takes longer than a slow layer.
    Layers layers;
    layers.add<Linear>(8, 8).add(slow).add(slow).add<Linear>(8, 8).add<Linear>(8, 8).add<Linear>(8, 8);
    PipelineOptions options;
    if (world.rank() == 0) options.sample = torch::ones({2, 8});
    const Pipeline pipe(layers, world, options);
    ASSERT_EQ(pipe.layer_seconds().size(), 6U);
    EXPECT_GE(pipe.layer_seconds()[2], 0.05);
    EXPECT_THAT(pipe.cut(), ElementsAre(2, 4));
    EXPECT_FALSE(pipe.parameters().empty());
  });
}

TEST(Pipeline, ReplicasAreCutAlikeWhereOneIsMeasured) {
  on_ranks(4, [](const Group& world) {
    const Group stages = *world.split(world.rank() / 2), replicas = *world.split(world.rank() % 2);
    const auto slow = [](const Tensor& x) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return x;
    };
    Layers layers;
    layers.add<Linear>(8, 8).add(slow).add<Linear>(8, 8).add<Linear>(8, 8).add<Linear>(8, 8).add<Linear>(8,
                                                                                                         8);
    PipelineOptions options{.replicas = replicas};
    if (world.rank() == 0) options.sample = torch::ones({2, 8});
    const Pipeline pipe(layers, stages, options);
    EXPECT_THAT(pipe.cut(), ElementsAre(2, 4));
  });
}

TEST(Pipeline, ClipsSparseGradients) {
  on_ranks(2, [](const Group& world) {
    Layers layers;
    layers.add<torch::nn::Embedding>(torch::nn::EmbeddingOptions(5, 4).sparse(true)).add<Linear>(4, 2);
    Pipeline pipe(layers, world, {.micro_batches = 1});
    pipe.step(torch::tensor({1, 1, 3}, torch::kInt64), torch::zeros({3, 2}), mse);
    double squares = 0;
    for (const Tensor& parameter : pipe.parameters())
      squares += parameter.grad().to_dense().pow(2).sum().item<double>();
    all_reduce(world, std::span(&squares, 1)).wait();
    EXPECT_NEAR(pipe.clip_grad_norm(1e-3), std::sqrt(squares), 1e-6);
  });
}

TEST(Pipeline, Evaluates) {
  on_ranks(3, [](const Group& world) {
    Pipeline pipe(make_layers(), world, {.micro_batches = 3});
    const Tensor x = samples(5, 6, 1);
    const Tensor output = pipe.evaluate(x);
    EXPECT_EQ(output.defined(), world.rank() == 2);
    const auto state = pipe.gather_state();
    Tensor theirs = torch::empty({5, 3});
    if (world.rank() == 2) send(world, output, 0, 7).wait();
    if (world.rank() != 0) return;
    recv(world, theirs, 2, 7).wait();
    EXPECT_TRUE(same_bits(theirs, Reference(state).forward(x).detach()));
  });
}

/// What each rank threw.
std::vector<Ending> refusals(int ranks, const std::function<Layers()>& layers,
                             const PipelineOptions& options = {}) {
  return run_ranks(ranks, [&](const Group& world) { const Pipeline pipe(layers(), world, options); });
}

TEST(PipelineRefuses, WhatIsNoPipeline) {
  const auto one_layer = [] { return std::move(Layers().add<Linear>(2, 2)); };
  const std::tuple<std::function<Layers()>, PipelineOptions, const char*> cases[] = {
      {one_layer, {}, "1 layers for 2 stages; each has to have one at least"},
      {[] { return Layers(); }, {}, "0 layers for 2 stages"},
      {make_layers,
       {.schedule = "zigzag"},
       "there is no schedule \"zigzag\"; there are naive, gpipe, 1f1b, interleaved"},
      {make_layers, {.micro_batches = 0}, "0 micro-batches; there has to be one at least"},
      {make_layers, {.stages_per_rank = 2}, "1f1b has one stage on each rank"},
      {make_layers, {.stages_per_rank = 0}, "0 stages on 2 ranks"},
      {make_layers, {.cut = {8, 0}}, "each stage has one at least"},
      {make_layers,
       {.cut = {4, 5}},
       "the cut has 2 stages with 9 layers in all; there are 2 stages and 8 layers"},
      {[] { return std::move(make_layers().tie("0.weight", "9.weight")); },
       {},
       "\"9.weight\" is a parameter of no layer"},
      {[] { return std::move(make_layers().tie("0.weight", "2.wait")); },
       {},
       "there is no parameter \"2.wait\" to tie"},
      {[] { return std::move(make_layers().tie("0.weight", "4.weight")); },
       {},
       "4.weight is f32 [8, 12], 0.weight is f32 [12, 6]: they cannot be tied"},
      {[] { return std::move(make_layers().tie("0.bias", "2.bias").tie("2.bias", "0.bias")); },
       {},
       "is tied twice"},
      {make_layers, {.sample = torch::ones({2, 5})}, "layer 0 (\"0\") with the sample: "},
      {make_layers, {.non_finite = NonFinite::skip}, "NonFinite::skip is not supported"},
  };
  for (const auto& [layers, options, text] : cases) {
    for (const Ending& ending : refusals(2, layers, options)) {
      EXPECT_EQ(ending.code, ErrorCode::invalid_argument) << text;
      EXPECT_THAT(ending.text, HasSubstr(text));
    }
  }
  EXPECT_THAT(
      test::run_ranks(
          1, [](const Group&) { Layers().add_named<Linear>("a", 1, 1).add_named<Linear>("a", 1, 1); })[0]
          .text,
      HasSubstr("there are two layers with the name \"a\""));
  EXPECT_THAT(test::run_ranks(1, [](const Group&) { Layers().add_named<Linear>("a.b", 1, 1); })[0].text,
              HasSubstr("is no name of a layer"));
}

TEST(PipelineRefuses, PipelinesThatDiffer) {
  const auto endings = run_ranks(2, [](const Group& world) {
    Layers layers = make_layers();
    if (world.rank() == 1) layers.add(torch::relu);
    const Pipeline pipe(layers, world);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text, HasSubstr("rank 1's number of layers is 9, rank 0's is 8"));
  }
}

/// A step of three ranks with a layer in the middle stage that does `act` with its third micro-batch.
std::vector<Ending> failed_steps(const std::function<Tensor(const Tensor&)>& act,
                                 const PipelineOptions& options = {}) {
  return run_ranks(3, [&](const Group& world) {
    Layers layers;
    int calls = 0;
    layers.add<Linear>(2, 2)
        .add([&calls, &act](const Tensor& x) { return ++calls == 3 ? act(x) : x * 1; })
        .add<Linear>(2, 2);
    PipelineOptions all = options;
    all.micro_batches = 4;
    Pipeline pipe(layers, world, all);
    pipe.step(samples(8, 2, 1), samples(8, 2, 2), mse);
  });
}

TEST(PipelineRefuses, ReplicasThatAreCutOtherwise) {
  const auto endings = run_ranks(4, [](const Group& world) {
    const Group stages = *world.split(world.rank() / 2), replicas = *world.split(world.rank() % 2);
    PipelineOptions options{.replicas = replicas};
    if (world.rank() >= 2) options.cut = {3, 5};
    const Pipeline pipe(make_layers(), stages, options);
  });
  for (const Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text, HasSubstr("cut"));
  }
}

TEST(PipelineFailures, NameRankStageAndMicroBatch) {
  const auto thrown = failed_steps([](const Tensor&) -> Tensor { throw std::runtime_error("no more"); });
  EXPECT_EQ(thrown[1].text, "rank 1: pipeline, stage 1, micro-batch 2: layer \"1\": no more");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(thrown[static_cast<std::size_t>(rank)].code, ErrorCode::peer_lost);
    EXPECT_EQ(thrown[static_cast<std::size_t>(rank)].peer, 1);
    EXPECT_THAT(thrown[static_cast<std::size_t>(rank)].text,
                HasSubstr("rank 1 gave up: pipeline, stage 1, micro-batch 2: layer \"1\": no more"));
  }
  const auto nan = failed_steps([](const Tensor& x) { return x / 0; }, {.non_finite = NonFinite::stop});
  EXPECT_THAT(
      nan[0].text,
      HasSubstr(
          "rank 1 gave up: pipeline, stage 1, micro-batch 2: what it hands on is infinite or no number"));
  const auto wider = failed_steps([](const Tensor& x) { return torch::cat({x, x}, 1); });
  EXPECT_THAT(wider[2].text, HasSubstr("rank 2: pipeline, stage 2, micro-batch 2: layer \"2\": "));
  EXPECT_THAT(wider[0].text, HasSubstr("rank 2 gave up: pipeline, stage 2, micro-batch 2: "));
  const auto undefined = failed_steps([](const Tensor&) { return Tensor(); });
  EXPECT_THAT(undefined[1].text, HasSubstr("a stage hands on an undefined tensor"));
}

/// Two pipelines of four ranks, the second of which throws in its last stage. All then wait for the rank that has the same stage of the
/// other one.
std::vector<Ending> failures_of_two(const std::function<PipelineOptions(const Group& others)>& options,
                                    const std::function<void(Pipeline&)>& run) {
  return run_ranks(4, [&](const Group& world) {
    const Group stages = *world.split(world.rank() / 2), others = *world.split(world.rank() % 2);
    Layers layers;
    layers.add<Linear>(2, 2).add<Linear>(2, 2).add([&](const Tensor& x) -> Tensor {
      if (world.rank() == 3) throw std::runtime_error("no more");
      return x * 1;
    });
    PipelineOptions all = options(others);
    all.cut = {1, 2};
    Pipeline pipe(layers, stages, all);
    run(pipe);
    barrier(others).wait();
  });
}

TEST(PipelineFailures, OfOtherRanksThatALayerCallsStayTheirs) {
  const auto endings = run_ranks(2, [](const Group& world) {
    Layers layers;
    layers.add<Linear>(3, 3).add([](const Tensor&) -> Tensor {
      throw Error(ErrorCode::peer_lost, "all_reduce #1: rank 5 was killed", 5);
    });
    Pipeline pipe(layers, world, {.micro_batches = 2});
    pipe.step(samples(4, 3, 1), samples(4, 3, 2), mse);
  });
  EXPECT_EQ(endings[1].code, ErrorCode::peer_lost);
  EXPECT_EQ(endings[1].peer, 5);
  EXPECT_THAT(endings[1].text, HasSubstr("layer \"1\": all_reduce #1: rank 5 was killed"));
}

TEST(PipelineFailures, ReachTheReplicasAndThePartsOfOtherStages) {
  const auto step = [](Pipeline& pipe) { pipe.step(samples(4, 2, 1), samples(4, 2, 2), mse); };
  const auto evaluate = [](Pipeline& pipe) { pipe.evaluate(samples(4, 2, 1)); };
  const auto replicas = [](const Group& others) { return PipelineOptions{.replicas = others}; };
  const auto tensor = [](const Group& others) { return PipelineOptions{.tensor = others}; };
  for (const auto& endings : {failures_of_two(replicas, step), failures_of_two(tensor, step)}) {
    for (const Ending& ending : endings) EXPECT_THAT(ending.text, HasSubstr("layer \"2\": no more"));
    EXPECT_THAT(endings[3].text, HasSubstr("rank 3: pipeline, stage 1, "));
  }
  const auto endings = failures_of_two(tensor, evaluate);  // a first stage may be done by then
  for (const std::size_t rank : {1, 3})
    EXPECT_THAT(endings[rank].text, HasSubstr("stage 1, evaluating: layer \"2\": no more"));
}

TEST(PipelineFailures, OfBatchesThatDoNotFit) {
  const auto step = [](const Tensor& x, const Tensor& y) {
    return run_ranks(2, [&](const Group& world) {
      Pipeline pipe(make_layers(), world, {.micro_batches = 4});
      pipe.step(x, y, mse);
    });
  };
  EXPECT_THAT(
      step(torch::ones({3, 6}), torch::ones({4, 3}))[0].text,
      HasSubstr(
          "rank 0: pipeline, before the first micro-batch: the input has 3 samples for 4 micro-batches"));
  EXPECT_THAT(step(torch::ones({8, 6}), torch::ones({4, 3}))[1].text,
              HasSubstr("rank 1: pipeline, stage 1, micro-batch 0: the micro-batch has 2 samples of input "
                        "and 1 of target"));
  EXPECT_THAT(step(torch::ones({8, 6}), Tensor())[1].text, HasSubstr("the target is an undefined tensor"));
  EXPECT_THAT(step(Tensor(), torch::ones({8, 3}))[0].text, HasSubstr("the input is an undefined tensor"));
}

}  // namespace
}  // namespace lockstep
