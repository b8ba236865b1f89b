#include "lockstep/train/sampler.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/sampling.h"

namespace lockstep {

struct DistributedSampler::State {
  Sharding sharding;
  std::uint64_t epoch = 0;
  std::vector<std::size_t> indices;
  std::size_t position = 0;

  void start(std::size_t at) {
    indices = shard_indices(sharding, epoch);
    position = at;
  }
};

DistributedSampler::DistributedSampler(std::size_t samples, const Group& group,
                                       const DistributedSamplerOptions& options)
    : state_(std::make_shared<State>()) {
  state_->sharding = {.samples = samples,
                      .rank = group.rank(),
                      .ranks = group.size(),
                      .seed = options.seed,
                      .shuffle = options.shuffle,
                      .drop_last = options.drop_last};
  state_->start(0);
}

void DistributedSampler::set_epoch(std::uint64_t epoch) { state_->epoch = epoch; }
std::uint64_t DistributedSampler::epoch() const { return state_->epoch; }
std::size_t DistributedSampler::size() const { return shard_size(state_->sharding); }
std::size_t DistributedSampler::index() const { return state_->position; }

void DistributedSampler::reset(std::optional<std::size_t> samples) {
  if (samples) state_->sharding.samples = *samples;
  state_->start(0);
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  auto& [sharding, epoch, indices, position] = *state_;
  if (position >= indices.size()) return std::nullopt;
  const std::size_t end = position + std::min(batch_size, indices.size() - position);
  std::vector<std::size_t> batch(indices.begin() + static_cast<std::ptrdiff_t>(position),
                                 indices.begin() + static_cast<std::ptrdiff_t>(end));
  position = end;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const auto write = [&archive](const char* name, std::uint64_t number) {
    archive.write(name, torch::tensor(static_cast<std::int64_t>(number)), /*is_buffer=*/true);
  };
  write("samples", state_->sharding.samples);
  write("seed", state_->sharding.seed);
  write("epoch", state_->epoch);
  write("position", state_->position);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  const auto read = [&archive](const char* name) {
    torch::Tensor number;
    if (!archive.try_read(name, number, /*is_buffer=*/true) || number.numel() != 1 ||
        number.scalar_type() != torch::kInt64) {
      throw Error(
          ErrorCode::corrupt_data,
          std::string("this archive holds no DistributedSampler: expected a number \"") + name + "\"");
    }
    return static_cast<std::uint64_t>(number.item<std::int64_t>());
  };
  State loaded = *state_;
  loaded.sharding.samples = read("samples");
  loaded.sharding.seed = read("seed");
  loaded.epoch = read("epoch");
  const std::uint64_t position = read("position");
  // A lying number of samples must not become an allocation of that size.
  if (loaded.sharding.samples != state_->sharding.samples || position > shard_size(loaded.sharding)) {
    throw Error(ErrorCode::corrupt_data, "the archive's DistributedSampler is at sample " +
                                             std::to_string(position) + " of a set of " +
                                             std::to_string(loaded.sharding.samples) + "; this one has " +
                                             std::to_string(state_->sharding.samples) + " samples, " +
                                             std::to_string(size()) + " for each rank");
  }
  loaded.start(position);
  *state_ = std::move(loaded);
}

}  // namespace lockstep
