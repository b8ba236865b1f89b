// Windows of a file of tokens as a libtorch data set that makes a batch in one go. The file is mapped, so a
// rank reads the pages of its windows and no more; see lockstep/data/tokens.h.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>

#include "lockstep/data/tokens.h"

namespace lockstep {

/// For a lockstep::DataLoader, or torch::data::make_data_loader as it is (no Stack). Copies share the file.
/// Thread safety: all but assignment may be called from several threads.
class TokenDataset : public torch::data::datasets::BatchDataset<TokenDataset, torch::data::Example<>> {
 public:
  /// Throws as TokenFile does.
  explicit TokenDataset(const std::filesystem::path& path, const TokenFileOptions& options = {})
      : file_(std::make_shared<const TokenFile>(path, options)) {}

  /// Of each window the first `context` tokens as data, i64 [B, T], and those that follow them as target,
  /// i64 [B, T]. Throws as TokenFile::read() does.
  torch::data::Example<> get_batch(torch::ArrayRef<std::size_t> indices) override;
  /// Windows.
  std::optional<std::size_t> size() const override { return file_->size(); }

 private:
  std::shared_ptr<const TokenFile> file_;
};

}  // namespace lockstep
