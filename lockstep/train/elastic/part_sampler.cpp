#include "lockstep/train/elastic/part_sampler.h"

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/sampling.h"

namespace lockstep {

PartSampler::PartSampler(std::size_t samples, std::size_t batch, const PartSamplerOptions& options)
    : samples_(samples), batch_(batch), options_(options) {
  if (batch == 0 || samples < batch)
    throw_invalid_argument("PartSampler: batches of " + std::to_string(batch) + " of " +
                           std::to_string(samples) +
                           " samples; a batch is 1 or more, and no more than there are");
}

std::vector<std::size_t> PartSampler::indices(const ElasticPart& part) {
  const auto parts = static_cast<std::size_t>(part.parts);
  if (parts == 0 || batch_ % parts != 0)
    throw_invalid_argument("PartSampler: a batch of " + std::to_string(batch_) + " does not divide into " +
                           std::to_string(parts) + " parts of one size");
  if (const std::uint64_t epoch = epoch_of(part.step); epoch_ != epoch) {
    order_ = shard_indices({.samples = samples_, .seed = options_.seed, .shuffle = options_.shuffle}, epoch);
    epoch_ = epoch;
  }
  const std::size_t each = batch_ / parts;
  const auto begin =
      order_.begin() + static_cast<std::ptrdiff_t>((part.step % steps_per_epoch()) * batch_ +
                                                   static_cast<std::size_t>(part.number) * each);
  return {begin, begin + static_cast<std::ptrdiff_t>(each)};
}

}  // namespace lockstep
