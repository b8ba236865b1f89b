// Every rank has gradients of its own; the optimizer needs their average. The Reducer is told which gradients
// are ready, averages them bucket by bucket while backward still produces others, and in the end has the
// average in every parameter's grad(). It knows nothing of autograd's hooks: see gradient_hooks.h for who
// calls it. Where gradients lie is gradient_buckets.h's to know, how buckets become everybody's
// bucket_exchange.h's; here is which gradients are there.
//
//   begin   add add add ... finalize          the buckets, then what each rank says of the pass
//
// After its first pass the buckets are made anew, in the order in which rank 0's gradients became ready.
//
// Thread safety: none; calls come one after the other, from the threads that run backward.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/trace/event.h"
#include "lockstep/train/data_parallel/bucket_exchange.h"
#include "lockstep/train/data_parallel/gradient_buckets.h"
#include "lockstep/train/data_parallel/pass_status.h"
#include "lockstep/train/replicas/agreement.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/replicas/non_finite.h"
#include "lockstep/train/replicas/step_record.h"

namespace lockstep {

struct ReducerOptions {
  BucketLimits limits;
  /// A pass may leave parameters without a gradient, other ones on each rank.
  bool find_unused = false;
  /// Every pass is like the first: the same parameters, each as often. Then some may have none, and others
  /// several gradients.
  bool static_graph = false;
  /// What becomes of a pass with gradients that are infinite or not numbers. Not ignoring them costs one more
  /// look at each gradient.
  NonFinite non_finite = NonFinite::ignore;
  /// How a bucket becomes everybody's; null: its average.
  std::shared_ptr<CommunicationHook> hook;
  /// In what the ranks have to agree at the end of a pass; null: in nothing. Alike on all ranks.
  std::shared_ptr<Agreement> agreement;
};

class Reducer {
 public:
  /// `parameters` are trainable, averageable, alike on all ranks, and none is there twice. Gradients that are
  /// not in main memory are copied into their buckets, and the average back.
  /// `sparse`: for each of them, whether its gradients are sparse.
  Reducer(Group group, std::vector<NamedTensor> parameters, std::vector<char> sparse, ReducerOptions options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Gradients that lie in buckets are copied out, so that they stay valid and are nobody else's.
  ~Reducer();

  const std::vector<NamedTensor>& parameters() const { return buckets_.parameters(); }
  const Group& group() const { return group_; }
  bool finds_unused() const { return options_.find_unused; }

  /// Whether the parameter is still what it was: type, shape, device, trainable.
  bool fits(std::size_t parameter) const { return buckets_.fits(parameter); }

  /// A backward pass begins, of a forward that began at `forward_ns`. Every begin() is followed by finalize()
  /// or abandon(). `contributors`: of the ranks; the others shadow().
  void begin(std::uint64_t forward_ns, int contributors);
  bool under_way() const { return under_way_; }
  /// Gradients that came by add() since begin().
  std::size_t arrived() const { return arrived_; }
  /// The last pass ended with an error that all ranks have thrown: the group is as usable as before.
  bool all_ranks_threw() const { return all_ranks_threw_; }

  /// Copies a new gradient into its place in the bucket, and returns that place as a tensor that nobody else
  /// holds, so that autograd takes it for grad() as it is; an undefined one if the gradient cannot lie there
  /// (a sparse one, or one on another device), or need not (it is averaged where it is). Only while
  /// grad() is undefined: else the place may hold what it is to be added to.
  torch::Tensor place(std::size_t parameter, const torch::Tensor& gradient);

  /// The parameter's grad() has changed, and will not again in this pass unless static_graph says so. Sends
  /// every bucket whose turn it is, and moves on what is under way. Throws Error: unsupported (a sparse
  /// gradient), invalid_argument (added before in this pass), and whatever a collective fails with.
  void add(std::size_t parameter);
  /// The parameter gets no gradient in this pass. REQUIRES: finds_unused().
  void leave_out(std::size_t parameter);
  /// It got a gradient in a pass that is not averaged: it is not unused in the next that is.
  void note_use(std::size_t parameter) { arrivals_[parameter].is_used = true; }

  /// Waits for all buckets; every grad() holds the average then, and the step is in the record.
  /// If some rank has not added all its gradients, and must, every rank throws the same error naming ranks
  /// and parameters: invalid_argument if it is the same on all of them, otherwise mismatch. The group stays
  /// usable; the gradients of that pass are not. For NonFinite::skip nobody has gradients after a pass with
  /// one that is not finite, for NonFinite::stop every rank throws invalid_argument. Where the ranks do not
  /// agree, every rank throws what the agreement says.
  void finalize();

  /// Passes that NonFinite::skip left without gradients.
  std::uint64_t skipped() const { return skipped_; }

  /// Takes part in the others' pass without gradients; those that were in grad() are gone.
  void shadow(int contributors);

  /// The pass ends without an average: the group is closed, so that the others do not wait for this rank.
  void abandon() noexcept;

  /// The pass turned out to have nothing to average; nothing was added.
  void cancel() { under_way_ = false; }

 private:
  /// Of a parameter's gradient.
  struct Arrival {
    unsigned visits = 0;    // in this pass
    unsigned expected = 1;  // of each pass
    bool is_ready = false;  // in this pass: it is in its bucket, or lent, or there will be none
    torch::Tensor lent;     // in this pass: grad(), which is averaged where it is
    bool is_used = false;   // since the last average
    const void* lendable =
        nullptr;  // memory of the gradient that was made in this pass, which nobody else sees
  };

  void rebuild_buckets();
  void collect(std::size_t parameter);
  void make_ready(std::size_t parameter);
  [[noreturn]] void refuse_another(std::size_t parameter) const;
  [[noreturn]] void refuse_unforeseen(std::size_t parameter) const;
  void look_for_non_finite(std::size_t bucket);
  void take_no_gradients();
  void bring_to_an_end();
  std::string where() const;
  void send_ready();
  std::uint64_t wait_for_all(bool has_gradients);
  void take_over_averages(bool has_gradients);
  bool is_first_of_static_graph() const { return options_.static_graph && !knows_passes_; }
  void average_sparse_ones(bool has_gradients);
  void forget_gradients() noexcept;
  bool is_average_finite();
  const torch::Tensor& averaged(std::size_t parameter);
  void copy_back();
  void forget_uses();
  [[noreturn]] void throw_missing() const;

  Group group_;
  ReducerOptions options_;
  GradientBuckets buckets_;
  std::unique_ptr<BucketExchange> exchange_;
  std::vector<Arrival> arrivals_;  // per parameter

  bool follows_order_ = false;  // buckets are as gradients become ready, from the second pass on
  bool knows_passes_ = false;   // static_graph: how often each gradient comes
  bool under_way_ = false;
  bool misses_some_ = false;
  bool all_ranks_threw_ = false;
  int contributors_ = 1;
  std::vector<std::size_t> order_;    // parameters as they became ready
  std::vector<std::size_t> pending_;  // per bucket: gradients that are not ready
  PassStatus status_;
  std::size_t arrived_ = 0;
  std::size_t ready_ = 0;             // parameters that are
  std::size_t first_non_finite_ = 0;  // parameter of this rank; as many as there are: all are finite
  std::uint64_t steps_ = 0, skipped_ = 0;
  trace::TrainingStepEvent step_{};
  StepRecord record_;
};

}  // namespace lockstep
