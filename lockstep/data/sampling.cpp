#include "lockstep/data/sampling.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Not <random>'s distributions or std::shuffle: the standard leaves their results to each library.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t state) : state_(state) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  /// Uniform in 0…bound-1.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    Wide product = Wide{next()} * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
      const std::uint64_t unfair = (0 - bound) % bound;
      while (static_cast<std::uint64_t>(product) < unfair) product = Wide{next()} * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

 private:
  std::uint64_t state_;
};

/// One stream for each (seed, epoch); for one seed no two epochs share it.
SplitMix64 stream_of(std::uint64_t seed, std::uint64_t epoch) {
  const std::uint64_t mixed_seed = SplitMix64(seed).next();
  return SplitMix64(SplitMix64(mixed_seed + epoch).next());
}

std::vector<std::size_t> permutation(const Sharding& sharding, std::uint64_t epoch) {
  std::vector<std::size_t> order(sharding.samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!sharding.shuffle) return order;
  SplitMix64 random = stream_of(sharding.seed, epoch);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace

std::size_t shard_size(const Sharding& sharding) {
  const auto& [samples, rank, ranks, seed, shuffle, drop_last] = sharding;
  if (samples == 0)
    throw_invalid_argument("cannot shard a data set without samples; check the path to the data");
  if (ranks < 1)
    throw_invalid_argument("cannot shard for " + std::to_string(ranks) + " ranks; expected at least 1");
  if (rank < 0 || rank >= ranks) {
    throw_invalid_argument("there is no shard for rank " + std::to_string(rank) + "; expected 0 to " +
                           std::to_string(ranks - 1));
  }
  const auto shards = static_cast<std::size_t>(ranks);
  if (drop_last && samples < shards) {
    throw_invalid_argument("drop_last leaves nothing of " + std::to_string(samples) + " samples for " +
                           std::to_string(ranks) + " ranks; use fewer ranks or drop_last = false");
  }
  return samples / shards + (!drop_last && samples % shards != 0 ? 1 : 0);
}

std::vector<std::size_t> shard_indices(const Sharding& sharding, std::uint64_t epoch) {
  const std::size_t size = shard_size(sharding);
  const std::vector<std::size_t> order = permutation(sharding, epoch);
  const auto stride = static_cast<std::size_t>(sharding.ranks);
  std::vector<std::size_t> shard(size);
  for (std::size_t i = 0; i < size; ++i) {
    shard[i] = order[(static_cast<std::size_t>(sharding.rank) + i * stride) % order.size()];
  }
  return shard;
}

std::size_t position_in_shard(const Sharding& sharding, std::uint64_t consumed) {
  const std::uint64_t size = shard_size(sharding);
  const auto ranks = static_cast<std::uint64_t>(sharding.ranks);
  return static_cast<std::size_t>(std::min(size, consumed / ranks + (consumed % ranks != 0 ? 1 : 0)));
}

}  // namespace lockstep
