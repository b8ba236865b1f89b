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
#include <vector>

#include "lockstep/data/idx.h"

namespace lockstep {

struct IdxDatasetOptions {
  /// What pixels are multiplied by. Bytes come out between 0 and 1 by default.
  float scale = 1.0F / 255;
};

/// Copies share the files, as data loaders want. Thread safety: get() may be called from several threads.
class IdxDataset : public torch::data::datasets::Dataset<IdxDataset> {
 public:
  /// `prefix`: "digits/train" finds digits/train-images-idx3-ubyte and digits/train-labels-idx1-ubyte.
  /// Throws Error: invalid_argument (which files were looked for), corrupt_data (file, offset, expected,
  /// found), system.
  explicit IdxDataset(const std::filesystem::path& prefix, const IdxDatasetOptions& options = {});

  /// Image: f32 [1, H, W], or [C, H, W] where the file says so. Label: i64, a scalar.
  /// Throws Error{invalid_argument} if there is no such sample.
  torch::data::Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override;

 private:
  std::shared_ptr<const IdxFile> images_;
  std::shared_ptr<const IdxFile> labels_;
  std::vector<std::int64_t> image_shape_;
  float scale_;
};

}  // namespace lockstep
