// Checkpoints whose state each rank saves for itself: what they bring back, on how many ranks, and what is
// left of a save that fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <fstream>
#include <functional>

#include "lockstep/base/unique_fd.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/checkpoint_file.h"
#include "lockstep/train/checkpoint/saved_model_test.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/replicas/model_tensors.h"
#include "lockstep/train/sharded/sharded_optimizer.h"

namespace lockstep {
namespace {

using test::copy_of;
using test::same;
using test::sharded;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::AdamOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;
namespace fs = std::filesystem;

using ShardedSGD = ShardedOptimizer<torch::optim::SGD>;
using ShardedAdam = ShardedOptimizer<torch::optim::Adam>;

const SGDOptions momentum = SGDOptions(0.1).momentum(0.9);
/// Carries out calls as ever, but nobody sees another rank's memory: as if each were on a host of its own.
class OnOtherHosts final : public Backend {
 public:
  explicit OnOtherHosts(std::shared_ptr<Backend> real) : real_(std::move(real)) {}
  std::unique_ptr<PendingWork> submit(const Request& request) override { return real_->submit(request); }
  void poll() override { real_->poll(); }
  std::optional<FirstCause::Cause> failure(bool needs_all) override { return real_->failure(needs_all); }
  void fail(const Error& cause) override { real_->fail(cause); }
  void abort(const std::string& reason) override { real_->abort(reason); }
  std::uint64_t own_work_ns() const override { return real_->own_work_ns(); }
  ArenaBlock allocate(std::size_t bytes) override { return real_->allocate(bytes); }
  RegisteredMemory register_memory(std::span<std::byte> bytes) override {
    return real_->register_memory(bytes);
  }
  void keep_from_reuse(std::span<const std::byte> bytes) override { real_->keep_from_reuse(bytes); }
  std::shared_ptr<HostRegion> shared_region() const override { return nullptr; }
  HostMemory host_memory() const override { return {}; }
  void leave() override { real_->leave(); }
  void close(const std::string& reason) override { real_->close(reason); }

 private:
  std::shared_ptr<Backend> real_;
};

enum class Hosts { one, several };

std::vector<test::Ending> run_ranks(int ranks, Hosts hosts,
                                    const std::function<void(const Group&)>& rank_main) {
  return test::run_ranks(ranks, [&](const Group& group) {
    auto& backend = group.impl().backend;
    if (hosts == Hosts::several && backend) backend = std::make_shared<OnOtherHosts>(backend);
    rank_main(group);
  });
}

void on_ranks(int ranks, Hosts hosts, const std::function<void(const Group&)>& rank_main) {
  for (const auto& ending : run_ranks(ranks, hosts, rank_main)) EXPECT_TRUE(ending.ok) << ending.text;
}

/// Sizes that no number of ranks divides, and a matrix whose columns lie one after the other.
struct PlainNet : torch::nn::Module {
  explicit PlainNet(double value = 0.5, bool by_columns = true) {
    for (const std::int64_t size : {301, 7, 1, 64, 1000})
      parameters_.push_back(register_parameter(std::string("p").append(std::to_string(parameters_.size())),
                                               torch::linspace(-value, value, size)));
    const auto matrix = torch::linspace(-value, value, 600).view({20, 30}).t();
    register_parameter("matrix", by_columns ? matrix : matrix.contiguous());
    register_buffer("seen", torch::full({3}, value));
  }
  std::vector<torch::Tensor> parameters_;
};

template <class Optimizer>
void train(PlainNet& net, Optimizer& optimizer, const Group& group, int from, int to) {
  for (int step = from; step < to; ++step) {
    double factor = 1 + group.rank() + 10 * step;
    for (auto& parameter : net.parameters()) {
      const auto gradient = torch::sin(torch::arange(parameter.numel(), torch::kFloat64) * factor);
      parameter.mutable_grad() = gradient.to(parameter.scalar_type()).reshape(parameter.sizes());
      factor += 0.1;
    }
    optimizer.step();
  }
}

class ShardedCheckpoint : public test::CheckpointFolderTest {
 protected:
  /// Of the checkpoint at path_, in the order of ranks.
  std::vector<fs::path> shards() const {
    std::vector<fs::path> found;
    for (const auto& name : files()) {
      if (name.starts_with("model.ckpt.")) found.push_back(folder_ / name);
    }
    return found;
  }

