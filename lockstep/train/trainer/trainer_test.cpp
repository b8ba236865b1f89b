#include "lockstep/train/trainer/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "lockstep/base/folder_test.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/data_parallel/data_parallel.h"
#include "lockstep/train/datasets/data_loader.h"
#include "lockstep/train/datasets/synthetic_images.h"
#include "lockstep/train/replicas/metrics.h"
#include "lockstep/train/sharded/sharded_optimizer.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using test::on_ranks;
using test::run_ranks;
using test::same_bits;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;
using torch::nn::Linear;
using torch::optim::SGD;

using Batch = torch::data::Example<>;
using Batches = std::vector<Batch>;

/// 4 numbers in, 3 classes out; the same everywhere.
Linear make_net() {
  Linear net(4, 3);
  const torch::NoGradGuard no_grad;
  net->weight.copy_(torch::cos(torch::arange(12).to(torch::kFloat32)).view({3, 4}));
  net->bias.zero_();
  return net;
}

/// Different ones for each number.
Batch make_batch(int number, std::int64_t samples) {
  const auto inputs = torch::arange(samples * 4).to(torch::kFloat32) * (0.1 * number + 1);
  return {torch::sin(inputs).view({samples, 4}), (torch::arange(samples) + number) % 3};
}

Batches batches_of(const Group& group) {
  const int first = 10 * group.rank();
  return {make_batch(first, 4), make_batch(first + 1, 4), make_batch(first + 2, 2)};
}

TrainerOptions silent(std::uint64_t epochs) { return {.epochs = epochs, .progress = std::nullopt}; }

double loss_of(Linear& net, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net(batch.data), batch.target).item<double>();
}

class TrainerTest : public test::FolderTest {
 protected:
  /// Why a Trainer alone will not train; "accepted" if it does.
  static std::string refusal_of(const TrainerOptions& options, const Batches& batches) {
    auto net = make_net();
    SGD sgd(net->parameters(), 0.5);
    return test::refusal([&] { Trainer(Group(), net, sgd, options).fit(batches); });
  }
};

TEST(Trainer, DoesWhatTheLoopWrittenOutDoes) {
  on_ranks(2, [](const Group& group) {
    const auto batches = batches_of(group);
    auto net = make_net(), expected = make_net();
    DistributedDataParallel ddp(net, group), plain(expected, group);
    SGD sgd(net->parameters(), torch::optim::SGDOptions(9).momentum(0.9));
    SGD plain_sgd(expected->parameters(), torch::optim::SGDOptions(9).momentum(0.9));
    const auto schedule = LearningRate::step_decay(0.2, 4, 0.5);
    TrainerOptions options = silent(3);
    options.schedule = schedule;
    const auto history = Trainer(group, ddp, sgd, options).fit(batches);

    ASSERT_THAT(history, SizeIs(3));
    std::uint64_t step = 0;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      double loss_sum = 0;
      for (const auto& batch : batches) {
        schedule.apply(plain_sgd, step++);
        plain_sgd.zero_grad();
        auto loss = torch::nn::functional::cross_entropy(plain(batch.data), batch.target);
        loss.backward();
        plain_sgd.step();
        loss_sum += loss.item<double>() * static_cast<double>(batch.data.size(0));
      }
      EXPECT_EQ(history[epoch].epoch, epoch);
      EXPECT_DOUBLE_EQ(history[epoch].train_loss, metric_average(group, loss_sum / 10, 10));
      EXPECT_DOUBLE_EQ(history[epoch].learning_rate, schedule.at(step - 1));
      EXPECT_GT(history[epoch].images_per_second, 0);
      EXPECT_TRUE(std::isnan(history[epoch].eval_loss) && std::isnan(history[epoch].eval_accuracy));
    }
    EXPECT_TRUE(same_bits(net->weight.detach(), expected->weight.detach()));
    EXPECT_FALSE(same_bits(net->weight.detach(), make_net()->weight.detach())) << "it trained";
  });
}

