#include "lockstep/train/datasets/token_dataset.h"

#include <algorithm>
#include <vector>

namespace lockstep {

torch::data::Example<> TokenDataset::get_batch(torch::ArrayRef<std::size_t> indices) {
  const std::size_t context = file_->options().context;
  const auto rows = static_cast<std::int64_t>(indices.size());
  const auto columns = static_cast<std::int64_t>(context);
  torch::Tensor inputs = torch::empty({rows, columns}, torch::kInt64);
  torch::Tensor targets = torch::empty({rows, columns}, torch::kInt64);
  auto* input = inputs.mutable_data_ptr<std::int64_t>();
  auto* target = targets.mutable_data_ptr<std::int64_t>();
  std::vector<std::int64_t> window(context + 1);
  for (const std::size_t index : indices) {
    file_->read(index, window);
    input = std::copy(window.begin(), window.end() - 1, input);
    target = std::copy(window.begin() + 1, window.end(), target);
  }
  return {std::move(inputs), std::move(targets)};
}

}  // namespace lockstep
