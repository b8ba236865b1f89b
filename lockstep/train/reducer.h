// Every rank has gradients of its own; the optimizer needs their average. The Reducer is told which gradients
// are ready, averages them bucket by bucket while backward still produces others, and in the end has the
// average in every parameter's grad(). It knows nothing of hooks: see gradient_hooks.h for who calls it.
//
// Thread safety: none; all calls come from the thread that runs backward.
#pragma once

#include <torch/torch.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/trace/event.h"
#include "lockstep/train/bucket.h"
#include "lockstep/train/replicas.h"

namespace lockstep {

/// How one bucket becomes everybody's: average_bucket, but in tests.
using ReduceBucket = std::function<Work(const Group& group, const Bucket& bucket, std::size_t number)>;
Work average_bucket(const Group& group, const Bucket& bucket, std::size_t number);

class Reducer {
 public:
  /// `parameters` are trainable, in main memory, averageable, alike on all ranks, and none is there twice.
  Reducer(Group group, std::vector<NamedTensor> parameters, const BucketLimits& limits,
          ReduceBucket reduce = average_bucket);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Gradients that lie in buckets are copied out, so that they stay valid and are nobody else's.
  ~Reducer();

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const Group& group() const { return group_; }

  /// Whether the parameter is still what it was: type, shape, trainable.
  bool fits(std::size_t parameter) const;

  /// A backward pass begins, of a forward that began at `forward_ns`. Every begin() is followed by finalize()
  /// or abandon().
  void begin(std::uint64_t forward_ns);
  bool under_way() const { return under_way_; }
  /// Gradients added since begin().
  std::size_t added() const { return added_; }

  /// Copies a new gradient into its place in the bucket, and returns that place as a tensor that nobody else
  /// holds, so that autograd takes it for grad() as it is; an undefined one if the gradient cannot lie there
  /// (a sparse one). Only while grad() is undefined: else the place may hold what it is to be added to.
  torch::Tensor place(std::size_t parameter, const torch::Tensor& gradient);

  /// The parameter's grad() will not change any more in this pass. Sends every bucket whose turn it is, and
  /// moves on what is under way. Throws Error: unsupported (a sparse gradient), invalid_argument (added
  /// before in this pass), and whatever a collective fails with.
  void add(std::size_t parameter);

  /// Waits for all buckets; every grad() holds the average then, and the step is in the record.
  /// If some rank has not added all its gradients, every rank throws the same error naming ranks and
  /// parameters: invalid_argument if it is the same on all of them, otherwise mismatch. The group stays
  /// usable; the gradients of that pass are not.
  void finalize();

  /// The pass ends without an average: the group is closed, so that the others do not wait for this rank.
  void abandon() noexcept;

  /// The pass turned out to have nothing to average; nothing was added.
  void cancel() { under_way_ = false; }

 private:
  bool lies_in_slot(std::size_t parameter) const;
  void collect(std::size_t parameter);
  void send_ready();
  void progress();
  void wait_for_all();
  void copy_back();
  [[noreturn]] void throw_missing() const;

  Group group_;
  std::vector<NamedTensor> parameters_;
  ReduceBucket reduce_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // per parameter
  std::vector<torch::Tensor> slots_;    // per parameter: its place in the bucket

  bool under_way_ = false;
  std::vector<char> ready_;           // per parameter
  std::vector<std::size_t> pending_;  // per bucket: gradients that are not ready
  std::vector<Work> works_;           // of the first buckets, in order
  std::size_t added_ = 0;
  std::size_t completed_ = 0;  // works known to be over, from the first on
  std::uint64_t steps_ = 0;
  trace::TrainingStepEvent step_{};
  std::array<std::byte, 1> nothing_{};  // see abandon()
};

}  // namespace lockstep