TEST(Trainer, EvaluatesOverAllSamplesHoweverTheyAreSplit) {
  const auto all = make_batch(7, 6);
  const auto part = [&all](std::int64_t begin, std::int64_t end) -> Batch {
    return {all.data.slice(0, begin, end), all.target.slice(0, begin, end)};
  };
  const std::vector<Batches> shares = {{part(0, 3), part(3, 4)}, {part(4, 6)}, {}};
  auto whole = make_net();
  const double loss = loss_of(whole, all);
  const double right = whole(all.data).argmax(1).eq(all.target).sum().item<double>();
  ASSERT_GT(right, 0);
  ASSERT_LT(right, 6);
  on_ranks(3, [&](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.5);
    Trainer trainer(group, ddp, sgd, silent(1));
    const auto found = trainer.evaluate(shares[static_cast<std::size_t>(group.rank())]);
    EXPECT_NEAR(found.loss, loss, 1e-6);
    EXPECT_DOUBLE_EQ(found.accuracy, right / 6);
    EXPECT_TRUE(ddp.is_training()) << "the mode is what it was";
    EXPECT_TRUE(std::isnan(trainer.evaluate(Batches()).loss)) << "nobody has samples";
  });
}

/// Dropout shows the mode, batch norm whose statistics an evaluation has.
TEST(Trainer, EvaluatesInEvalModeWithRank0sBuffers) {
  std::vector<double> losses(2);
  on_ranks(2, [&](const Group& group) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.99), make_net());
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.0);
    const Batches test = {make_batch(3, 5)};  // the same on both ranks
    Trainer trainer(group, ddp, sgd, silent(1));
    const auto history = trainer.fit(batches_of(group), test);
    EXPECT_TRUE(ddp.is_training());
    EXPECT_DOUBLE_EQ(history[0].eval_loss, trainer.evaluate(test).loss);
    ddp.eval();
    const torch::NoGradGuard no_grad;
    losses[static_cast<std::size_t>(group.rank())] =
        torch::nn::functional::cross_entropy(ddp(test[0].data), test[0].target).item<double>();
    EXPECT_NEAR(history[0].eval_loss, losses[static_cast<std::size_t>(group.rank())], 1e-6);
  });
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Trainer, TakesAnyLossAndKnowsNoAccuracyThen) {
  auto net = make_net();
  SGD sgd(net->parameters(), 0.0);
  TrainerOptions options = silent(1);
  options.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::mse_loss(output, target);
  };
  const Batch batch = {torch::ones({2, 4}), torch::zeros({2, 3})};
  const Batches batches = {batch};
  const auto history = Trainer(Group(), net, sgd, options).fit(batches, batches);
  const double expected = net(batch.data).pow(2).mean().item<double>();
  EXPECT_NEAR(history[0].train_loss, expected, 1e-6);
  EXPECT_NEAR(history[0].eval_loss, expected, 1e-6);
  EXPECT_TRUE(std::isnan(history[0].eval_accuracy));
}

TEST(Trainer, TrainsWithAShardedOptimizerToo) {
  on_ranks(2, [](const Group& group) {
    auto net = make_net(), expected = make_net();
    DistributedDataParallel ddp(expected, group);
    SGD sgd(expected->parameters(), 0.2);
    Trainer(group, ddp, sgd, silent(2)).fit(batches_of(group));
    ShardedOptimizer<SGD> sharded(*net, group, torch::optim::SGDOptions(0.2));
    Trainer(group, net, sharded, silent(2)).fit(batches_of(group));
    EXPECT_TRUE(torch::allclose(net->weight.detach(), expected->weight.detach(), 1e-5, 1e-6));
  });
}

struct CountingLoader {
  Batches batches;
  std::vector<std::uint64_t> epochs{};
  auto begin() { return batches.begin(); }
  auto end() { return batches.end(); }
  void set_epoch(std::uint64_t epoch) { epochs.push_back(epoch); }
  std::size_t steps_per_epoch() const { return batches.size(); }
};

TEST(Trainer, TellsTheLoaderAndTheProgramWhichEpochItIs) {
  auto net = make_net();
  SGD sgd(net->parameters(), 0.1);
  std::vector<std::uint64_t> epochs;
  TrainerOptions options = silent(3);
  options.before_epoch = [&](std::uint64_t epoch) { epochs.push_back(epoch); };
  CountingLoader loader{batches_of(Group())};
  Trainer(Group(), net, sgd, options).fit(loader);
  EXPECT_THAT(epochs, ElementsAre(0, 1, 2));
  EXPECT_THAT(loader.epochs, ElementsAre(0, 1, 2));
}

