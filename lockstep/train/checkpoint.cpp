#include "lockstep/train/checkpoint.h"

#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/checkpoint_format.h"
#include "lockstep/train/optimizer_state.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/sharded_step.h"
#include "lockstep/train/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::array type_numbers = {torch::kUInt8,   torch::kInt32,        torch::kInt64,
                                     torch::kFloat16, torch::kBFloat16,     torch::kFloat32,
                                     torch::kFloat64, torch::kInt8,         torch::kInt16,
                                     torch::kBool,    torch::kComplexFloat, torch::kComplexDouble};
constexpr std::size_t block_bytes = std::size_t{4} << 20;

std::uint8_t type_number(const NamedTensor& item) {
  const auto type = std::ranges::find(type_numbers, item.tensor.scalar_type());
  if (type == type_numbers.end()) {
    throw Error(ErrorCode::unsupported,
                item.label() + " is " + describe(item.tensor) +
                    "; a checkpoint cannot hold that type: convert it, or leave it out");
  }
  return static_cast<std::uint8_t>(type - type_numbers.begin());
}

std::string describe_entry(const CheckpointEntry& entry) {
  const std::vector<std::int64_t> shape(entry.shape.begin(), entry.shape.end());
  return type_name(type_numbers.at(entry.type)) + " " + shape_text(shape);
}

/// Runs `task` on rank 0 alone; if it fails there, every rank throws what it threw.
void on_rank_0(const Group& group, const std::function<void()>& task) {
  std::string outcome;  // empty, or the code as a letter and the message
  const auto failed = [&outcome](ErrorCode code, const std::string& message) {
    outcome = std::string(1, static_cast<char>('A' + static_cast<int>(code))) + message;
  };
  if (group.rank() == 0) {
    try {
      task();
    } catch (const Error& error) {
      failed(error.code(), error.what());
    } catch (const std::exception& error) {
      const std::string text = error.what();
      failed(ErrorCode::system, text.substr(0, text.find('\n')));  // libtorch adds a call stack
    }
  }
  outcome = broadcast_text(group, std::move(outcome));
  if (!outcome.empty()) throw Error(static_cast<ErrorCode>(outcome[0] - 'A'), outcome.substr(1));
}

