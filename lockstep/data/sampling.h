// Ranks that train together split a set of samples between them: every epoch in another order, the same order
// on all ranks without a word exchanged, and the same number of samples each, since a rank with one more
// batch would wait for gradients that nobody sends. This is the arithmetic; it knows indices only.
//
//   samples 10, ranks 4      permutation  7 2 9 0 4 1 8 3 6 5 | 7 2       padded by repeating from its start
//                                   rank  0 1 2 3 0 1 2 3 0 1   2 3
//   drop_last                permutation  7 2 9 0 4 1 8 3               the tail goes to nobody in this epoch
//
// Or each rank draws as many from the whole set, by itself, none of them twice in an epoch: ranks then need
// no order in common, but an epoch leaves some samples out and shows others to several ranks.
//
//   Sharing::random          rank 0: 7 2 9 | rank 1: 3 7 0 | rank 2: 8 1 2 | rank 3: 2 5 7
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// How ranks share a set of samples.
enum class Sharing {
  shards,  ///< each sample is one rank's in an epoch
  random,  ///< each rank draws from the whole set
};

struct Sharding {
  std::size_t samples = 0;  ///< in the whole set
  int rank = 0;             ///< whose shard
  int ranks = 1;            ///< how many shards
  std::uint64_t seed = 0;   ///< the same on every rank
  bool shuffle = true;      ///< false: the set's own order in every epoch; not with Sharing::random
  bool drop_last = false;   ///< leave samples out, rather than repeat some, where ranks do not divide samples
  Sharing sharing = Sharing::shards;
};

/// Samples per rank and epoch, the same for all ranks: samples / ranks, rounded up, or down with drop_last.
/// Throws Error{invalid_argument} if ranks < 1, rank is outside of 0…ranks-1, there are fewer samples than
/// ranks, or Sharing::random shall not shuffle.
std::size_t shard_size(const Sharding& sharding);

/// The rank's indices in `epoch`. Shards: places rank, rank + ranks, rank + 2 × ranks, … of a permutation of
/// 0…samples-1 that follows from (samples, seed, epoch) alone. Random: the first of a permutation of its own,
/// from (samples, seed, epoch, rank). Both are the same on every machine and in every version of this
/// library: a run that resumes from a checkpoint sees the order it would have seen. Cost: 8 bytes and a few
/// ns for each sample of the whole set. Throws as shard_size() does. Source: Durstenfeld 1964 (shuffle); for
/// its numbers see random.h.
std::vector<std::size_t> shard_indices(const Sharding& sharding, std::uint64_t epoch);

/// Where an epoch is, for any number of ranks: they have gone through the first `consumed` places of its
/// permutation, whichever rank had which.
struct SamplerPosition {
  std::uint64_t samples = 0;  ///< in the whole set
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t consumed = 0;  ///< in this epoch, by all ranks together
  bool operator==(const SamplerPosition&) const = default;
};

/// How many samples of its shard the rank has behind it where all ranks together have `consumed` so many:
/// consumed / ranks, rounded up, at most shard_size(). Rounding leaves out up to ranks - 1 samples in that
/// epoch, and none where as many ranks go on as there were. Throws as shard_size() does.
std::size_t position_in_shard(const Sharding& sharding, std::uint64_t consumed);

}  // namespace lockstep
