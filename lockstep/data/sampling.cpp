#include "lockstep/data/sampling.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/random.h"

namespace lockstep {
namespace {

std::vector<std::size_t> permutation(const Sharding& sharding, std::uint64_t epoch) {
  std::vector<std::size_t> order(sharding.samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!sharding.shuffle) return order;
  SplitMix64 random = sharding.sharing == Sharing::shards
                          ? random_stream({sharding.seed, epoch})
                          : random_stream({sharding.seed, epoch, static_cast<std::uint64_t>(sharding.rank)});
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace

std::size_t shard_size(const Sharding& sharding) {
  const int rank = sharding.rank;
  const int ranks = sharding.ranks;
  const std::size_t samples = sharding.samples;
  if (samples == 0)
    throw_invalid_argument("cannot shard a data set without samples; check the path to the data");
  if (ranks < 1) throw_invalid_argument(fmt::format("cannot shard for {} ranks; expected at least 1", ranks));
  if (rank < 0 || rank >= ranks) {
    throw_invalid_argument(fmt::format("there is no shard for rank {}; expected 0 to {}", rank, ranks - 1));
  }
  const auto shards = static_cast<std::size_t>(ranks);
  if (samples < shards) {
    throw_invalid_argument(
        fmt::format("a data set of {} samples is too small for {} ranks; use at most {} ranks, or more data",
                    samples, ranks, samples));
  }
  if (sharding.sharing == Sharing::random && !sharding.shuffle) {
    throw_invalid_argument(
        "Sharing::random draws at random, which shuffle = false forbids; use Sharing::shards");
  }
  return samples / shards + (!sharding.drop_last && samples % shards != 0 ? 1 : 0);
}

std::vector<std::size_t> shard_indices(const Sharding& sharding, std::uint64_t epoch) {
  const std::size_t size = shard_size(sharding);
  std::vector<std::size_t> order = permutation(sharding, epoch);
  if (sharding.sharing == Sharing::random) {
    order.resize(size);
    order.shrink_to_fit();
    return order;
  }
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
