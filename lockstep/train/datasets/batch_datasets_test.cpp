// Data sets that make whole batches: what is in them, and that torch's own data loader takes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/datasets/cifar10_dataset.h"
#include "lockstep/train/datasets/sampler.h"
#include "lockstep/train/datasets/synthetic_images.h"
#include "lockstep/train/datasets/token_dataset.h"

namespace lockstep {
namespace {

using Indices = std::vector<std::size_t>;
using Shape = std::vector<std::int64_t>;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "accepted";
}

torch::Tensor rows_of_three(const std::vector<std::int64_t>& numbers) {
  return torch::tensor(numbers).view({-1, 3});
}

class BatchDatasets : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "batch_datasets.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  /// Record i has label i, and pixels i in red, 100 + i in green, 255 in blue.
  void write_cifar10_test(int records) const {
    std::string content;
    for (int i = 0; i < records; ++i) {
      content += std::string(1 + 1024, static_cast<char>(i)) + std::string(1024, static_cast<char>(100 + i)) +
                 std::string(1024, static_cast<char>(255));
    }
    write("test_batch.bin", content);
  }

  std::filesystem::path folder_;
};

TEST_F(BatchDatasets, OfCifar10AreImagesOfThreeChannelsUpToOne) {
  write_cifar10_test(4);
  Cifar10Dataset set(folder_, Cifar10Part::test);
  ASSERT_EQ(set.size(), 4U);
  const auto [images, labels] = set.get_batch(Indices{3, 0, 3});
  ASSERT_EQ(images.sizes(), (Shape{3, 3, 32, 32}));
  EXPECT_TRUE(torch::equal(labels, torch::tensor({3, 0, 3}, torch::kInt64)));
  EXPECT_TRUE(images[0][0].eq(3.0F * (1.0F / 255)).all().item<bool>());
  EXPECT_TRUE(images[0][1].eq(103.0F * (1.0F / 255)).all().item<bool>());
  EXPECT_TRUE(images.select(1, 2).eq(255.0F * (1.0F / 255)).all().item<bool>());
  EXPECT_TRUE(images[1][0].eq(0).all().item<bool>());
  EXPECT_TRUE(torch::equal(images[0], images[2]));
  EXPECT_THAT(refusal([&] { (void)set.get_batch(Indices{4}); }),
              testing::HasSubstr("has no record 4; it has 4"));
}

TEST_F(BatchDatasets, OfCifar10SayWhatIsMissing) {
  EXPECT_THAT(refusal([&] { const Cifar10Dataset set(folder_); }),
              testing::AllOf(testing::StartsWith("invalid_argument: no CIFAR-10 file "),
                             testing::HasSubstr("data_batch_1.bin; download")));
}

TEST_F(BatchDatasets, OfTokensAreWindowsAndWhatFollows) {
  TokenDataset set(write("text", "abcdefghij"), {.type = TokenType::u8, .context = 3});
  ASSERT_EQ(set.size(), 3U);
  const auto [inputs, targets] = set.get_batch(Indices{2, 0});
  EXPECT_TRUE(torch::equal(inputs, rows_of_three({'g', 'h', 'i', 'a', 'b', 'c'})));
  EXPECT_TRUE(torch::equal(targets, rows_of_three({'h', 'i', 'j', 'b', 'c', 'd'})));
  EXPECT_THAT(refusal([&] { (void)set.get_batch(Indices{3}); }),
              testing::HasSubstr("has no window 3; it has 3"));
}

