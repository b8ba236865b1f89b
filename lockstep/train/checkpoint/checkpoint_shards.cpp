#include "lockstep/train/checkpoint/checkpoint_shards.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/quote.h"
#include "lockstep/schedule/call.h"
#include "lockstep/train/optimizer/update_rule.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::size_t token_digits = 16;
/// Who needs a few elements reads no more than so many besides.
constexpr std::size_t most_piece_elements = std::size_t{1} << 20;

/// All elements of a parameter, brought from one order into its own.
torch::Tensor reordered(const torch::Tensor& flat, const std::vector<std::int64_t>& from,
                        const torch::Tensor& parameter) {
  auto result = torch::empty_like(flat);
  in_order(result, parameter.sizes(), order_of(parameter)).copy_(in_order(flat, parameter.sizes(), from));
  return result;
}

std::map<std::string, std::string> metadata_of(const ShardIndex& index, int shard) {
  return {{"token", index.token}, {"shard", std::to_string(shard)}, {"shards", std::to_string(index.shards)}};
}

std::string shard_label(int shard, const ShardIndex& index) {
  return "shard " + std::to_string(shard) + " of " + std::to_string(index.shards);
}

CheckpointFile open_shard(const std::filesystem::path& path, const ShardIndex& index, int shard) {
  const auto name = shard_path(path, index, shard);
  std::error_code ignored;
  if (std::filesystem::status(name, ignored).type() == std::filesystem::file_type::not_found) {
    throw Error(ErrorCode::system,
                "checkpoint " + path.string() + " lacks its " + shard_label(shard, index) + ", " +
                    name.string() +
                    "; every host needs the folder with all shards: mount it there, or save without "
                    "CheckpointOptions::sharded");
  }
  CheckpointFile file(name, "shard of the checkpoint");
  if (file.header().metadata != metadata_of(index, shard)) {
    throw_corrupt_checkpoint(file.name(), checkpoint_fixed_bytes,
                             shard_label(shard, index) + " of save " + index.token, "a file of another save");
  }
  return file;
}

/// A slice of a parameter on its way in, from pieces that come in the order of elements.
class WantedSlice {
 public:
  WantedSlice(const ParameterSlice& slice, const ShardIndex::Parameter& kept, bool with_master)
      : slice_(slice), kept_(kept), tensor_(slice.parameter.tensor) {
    is_reordered_ = slice.elements > 0 && kept.strides != order_of(tensor_);
    begin_ = is_reordered_ ? 0 : slice.begin;
    end_ = is_reordered_ ? static_cast<std::size_t>(tensor_.numel()) : slice.begin + slice.elements;
    for (std::size_t array = 0; array < most_shard_arrays; ++array) {
      is_wanted_[array] = is_kept(array) && (array != master_array || with_master);
      if (is_wanted_[array])
        content_[array] = torch::empty({static_cast<std::int64_t>(end_ - begin_)}, type_in(array));
      there_[array] = begin_;
    }
  }

  void take(const CheckpointFile& file, const CheckpointEntry& entry, const ShardPiece& piece) {
    const auto expect = [&](bool holds, const std::string& expected) {
      if (!holds) throw_corrupt_checkpoint(file.name(), entry.offset, expected, entry.label());
    };
    const auto numel = static_cast<std::uint64_t>(tensor_.numel());
    expect(is_kept(piece.array), "what the checkpoint has of parameter " + piece.parameter);
    expect(
        entry.kind == EntryKind::buffer && entry.shape.size() == 1 && type_of(entry) == type_in(piece.array),
        "one dimension of " + type_name(type_in(piece.array)));
    expect(piece.begin <= numel && entry.shape[0] <= numel - piece.begin,
           "at most " + std::to_string(numel) + " elements");
    const std::size_t begin = std::max(piece.begin, begin_);
    const std::size_t end = std::min(piece.begin + static_cast<std::size_t>(entry.shape[0]), end_);
    if (begin >= end || !is_wanted_[piece.array]) return;
    expect(begin == there_[piece.array], "elements from " + std::to_string(there_[piece.array]) + " on");
    const auto bytes = file.checked(entry);
    const std::size_t size = torch::elementSize(type_in(piece.array));
    std::memcpy(static_cast<std::byte*>(content_[piece.array].mutable_data_ptr()) + (begin - begin_) * size,
                bytes.data() + (begin - piece.begin) * size, (end - begin) * size);
    there_[piece.array] = end;
  }