std::span<const std::byte> bytes_of(const torch::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

Sha256 checksum_of(std::span<const std::byte> bytes) {
  Sha256Sum sum;
  sum.update(bytes);
  return sum.digest();
}

void write_file(const std::filesystem::path& path, const torch::nn::Module& module,
                const torch::optim::Optimizer* optimizer, const CheckpointInfo& info) {
  CheckpointHeader header{.epoch = info.epoch, .metadata = info.metadata};
  std::vector<torch::Tensor> keep;
  std::vector<std::span<const std::byte>> contents;
  for (const auto& item : tensors_of(module)) {
    require_dense(item.tensor, item.label());
    const auto& tensor = keep.emplace_back(item.tensor.detach().to(torch::kCPU).contiguous());
    contents.push_back(bytes_of(tensor));
    auto& entry = header.entries.emplace_back();
    entry.kind = item.is_parameter ? EntryKind::parameter : EntryKind::buffer;
    entry.type = type_number(item);
    entry.name = item.name;
    entry.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  }
  std::string state;
  if (optimizer != nullptr) {
    state = optimizer_state(*optimizer);
    contents.push_back(std::as_bytes(std::span(state)));
    auto& entry = header.entries.emplace_back();
    entry.kind = EntryKind::optimizer;
    entry.name = optimizer_kind(*optimizer);
    entry.shape = {state.size()};
  }
  for (std::size_t i = 0; i < contents.size(); ++i) {
    header.entries[i].bytes = contents[i].size();
    header.entries[i].checksum = checksum_of(contents[i]);
  }
  FileReplacement file(path, "checkpoint");
  file.write(encode(header));
  const std::array<std::byte, checkpoint_alignment> zeros{};
  for (std::size_t i = 0; i < contents.size(); ++i) {
    file.write(std::span(zeros).first(header.entries[i].offset - file.size()));
    file.write(contents[i]);
  }
  file.commit();
}

/// A file whose every byte has been checked.
class CheckedFile {
 public:
  explicit CheckedFile(const std::filesystem::path& path) : file_(path, "checkpoint") {
    std::vector<std::byte> start(std::min<std::uint64_t>(file_.size(), checkpoint_fixed_bytes));
    file_.read(0, start);
    std::vector<std::byte> bytes(header_bytes(start, file_.size(), name()));
    file_.read(0, bytes);
    header_ = decode(bytes, file_.size(), name());
    std::uint64_t end = bytes.size();
    for (const auto& entry : header_.entries) {
      check(entry, end);
      end = entry.offset + entry.bytes;
    }
  }

  const CheckpointHeader& header() const { return header_; }
  const std::string& name() const { return file_.name(); }
  void read(const CheckpointEntry& entry, std::span<std::byte> bytes) const {
    file_.read(entry.offset, bytes);
  }

 private:
  void check(const CheckpointEntry& entry, std::uint64_t after) const {
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
    if (sum.digest() != entry.checksum) {
      throw_corrupt_checkpoint(name(), entry.offset, entry.label() + " with its checksum", "other content");
    }
  }

  InputFile file_;
  CheckpointHeader header_;
};

/// The entry of each tensor, in the tensors' order.
std::vector<const CheckpointEntry*> match(const CheckedFile& file, std::span<const NamedTensor> tensors) {
  const auto refuse = [&](const std::string& difference) {
    throw_invalid_argument("checkpoint " + file.name() + " is of another model: " + difference +
                           "; build the model that it was saved from");
  };
  std::map<std::pair<EntryKind, std::string>, const CheckpointEntry*> left;
  for (const auto& entry : file.header().entries) {
    if (entry.kind != EntryKind::optimizer) left[{entry.kind, entry.name}] = &entry;
  }
  std::vector<const CheckpointEntry*> entries;
  for (const auto& item : tensors) {
    const auto found =
        left.extract({item.is_parameter ? EntryKind::parameter : EntryKind::buffer, item.name});
    if (found.empty()) refuse("it has no " + item.label() + ", here " + describe(item.tensor));
    const CheckpointEntry& entry = *entries.emplace_back(found.mapped());
    const bool same_shape = std::ranges::equal(entry.shape, item.tensor.sizes(), [](auto there, auto here) {
      return there == static_cast<std::uint64_t>(here);
    });
    if (entry.type != type_number(item) || !same_shape) {
      refuse("its " + item.label() + " (at byte " + std::to_string(entry.offset) + ") is " +
             describe_entry(entry) + ", here " + describe(item.tensor));
    }
  }
  if (!left.empty()) {
    const CheckpointEntry& entry = *left.begin()->second;
    refuse("it has " + entry.label() + ", " + describe_entry(entry) + ", here is none");
  }
  return entries;
}

std::string read_optimizer_state(const CheckedFile& file, const torch::optim::Optimizer& optimizer) {
  const auto& entries = file.header().entries;
  const auto found = std::ranges::find(entries, EntryKind::optimizer, &CheckpointEntry::kind);
  if (found == entries.end()) {
    throw_invalid_argument(
        "checkpoint " + file.name() +
        " was saved without an optimizer; load it without one, or start the optimizer anew");
  }
  if (found->name != optimizer_kind(optimizer)) {
    throw_invalid_argument("checkpoint " + file.name() + " holds the state of an optimizer " + found->name +
                           ", here it is " + optimizer_kind(optimizer) +
                           "; use the same, or load the model alone");
  }
  std::string state(found->bytes, '\0');
  file.read(*found, std::as_writable_bytes(std::span(state)));
  require_fitting_state(state, optimizer, "checkpoint " + file.name());
  return state;
}

void read_tensors(const CheckedFile& file, std::span<const NamedTensor> tensors,
                  std::span<const CheckpointEntry* const> entries) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor content = tensors[i].tensor.detach().contiguous();
    file.read(*entries[i], writable_bytes(content, tensors[i].label()));
    if (!tensors[i].tensor.is_contiguous()) tensors[i].tensor.detach().copy_(content);
  }
}

/// What rank 0 tells the others besides tensors.
std::string pack(const CheckpointInfo& info) {
  CheckpointHeader header{.epoch = info.epoch, .metadata = info.metadata};
  const auto bytes = encode(header);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

CheckpointInfo unpack(const std::string& text) {
  CheckpointHeader header = decode(std::as_bytes(std::span(text)), text.size(), "from rank 0");
  return {header.epoch, std::move(header.metadata)};
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module,
                     const torch::optim::Optimizer* optimizer, const CheckpointInfo& info) {
  if (const auto* sharded = dynamic_cast<const ShardedState*>(optimizer)) sharded->gather_state();
  on_rank_0(group, [&] { write_file(path, module, optimizer, info); });
}

CheckpointInfo load_checkpoint(const std::filesystem::path& path, const Group& group,
                               const torch::nn::Module& module, torch::optim::Optimizer* optimizer) {
  const auto tensors = tensors_of(module);
  auto facts = facts_of(tensors);
  facts.push_back({"optimizer", optimizer == nullptr ? "none" : optimizer_kind(*optimizer)});
  require_same_facts(group, facts,
                     "Build the same model and optimizer on every rank before a checkpoint is loaded");
  for (const auto& item : tensors) require_host_array(item.tensor, item.label());

  std::optional<CheckedFile> file;
  std::vector<const CheckpointEntry*> entries;
  std::string state, info;
  on_rank_0(group, [&] {
    remove_leftovers(path);
    file.emplace(path);
    entries = match(*file, tensors);
    if (optimizer != nullptr) state = read_optimizer_state(*file, *optimizer);
    info = pack({file->header().epoch, file->header().metadata});
  });
  on_rank_0(group, [&] { read_tensors(*file, tensors, entries); });
  broadcast_tensors(group, tensors);
  state = broadcast_text(group, std::move(state));
  if (optimizer != nullptr) restore_optimizer(*optimizer, state);
  return unpack(broadcast_text(group, std::move(info)));
}

void remove_checkpoint_leftovers(const std::filesystem::path& path, const Group& group) {
  if (group.rank() == 0) remove_leftovers(path);
}

}  // namespace lockstep
