#include "lockstep/train/dataset.h"

#include <span>

#include "lockstep/base/error.h"

namespace lockstep {

IdxDataset::IdxDataset(const std::filesystem::path& prefix, const IdxDatasetOptions& options)
    : scale_(options.scale) {
  const IdxPair pair = find_idx_pair(prefix);
  images_ = std::make_shared<const IdxFile>(pair.images);
  labels_ = std::make_shared<const IdxFile>(pair.labels);
  const auto& shape = images_->header().shape;
  image_shape_.assign(shape.begin() + 1, shape.end());
  if (image_shape_.size() == 2) image_shape_.insert(image_shape_.begin(), 1);
}

torch::data::Example<> IdxDataset::get(std::size_t index) {
  if (index >= images_->size()) {
    throw_invalid_argument("there is no sample " + std::to_string(index) + "; the set has " +
                           std::to_string(images_->size()) + ", counted from 0");
  }
  torch::Tensor image = torch::empty(image_shape_, torch::kFloat32);
  const std::span pixels(image.mutable_data_ptr<float>(), static_cast<std::size_t>(image.numel()));
  images_->decode(index, pixels);
  for (float& pixel : pixels) pixel *= scale_;
  std::int64_t label = 0;
  labels_->decode(index, std::span(&label, 1));
  return {std::move(image), torch::tensor(label)};
}

std::optional<std::size_t> IdxDataset::size() const { return images_->size(); }

}  // namespace lockstep
