#include "lockstep/train/datasets/sampler.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t most_ranks = 1'000'000'000;

}  // namespace

struct DistributedSampler::State {
  Sharding sharding;
  std::uint64_t epoch = 0;
  std::size_t position = 0;
  bool is_resumed = false;  // the next reset() goes on from the position

  void go_to(std::uint64_t new_epoch, std::size_t new_position) {
    if (new_epoch != epoch) forget_order();
    epoch = new_epoch;
    position = new_position;
    is_resumed = false;
  }
  void resume(const SamplerPosition& from) {
    sharding.seed = from.seed;
    forget_order();
    go_to(from.epoch, position_in_shard(sharding, from.consumed));
    is_resumed = true;
  }
  void forget_order() { order_.reset(); }
  /// This rank's in this epoch; made when it is first asked for.
  const std::vector<std::size_t>& order() {
    if (!order_) order_ = shard_indices(sharding, epoch);
    return *order_;
  }

 private:
  std::optional<std::vector<std::size_t>> order_;
};

DistributedSampler::DistributedSampler(std::size_t samples, const Group& group,
                                       const DistributedSamplerOptions& options)
    : state_(std::make_shared<State>()) {
  state_->sharding = {.samples = samples,
                      .rank = group.rank(),
                      .ranks = group.size(),
                      .seed = options.seed,
                      .shuffle = options.shuffle,
                      .drop_last = options.drop_last,
                      .sharing = options.sharing};
  (void)shard_size(state_->sharding);  // throws what is wrong
}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
  if (epoch != state_->epoch) state_->go_to(epoch, 0);
}

void DistributedSampler::seek(std::uint64_t epoch, std::size_t index) {
  if (index > size()) {
    throw_invalid_argument("there is no sample " + std::to_string(index) + " to go to; a rank has " +
                           std::to_string(size()) + " in an epoch");
  }
  state_->go_to(epoch, index);
}

std::uint64_t DistributedSampler::epoch() const { return state_->epoch; }
std::uint64_t DistributedSampler::seed() const { return state_->sharding.seed; }
std::size_t DistributedSampler::size() const { return shard_size(state_->sharding); }
std::size_t DistributedSampler::index() const { return state_->position; }

std::vector<std::size_t> DistributedSampler::rest() const {
  const auto& order = state_->order();
  return {order.begin() + static_cast<std::ptrdiff_t>(state_->position), order.end()};
}

void DistributedSampler::reset(std::optional<std::size_t> samples) {
  State& state = *state_;
  if (samples && *samples != state.sharding.samples) {
    Sharding other = state.sharding;
    other.samples = *samples;
    (void)shard_size(other);
    state.sharding = other;
    state.forget_order();
    state.is_resumed = false;
  }
  if (!std::exchange(state.is_resumed, false)) state.position = 0;
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  if (batch_size == 0) throw_invalid_argument("expected a batch size of at least 1, found 0");
  state_->is_resumed = false;
  const auto& order = state_->order();
  std::size_t& position = state_->position;
  if (position >= order.size()) return std::nullopt;
  const std::size_t end = position + std::min(batch_size, order.size() - position);
  std::vector<std::size_t> batch(order.begin() + static_cast<std::ptrdiff_t>(position),
                                 order.begin() + static_cast<std::ptrdiff_t>(end));
  position = end;
  return batch;
}

SamplerPosition DistributedSampler::position() const {
  const State& state = *state_;
  return {.samples = state.sharding.samples,
          .seed = state.sharding.seed,
          .epoch = state.epoch,
          .consumed = std::uint64_t{state.position} * static_cast<std::uint64_t>(state.sharding.ranks)};
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