TEST_F(BatchDatasets, GoThroughTorchsDataLoader) {
  write_cifar10_test(5);
  auto loader = torch::data::make_data_loader(Cifar10Dataset(folder_, Cifar10Part::test),
                                              DistributedSampler(5, Group(), {.shuffle = false}), 2);
  std::vector<std::int64_t> labels;
  for (const auto& batch : *loader) {
    for (std::int64_t i = 0; i < batch.target.size(0); ++i) {
      labels.push_back(batch.target[i].item<std::int64_t>());
      EXPECT_EQ(batch.data[i].sizes(), (Shape{3, 32, 32}));
    }
  }
  EXPECT_THAT(labels, testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(SyntheticImages, FollowFromSeedAndNumberAlone) {
  SyntheticImages set({.samples = 100, .shape = {2, 5, 7}});
  ASSERT_EQ(set.size(), 100U);
  const auto batch = set.get_batch(Indices{3, 99, 3});
  ASSERT_EQ(batch.data.sizes(), (Shape{3, 2, 5, 7}));
  EXPECT_EQ(batch.target.scalar_type(), torch::kInt64);
  const auto again = SyntheticImages({.samples = 100, .shape = {2, 5, 7}}).get_batch(Indices{99});
  EXPECT_TRUE(torch::equal(again.data[0], batch.data[1]));
  EXPECT_TRUE(torch::equal(batch.data[0], batch.data[2]));
  EXPECT_FALSE(torch::equal(batch.data[0], batch.data[1]));
  const auto later = SyntheticImages({.samples = 10, .shape = {2, 5, 7}, .first = 90}).get_batch(Indices{9});
  EXPECT_TRUE(torch::equal(later.data[0], batch.data[1])) << "number 99";
  const auto other = SyntheticImages({.samples = 100, .shape = {2, 5, 7}, .seed = 1}).get_batch(Indices{99});
  EXPECT_FALSE(torch::equal(other.data[0], batch.data[1]));
}

TEST(SyntheticImages, HaveAboutAsManyOfEachClass) {
  SyntheticImages set({.samples = 2000, .shape = {1}, .classes = 4});
  Indices all(2000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto counts = torch::bincount(set.get_batch(all).target);
  ASSERT_EQ(counts.size(0), 4);
  EXPECT_GT(counts.min().item<std::int64_t>(), 400);
}

/// The nearest pattern, learned as the mean of a class's images, is that of the right class.
TEST(SyntheticImages, CanBeToldApart) {
  SyntheticImages train({.samples = 500, .shape = {1, 8, 8}, .classes = 5});
  SyntheticImages test({.samples = 200, .shape = {1, 8, 8}, .classes = 5, .first = 500});
  Indices all(500);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const auto learned = train.get_batch(all);
  std::vector<torch::Tensor> patterns;
  for (std::int64_t c = 0; c < 5; ++c)
    patterns.push_back(learned.data.index({learned.target.eq(c)}).mean(0).flatten());
  all.resize(200);
  const auto seen = test.get_batch(all);
  const auto guess = torch::cdist(seen.data.flatten(1), torch::stack(patterns)).argmin(1);
  EXPECT_GT(guess.eq(seen.target).to(torch::kFloat32).mean().item<float>(), 0.95F);
}

TEST(SyntheticImages, HaveNoiseOfTheDeviationThatWasAskedFor) {
  SyntheticImages clean({.samples = 1, .shape = {100'000}, .noise = 0});
  SyntheticImages noisy({.samples = 1, .shape = {100'000}, .noise = 2});
  const auto noise = noisy.get_batch(Indices{0}).data - clean.get_batch(Indices{0}).data;
  EXPECT_NEAR(noise.mean().item<float>(), 0, 0.05);
  EXPECT_NEAR(noise.std().item<float>(), 2, 0.05);
}

TEST(SyntheticImages, RefuseNumbersThatMakeNoSense) {
  EXPECT_EQ(refusal([] {
              const SyntheticImages set({.shape = {3, 0, 2}});
            }),
            "invalid_argument: SyntheticImages: expected at least 1 sample, 1 class and 1 pixel in every "
            "direction, found 10000 samples, 10 classes and images of [3, 0, 2]");
  EXPECT_NE(refusal([] { const SyntheticImages set({.samples = 0}); }), "accepted");
  EXPECT_NE(refusal([] { const SyntheticImages set({.classes = 0}); }), "accepted");
  SyntheticImages set({.samples = 2});
  EXPECT_EQ(refusal([&] { (void)set.get_batch(Indices{2}); }),
            "invalid_argument: there is no sample 2; the set has 2, counted from 0");
}

}  // namespace
}  // namespace lockstep
