#include "lockstep/train/checkpoint/training_record.h"

#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/train/checkpoint/checkpoint_format.h"
#include "lockstep/train/checkpoint/words.h"

namespace lockstep {
namespace {

constexpr const char* step_key = "lockstep.step";
constexpr const char* schedule_key = "lockstep.schedule_step";
constexpr const char* sampler_key = "lockstep.sampler";
constexpr const char* random_mark = "lockstep.random ";

bool is_reserved(const std::string& key) {
  return key == step_key || key == schedule_key || key == sampler_key || key.starts_with(random_mark);
}

std::string random_key(std::size_t rank) { return random_mark + std::to_string(rank); }

class RecordReader {
 public:
  RecordReader(Metadata& metadata, std::string_view file) : metadata_(metadata), file_(file) {}

  std::optional<std::string> take(const std::string& key) {
    auto node = metadata_.extract(key);
    return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
  }
  std::uint64_t number(const char* key) {
    const auto text = take(key);
    if (!text) corrupt(std::string("a metadatum ") + key, "none");
    Words words(*text);
    const auto value = number(words, *text, key);
    if (!words.rest().empty()) corrupt(std::string("one number as ") + key, base::quote(*text));
    return value;
  }
  std::optional<SamplerPosition> sampler() {
    const auto text = take(sampler_key);
    if (!text) return std::nullopt;
    Words words(*text);
    SamplerPosition position;
    for (auto* const number_of : {&position.samples, &position.seed, &position.epoch, &position.consumed})
      *number_of = number(words, *text, sampler_key);
    if (!words.rest().empty()) corrupt(std::string("four numbers as ") + sampler_key, base::quote(*text));
    return position;
  }
  [[noreturn]] void corrupt(const std::string& expected, const std::string& found) const {
    throw_corrupt_checkpoint(file_, checkpoint_fixed_bytes, expected, found);
  }

 private:
  std::uint64_t number(Words& words, const std::string& text, const char* key) const {
    if (const auto value = words.number(std::numeric_limits<std::uint64_t>::max())) return *value;
    corrupt(std::string("a number in ") + key, base::quote(text));
  }

  Metadata& metadata_;
  std::string_view file_;
};

}  // namespace

void put_record(Metadata& metadata, const std::optional<TrainingRecord>& record) {
  for (const auto& [key, value] : metadata) {
    if (is_reserved(key)) {
      throw_invalid_argument("the key " + base::quote(key) +
                             " of the checkpoint's metadata is for CheckpointInfo::training; choose another");
    }
  }
  if (!record) return;
  metadata[step_key] = std::to_string(record->step);
  metadata[schedule_key] = std::to_string(record->schedule_step);
  if (record->sampler) {
    std::string& text = metadata[sampler_key];
    const auto& [samples, seed, epoch, consumed] = *record->sampler;
    for (const auto number : {samples, seed, epoch, consumed})
      text.append(text.empty() ? "" : " ").append(std::to_string(number));
  }
  for (std::size_t rank = 0; rank < record->random.size(); ++rank)
    metadata[random_key(rank)] = record->random[rank];
}

std::optional<TrainingRecord> take_record(Metadata& metadata, std::string_view file) {
  if (!metadata.contains(step_key)) return std::nullopt;
  RecordReader reader(metadata, file);
  TrainingRecord record{.step = reader.number(step_key), .schedule_step = reader.number(schedule_key)};
  record.sampler = reader.sampler();
  while (auto state = reader.take(random_key(record.random.size())))
    record.random.push_back(std::move(*state));
  const auto left = metadata.lower_bound(random_mark);
  if (left != metadata.end() && left->first.starts_with(random_mark)) {
    reader.corrupt("random states of ranks from 0 on, without a gap", base::quote(left->first));
  }
  return record;
}

}  // namespace lockstep