  /// A checkpoint of some steps, at path_.
  void save(int ranks) const {
    on_ranks(ranks, Hosts::one, [&](const Group& group) {
      PlainNet net;
      ShardedSGD optimizer(net, group, momentum);
      train(net, optimizer, group, 0, 2);
      save_checkpoint(path_, group, net, optimizer, {.epoch = 2}, sharded);
    });
  }
  /// What all ranks say that load it, and that it leaves their models alone.
  std::string refusal_to_load(int ranks) const {
    const auto endings = run_ranks(ranks, Hosts::one, [&](const Group& group) {
      PlainNet net(0.25);
      ShardedSGD optimizer(net, group, momentum);
      const auto before = copy_of(net);
      try {
        load_checkpoint(path_, group, net, optimizer);
      } catch (const Error&) {
        EXPECT_TRUE(same(copy_of(net), before));
        barrier(group).wait();
        throw;
      }
    });
    for (const auto& ending : endings) EXPECT_EQ(ending.text, endings[0].text);
    if (endings[0].ok) return "accepted";
    return std::string(to_string(endings[0].code)) + ": " + endings[0].text;
  }
};

TEST_F(ShardedCheckpoint, IsForAnOptimizerThatHasShards) {
  PlainNet net;
  torch::optim::SGD plain(net.parameters(), momentum);
  EXPECT_EQ(test::refusal([&] { save_checkpoint(path_, Group(), net, plain, {}, sharded); }),
            "invalid_argument: CheckpointOptions::sharded is for a ShardedOptimizer; save whole");
  EXPECT_EQ(
      test::refusal([&] { save_checkpoint(path_, Group(), net, nullptr, {}, sharded); }),
      "invalid_argument: CheckpointOptions::sharded is for a ShardedOptimizer, and there is no optimizer; "
      "save whole");
  EXPECT_TRUE(files().empty());
}

/// Saves on some ranks, whole and sharded, and goes on on others from both.
struct Change {
  int before = 1, after = 1;
  Hosts hosts = Hosts::one;
  bool by_columns_after = true;
};

std::ostream& operator<<(std::ostream& out, const Change& change) {
  return out << change.before << " to " << change.after << " ranks on "
             << (change.hosts == Hosts::one ? "one host" : "several hosts");
}

class ShardedCheckpoints : public ShardedCheckpoint, public testing::WithParamInterface<Change> {
 protected:
  template <class Optimizer, class Options>
  void expect_to_resume(const Options& options) const {
    const auto [before, after, hosts, by_columns_after] = GetParam();
    const std::map<std::string, std::string> metadata = {{"loss", "0.25"}};
    const auto whole = folder_ / "whole.ckpt";
    std::vector<torch::Tensor> uninterrupted;
    on_ranks(before, hosts, [&](const Group& group) {
      PlainNet net;
      Optimizer optimizer(net, group, options);
      train(net, optimizer, group, 0, 3);
      save_checkpoint(path_, group, net, optimizer, {.epoch = 3, .metadata = metadata}, sharded);
      save_checkpoint(whole, group, net, optimizer, {.epoch = 3, .metadata = metadata});
      train(net, optimizer, group, 3, 6);
      if (group.rank() == 0) uninterrupted = copy_of(net);
      barrier(group).wait();
    });
    const auto resume = [&](const fs::path& path) {
      std::vector<torch::Tensor> resumed;
      on_ranks(after, hosts, [&](const Group& group) {
        PlainNet net(3, by_columns_after);
        Optimizer optimizer(net, group, Options(7));
        train(net, optimizer, group, 7, 8);  // what was there before goes
        const auto info = load_checkpoint(path, group, net, optimizer);
        EXPECT_EQ(info.epoch, 3U);
        EXPECT_EQ(info.metadata, metadata);
        train(net, optimizer, group, 3, 6);
        if (group.rank() == 0) resumed = copy_of(net);
        barrier(group).wait();
      });
      return resumed;
    };
    const auto resumed = resume(path_);
    EXPECT_TRUE(same(resumed, resume(whole)));
    if (before == after) {
      EXPECT_TRUE(same(resumed, uninterrupted));
    }
  }
};

std::vector<Change> changes() {
  std::vector<Change> all;
  for (const Hosts hosts : {Hosts::one, Hosts::several}) {
    for (int before = 1; before <= 3; ++before) {
      for (int after = 1; after <= 3; ++after)
        all.push_back({before, after, hosts, before == after || before == 2});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Changes, ShardedCheckpoints, testing::ValuesIn(changes()));

TEST_P(ShardedCheckpoints, LetTrainingGoOnAsWholeOnesDo) {
  expect_to_resume<ShardedSGD>(momentum);
  expect_to_resume<ShardedAdam>(AdamOptions(0.01));
}

TEST_P(ShardedCheckpoints, HoldWhatALibtorchOptimizerKeeps) {
  const auto [before, after, hosts, by_columns_after] = GetParam();
  const auto whole = folder_ / "whole.ckpt";
  on_ranks(before, hosts, [&](const Group& group) {
    PlainNet net;
    ShardedAdam optimizer(net, group, AdamOptions(0.01));
    train(net, optimizer, group, 0, 3);
    save_checkpoint(path_, group, net, optimizer, {}, sharded);
    save_checkpoint(whole, group, net, optimizer);
  });
  on_ranks(after, hosts, [&](const Group& group) {
    PlainNet net(3, by_columns_after), other(4, by_columns_after);
    torch::optim::Adam adam(net.parameters(), AdamOptions(7)), expected(other.parameters(), AdamOptions(7));
    train(net, adam, group, 7, 8);
    load_checkpoint(group.rank() == 0 ? path_ : fs::path("/nobody/else/needs/it"), group, net, adam);
    load_checkpoint(whole, group, other, expected);
    EXPECT_TRUE(same(copy_of(net), copy_of(other)));
    EXPECT_DOUBLE_EQ(adam.param_groups()[0].options().get_lr(), 0.01);
    const auto& options = adam.param_groups()[0].options();
    for (std::size_t i = 0; i < net.parameters().size(); ++i) {
      const auto& state = *adam.state().at(net.parameters()[i].unsafeGetTensorImpl());
      const auto& wanted = *expected.state().at(other.parameters()[i].unsafeGetTensorImpl());
      EXPECT_EQ(steps_of(state, options), steps_of(wanted, options));
      for (std::size_t array = 0; array < most_state_arrays; ++array)
        EXPECT_TRUE(test::same_bits(arrays_of(state, options)[array], arrays_of(wanted, options)[array]));
    }
  });
}

TEST_F(ShardedCheckpoint, HoldsTheMastersOfHalves) {
  for (const Hosts hosts : {Hosts::one, Hosts::several}) {
    std::vector<torch::Tensor> uninterrupted, resumed;
    const SGDOptions small = SGDOptions(1e-4).momentum(0.9);  // far below what a half can show
    on_ranks(2, hosts, [&](const Group& group) {
      PlainNet net;
      net.to(torch::kBFloat16);
      ShardedSGD optimizer(net, group, small);
      train(net, optimizer, group, 0, 10);
      save_checkpoint(path_, group, net, optimizer, {}, sharded);
      train(net, optimizer, group, 10, 30);
      if (group.rank() == 0) uninterrupted = copy_of(net);
      barrier(group).wait();
    });
    on_ranks(2, hosts, [&](const Group& group) {
      PlainNet net;
      net.to(torch::kBFloat16);
      ShardedSGD optimizer(net, group, small);
      load_checkpoint(path_, group, net, optimizer);
      train(net, optimizer, group, 10, 30);
      if (group.rank() == 0) resumed = copy_of(net);
      barrier(group).wait();
    });
    EXPECT_TRUE(same(resumed, uninterrupted));
  }
}

TEST_F(ShardedCheckpoint, WorksAloneAndInLongPieces) {
  struct Long : torch::nn::Module {
    Long() { parameter = register_parameter("long", torch::zeros({(1 << 20) + 100})); }
    torch::Tensor parameter;
  };
  const auto step = [](Long& net, ShardedSGD& optimizer) {
    net.parameter.mutable_grad() = torch::sin(torch::arange(net.parameter.numel(), torch::kFloat32));
    optimizer.step();
  };
  Long net;
  ShardedSGD optimizer(net, Group(), momentum);
  step(net, optimizer);
  save_checkpoint(path_, Group(), net, optimizer, {}, sharded);
  step(net, optimizer);
  ASSERT_EQ(shards().size(), 1U);
  EXPECT_EQ(CheckpointFile(shards()[0], "shard").header().entries.size(), 2U);
  on_ranks(2, Hosts::several, [&](const Group& group) {
    Long other;
    ShardedSGD resumed(other, group, SGDOptions(7));
    load_checkpoint(path_, group, other, resumed);
    step(other, resumed);  // the average of two that are alike is exact
    EXPECT_TRUE(same(copy_of(other), copy_of(net)));
  });
}

TEST_F(ShardedCheckpoint, IsThereAtOnceForAWholeSave) {
  save(3);
  on_ranks(2, Hosts::one, [&](const Group& group) {
    PlainNet net;
    ShardedSGD optimizer(net, group, momentum);
    load_checkpoint(path_, group, net, optimizer);
    save_checkpoint(path_, group, net, optimizer);
    EXPECT_EQ(optimizer.state().size(), net.parameters().size());
    barrier(group).wait();
  });
  EXPECT_THAT(files(), testing::ElementsAre("model.ckpt"));
  PlainNet net;
  torch::optim::SGD sgd(net.parameters(), momentum);
  load_checkpoint(path_, Group(), net, sgd);
  EXPECT_EQ(sgd.state().size(), net.parameters().size());
}

TEST_F(ShardedCheckpoint, OfNoStepForgetsTheStateThatThereIs) {
  for (const Hosts hosts : {Hosts::one, Hosts::several}) {
    for (const CheckpointOptions& options : {CheckpointOptions{}, sharded}) {
      on_ranks(2, hosts, [&](const Group& group) {
        PlainNet net;
        ShardedSGD optimizer(net, group, momentum);
        save_checkpoint(path_, group, net, optimizer, {}, options);
        train(net, optimizer, group, 0, 2);
        const auto expected = copy_of(net);
        barrier(group).wait();
        load_checkpoint(path_, group, net, optimizer);
        train(net, optimizer, group, 0, 2);
        EXPECT_TRUE(same(copy_of(net), expected)) << options.sharded;
        barrier(group).wait();
      });
    }
  }
}

TEST_F(ShardedCheckpoint, SaysToReadersOfOldThatItsStateIsNoneOfTheirs) {
  save(2);
  const CheckpointFile file(path_, "checkpoint");
  EXPECT_EQ(file.header().entries.back().name, "SGD sharded");
  EXPECT_TRUE(file.header().metadata.empty());
  PlainNet net;
  EXPECT_EQ(load_checkpoint(path_, Group(), net).epoch, 2U) << "the model needs no shards";
}

TEST_F(ShardedCheckpoint, LacksAShard) {
  save(3);
  const auto all = shards();
  ASSERT_EQ(all.size(), 3U);
  fs::remove(all[1]);
  EXPECT_THAT(refusal_to_load(2),
              AllOf(HasSubstr("system: rank 0: checkpoint " + path_.string() + " lacks its shard 1 of 3, " +
                              all[1].string()),
                    HasSubstr("every host needs the folder"), HasSubstr("CheckpointOptions::sharded")));
  EXPECT_EQ(files().size(), 3U);
}

TEST_F(ShardedCheckpoint, IsRefusedWithADamagedShard) {
  save(2);
  for (const auto& shard : shards()) {
    const auto size = static_cast<std::int64_t>(fs::file_size(shard));
    const auto first = static_cast<std::int64_t>(CheckpointFile(shard, "shard").header().entries[0].offset);
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{12}, std::int64_t{60}, std::int64_t{90},
                                  first - 80, first, first + 5, size - 1}) {
      std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
      const int byte = file.seekg(at).get();
      file.seekp(at).put(static_cast<char>(byte ^ 0x10)).flush();
      EXPECT_THAT(refusal_to_load(2), testing::AnyOf(HasSubstr("corrupt_data: "), HasSubstr("unsupported: ")))
          << at;
      file.seekp(at).put(static_cast<char>(byte)).flush();
    }
    const auto kept = folder_ / "kept";
    fs::copy_file(shard, kept, fs::copy_options::overwrite_existing);
    fs::resize_file(shard, static_cast<std::uintmax_t>(size - 1));
    EXPECT_THAT(refusal_to_load(1), HasSubstr("corrupt_data: "));
    fs::copy_file(kept, shard, fs::copy_options::overwrite_existing);
    EXPECT_EQ(refusal_to_load(2), "accepted");
  }
}

TEST_F(ShardedCheckpoint, IsRefusedWithAShardOfAnotherSave) {
  save(2);
  const auto mine = shards();
  const auto kept = folder_ / "kept";
  fs::copy_file(mine[1], kept);
  fs::copy_file(mine[0], mine[1], fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_to_load(2), AllOf(HasSubstr("corrupt_data: "), HasSubstr("shard 1 of 2 of save ")));
  save(2);
  fs::copy_file(kept, shards()[1], fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal_to_load(2), AllOf(HasSubstr("corrupt_data: "), HasSubstr("a file of another save")));
}

TEST_F(ShardedCheckpoint, NamesAnotherOptimizer) {
  const auto groups = [](const PlainNet& net, std::vector<std::size_t> numbers) {
    std::vector<torch::Tensor> parameters;
    for (const auto number : numbers) parameters.push_back(net.parameters_[number]);
    return std::vector<OptimizerParamGroup>{OptimizerParamGroup(parameters)};
  };
  on_ranks(2, Hosts::one, [&](const Group& group) {
    PlainNet net;
    ShardedSGD optimizer(net, group, groups(net, {0, 1}), momentum);
    train(net, optimizer, group, 0, 1);
    save_checkpoint(path_, group, net, optimizer, {}, sharded);
    const auto refusal = [&](torch::optim::Optimizer& other) {
      try {
        load_checkpoint(path_, group, net, other);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    torch::optim::Adam adam(net.parameters(), 0.1);
    EXPECT_THAT(refusal(adam), HasSubstr("holds the state of an optimizer SGD, here it is Adam"));
    torch::optim::SGD more(groups(net, {0, 1, 2}), momentum), others(groups(net, {0, 2}), momentum);
    EXPECT_THAT(refusal(more), HasSubstr("an optimizer of 2 parameters, here it has 3"));
    EXPECT_THAT(refusal(others), HasSubstr("it has none for parameter p2"));
    barrier(group).wait();
  });
  const auto endings = run_ranks(2, Hosts::one, [&](const Group& group) {
    PlainNet net;
    torch::optim::SGD sgd(net.parameters(), 0.1);
    save_checkpoint(path_, group, net, sgd, {}, sharded);
  });
  for (const auto& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    EXPECT_THAT(ending.text, HasSubstr("is for a ShardedOptimizer"));
  }
}

TEST_F(ShardedCheckpoint, NamesAnotherModel) {
  save(2);
  on_ranks(2, Hosts::one, [&](const Group& group) {
    torch::nn::Linear linear(4, 3);
    ShardedSGD optimizer(*linear, group, momentum);
    try {
      load_checkpoint(path_, group, linear, optimizer);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is of another model: it has no parameter weight"));
    }
  });
}

TEST_F(ShardedCheckpoint, TakesThePlaceOfTheOneBefore) {
  save(3);
  const auto before = shards();
  EXPECT_EQ(before.size(), 3U);
  save(2);
  const auto after = shards();
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(files().size(), 3U);
  EXPECT_NE(before[0].string().substr(0, path_.string().size() + 17),
            after[0].string().substr(0, path_.string().size() + 17));
  EXPECT_TRUE(after[1].string().ends_with(".shard-1-of-2"));
  EXPECT_EQ(refusal_to_load(3), "accepted");
}

TEST_F(ShardedCheckpoint, RemovesWhatKilledSavesLeftAndNothingElse) {
  save(1);
  const std::vector<std::string> mine = files();
  const std::vector<std::string> others = {
      "model.ckpt.0123456789abcdef.shard-0-of-1.txt", "model.ckpt.0123456789ABCDEF.shard-0-of-1",
      "model.ckpt.0123.shard-0-of-1", "other.ckpt.0123456789abcdef.shard-0-of-1",
      "model.ckpt.0123456789abcdef.shard--of-1"};
  const auto leave = [&](const std::string& name) { std::ofstream(folder_ / name) << "half"; };
  for (const auto& name : others) leave(name);
  // A save that is running has its shards locked.
  const std::string running = "model.ckpt.fedcba9876543210.shard-0-of-2";
  UniqueFd lock(::open((folder_ / running).c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  auto expected = others;
  expected.insert(expected.end(), mine.begin(), mine.end());
  expected.push_back(running);
  const std::vector<std::function<void()>> actions = {[&] { remove_checkpoint_leftovers(path_, Group()); },
                                                      [&] {
                                                        PlainNet net;
                                                        load_checkpoint(path_, Group(), net);
                                                      }};
  for (const auto& action : actions) {
    leave("model.ckpt.0123456789abcdef.shard-0-of-2");
    leave("model.ckpt.0123456789abcdef.shard-1-of-2.tmp-123-00ab12cd");
    action();
    EXPECT_THAT(files(), testing::UnorderedElementsAreArray(expected));
  }
  lock.reset();
  fs::resize_file(path_, 100);  // whose shards these are cannot be told
  remove_checkpoint_leftovers(path_, Group());
  EXPECT_THAT(files(), testing::UnorderedElementsAreArray(expected));
}

TEST_F(ShardedCheckpoint, StaysWholeWhereASaveFails) {
  save(2);
  const auto before = files();
  const auto fail = [&](const std::function<fs::path(int)>& path_of) {
    const auto endings = run_ranks(3, Hosts::one, [&](const Group& group) {
      PlainNet net;
      ShardedSGD optimizer(net, group, momentum);
      train(net, optimizer, group, 0, 1);
      save_checkpoint(path_of(group.rank()), group, net, optimizer, {}, sharded);
    });
    for (const auto& ending : endings) {
      EXPECT_EQ(ending.code, ErrorCode::system);
      EXPECT_EQ(ending.text, endings[0].text);
    }
    return endings[0].text;
  };
  EXPECT_THAT(fail([&](int rank) { return rank == 1 ? folder_ / "absent" / "model.ckpt" : path_; }),
              AllOf(HasSubstr("rank 1: cannot write the shard of the checkpoint "),
                    HasSubstr("there is no folder " + (folder_ / "absent").string())));
  EXPECT_EQ(files(), before);
  EXPECT_EQ(refusal_to_load(2), "accepted");
  fs::create_directory(folder_ / "taken");  // shards can be written beside it, but no file in its place
  EXPECT_THAT(fail([&](int) { return folder_ / "taken"; }), HasSubstr("it is a folder"));
  fs::remove(folder_ / "taken");
  EXPECT_EQ(files(), before);
}

TEST_F(ShardedCheckpoint, IsFoundThroughALink) {
  const auto link = folder_ / "latest";
  fs::create_symlink("model.ckpt", link);
  on_ranks(2, Hosts::one, [&](const Group& group) {
    PlainNet net;
    ShardedSGD optimizer(net, group, momentum);
    train(net, optimizer, group, 0, 2);
    save_checkpoint(link, group, net, optimizer, {}, sharded);
    load_checkpoint(link, group, net, optimizer);
  });
  EXPECT_EQ(shards().size(), 2U);
  EXPECT_EQ(refusal_to_load(2), "accepted");
}

}  // namespace
}  // namespace lockstep
