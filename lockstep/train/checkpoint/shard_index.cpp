#include "lockstep/train/checkpoint/shard_index.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/train/checkpoint/checkpoint_file.h"
#include "lockstep/train/checkpoint/words.h"
#include "lockstep/train/optimizer/optimizer_state.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

constexpr std::string_view sharded_mark = " sharded";
constexpr std::string_view parameter_mark = "parameter ";
constexpr std::uint64_t most_shards = 1'000'000;

bool is_token(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Whether elements of these sizes lie one after the other, in memory that is as long as all of them.
bool is_order(std::span<const std::int64_t> strides, const torch::Tensor& tensor) {
  if (strides.empty()) return true;
  if (static_cast<std::int64_t>(strides.size()) != tensor.dim() || tensor.numel() == 0) return false;
  const std::int64_t last = tensor.numel() - 1;
  std::int64_t reached = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    const std::int64_t steps = tensor.size(i) - 1, stride = strides[static_cast<std::size_t>(i)];
    if (steps == 0) continue;
    if (stride <= 0 || stride > (last - reached) / steps) return false;
    reached += steps * stride;
  }
  return reached == last;
}

std::string to_text(const ShardIndex::Parameter& kept) {
  std::string text = std::to_string(kept.steps) + " " + std::to_string(kept.arrays) + " " +
                     std::to_string(kept.has_master ? 1 : 0);
  for (const auto stride : kept.strides) text.append(" ").append(std::to_string(stride));
  return text;
}

std::optional<ShardIndex::Parameter> kept_of(std::string_view text) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  Words words(text);
  const auto steps = words.number(most), arrays = words.number(most_state_arrays), master = words.number(1);
  if (!steps || !arrays || !master) return std::nullopt;
  ShardIndex::Parameter kept{
      .steps = *steps, .arrays = static_cast<std::size_t>(*arrays), .has_master = *master == 1};
  while (!words.rest().empty()) {
    const auto stride = words.number(most);
    if (!stride) return std::nullopt;
    kept.strides.push_back(static_cast<std::int64_t>(*stride));
  }
  return kept;
}

std::size_t arrays_of_kind(const std::string& kind) { return kind == "SGD" ? 1 : 2; }

}  // namespace

std::string name_of(const ShardPiece& piece) {
  return (piece.array == master_array ? "master" : std::to_string(piece.array)) + " " +
         std::to_string(piece.begin) + " " + piece.parameter;
}

std::optional<ShardPiece> piece_of(const std::string& name) {
  Words words(name);
  ShardPiece piece;
  if (name.starts_with("master ")) {
    (void)words.word();
    piece.array = master_array;
  } else {
    const auto array = words.number(most_state_arrays - 1);
    if (!array) return std::nullopt;
    piece.array = static_cast<std::size_t>(*array);
  }
  const auto begin = words.number(std::numeric_limits<std::int64_t>::max());
  if (!begin) return std::nullopt;
  piece.begin = static_cast<std::size_t>(*begin);
  piece.parameter = words.rest();
  return piece;
}

ShardIndex make_index(int shards, const torch::optim::Optimizer& optimizer,
                      std::span<const ParameterSlice> slices, std::span<const SliceState> states) {
  ShardIndex index{.shards = shards, .options = optimizer_options(optimizer)};
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto& [item, begin, elements] = slices[i];
    const auto arrays =
        std::ranges::count_if(states[i].arrays, [](const torch::Tensor& array) { return array.defined(); });
    index.parameters[item.name] = {.steps = states[i].steps,
                                   .arrays = static_cast<std::size_t>(arrays),
                                   .has_master = states[i].master.defined(),
                                   .strides = order_of(item.tensor)};
  }
  return index;
}

std::string sharded_name(const std::string& kind) { return kind + std::string(sharded_mark); }

std::optional<std::string> sharded_kind(const std::string& name) {
  if (!name.ends_with(sharded_mark)) return std::nullopt;
  return name.substr(0, name.size() - sharded_mark.size());
}

std::string encode_index(const ShardIndex& index, const std::string& kind) {
  std::map<std::string, std::string> metadata = {{"token", index.token},
                                                 {"shards", std::to_string(index.shards)}};
  for (const auto& [name, kept] : index.parameters)
    metadata[std::string(parameter_mark) + name] = to_text(kept);
  CheckpointImage image({.metadata = std::move(metadata)});
  image.add({.kind = EntryKind::optimizer, .name = kind, .shape = {index.options.size()}},
            std::as_bytes(std::span(index.options)));
  std::string content;
  image.write([&](std::span<const std::byte> bytes) { base::append_bytes(content, bytes); });
  return content;
}

ShardIndex decode_index(std::span<const std::byte> content, const std::string& kind,
                        const std::string& file) {
  const std::string where = file + " (what it says of its shards)";
  const auto start = content.first(std::min(content.size(), checkpoint_fixed_bytes));
  const auto header =
      decode(content.first(header_bytes(start, content.size(), where)), content.size(), where);
  const auto expect = [&](bool holds, const std::string& expected, const std::string& found) {
    if (!holds) throw_corrupt_checkpoint(where, checkpoint_fixed_bytes, expected, found);
  };
  expect(header.entries.size() == 1 && header.entries[0].kind == EntryKind::optimizer &&
             header.entries[0].name == kind,
         "the options of the optimizer " + kind, std::to_string(header.entries.size()) + " other entries");
  ShardIndex index;
  for (const auto& [key, value] : header.metadata) {
    if (key == "token") {
      expect(is_token(value), "a token of 16 hex digits", base::quote(value));
      index.token = value;
    } else if (key == "shards") {
      index.shards = static_cast<int>(Words(value).number(most_shards).value_or(0));
    } else {
      const auto kept = kept_of(value);
      expect(key.starts_with(parameter_mark) && kept &&
                 (kept->arrays == 0 || (kept->arrays == arrays_of_kind(kind) && kept->steps > 0)),
             "what is kept for a parameter", base::quote(key + ": " + value));
      index.parameters[key.substr(parameter_mark.size())] = *kept;
    }
  }
  expect(!index.token.empty() && index.shards > 0, "the shards' token and number", "none");
  index.options = base::text_of(content.subspan(header.entries[0].offset, header.entries[0].bytes));
  return index;
}

void require_same_parameters(const ShardIndex& index, std::span<const ParameterSlice> slices,
                             const std::string& file) {
  const auto refuse = [&](const std::string& difference) {
    throw_invalid_argument("checkpoint " + file + " holds the state of another optimizer: " + difference +
                           "; make it for the same parameters, or load the model alone");
  };
  auto left = index.parameters;
  for (const auto& [item, begin, elements] : slices) {
    const auto found = left.extract(item.name);
    if (found.empty()) refuse("it has none for " + item.label());
    const auto& kept = found.mapped();
    const bool is_half =
        item.tensor.scalar_type() == torch::kFloat16 || item.tensor.scalar_type() == torch::kBFloat16;
    if (!is_order(kept.strides, item.tensor) || (kept.has_master && !is_half)) {
      throw_corrupt_checkpoint(file, checkpoint_fixed_bytes, "state of " + describe(item.tensor),
                               "for " + item.label() + " " + base::quote(to_text(kept)));
    }
  }
  if (!left.empty()) refuse("it has some for parameter " + left.begin()->first + ", which is not in it here");
}

}  // namespace lockstep
