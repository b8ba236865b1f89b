// How the ranks' buckets become one: sent one after the other, in the same order on all ranks, while backward
// still computes other gradients, and brought to an end when it is over.
//
//                        sent                     complete
//   shared_exchange.h    where gradients lie      when this rank has added up its share, before ranks meet by
//                                                 their status
//   hook_exchange.h      what the hook sends      when the hook says so, afterwards
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/execute/work.h"
#include "lockstep/group/group.h"
#include "lockstep/train/data_parallel/communication_hook.h"
#include "lockstep/train/data_parallel/gradient_buckets.h"

namespace lockstep {

/// In each pass: begin, send each bucket, complete_before_status, complete_after_status, end. Errors are those
/// of collectives, and of hooks. Thread safety: none.
class BucketExchange {
 public:
  explicit BucketExchange(Group group) : group_(std::move(group)) {}
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;
  virtual ~BucketExchange() = default;

  /// `contributors`: what the sum of gradients is divided by.
  virtual void begin(int contributors) = 0;

  /// Whether a gradient, laid out as its place is, can be averaged where it lies.
  virtual bool can_lend(const torch::Tensor& /*gradient*/) const { return false; }
  /// If so, it is in this pass instead of in its place; false if not.
  virtual bool lend(const GradientBuckets::Place& /*place*/, const torch::Tensor& /*gradient*/) {
    return false;
  }

  /// The next bucket, whose gradients are all in place or lent.
  void send_next() { works_.push_back(start(works_.size())); }
  std::size_t sent() const { return works_.size(); }

  /// Moves on what is under way, without waiting.
  void progress();
  /// Buckets that need this rank no more while backward runs, from the first on.
  std::size_t completed() const { return completed_; }

  /// All buckets are sent. Only now is the order of calls the same on all ranks, where several wrappers share
  /// a backward.
  virtual void complete_before_status() {}
  /// The status of this pass is sent too.
  virtual void complete_after_status() {}
  void end() { works_.clear(); }

  /// What a hook knows of gradients or buckets is of no use any more.
  virtual void forget() {}
  /// Ends what is under way without waiting. The group is closed.
  void abandon() noexcept;
  /// Whether other ranks write averages into this rank's gradients and buckets.
  virtual bool is_in_place() const { return false; }

 protected:
  const Group& group() const { return group_; }
  Work& work_of(std::size_t bucket) { return works_[bucket]; }
  /// For begin().
  void start_anew();
  /// Waits until all that was sent is completed.
  void complete_all();

 private:
  virtual Work start(std::size_t bucket) = 0;
  /// The bucket's Work is over.
  virtual void take(std::size_t /*bucket*/) {}

  Group group_;
  std::vector<Work> works_;    // of the first buckets, in order
  std::size_t completed_ = 0;  // works known to be over, from the first on
};

/// Whether gradients are averaged where they lie, so that buckets need memory for others alone.
bool averages_in_place(const Group& group, const std::shared_ptr<CommunicationHook>& hook);

/// The hook's; without one the average, in whatever way is cheapest in this group, the same on all ranks. `buckets` are not made anew as
/// long as it lives.
std::unique_ptr<BucketExchange> make_exchange(const Group& group, GradientBuckets& buckets,
                                              std::shared_ptr<CommunicationHook> hook);

}  // namespace lockstep
