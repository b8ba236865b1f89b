// Which samples are this rank's in this epoch, in the form that torch::data::make_data_loader takes. The
// arithmetic, and what it promises, is in lockstep/data/sampling.h.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/sampling.h"
#include "lockstep/group/group.h"

namespace lockstep {

struct DistributedSamplerOptions {
  bool shuffle = true;     ///< false: the set's own order; not with Sharing::random
  std::uint64_t seed = 0;  ///< the same on every rank
  bool drop_last = false;  ///< leave samples out, rather than repeat some, where ranks do not divide them
  Sharing sharing = Sharing::shards;  ///< or random: each rank draws from the whole set, by a seed of its own
};

/// Copies share one state: a data loader works on a copy, and set_epoch() must reach it. So one sampler is
/// for one data loader.
///
/// Thread safety: none; a data loader calls it from one thread.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Not collective. Throws Error{invalid_argument} if there are fewer samples than ranks, or none, or
  /// Sharing::random shall not shuffle.
  DistributedSampler(std::size_t samples, const Group& group, const DistributedSamplerOptions& options = {});

  /// Goes to the first sample of `epoch`, which has an order of its own; where it is in that epoch already,
  /// it stays where it is. Call it before each epoch of torch's data loader, alike on all ranks, or every
  /// epoch has the order of epoch 0; a lockstep::DataLoader goes from epoch to epoch by itself.
  void set_epoch(std::uint64_t epoch);
  /// Goes to where epoch() and index() once were, as a checkpoint says. Throws Error{invalid_argument} if
  /// `index` is above size().
  void seek(std::uint64_t epoch, std::size_t index);
  std::uint64_t epoch() const;
  std::uint64_t seed() const;

  /// Samples of this rank in an epoch, the same on all ranks.
  std::size_t size() const;
  /// Of which this epoch has given out so many.
  std::size_t index() const;
  /// Those that this epoch has still to give.
  std::vector<std::size_t> rest() const;

  /// Starts the epoch from its first sample, or where resume() or load() was; with a set of another size if
  /// `samples` is given.
  void reset(std::optional<std::size_t> samples = std::nullopt) override;
  /// The next indices, at most `batch_size`; nullopt when the epoch is over. Throws Error{invalid_argument}
  /// for a batch size of 0.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Where this epoch is, the same on all ranks that have taken as many samples. Workers of a data loader
  /// take samples before they are trained with: set `consumed` to what was trained with on all ranks then.
  SamplerPosition position() const;
  /// The next begin() of a data loader goes on from there, unless it is of another epoch; so does next()
  /// without one. On another number of ranks see position_in_shard(). Throws Error{invalid_argument} for a
  /// position in a set of another size.
  void resume(const SamplerPosition& position);

  /// position() in an archive. load() does what resume() does; throws Error{corrupt_data} if what it reads
  /// makes no sense.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
