#include "lockstep/train/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::array type_numbers = {torch::kUInt8,   torch::kInt32,        torch::kInt64,
                                     torch::kFloat16, torch::kBFloat16,     torch::kFloat32,
                                     torch::kFloat64, torch::kInt8,         torch::kInt16,
                                     torch::kBool,    torch::kComplexFloat, torch::kComplexDouble};
constexpr std::size_t block_bytes = std::size_t{4} << 20;

Sha256 checksum_of(std::span<const std::byte> bytes) {
  Sha256Sum sum;
  sum.update(bytes);
  return sum.digest();
}

}  // namespace

std::optional<std::uint8_t> checkpoint_type(torch::ScalarType type) {
  const auto found = std::ranges::find(type_numbers, type);
  if (found == type_numbers.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - type_numbers.begin());
}

std::uint8_t type_number(const NamedTensor& item) {
  if (const auto type = checkpoint_type(item.tensor.scalar_type())) return *type;
  throw Error(ErrorCode::unsupported,
              item.label() + " is " + describe(item.tensor) +
                  "; a checkpoint cannot hold that type: convert it, or leave it out");
}

torch::ScalarType type_of(const CheckpointEntry& entry) { return type_numbers.at(entry.type); }

void CheckpointImage::add(CheckpointEntry entry, std::span<const std::byte> content) {
  entry.bytes = content.size();
  header_.entries.push_back(std::move(entry));
  contents_.push_back(content);
}

void CheckpointImage::write(const std::function<void(std::span<const std::byte>)>& out) {
  for (std::size_t i = 0; i < contents_.size(); ++i) header_.entries[i].checksum = checksum_of(contents_[i]);
  const auto start = encode(header_);
  out(start);
  const std::array<std::byte, checkpoint_alignment> zeros{};
  std::uint64_t written = start.size();
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    out(std::span(zeros).first(header_.entries[i].offset - written));
    out(contents_[i]);
    written = header_.entries[i].offset + contents_[i].size();
  }
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path, std::string kind)
    : file_(path, std::move(kind)) {
  std::vector<std::byte> start(std::min<std::uint64_t>(file_.size(), checkpoint_fixed_bytes));
  file_.read(0, start);
  std::vector<std::byte> bytes(header_bytes(start, file_.size(), name()));
  header_bytes_ = bytes.size();
  file_.read(0, bytes);
  header_ = decode(bytes, file_.size(), name());
}

void CheckpointFile::check_all() const {
  std::uint64_t end = header_bytes_;
  for (const auto& entry : header_.entries) {
    check(entry, end);
    end = entry.offset + entry.bytes;
  }
}

void CheckpointFile::check(const CheckpointEntry& entry, std::uint64_t after) const {
  std::vector<std::byte> block(entry.offset - after);
  file_.read(after, block);
  if (std::ranges::any_of(block, [](std::byte b) { return b != std::byte{0}; })) {
    throw_corrupt_checkpoint(name(), after, "zeros up to " + entry.label(), "other bytes");
  }
  Sha256Sum sum;
  for (std::uint64_t at = 0; at < entry.bytes; at += block.size()) {
    block.resize(std::min<std::uint64_t>(entry.bytes - at, block_bytes));
    file_.read(entry.offset + at, block);
    sum.update(block);
  }
  require_checksum(entry, sum.digest());
}

std::vector<std::byte> CheckpointFile::checked(const CheckpointEntry& entry) const {
  std::vector<std::byte> content(entry.bytes);
  read(entry, content);
  require_checksum(entry, checksum_of(content));
  return content;
}

void CheckpointFile::require_checksum(const CheckpointEntry& entry, const Sha256& found) const {
  if (found == entry.checksum) return;
  throw_corrupt_checkpoint(name(), entry.offset, entry.label() + " with its checksum", "other content");
}

}  // namespace lockstep
