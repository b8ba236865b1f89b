#include "lockstep/train/datasets/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class IdxDatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dataset.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    std::vector<std::byte> pixels, labels;
    for (int i = 0; i < 5 * 2 * 3; ++i) pixels.push_back(static_cast<std::byte>(i));
    for (int i = 0; i < 5; ++i) labels.push_back(static_cast<std::byte>(9 - i));
    write_idx(folder_ / "train-images-idx3-ubyte", {IdxType::u8, {5, 2, 3}, pixels});
    write_idx(folder_ / "train-labels-idx1-ubyte", {IdxType::u8, {5}, labels});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(IdxDatasetTest, GivesImagesWithAChannelAndLabelsAsIntegers) {
  IdxDataset set(folder_ / "train", {.scale = 1});
  ASSERT_EQ(set.size(), 5U);
  const auto [image, label] = set.get(2);
  EXPECT_TRUE(torch::equal(image, torch::arange(12, 18, torch::kFloat32).view({1, 2, 3})));
  EXPECT_EQ(label.scalar_type(), torch::kInt64);
  EXPECT_EQ(label.item<std::int64_t>(), 7);
}

TEST_F(IdxDatasetTest, ScalesBytesToOneByDefault) {
  IdxDataset set(folder_ / "train");
  EXPECT_FLOAT_EQ(set.get(0).data[0][0][1].item<float>(), 1.0F / 255);
}

TEST_F(IdxDatasetTest, StacksIntoBatches) {
  auto set = IdxDataset(folder_ / "train").map(torch::data::transforms::Stack<>());
  const std::vector<std::size_t> indices = {4, 0, 4};
  const auto batch = set.get_batch(indices);
  EXPECT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{3, 1, 2, 3}));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({5, 9, 5}, torch::kInt64)));
}

TEST_F(IdxDatasetTest, MakesTheBatchThatStackingMakes) {
  IdxDataset set(folder_ / "train");
  const std::vector<std::size_t> indices = {4, 0, 4};
  const auto stacked = set.map(torch::data::transforms::Stack<>()).get_batch(indices);
  const auto batch = set.batch(indices);
  EXPECT_TRUE(torch::equal(batch.data, stacked.data));
  EXPECT_TRUE(torch::equal(batch.target, stacked.target));
  EXPECT_EQ(batch.target.scalar_type(), torch::kInt64);
}

TEST_F(IdxDatasetTest, NamesALabelThatIsNoClass) {
  IdxDataset set(folder_ / "train", {.classes = 9});
  EXPECT_EQ(set.get(1).target.item<std::int64_t>(), 8);
  const std::vector<std::size_t> indices = {1, 0};
  try {
    (void)set.batch(indices);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    EXPECT_THAT(error.what(), testing::EndsWith("train-labels-idx1-ubyte: at byte 8 expected a label of 0 to "
                                                "8, found 9 (record 0); check the number of classes, or get "
                                                "the file again"));
  }
}

TEST_F(IdxDatasetTest, RefusesASampleThatIsNotThere) {
  IdxDataset set(folder_ / "train");
  try {
    (void)set.get(5);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), testing::HasSubstr("no sample 5; the set has 5"));
  }
}

TEST_F(IdxDatasetTest, NamesTheFilesThatItDidNotFind) {
  try {
    const IdxDataset set(folder_ / "absent");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("absent-images"));
  }
}

}  // namespace
}  // namespace lockstep
