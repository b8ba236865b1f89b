#include "lockstep/train/datasets/dataset.h"

#include <span>

#include "lockstep/base/error.h"

namespace lockstep {

IdxDataset::IdxDataset(const std::filesystem::path& prefix, const IdxDatasetOptions& options)
    : options_(options) {
  const IdxPair pair = find_idx_pair(prefix);
  images_ = std::make_shared<const IdxFile>(pair.images);
  labels_ = std::make_shared<const IdxFile>(pair.labels);
  const auto& shape = images_->header().shape;
  image_shape_.assign(shape.begin() + 1, shape.end());
  if (image_shape_.size() == 2) image_shape_.insert(image_shape_.begin(), 1);
}

std::int64_t IdxDataset::read(std::size_t index, std::span<float> pixels) const {
  if (index >= images_->size()) {
    throw_invalid_argument("there is no sample " + std::to_string(index) + "; the set has " +
                           std::to_string(images_->size()) + ", counted from 0");
  }
  images_->decode(index, pixels);
  for (float& pixel : pixels) pixel *= options_.scale;
  return labels_->label(index, options_.classes);
}

torch::data::Example<> IdxDataset::get(std::size_t index) {
  torch::Tensor image = torch::empty(image_shape_, torch::kFloat32);
  const std::span pixels(image.mutable_data_ptr<float>(), static_cast<std::size_t>(image.numel()));
  const std::int64_t label = read(index, pixels);
  return {std::move(image), torch::tensor(label)};
}

torch::data::Example<> IdxDataset::batch(torch::ArrayRef<std::size_t> indices) const {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(indices.size())};
  shape.insert(shape.end(), image_shape_.begin(), image_shape_.end());
  torch::Tensor images = torch::empty(shape, torch::kFloat32);
  torch::Tensor labels = torch::empty({shape[0]}, torch::kInt64);
  const std::size_t elements = images_->header().record_elements();
  auto* pixels = images.mutable_data_ptr<float>();
  auto* label = labels.mutable_data_ptr<std::int64_t>();
  for (const std::size_t index : indices) {
    *label++ = read(index, {pixels, elements});
    pixels += elements;
  }
  return {std::move(images), std::move(labels)};
}

std::optional<std::size_t> IdxDataset::size() const { return images_->size(); }

}  // namespace lockstep
