// Images that need no files, for tests and measurements: each class is a fixed random pattern, and each image
// the pattern of its class plus noise, so that a network learns to tell them apart.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

struct SyntheticImagesOptions {
  std::size_t samples = 10'000;
  std::vector<std::int64_t> shape{3, 32, 32};  ///< of one image: any number of sizes, each at least 1
  std::int64_t classes = 10;
  float noise = 1;          ///< its standard deviation; that of the patterns is 0.58
  std::uint64_t seed = 0;   ///< of patterns and noise
  std::uint64_t first = 0;  ///< the first sample's number: others of the same classes, as for a test set
};

/// A sample follows from (seed, first + its index) alone. For a lockstep::DataLoader, or
/// torch::data::make_data_loader as it is (no Stack). Cost: no memory; about 3 ns a pixel. Thread safety: all
/// but assignment may be called from several threads.
class SyntheticImages : public torch::data::datasets::BatchDataset<SyntheticImages, torch::data::Example<>> {
 public:
  /// Throws Error{invalid_argument} unless there are samples, classes and pixels.
  explicit SyntheticImages(SyntheticImagesOptions options = {});

  /// Images f32 [B, shape...], labels i64 [B]. Throws Error{invalid_argument} if there is no such sample.
  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return options_.samples; }

 private:
  SyntheticImagesOptions options_;
};

}  // namespace lockstep
