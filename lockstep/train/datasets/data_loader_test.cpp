#include "lockstep/train/datasets/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <limits>
#include <mutex>
#include <ranges>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/base/failure_test.h"
#include "lockstep/train/datasets/dataset.h"
#include "lockstep/train/datasets/synthetic_images.h"
#include "lockstep/train/tensor/ranks_test.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::size_t>;
using testing::ElementsAre;
using torch::data::Example;

static_assert(std::ranges::input_range<DataLoader>);

constexpr std::chrono::seconds patience{60};

/// Data and target of a sample are its number.
Example<> numbers(torch::ArrayRef<std::size_t> samples) {
  std::vector<std::int64_t> values(samples.begin(), samples.end());
  const auto tensor = torch::tensor(values);
  return {tensor.clone(), tensor};
}

Indices samples_in(const Example<>& batch) {
  const auto* values = batch.target.const_data_ptr<std::int64_t>();
  return {values, values + batch.target.numel()};
}

/// All that is left of the epoch, batch by batch.
std::vector<Indices> batches_of(DataLoader& loader) {
  std::vector<Indices> batches;
  for (const auto& batch : loader) batches.push_back(samples_in(batch));
  return batches;
}

DistributedSampler sampler_of(std::size_t samples, bool shuffle = false) {
  return {samples, Group(), {.shuffle = shuffle, .seed = 3}};
}

TEST(DataLoader, TakesTheWholeEpochForABatchThatIsLarger) {
  for (const std::size_t size : {std::size_t{6}, std::numeric_limits<std::size_t>::max()}) {
    DataLoader loader(SyntheticImages({.samples = 5, .shape = {1}}), sampler_of(5), {.batch_size = size});
    EXPECT_EQ(loader.steps_per_epoch(), 1U);
    std::vector<std::int64_t> sizes;
    for (const auto& batch : loader) sizes.push_back(batch.data.size(0));
    EXPECT_THAT(sizes, testing::ElementsAre(5));
  }
}

class DataLoaderWith : public testing::TestWithParam<std::size_t> {
 protected:
  static std::size_t workers() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Workers, DataLoaderWith, testing::Values(0, 1, 2, 3),
                         [](const auto& workers) { return std::to_string(workers.param); });

TEST_P(DataLoaderWith, GivesTheEpochInTheSamplersOrder) {
  const auto sampler = sampler_of(11, true);
  const Indices order = sampler.rest();
  DataLoader loader(numbers, sampler, {.batch_size = 4, .workers = workers()});
  EXPECT_EQ(loader.steps_per_epoch(), 3U);
  const auto batches = batches_of(loader);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0], Indices(order.begin(), order.begin() + 4));
  EXPECT_EQ(batches[1], Indices(order.begin() + 4, order.begin() + 8));
  EXPECT_EQ(batches[2], Indices(order.begin() + 8, order.end()));
}

TEST_P(DataLoaderWith, GoesFromEpochToEpoch) {
  const auto sampler = sampler_of(8, true);
  DataLoader loader(numbers, sampler, {.batch_size = 3, .workers = workers()});
  const auto first = batches_of(loader);
  EXPECT_EQ(sampler.epoch(), 1U);
  EXPECT_EQ(sampler.index(), 0U);
  auto other = sampler_of(8, true);
  other.set_epoch(1);
  const Indices order = other.rest();
  const auto second = batches_of(loader);
  EXPECT_NE(second, first);
  EXPECT_EQ(second[0], Indices(order.begin(), order.begin() + 3));
  EXPECT_EQ(sampler.epoch(), 2U);
}

TEST_P(DataLoaderWith, LeavesASmallerLastBatchOut) {
  DataLoader loader(numbers, sampler_of(11),
                    {.batch_size = 4, .workers = workers(), .drop_last_batch = true});
  EXPECT_EQ(loader.steps_per_epoch(), 2U);
  EXPECT_THAT(batches_of(loader), ElementsAre(Indices{0, 1, 2, 3}, Indices{4, 5, 6, 7}));
  EXPECT_EQ(batches_of(loader).size(), 2U) << "of the next epoch";
}