TEST(Trainer, ShowsEachEpochAndWhyItStopped) {
  std::ostringstream out;
  auto net = make_net();
  SGD sgd(net->parameters(), 0.0);
  TrainerOptions options{.epochs = 9, .early_stop = EarlyStopOptions{.patience = 2}};
  options.progress = ProgressOptions{.out = &out};
  const auto history = Trainer(Group(), net, sgd, options).fit(batches_of(Group()));
  EXPECT_THAT(history, SizeIs(3)) << "nothing changes: the first is the best, and two more are patience";
  std::istringstream lines(out.str());
  for (const std::string begin :
       {"epoch 1/9  loss ", "epoch 2/9  loss ", "epoch 3/9  loss ", "stopped early: no better loss than "}) {
    std::string line;
    std::getline(lines, line);
    EXPECT_THAT(line, StartsWith(begin));
  }
}

TEST_F(TrainerTest, GoesOnFromItsCheckpointAsIfItHadNeverStopped) {
  const auto train = [&](const std::string& file, std::uint64_t epochs, bool resume, bool async = false) {
    std::pair<torch::Tensor, std::vector<EpochResult>> end;
    on_ranks(2, [&](const Group& group) {
      auto net = make_net();
      DistributedDataParallel ddp(net, group);
      SGD sgd(net->parameters(), torch::optim::SGDOptions(1).momentum(0.9));
      TrainerOptions options = silent(epochs);
      options.schedule = LearningRate::cosine(0.1, 12);
      options.checkpoint = group.rank() == 0 ? folder_ / file : fs::path("/nobody/else/needs/it");
      options.async_checkpoint = async;
      options.resume = resume;
      const Batches batches = batches_of(group);
      auto history = Trainer(group, ddp, sgd, options).fit(batches, batches);
      if (group.rank() == 0) end = {net->weight.detach().clone(), std::move(history)};
    });
    return end;
  };
  const auto [whole, expected] = train("whole.ckpt", 4, false);
  train("parts.ckpt", 2, true);  // there is none yet
  const auto [resumed, history] = train("parts.ckpt", 4, true);
  EXPECT_TRUE(same_bits(whole, resumed));
  ASSERT_THAT(history, SizeIs(4));
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    EXPECT_EQ(history[epoch].epoch, epoch);
    EXPECT_EQ(history[epoch].train_loss, expected[epoch].train_loss);
    EXPECT_EQ(history[epoch].eval_loss, expected[epoch].eval_loss);
    EXPECT_EQ(history[epoch].learning_rate, expected[epoch].learning_rate);
  }
  EXPECT_THAT(train("parts.ckpt", 4, true).second, SizeIs(4)) << "nothing is left to train";
  train("behind.ckpt", 2, false, true);
  EXPECT_TRUE(same_bits(whole, train("behind.ckpt", 4, true, true).first));
  EXPECT_THAT(files(), UnorderedElementsAre("whole.ckpt", "parts.ckpt", "behind.ckpt"));
}

TEST_F(TrainerTest, GoesOnWithADataLoaderAndTheSameRandomNumbers) {
  const auto train = [&](const std::string& file, std::uint64_t epochs) {
    torch::manual_seed(7);
    torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Dropout(0.5), Linear(48, 3));
    SGD sgd(net->parameters(), 0.1);
    DistributedSampler sampler(20, Group());
    DataLoader loader(SyntheticImages({.samples = 20, .shape = {3, 4, 4}, .classes = 3}), sampler,
                      {.batch_size = 8, .transforms = {RandomHorizontalFlip()}});
    TrainerOptions options = silent(epochs);
    options.before_epoch = [&sampler](std::uint64_t epoch) { sampler.set_epoch(epoch); };
    options.checkpoint = folder_ / file;
    options.resume = true;
    auto history = Trainer(Group(), net, sgd, options).fit(loader);
    return std::pair(net->parameters().at(0).detach().clone(), history.back().train_loss);
  };
  const auto [whole, loss] = train("whole.ckpt", 3);
  train("parts.ckpt", 2);
  const auto [parts, resumed_loss] = train("parts.ckpt", 3);
  EXPECT_TRUE(same_bits(whole, parts));
  EXPECT_EQ(loss, resumed_loss);
}

