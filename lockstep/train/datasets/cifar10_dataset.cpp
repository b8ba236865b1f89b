#include "lockstep/train/datasets/cifar10_dataset.h"

namespace lockstep {

Cifar10Dataset::Cifar10Dataset(const std::filesystem::path& folder, Cifar10Part part,
                               const Cifar10DatasetOptions& options)
    : files_(std::make_shared<const Cifar10Files>(folder, part)), options_(options) {}

torch::data::Example<> Cifar10Dataset::get_batch(torch::ArrayRef<std::size_t> indices) {
  const auto count = static_cast<std::int64_t>(indices.size());
  torch::Tensor images = torch::empty({count, 3, 32, 32}, torch::kFloat32);
  torch::Tensor labels = torch::empty({count}, torch::kInt64);
  auto* pixel = images.mutable_data_ptr<float>();
  auto* label = labels.mutable_data_ptr<std::int64_t>();
  for (const std::size_t index : indices) {
    const Cifar10Record record = files_->read(index);
    for (const std::uint8_t byte : record.pixels) *pixel++ = static_cast<float>(byte) * options_.scale;
    *label++ = record.label;
  }
  return {std::move(images), std::move(labels)};
}

}  // namespace lockstep