TEST_P(DataLoaderWith, CountsWhatTheProgramGotAndNotWhatIsMadeAhead) {
  auto sampler = sampler_of(20, true);
  DataLoader loader(numbers, sampler, {.batch_size = 3, .workers = workers(), .prefetch = 4});
  std::size_t handed_out = 0;
  for (const auto& batch : loader) {
    handed_out += samples_in(batch).size();
    EXPECT_EQ(sampler.index(), handed_out);
    EXPECT_EQ(sampler.epoch(), 0U);
  }
  EXPECT_EQ(handed_out, 20U);
}

TEST_P(DataLoaderWith, GoesOnInTheMiddleOfAnEpoch) {
  const auto whole = sampler_of(20, true);
  DataLoader uninterrupted(numbers, whole, {.batch_size = 3, .workers = workers()});
  const auto expected = batches_of(uninterrupted);

  const auto sampler = sampler_of(20, true);
  DataLoader loader(numbers, sampler, {.batch_size = 3, .workers = workers()});
  std::vector<Indices> seen;
  for (const auto& batch : loader) {
    seen.push_back(samples_in(batch));
    if (seen.size() == 4) break;
  }
  auto resumed = sampler_of(20, true);
  resumed.seek(sampler.epoch(), sampler.index());
  DataLoader second(numbers, resumed, {.batch_size = 3, .workers = workers()});
  for (const auto& batch : second) seen.push_back(samples_in(batch));
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(resumed.epoch(), 1U);

  const auto rest = batches_of(loader);
  EXPECT_EQ(rest, std::vector<Indices>(expected.begin() + 4, expected.end())) << "and in the same process";
}

TEST_P(DataLoaderWith, GivesNothingOfAnEpochThatIsOver) {
  auto sampler = sampler_of(6);
  sampler.seek(2, 6);
  DataLoader loader(numbers, sampler, {.batch_size = 3, .workers = workers()});
  EXPECT_TRUE(batches_of(loader).empty());
  EXPECT_EQ(sampler.epoch(), 3U);
  EXPECT_EQ(batches_of(loader).size(), 2U);
}

TEST_P(DataLoaderWith, ChangesEachSampleAlikeWhoeverMakesIt) {
  const std::vector<BatchTransform> transforms = {RandomCrop(8, 2), RandomHorizontalFlip(),
                                                  Normalize({0.1}, {2})};
  const SyntheticImages set({.samples = 30, .shape = {1, 8, 8}});
  const auto sampler = sampler_of(30, true);
  DataLoader loader(set, sampler, {.batch_size = 7, .workers = workers(), .transforms = transforms});
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    Indices order = sampler.rest();
    for (const auto& batch : loader) {
      const Indices samples(order.begin(), order.begin() + batch.data.size(0));
      order.erase(order.begin(), order.begin() + batch.data.size(0));
      auto expected = SyntheticImages(set).get_batch(samples);
      auto random = transform_streams(3, epoch, samples);
      for (const auto& transform : transforms) transform(expected.data, random);
      EXPECT_TRUE(torch::equal(batch.data, expected.data));
      EXPECT_TRUE(torch::equal(batch.target, expected.target));
    }
  }
}

TEST_P(DataLoaderWith, ThrowsWhatAWorkerThrewInItsPlace) {
  const auto fail_at_7 = [](torch::ArrayRef<std::size_t> samples) {
    for (const std::size_t sample : samples) {
      if (sample == 7) throw Error(ErrorCode::corrupt_data, "data_batch_1.bin: label 12");
    }
    return numbers(samples);
  };
  const auto sampler = sampler_of(20);
  DataLoader loader(fail_at_7, sampler, {.batch_size = 2, .workers = workers(), .prefetch = 5});
  std::vector<Indices> seen;
  const auto loop = [&] {
    for (const auto& batch : loader) seen.push_back(samples_in(batch));
  };
  EXPECT_EQ(test::failure_of(loop, ErrorCode::corrupt_data),
            "the batch of this rank's samples 6 to 7 of epoch 0: data_batch_1.bin: label 12");
  EXPECT_THAT(seen, ElementsAre(Indices{0, 1}, Indices{2, 3}, Indices{4, 5}));
  EXPECT_EQ(sampler.index(), 6U);
  EXPECT_EQ(test::failure_of(loop, ErrorCode::corrupt_data),
            "the batch of this rank's samples 6 to 7 of epoch 0: data_batch_1.bin: label 12")
      << "again, where it went on";
}