TEST_F(TrainerTest, CountsTheStepsOfAsManyRanksAsThereAreNow) {
  const auto schedule = LearningRate::step_decay(1, 1, 0.5);
  const auto train = [&](int ranks, std::uint64_t epochs) {
    std::vector<double> rates;
    on_ranks(ranks, [&](const Group& group) {
      auto net = make_net();
      DistributedDataParallel ddp(net, group);
      SGD sgd(net->parameters(), 1);
      TrainerOptions options = silent(epochs);
      options.schedule = schedule;
      options.checkpoint = folder_ / "model.ckpt";
      options.resume = true;
      // 7 batches for all: 7, or 4 of each.
      const Batches batches(static_cast<std::size_t>((7 + ranks - 1) / ranks), make_batch(group.rank(), 4));
      const auto history = Trainer(group, ddp, sgd, options).fit(batches);
      if (group.rank() != 0) return;
      for (const auto& epoch : history) rates.push_back(epoch.learning_rate);
    });
    return rates;
  };
  EXPECT_THAT(train(1, 2), ElementsAre(schedule.at(6), schedule.at(13)));
  EXPECT_THAT(train(2, 3), ElementsAre(schedule.at(6), schedule.at(13), schedule.at(2 * 4 + 3)));
  EXPECT_EQ(train(1, 4).back(), schedule.at(3 * 8 + 7 - 1));
}

TEST_F(TrainerTest, StopsAsEarlyWhereItResumed) {
  const auto train = [&](std::uint64_t epochs) {
    auto net = make_net();
    SGD sgd(net->parameters(), 0.0);
    TrainerOptions options = silent(epochs);
    options.early_stop = EarlyStopOptions{.patience = 3};
    options.checkpoint = folder_ / "model.ckpt";
    options.resume = true;
    return Trainer(Group(), net, sgd, options).fit(batches_of(Group())).size();
  };
  EXPECT_EQ(train(2), 2U);
  EXPECT_EQ(train(10), 4U);
  EXPECT_EQ(train(10), 4U) << "it had stopped";
}

TEST_F(TrainerTest, LeavesACurveAndEventsOfRank0) {
  on_ranks(2, [&](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.1);
    TrainerOptions options = silent(2);
    options.curve = folder_ / "curve.svg";
    options.title = "Two ranks";
    options.tensorboard = folder_ / "runs" / "first";
    const Batches batches = batches_of(group);
    Trainer(group, ddp, sgd, options).fit(batches, batches);
  });
  EXPECT_THAT(files(), testing::UnorderedElementsAre("curve.svg", "runs"));
  EXPECT_THAT(test::text_in(folder_ / "curve.svg"),
              AllOf(HasSubstr("Two ranks"), HasSubstr("eval accuracy")));
  std::vector<fs::path> events(fs::directory_iterator(folder_ / "runs" / "first"), fs::directory_iterator());
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(test::text_in(events[0]),
              AllOf(HasSubstr("loss/train"), HasSubstr("loss/eval"), HasSubstr("accuracy/eval"),
                    HasSubstr("images_per_second"), HasSubstr("learning_rate")));
}

TEST_F(TrainerTest, FailsOnAllRanksWhereRank0CannotWrite) {
  const auto endings = run_ranks(2, [&](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.1);
    TrainerOptions options = silent(1);
    options.curve = folder_ / "none" / "curve.svg";
    Trainer(group, ddp, sgd, options).fit(batches_of(group));
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::system);
    EXPECT_THAT(ending.text, AllOf(HasSubstr("cannot write the curve "), HasSubstr("there is no folder")));
  }
  EXPECT_THAT(files(), IsEmpty());
}

TEST(Trainer, NamesRankEpochAndStepOfALossThatIsNoNumber) {
  const auto endings = run_ranks(2, [&](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.5);
    Batches batches = batches_of(group);
    TrainerOptions options = silent(3);
    options.before_epoch = [&](std::uint64_t epoch) {
      if (epoch == 1 && group.rank() == 1) batches[2].data.fill_(std::nan(""));
    };
    Trainer(group, ddp, sgd, options).fit(batches);
  });
  EXPECT_EQ(endings[1].code, ErrorCode::invalid_argument);
  EXPECT_EQ(
      endings[1].text,
      "rank 1, epoch 2, step 3: the loss is nan, at a learning rate of 0.5; take a smaller one or warm it "
      "up (LearningRate::scaled), and look for infinite numbers in the data");
  EXPECT_FALSE(endings[0].ok);
  EXPECT_THAT(endings[0].text, HasSubstr("rank 1"));
}

