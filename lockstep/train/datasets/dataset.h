// Labelled images from IDX files (MNIST, Fashion-MNIST, the digits of script/make-digits) as a libtorch data
// set. Images are read when they are asked for, so a rank reads its shard and no more; see
// lockstep/data/idx.h.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/data/idx.h"

namespace lockstep {

struct IdxDatasetOptions {
  /// What pixels are multiplied by. Bytes come out between 0 and 1 by default.
  float scale = 1.0F / 255;
  /// Labels are 0…classes-1: another one is Error{corrupt_data} when it is read. 0: not checked.
  std::size_t classes = 0;
};

/// Copies share the files, as data loaders want. Thread safety: all but assignment may be called from several
/// threads.
class IdxDataset : public torch::data::datasets::Dataset<IdxDataset> {
 public:
  /// `prefix`: "digits/train" finds digits/train-images-idx3-ubyte and digits/train-labels-idx1-ubyte.
  /// Throws Error: invalid_argument (which files were looked for), corrupt_data (file, offset, expected,
  /// found), system.
  explicit IdxDataset(const std::filesystem::path& prefix, const IdxDatasetOptions& options = {});

  /// Image: f32 [1, H, W], or [C, H, W] where the file says so. Label: i64, a scalar.
  /// Throws Error: invalid_argument if there is no such sample; corrupt_data, system.
  torch::data::Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override;

  /// The samples `indices` as one batch, made in one go: images f32 [B, 1, H, W], or [B, C, H, W]; labels
  /// i64 [B]. Throws as get() does.
  torch::data::Example<> batch(torch::ArrayRef<std::size_t> indices) const;

 private:
  /// Into `pixels`; returns the label.
  std::int64_t read(std::size_t index, std::span<float> pixels) const;

  std::shared_ptr<const IdxFile> images_;
  std::shared_ptr<const IdxFile> labels_;
  std::vector<std::int64_t> image_shape_;
  IdxDatasetOptions options_;
};

}  // namespace lockstep