TEST_P(DataLoaderWith, KeepsWhatIsNoErrorOfThisLibraryBesideItsOwn) {
  const auto fail = [](torch::ArrayRef<std::size_t>) -> Example<> {
    throw std::out_of_range("too far\nand where from");
  };
  DataLoader loader(fail, sampler_of(3), {.batch_size = 5, .workers = workers()});
  try {
    (void)batches_of(loader);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_STREQ(error.what(), "the batch of this rank's samples 0 to 2 of epoch 0: too far");
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
}

TEST_P(DataLoaderWith, EndsItsWorkersWithTheLoop) {
  const auto token = std::make_shared<int>(0);
  const auto with_token = [token](torch::ArrayRef<std::size_t> samples) { return numbers(samples); };
  DataLoader loader(with_token, sampler_of(1000), {.batch_size = 1, .workers = workers()});
  const auto owners = token.use_count();
  for (const auto& batch : loader) {
    EXPECT_GT(token.use_count(), owners) << "what the loop has";
    if (samples_in(batch)[0] == 5) break;
  }
  EXPECT_EQ(token.use_count(), owners);
}

TEST_P(DataLoaderWith, NoticesThatTheSamplerWasMoved) {
  auto sampler = sampler_of(9);
  DataLoader loader(numbers, sampler, {.batch_size = 3, .workers = workers()});
  EXPECT_EQ(
      test::failure_of([&] {
        for ([[maybe_unused]] const auto& batch : loader) sampler.set_epoch(1);
      }),
      "the sampler of a DataLoader was moved from sample 3 of epoch 0 to sample 0 of epoch 1 while a loop "
      "went through its batches; move it between loops, and use no other loader with it");
  EXPECT_EQ(batches_of(loader).size(), 3U) << "of epoch 1";
  EXPECT_EQ(sampler.epoch(), 2U);
}

TEST_P(DataLoaderWith, OutlivesItsLoaderByItsLoop) {
  std::vector<Indices> seen;
  for (const auto& batch : DataLoader(numbers, sampler_of(4), {.batch_size = 2, .workers = workers()}))
    seen.push_back(samples_in(batch));
  EXPECT_THAT(seen, ElementsAre(Indices{0, 1}, Indices{2, 3}));
}

TEST(DataLoader, HandsOutInOrderWhatWorkersFinishOutOfOrder) {
  std::promise<void> second_is_made;
  const auto made = second_is_made.get_future().share();
  const auto make = [&, made](torch::ArrayRef<std::size_t> samples) {
    if (samples[0] == 0) {
      EXPECT_EQ(made.wait_for(patience), std::future_status::ready) << "the second is made meanwhile";
    } else if (samples[0] == 1) {
      second_is_made.set_value();
    }
    return numbers(samples);
  };
  DataLoader loader(make, sampler_of(3), {.batch_size = 1, .workers = 2, .prefetch = 2});
  EXPECT_THAT(batches_of(loader), ElementsAre(Indices{0}, Indices{1}, Indices{2}));
}

/// How many batches have been made, for tests that wait for a number of them.
class Count {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool reaches(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return count_ >= count; });
  }
  std::size_t now() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