  SliceState finish(const std::filesystem::path& path) const {
    SliceState state{.steps = kept_.steps};
    for (std::size_t array = 0; array < most_shard_arrays; ++array) {
      if (!is_wanted_[array]) continue;
      if (there_[array] != end_) {
        throw Error(ErrorCode::corrupt_data,
                    "checkpoint " + path.string() + ": its shards lack the state of " +
                        slice_.parameter.label() + " from element " + std::to_string(there_[array]) +
                        " on; use another checkpoint");
      }
      torch::Tensor content = content_[array];
      if (is_reordered_) {
        content = reordered(content, kept_.strides, tensor_)
                      .narrow(0, static_cast<std::int64_t>(slice_.begin),
                              static_cast<std::int64_t>(slice_.elements));
      }
      (array == master_array ? state.master : state.arrays[array]) = content;
    }
    return state;
  }

 private:
  bool is_kept(std::size_t array) const {
    return array == master_array ? kept_.has_master : array < kept_.arrays;
  }
  torch::ScalarType type_in(std::size_t array) const {
    return array == master_array ? torch::kFloat32 : state_type(tensor_.scalar_type());
  }

  const ParameterSlice& slice_;
  const ShardIndex::Parameter& kept_;
  const torch::Tensor& tensor_;
  bool is_reordered_ = false;        // then all of the parameter is read
  std::size_t begin_ = 0, end_ = 0;  // of what is read, in the order of the save
  std::array<bool, most_shard_arrays> is_wanted_{};
  std::array<torch::Tensor, most_shard_arrays> content_;
  std::array<std::size_t, most_shard_arrays> there_{};  // up to which element
};

/// A shard of `file`, or the temporary of one.
struct ShardName {
  std::string token;
  bool is_temporary = false;
};

/// Takes what a name begins with, piece by piece.
class NameParts {
 public:
  explicit NameParts(std::string_view name) : rest_(name) {}
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// So many characters out of `alphabet`; nothing if there are fewer.
  std::string_view take(std::string_view alphabet, std::size_t least, std::size_t most) {
    const std::size_t found = std::min(rest_.find_first_not_of(alphabet), rest_.size());
    const auto taken = rest_.substr(0, std::min(found, most));
    if (taken.size() < least) return {};
    rest_.remove_prefix(taken.size());
    return taken;
  }
  bool is_empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// FILE.TOKEN.shard-RANK-of-RANKS, or that with .tmp-PID-HEX behind it.
std::optional<ShardName> parse_shard_name(const std::string& name, const std::string& file) {
  constexpr std::string_view digits = "0123456789", hex = "0123456789abcdef";
  NameParts parts(name);
  if (!parts.take(file) || !parts.take(".")) return std::nullopt;
  ShardName found{std::string(parts.take(hex, token_digits, token_digits))};
  if (found.token.empty() || !parts.take(".shard-") || parts.take(digits, 1, 7).empty() ||
      !parts.take("-of-") || parts.take(digits, 1, 7).empty())
    return std::nullopt;
  found.is_temporary = parts.take(".tmp-");
  if (found.is_temporary &&
      (parts.take(digits, 1, 10).empty() || !parts.take("-") || parts.take(hex, 8, 8).empty()))
    return std::nullopt;
  if (!parts.is_empty()) return std::nullopt;
  return found;
}

}  // namespace

std::string new_token() {
  std::random_device random;
  std::array<char, token_digits + 1> hex{};
  std::snprintf(hex.data(), hex.size(), "%08x%08x", random(), random());
  return hex.data();
}

std::filesystem::path shard_path(const std::filesystem::path& path, const ShardIndex& index, int shard) {
  return follow_links(path).string() + "." + index.token + ".shard-" + std::to_string(shard) + "-of-" +
         std::to_string(index.shards);
}

