#include "lockstep/train/sampler.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t most_ranks = 1'000'000'000;

}  // namespace

struct DistributedSampler::State {
  Sharding sharding;
  std::uint64_t epoch = 0;
  std::vector<std::size_t> indices;
  std::uint64_t begun = 0;  // the epoch that they are of
  std::size_t position = 0;
  std::optional<std::uint64_t> resumed{};  // the epoch whose next start is not from its first sample

  void start(std::size_t at) {
    indices = shard_indices(sharding, epoch);
    begun = epoch;
    position = at;
  }
  void resume(const SamplerPosition& from) {
    sharding.seed = from.seed;
    epoch = from.epoch;
    start(position_in_shard(sharding, from.consumed));
    resumed = epoch;
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
  State& state = *state_;
  const bool goes_on =
      state.resumed == state.epoch && samples.value_or(state.sharding.samples) == state.sharding.samples;
  state.sharding.samples = samples.value_or(state.sharding.samples);
  state.start(goes_on ? state.position : 0);
  state.resumed.reset();
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  State& state = *state_;
  state.resumed.reset();
  if (state.position >= state.indices.size()) return std::nullopt;
  const std::size_t end = state.position + std::min(batch_size, state.indices.size() - state.position);
  std::vector<std::size_t> batch(state.indices.begin() + static_cast<std::ptrdiff_t>(state.position),
                                 state.indices.begin() + static_cast<std::ptrdiff_t>(end));
  state.position = end;
  return batch;
}

SamplerPosition DistributedSampler::position() const {
  const State& state = *state_;
  const std::size_t taken = state.begun == state.epoch ? state.position : 0;
  return {.samples = state.sharding.samples,
          .seed = state.sharding.seed,
          .epoch = state.epoch,
          .consumed = std::uint64_t{taken} * static_cast<std::uint64_t>(state.sharding.ranks)};
}

void DistributedSampler::resume(const SamplerPosition& position) {
  if (position.samples != state_->sharding.samples) {
    throw_invalid_argument("the position is one in a set of " + std::to_string(position.samples) +
                           " samples, this sampler's set has " + std::to_string(state_->sharding.samples) +
                           "; resume with the data set that it was saved with");
  }
  state_->resume(position);
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const auto write = [&archive](const char* name, std::uint64_t number) {
    archive.write(name, torch::tensor(static_cast<std::int64_t>(number)), /*is_buffer=*/true);
  };
  const SamplerPosition here = position();
  const auto ranks = static_cast<std::uint64_t>(state_->sharding.ranks);
  write("samples", here.samples);
  write("seed", here.seed);
  write("epoch", here.epoch);
  write("position", here.consumed / ranks);  // of one rank
  write("ranks", ranks);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  const auto try_read = [&archive](const char* name) -> std::optional<std::uint64_t> {
    torch::Tensor number;
    if (!archive.try_read(name, number, /*is_buffer=*/true) || number.numel() != 1 ||
        number.scalar_type() != torch::kInt64)
      return std::nullopt;
    return static_cast<std::uint64_t>(number.item<std::int64_t>());
  };
  const auto read = [&try_read](const char* name) {
    if (const auto number = try_read(name)) return *number;
    throw Error(ErrorCode::corrupt_data,
                std::string("this archive holds no DistributedSampler: expected a number \"") + name + "\"");
  };
  SamplerPosition saved{.samples = read("samples"), .seed = read("seed"), .epoch = read("epoch")};
  const std::uint64_t position = read("position");
  const std::uint64_t ranks =  // archives without are of as many ranks as load them
      try_read("ranks").value_or(static_cast<std::uint64_t>(state_->sharding.ranks));
  // A lying number of samples must not become an allocation of that size.
  if (saved.samples != state_->sharding.samples || ranks == 0 || ranks > most_ranks ||
      position > (saved.samples + ranks - 1) / ranks) {
    throw Error(ErrorCode::corrupt_data,
                "the archive's DistributedSampler is at sample " + std::to_string(position) + " of one of " +
                    std::to_string(ranks) + " shards of a set of " + std::to_string(saved.samples) +
                    "; this one has " + std::to_string(state_->sharding.samples) + " samples, " +
                    std::to_string(size()) + " for each rank");
  }
  saved.consumed = position * ranks;
  state_->resume(saved);
}

}  // namespace lockstep
