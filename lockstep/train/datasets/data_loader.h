// Batches are read and changed by worker threads while the model trains on the ones before. torch::data's own
// loader starts its sampler anew when it begins, so a run cannot go on in the middle of an epoch; this one
// starts where the sampler stands, and moves it by what the program got, not by what is made ahead.
//
//   order of the epoch   | 0 1 | 2 3 | 4 5 | 6 7 | 8 9 | ...       batch_size 2, workers 2, prefetch 2
//   the program has         ^ in its loop: sampler.index() is 2
//   made, or being made          ^     ^
//   not begun                                ^
#pragma once

#include <torch/torch.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/train/datasets/image_transforms.h"
#include "lockstep/train/datasets/sampler.h"

namespace lockstep {

struct DataLoaderOptions {
  std::size_t batch_size = 64;   ///< of this rank; the last one of an epoch may be smaller
  std::size_t workers = 1;       ///< threads that make batches; 0: the program's thread does
  std::size_t prefetch = 2;      ///< batches that are ready or being made beside the program's, at most
  bool drop_last_batch = false;  ///< leave the last batch out where it is smaller
  std::vector<BatchTransform> transforms{};  ///< what happens to a batch's data, in this order
};

/// Makes the batch of these samples.
using BatchMaker = std::function<torch::data::Example<>(torch::ArrayRef<std::size_t> samples)>;

/// From a data set that gives one Example for a batch by batch() or get_batch(), or a function that does.
template <class Set>
BatchMaker batch_maker(Set set) {
  using Indices = torch::ArrayRef<std::size_t>;
  if constexpr (std::is_invocable_r_v<torch::data::Example<>, Set&, Indices>) {
    return set;
  } else if constexpr (requires(Indices samples) { set.batch(samples); }) {
    return [set = std::move(set)](Indices samples) mutable { return set.batch(samples); };
  } else {
    static_assert(std::same_as<typename Set::BatchType, torch::data::Example<>>,
                  "a DataLoader takes sets that make whole batches; let others have "
                  ".map(torch::data::transforms::Stack<>())");
    return [set = std::move(set)](Indices samples) mutable { return set.get_batch(samples); };
  }
}

/// What a range-for goes through is what is left of the sampler's epoch; at its end the sampler stands at the
/// beginning of the next one:
///
///   lockstep::DataLoader batches(set, sampler, {.batch_size = 128, .transforms = {RandomHorizontalFlip()}});
///   for (auto epoch = sampler.epoch(); epoch < 20; ++epoch)
///     for (auto& batch : batches) {
///       ...
///       // the next batch is the first that a run gets that does sampler.seek(epoch, sampler.index())
///     }
///
/// Batches come in the sampler's order, whoever makes them, and all ranks have as many. A loop that ends
/// early leaves the sampler behind its last batch. Each worker has a copy of the data set and of the
/// transforms; those of this library share their files, and call nothing of libtorch that would use more
/// threads. Workers sleep while `prefetch` batches wait.
///
/// Thread safety: none, and one loader for a sampler.
class DataLoader {
 public:
  /// Throws Error{invalid_argument} for a batch size of 0, workers without prefetch, or drop_last_batch where
  /// it leaves no batch.
  template <class Set>
  DataLoader(Set set, const DistributedSampler& sampler, DataLoaderOptions options = {})
      : DataLoader(batch_maker(std::move(set)), sampler, std::move(options), Checked()) {}

  /// Batches in an epoch from its beginning, the same on all ranks.
  std::size_t steps_per_epoch() const;

  class Iterator;
  /// Starts the workers, which end with the iterator, and waits for the first batch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Checked {};
  class Pass;

  DataLoader(BatchMaker make, const DistributedSampler& sampler, DataLoaderOptions options, Checked);

  BatchMaker make_;
  DistributedSampler sampler_;
  DataLoaderOptions options_;
};

/// Has one batch of the pass that begin() started. Move-only; outlives its DataLoader.
class DataLoader::Iterator {
 public:
  using value_type = torch::data::Example<>;
  using difference_type = std::ptrdiff_t;

  explicit Iterator(std::unique_ptr<Pass> pass);
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  /// Stops the workers, when each has finished the batch that it is making.
  ~Iterator();

  /// Data on the CPU and target, the program's to change or to take.
  torch::data::Example<>& operator*() const;
  torch::data::Example<>* operator->() const { return &**this; }

  /// Waits for the next batch. If making it failed, throws that in its place, after the batches before it:
  /// an Error with its code, or Error{system} with the std::exception nested in it; which samples of the
  /// epoch the batch has stands in front. Throws Error{invalid_argument} if the program has moved the sampler
  /// meanwhile. After an error the pass is over.
  Iterator& operator++();
  void operator++(int) { ++*this; }

  bool operator==(std::default_sentinel_t) const { return pass_ == nullptr; }

 private:
  std::unique_ptr<Pass> pass_;
};

}  // namespace lockstep