CheckpointImage make_shard(const ShardIndex& index, int shard, std::span<const ParameterSlice> slices,
                           std::span<const SliceState> states) {
  CheckpointImage image({.metadata = metadata_of(index, shard)});
  for (std::size_t i = 0; i < slices.size(); ++i) {
    for (std::size_t array = 0; array < most_shard_arrays; ++array) {
      const auto& content = array == master_array ? states[i].master : states[i].arrays[array];
      if (!content.defined() || slices[i].elements == 0) continue;
      const auto bytes = elements_of(content);
      const std::size_t size = content.element_size();
      for (const Range& range : schedule::segments_of({0, slices[i].elements}, most_piece_elements)) {
        image.add({.kind = EntryKind::buffer,
                   .type = checkpoint_type(content.scalar_type()).value(),
                   .name = name_of({array, slices[i].begin + range.begin, slices[i].parameter.name}),
                   .shape = {range.count}},
                  bytes.subspan(range.begin * size, range.count * size));
      }
    }
  }
  return image;
}

UniqueFd write_shard(const std::filesystem::path& path, const ShardIndex& index, int shard,
                     CheckpointImage& image) {
  FileReplacement file(shard_path(path, index, shard), "shard of the checkpoint");
  image.write([&](std::span<const std::byte> bytes) { file.write(bytes); });
  return file.commit();
}

std::vector<SliceState> read_slices(const std::filesystem::path& path, const ShardIndex& index,
                                    std::span<const ParameterSlice> slices, bool with_masters) {
  const torch::NoGradGuard no_grad;
  std::vector<WantedSlice> wanted;
  std::map<std::string, std::size_t> numbers;
  for (const auto& slice : slices) {
    numbers[slice.parameter.name] = wanted.size();
    wanted.emplace_back(slice, index.parameters.at(slice.parameter.name), with_masters);
  }
  for (int shard = 0; shard < index.shards; ++shard) {
    const auto file = open_shard(path, index, shard);
    for (const auto& entry : file.header().entries) {
      const auto piece = piece_of(entry.name);
      const auto number = piece ? numbers.find(piece->parameter) : numbers.end();
      if (number == numbers.end()) {
        throw_corrupt_checkpoint(file.name(), entry.offset, "state of a parameter of the checkpoint",
                                 base::quote(entry.name));
      }
      wanted[number->second].take(file, entry, *piece);
    }
  }
  std::vector<SliceState> states;
  for (const auto& slice : wanted) states.push_back(slice.finish(path));
  return states;
}

std::optional<std::string> named_token(const std::filesystem::path& path) noexcept try {
  std::error_code ignored;
  const auto type = std::filesystem::status(path, ignored).type();
  if (type == std::filesystem::file_type::none) return std::nullopt;
  if (type != std::filesystem::file_type::regular) return "";
  const CheckpointFile file(path, "checkpoint");
  const auto& entries = file.header().entries;
  const auto found = std::ranges::find(entries, EntryKind::optimizer, &CheckpointEntry::kind);
  if (found == entries.end()) return "";
  const auto kind = sharded_kind(found->name);
  return kind ? decode_index(file.checked(*found), *kind, file.name()).token : "";
} catch (const std::exception&) {
  return std::nullopt;
}

void remove_stale_shards(const std::filesystem::path& path) noexcept try {
  const auto real = follow_links(path);
  const std::string file = real.filename().string();
  const auto folder = real.has_parent_path() ? real.parent_path() : std::filesystem::path(".");
  std::optional<std::optional<std::string>> named;  // looked up when it is first asked for
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const auto shard = parse_shard_name(item.path().filename().string(), file);
    if (!shard) continue;
    if (!named) named = named_token(path);
    if (!*named || (**named == shard->token && !shard->is_temporary)) continue;
    remove_unless_locked(item.path(), [&] {
      if (shard->is_temporary) return true;
      // Its save may have ended since.
      const auto now = named_token(path);
      return now && *now != shard->token;
    });
  }
} catch (const std::exception&) {
  return;  // no such folder, or one that may not be listed
}

}  // namespace lockstep
