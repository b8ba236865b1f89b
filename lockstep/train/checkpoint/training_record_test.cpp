#include "lockstep/train/checkpoint/training_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TrainingRecord sample_record() {
  return {.step = 7,
          .schedule_step = 3,
          .sampler = SamplerPosition{.samples = 40, .seed = ~std::uint64_t{0}, .epoch = 2, .consumed = 16},
          .random = {std::string("a\0b", 3), "c"}};
}

TEST(TrainingRecord, ComesBackAndLeavesTheProgramsNotesAlone) {
  Metadata metadata = {{"loss", "0.25"}, {"lockstep.of tomorrow", "?"}};
  const Metadata notes = metadata;
  put_record(metadata, sample_record());
  EXPECT_EQ(metadata.at("lockstep.step"), "7");
  EXPECT_EQ(metadata.at("lockstep.schedule_step"), "3");
  EXPECT_EQ(metadata.at("lockstep.sampler"), "40 18446744073709551615 2 16");
  EXPECT_EQ(metadata.at("lockstep.random 0"), std::string("a\0b", 3));
  const auto record = take_record(metadata, "model.ckpt").value();
  EXPECT_EQ(metadata, notes);
  EXPECT_EQ(record.step, 7U);
  EXPECT_EQ(record.schedule_step, 3U);
  EXPECT_EQ(record.sampler, sample_record().sampler);
  EXPECT_EQ(record.random, sample_record().random);
}

TEST(TrainingRecord, NeedNotHaveASamplerOrRandomNumbers) {
  Metadata metadata;
  put_record(metadata, TrainingRecord{.step = 1});
  EXPECT_EQ(metadata.size(), 2U);
  const auto record = take_record(metadata, "model.ckpt").value();
  EXPECT_FALSE(record.sampler);
  EXPECT_TRUE(record.random.empty());
}

TEST(TrainingRecord, IsNotThereInCheckpointsOfOld) {
  Metadata metadata = {{"lockstep.sampler", "a note of the program's"}};
  EXPECT_FALSE(take_record(metadata, "model.ckpt"));
  EXPECT_EQ(metadata.size(), 1U);
}

TEST(TrainingRecord, HasItsKeysToItself) {
  for (const std::string key :
       {"lockstep.step", "lockstep.schedule_step", "lockstep.sampler", "lockstep.random x"}) {
    Metadata metadata = {{key, ""}};
    try {
      put_record(metadata, std::nullopt);
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("\"" + key + "\" of the checkpoint's metadata is for"));
    }
  }
}

std::string refusal(const std::string& key, const std::string& value) {
  Metadata metadata;
  put_record(metadata, sample_record());
  if (value == "missing")
    metadata.erase(key);
  else
    metadata[key] = value;
  try {
    (void)take_record(metadata, "model.ckpt");
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "accepted";
}

TEST(TrainingRecord, IsRefusedWhereItMakesNoSense) {
  EXPECT_THAT(refusal("lockstep.step", "-1"),
              HasSubstr("corrupt_data: checkpoint model.ckpt: at byte 80 expected a number in lockstep.step, "
                        "found \"-1\""));
  EXPECT_THAT(refusal("lockstep.step", "18446744073709551616"),
              HasSubstr("expected a number in lockstep.step"));
  EXPECT_THAT(refusal("lockstep.step", "1 2"), HasSubstr("expected one number as lockstep.step"));
  EXPECT_THAT(refusal("lockstep.schedule_step", "missing"),
              HasSubstr("expected a metadatum lockstep.schedule_step, found none"));
  EXPECT_THAT(refusal("lockstep.sampler", "1 2 3"), HasSubstr("expected a number in lockstep.sampler"));
  EXPECT_THAT(refusal("lockstep.sampler", "1 2 3 4 5"),
              HasSubstr("expected four numbers as lockstep.sampler"));
  EXPECT_THAT(
      refusal("lockstep.random 0", "missing"),
      HasSubstr("expected random states of ranks from 0 on, without a gap, found \"lockstep.random 1\""));
  EXPECT_EQ(refusal("lockstep.sampler", "missing"), "accepted");
}

}  // namespace
}  // namespace lockstep
