#include "lockstep/train/datasets/image_transforms.h"
#include "lockstep/base/failure_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Samples = std::vector<std::size_t>;

/// Every pixel another number, none of them 0.
torch::Tensor images_of(std::int64_t count, std::int64_t channels, std::int64_t height, std::int64_t width) {
  const std::int64_t pixels = count * channels * height * width;
  return torch::arange(1, pixels + 1, torch::kFloat32).view({count, channels, height, width});
}

torch::Tensor transformed(const std::vector<BatchTransform>& transforms, torch::Tensor images,
                          const Samples& samples, std::uint64_t seed = 0, std::uint64_t epoch = 0) {
  auto random = transform_streams(seed, epoch, samples);
  for (const auto& transform : transforms) transform(images, random);
  return images;
}

std::vector<float> numbers_of(const torch::Tensor& tensor) {
  const auto array = tensor.contiguous();
  return {array.const_data_ptr<float>(), array.const_data_ptr<float>() + array.numel()};
}

Samples first_samples(std::int64_t count) {
  Samples samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(static_cast<std::size_t>(i));
  return samples;
}

TEST(RandomCrop, IsAPartOfTheImageWithZerosAround) {
  const auto images = images_of(200, 2, 3, 3);
  const auto cropped = transformed({RandomCrop(3, 1)}, images.clone(), first_samples(200));
  ASSERT_EQ(cropped.sizes(), images.sizes());
  const auto padded = torch::constant_pad_nd(images, {1, 1, 1, 1}, 0);
  std::set<std::pair<int, int>> places;
  for (std::int64_t i = 0; i < 200; ++i) {
    int found = 0;
    for (int top = 0; top <= 2; ++top) {
      for (int left = 0; left <= 2; ++left) {
        const auto part = padded[i].slice(1, top, top + 3).slice(2, left, left + 3);
        if (!torch::equal(part, cropped[i])) continue;
        places.insert({top, left});
        ++found;
      }
    }
    EXPECT_EQ(found, 1) << "image " << i;
  }
  EXPECT_EQ(places.size(), 9U) << "from anywhere";
}

TEST(RandomCrop, TakesASmallerPartOfALargerImage) {
  const auto images = images_of(50, 1, 4, 6);
  const auto cropped = transformed({RandomCrop(2)}, images.clone(), first_samples(50));
  ASSERT_EQ(cropped.sizes(), (std::vector<std::int64_t>{50, 1, 2, 2}));
  EXPECT_TRUE(cropped.gt(0).all().item<bool>()) << "no padding";
  const auto right = cropped.select(3, 1) - cropped.select(3, 0);
  const auto below = cropped.select(2, 1) - cropped.select(2, 0);
  EXPECT_TRUE(right.eq(1).all().item<bool>());
  EXPECT_TRUE(below.eq(6).all().item<bool>());
}

TEST(RandomCrop, WithMorePaddingThanImageMayMissIt) {
  const auto cropped = transformed({RandomCrop(2, 5)}, images_of(100, 1, 1, 1), first_samples(100));
  const auto sums = cropped.sum({1, 2, 3});
  EXPECT_GT(sums.eq(0).sum().item<std::int64_t>(), 0);
  EXPECT_GT(sums.ne(0).sum().item<std::int64_t>(), 0);
}

TEST(RandomCrop, OfTheImagesOwnSizeIsTheImage) {
  const auto images = images_of(3, 3, 4, 4);
  EXPECT_TRUE(torch::equal(transformed({RandomCrop(4)}, images.clone(), first_samples(3)), images));
}

TEST(RandomHorizontalFlip, MirrorsAboutAsManyAsItsProbabilitySays) {
  const auto images = images_of(1000, 2, 2, 3);
  const auto mirrored = images.flip({3});
  const auto flipped = transformed({RandomHorizontalFlip()}, images.clone(), first_samples(1000));
  int count = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const bool is_flipped = torch::equal(flipped[i], mirrored[i]);
    EXPECT_TRUE(is_flipped || torch::equal(flipped[i], images[i])) << "image " << i;
    count += is_flipped ? 1 : 0;
  }
  EXPECT_NEAR(count, 500, 80);
  EXPECT_TRUE(
      torch::equal(transformed({RandomHorizontalFlip(1)}, images.clone(), first_samples(1000)), mirrored));
  EXPECT_TRUE(
      torch::equal(transformed({RandomHorizontalFlip(0)}, images.clone(), first_samples(1000)), images));
}

TEST(RandomHorizontalFlip, DoesNotFollowFromWhereACropCameFrom) {
  const auto images = torch::arange(1, 4, torch::kFloat32).expand({400, 1, 3, 3}).contiguous();
  const auto changed = transformed({RandomCrop(3, 1), RandomHorizontalFlip()}, images, first_samples(400));
  std::set<std::vector<float>> rows;
  for (std::int64_t i = 0; i < 400; ++i) rows.insert(numbers_of(changed[i][0][1]));
  EXPECT_EQ(rows.size(), 6U) << "each of three columns, mirrored and not";
}