TEST(DataLoader, MakesAsManyAheadAsItMayAndNoMore) {
  Count made;
  const auto make = [&](torch::ArrayRef<std::size_t> samples) {
    made.add();
    return numbers(samples);
  };
  constexpr std::size_t batches = 30;
  constexpr std::size_t prefetch = 4;
  DataLoader loader(make, sampler_of(batches), {.batch_size = 1, .workers = 2, .prefetch = prefetch});
  std::size_t handed_out = 0;
  for ([[maybe_unused]] const auto& batch : loader) {
    ++handed_out;
    EXPECT_TRUE(made.reaches(std::min(handed_out + prefetch, batches)));
    EXPECT_LE(made.now(), handed_out + prefetch);
  }
  EXPECT_EQ(handed_out, batches);
  EXPECT_EQ(made.now(), batches);
}

TEST(DataLoader, MakesBatchesInTheProgramsThreadWithoutWorkers) {
  const auto here = std::this_thread::get_id();
  const auto make = [&](torch::ArrayRef<std::size_t> samples) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_FALSE(c10::GradMode::is_enabled());
    return numbers(samples);
  };
  DataLoader loader(make, sampler_of(3), {.batch_size = 1, .workers = 0, .prefetch = 0});
  EXPECT_EQ(batches_of(loader).size(), 3U);
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

TEST(DataLoader, HasAsManyStepsOnAllRanks) {
  for (const Sharing sharing : {Sharing::shards, Sharing::random}) {
    test::on_ranks(3, [&](const Group& group) {
      DataLoader loader(numbers, DistributedSampler(10, group, {.sharing = sharing}), {.batch_size = 3});
      EXPECT_EQ(loader.steps_per_epoch(), 2U);
      EXPECT_EQ(batches_of(loader).size(), 2U);
    });
  }
}

struct Halves : torch::data::datasets::Dataset<Halves> {
  Example<> get(std::size_t index) override {
    const auto number = torch::tensor(static_cast<std::int64_t>(index));
    return {number.to(torch::kFloat32) / 2, number};
  }
  std::optional<std::size_t> size() const override { return 10; }
};

TEST(DataLoader, TakesSetsOfTorchThatAreStacked) {
  DataLoader loader(Halves().map(torch::data::transforms::Stack<>()), sampler_of(4), {.batch_size = 2});
  auto batch = loader.begin();
  batch++;
  EXPECT_TRUE(torch::equal(batch->data, torch::tensor({1.0F, 1.5F})));
  EXPECT_EQ(samples_in(*batch), (Indices{2, 3}));
}

TEST(DataLoader, TakesAnIdxDatasetAsItIs) {
  std::string folder = testing::TempDir() + "data_loader.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::filesystem::path prefix = std::filesystem::path(folder) / "train";
  const std::vector<std::byte> bytes(4, std::byte{7});
  write_idx(prefix.string() + "-images-idx3-ubyte", {IdxType::u8, {4, 1, 1}, bytes});
  write_idx(prefix.string() + "-labels-idx1-ubyte", {IdxType::u8, {4}, bytes});
  DataLoader loader(IdxDataset(prefix, {.scale = 1}), sampler_of(4), {.batch_size = 4});
  auto batch = loader.begin();
  EXPECT_TRUE(torch::equal(batch->data, torch::full({4, 1, 1, 1}, 7.0F)));
  EXPECT_EQ(samples_in(*batch), (Indices{7, 7, 7, 7}));
  std::filesystem::remove_all(folder);
}

TEST(DataLoader, RefusesOptionsThatMakeNoSense) {
  const auto with = [](const DataLoaderOptions& options) {
    return test::failure_of([&] { const DataLoader loader(numbers, sampler_of(5), options); });
  };
  EXPECT_EQ(with({.batch_size = 0}), "DataLoader: expected a batch size of at least 1, found 0");
  EXPECT_EQ(
      with({.prefetch = 0}),
      "DataLoader: workers make batches ahead, which prefetch = 0 forbids; use workers = 0, or prefetch");
  EXPECT_EQ(with({.batch_size = 6, .drop_last_batch = true}),
            "DataLoader: drop_last_batch leaves no batch of 6 of the 5 samples that a rank has; use smaller "
            "batches, or keep the last one");
}

}  // namespace
}  // namespace lockstep
