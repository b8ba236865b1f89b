#include "lockstep/train/data_parallel/pass_status.h"

#include <gtest/gtest.h>

#include <optional>

namespace lockstep {
namespace {

/// What all know in whose name some have said these digests.
bool agree(const std::vector<std::optional<std::uint32_t>>& said) {
  PassStatus all;
  all.begin(0);
  for (const auto& digest : said) {
    PassStatus one;
    one.begin(0);
    if (digest) one.note_digest(*digest);
    for (std::size_t i = 0; i < one.words().size(); ++i) all.words()[i] |= one.words()[i];
  }
  return all.agrees();
}

TEST(PassStatus, AgreesWhereAllWhoSaySomethingSayTheSame) {
  EXPECT_TRUE(agree({}));
  EXPECT_TRUE(agree({std::nullopt, std::nullopt}));
  EXPECT_TRUE(agree({7, std::nullopt, 7}));
  EXPECT_TRUE(agree({0, 0}));
  EXPECT_TRUE(agree({UINT32_MAX, UINT32_MAX}));
}

TEST(PassStatus, DoesNotAgreeWhereOneBitDiffers) {
  for (int bit = 0; bit < 32; ++bit) {
    const std::uint32_t digest = 0x12345678;
    EXPECT_FALSE(agree({digest, digest ^ std::uint32_t{1} << bit})) << bit;
    EXPECT_FALSE(agree({digest, std::nullopt, digest, digest ^ std::uint32_t{1} << bit})) << bit;
  }
  EXPECT_FALSE(agree({0, UINT32_MAX}));
}

TEST(PassStatus, KeepsApartWhatIsSaid) {
  PassStatus status;
  status.begin(130);
  status.note_digest(UINT32_MAX);
  EXPECT_FALSE(status.misses_some() || status.is_non_finite());
  for (std::size_t parameter = 0; parameter < 130; ++parameter) EXPECT_FALSE(status.is_used(parameter));
  status.note_use(0);
  status.note_use(129);
  status.note_missing();
  EXPECT_TRUE(status.agrees() && status.misses_some() && !status.is_non_finite());
  EXPECT_TRUE(status.is_used(0) && !status.is_used(1) && !status.is_used(128) && status.is_used(129));
}

}  // namespace
}  // namespace lockstep