TEST(Normalize, SubtractsTheMeanAndDividesByTheDeviationOfEachChannel) {
  const auto images = images_of(4, 3, 2, 2);
  const auto mean = torch::tensor({0.5F, -1.0F, 2.0F}).view({1, 3, 1, 1});
  const auto deviation = torch::tensor({0.25F, 3.0F, 7.0F}).view({1, 3, 1, 1});
  const auto normalized =
      transformed({Normalize({0.5, -1, 2}, {0.25, 3, 7})}, images.clone(), first_samples(4));
  EXPECT_TRUE(torch::equal(normalized, (images - mean) / deviation));
}

TEST(Normalize, ChangesTheTensorThatItGets) {
  auto images = images_of(1, 1, 2, 2);
  const void* const memory = images.const_data_ptr();
  auto random = transform_streams(0, 0, first_samples(1));
  Normalize({1}, {2})(images, random);
  RandomHorizontalFlip(1)(images, random);
  EXPECT_EQ(images.const_data_ptr(), memory);
}

TEST(Transforms, FollowFromSeedEpochAndSampleAlone) {
  const std::vector<BatchTransform> transforms = {RandomCrop(8, 3), RandomHorizontalFlip()};
  const auto image = images_of(1, 1, 8, 8);
  const auto alone = transformed(transforms, image.clone(), {7}, 1, 2);
  const auto among_others = transformed(transforms, image.repeat({4, 1, 1, 1}), {3, 9, 7, 1}, 1, 2);
  EXPECT_TRUE(torch::equal(among_others[2], alone[0]));
  std::set<std::vector<float>> different;
  const auto add = [&](std::size_t sample, std::uint64_t seed, std::uint64_t epoch) {
    const auto changed = transformed(transforms, image.clone(), {sample}, seed, epoch);
    different.insert(numbers_of(changed));
  };
  for (std::uint64_t i = 0; i < 20; ++i) {
    add(i, 1, 2);
    add(7, i, 2);
    add(7, 1, i);
  }
  EXPECT_GT(different.size(), 30U) << "of 98 that there are";
}

// Computed by another program. What changes here changes what runs that resume from a checkpoint train on.
TEST(Transforms, NeverChange) {
  EXPECT_EQ(transform_streams(3, 2, Samples{11})[0].next(), 0x402beaca009d6b4eU);
  const auto image = torch::arange(25, torch::kFloat32).view({1, 1, 5, 5});
  const auto cropped = transformed({RandomCrop(5, 4)}, image, {11}, 3, 2);
  const auto padded = torch::constant_pad_nd(image, {4, 4, 4, 4}, 0);
  EXPECT_TRUE(torch::equal(cropped, padded.slice(2, 2, 2 + 5).slice(3, 7, 7 + 5)));
}

TEST(Transforms, RefuseNumbersThatMakeNoSense) {
  EXPECT_EQ(test::failure_of([] { (void)RandomCrop(0); }),
            "RandomCrop: expected a size of at least 1 and a padding of at least 0, found 0 and 0");
  EXPECT_EQ(test::failure_of([] { (void)RandomCrop(3, -1); }),
            "RandomCrop: expected a size of at least 1 and a padding of at least 0, found 3 and -1");
  EXPECT_EQ(test::failure_of([] { (void)RandomHorizontalFlip(1.5); }),
            "RandomHorizontalFlip: expected a probability of 0 to 1, found 1.500000");
  EXPECT_EQ(test::failure_of([] {
              (void)Normalize({1, 2}, {1});
            }),
            "Normalize: expected a mean and a standard deviation above 0 for each channel, found 2 and 1");
  EXPECT_EQ(test::failure_of([] {
              (void)Normalize({1, 2}, {1, 0});
            }),
            "Normalize: expected a mean and a standard deviation above 0 for each channel, found 2 and 2, of "
            "which one is not above 0");
}

TEST(Transforms, RefuseWhatAreNoImages) {
  const auto given = [](const BatchTransform& transform, const torch::Tensor& images) {
    return test::failure_of([&] { (void)transformed({transform}, images, first_samples(2)); });
  };
  EXPECT_EQ(
      given(RandomHorizontalFlip(), torch::zeros({2, 8}, torch::kInt64)),
      "RandomHorizontalFlip: expected contiguous images f32 [2, channels, height, width] in main memory, "
      "found i64 [2, 8]");
  EXPECT_EQ(
      given(RandomCrop(4), torch::zeros({3, 1, 4, 4})),
      "RandomCrop: expected contiguous images f32 [2, channels, height, width] in main memory, found f32 "
      "[3, 1, 4, 4]");
  EXPECT_EQ(
      given(Normalize({0}, {1}), torch::zeros({2, 1, 4, 5}).transpose(2, 3)),
      "Normalize: expected contiguous images f32 [N, channels, height, width] in main memory, found f32 "
      "[2, 1, 5, 4], with gaps");
  EXPECT_EQ(
      given(RandomCrop(4), torch::Tensor()),
      "RandomCrop: expected contiguous images f32 [2, channels, height, width] in main memory, found no "
      "tensor");
  EXPECT_EQ(given(RandomCrop(8, 1), torch::zeros({2, 1, 8, 5})),
            "RandomCrop: images of 8 x 5 with a padding of 1 are smaller than 8 x 8");
  EXPECT_EQ(given(Normalize({0}, {1}), torch::zeros({2, 3, 4, 4})),
            "Normalize: expected images of 1 channels, found 3");
}

}  // namespace
}  // namespace lockstep
