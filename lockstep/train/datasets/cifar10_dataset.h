// CIFAR-10 as a libtorch data set that makes a batch in one go: one tensor instead of one for each image.
// Images are read when they are asked for, so a rank reads its share and no more; see
// lockstep/data/cifar10.h, and docs/data.md for where the files come from.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>

#include "lockstep/data/cifar10.h"

namespace lockstep {

struct Cifar10DatasetOptions {
  /// What pixels are multiplied by: they come out between 0 and 1.
  float scale = 1.0F / 255;
};

/// For a lockstep::DataLoader, or torch::data::make_data_loader as it is (no Stack). Copies share the files.
/// Thread safety: all but assignment may be called from several threads.
class Cifar10Dataset : public torch::data::datasets::BatchDataset<Cifar10Dataset, torch::data::Example<>> {
 public:
  /// `folder` holds data_batch_1.bin to data_batch_5.bin (train) or test_batch.bin (test). Throws Error:
  /// invalid_argument where a file is missing (from where to get it), corrupt_data, system.
  explicit Cifar10Dataset(const std::filesystem::path& folder, Cifar10Part part = Cifar10Part::train,
                          const Cifar10DatasetOptions& options = {});

  /// Images f32 [B, 3, 32, 32], labels i64 [B]. Throws Error: invalid_argument if there is no such sample,
  /// corrupt_data (file, offset, expected, found), system.
  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> indices) override;
  std::optional<std::size_t> size() const override { return files_->size(); }

 private:
  std::shared_ptr<const Cifar10Files> files_;
  Cifar10DatasetOptions options_;
};

}  // namespace lockstep