TEST(Trainer, NamesOptionsThatDifferBetweenRanks) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.5);
    Trainer(group, ddp, sgd, silent(group.rank() == 0 ? 2 : 3)).fit(batches_of(group));
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's number of epochs is 3, rank 0's is 2. Give the Trainer the same "
                          "options on every rank"));
  }
}

TEST(Trainer, NamesARankWithAnotherNumberOfBatches) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = make_net();
    DistributedDataParallel ddp(net, group);
    SGD sgd(net->parameters(), 0.5);
    CountingLoader loader{batches_of(group)};
    if (group.rank() == 1) loader.batches.pop_back();
    Trainer(group, ddp, sgd, silent(1)).fit(loader);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::mismatch);
    EXPECT_THAT(ending.text,
                HasSubstr("rank 1's number of batches in an epoch is 2, rank 0's is 3. Give each "
                          "rank as many samples"));
  }
}

TEST(Trainer, RefusesGradientsThatNobodyAverages) {
  const auto endings = run_ranks(2, [](const Group& group) {
    auto net = make_net();
    SGD sgd(net->parameters(), 0.5);
    Trainer trainer(group, net, sgd, silent(1));
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_EQ(ending.text,
              "the ranks' gradients would not be averaged: give the Trainer a "
              "DistributedDataParallel, or a ShardedOptimizer");
  }
}

TEST_F(TrainerTest, RefusesWhatItCannotTrainWith) {
  const Batches good = batches_of(Group());
  EXPECT_EQ(refusal_of(silent(0), good), "invalid_argument: a Trainer trains at least 1 epoch, found 0");
  TrainerOptions resume = silent(1);
  resume.resume = true;
  EXPECT_EQ(refusal_of(resume, good),
            "invalid_argument: a Trainer resumes from a checkpoint: name the file in "
            "TrainerOptions::checkpoint");
  EXPECT_EQ(refusal_of(silent(1), {}),
            "invalid_argument: rank 0, epoch 1, step 1: the loader has no batches; "
            "every rank's training loader needs some");
  EXPECT_EQ(
      refusal_of(silent(1), {good[0], make_batch(1, 0)}),
      "invalid_argument: rank 0, epoch 1, step 2: expected a batch of samples as [N, ...], found f32 [0, 4]; "
      "leave out batches without samples");
}

TEST_F(TrainerTest, RefusesCheckpointsThatSayNothingOfItsSteps) {
  auto net = make_net();
  SGD sgd(net->parameters(), 0.5);
  TrainerOptions options = silent(3);
  options.checkpoint = folder_ / "model.ckpt";
  options.resume = true;
  const std::string name = "checkpoint " + options.checkpoint.string();
  save_checkpoint(options.checkpoint, Group(), net, sgd, {.epoch = 1});
  EXPECT_EQ(refusal_of(options, batches_of(Group())),
            "invalid_argument: " + name +
                " is not a Trainer's, and does not say how many steps were taken; load it with "
                "load_checkpoint() and train without resume");
  save_checkpoint(options.checkpoint, Group(), net, sgd,
                  {.epoch = 1, .metadata = {{"trainer.step", "many"}, {"trainer.history", ""}}});
  EXPECT_EQ(refusal_of(options, batches_of(Group())),
            "corrupt_data: " + name +
                ": expected a number as trainer.step, found \"many\"; take another "
                "checkpoint");
  save_checkpoint(options.checkpoint, Group(), net, sgd,
                  {.epoch = 1, .metadata = {{"trainer.step", "3"}, {"trainer.history", "lies\n"}}});
  EXPECT_THAT(
      refusal_of(options, batches_of(Group())),
      StartsWith("corrupt_data: " + name + ": expected a line with an epoch and 5 figures, found \"lies\""));
}

}  // namespace
}  // namespace lockstep
