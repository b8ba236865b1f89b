// What an engine of its own does between hosts: whole collectives among all ranks of a group, or among the owners of
// one slice (schedule/hosts.h). MPI is one (backend/mpi/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/dtype.h"
#include "lockstep/base/reduce_op.h"
#include "lockstep/base/signature.h"
#include "lockstep/schedule/schedule.h"

namespace lockstep {

/// As one rank starts it. The buffers stay as they are until it is over.
struct ExchangeCall {
  Operation operation = Operation::barrier;
  Among among = Among::all;
  const std::byte* input = nullptr;  ///< the same as output where in place, or a part of it, or it of this
  std::byte* output = nullptr;
  std::size_t elements = 0;  ///< as in Call
  std::size_t element_bytes = 1;
  Dtype dtype = Dtype::u8;             ///< of reductions
  ReduceOp reduce_op = ReduceOp::sum;  ///< likewise; average is sum
  int root = 0;
  bool in_place = false;
  std::span<const std::size_t> counts = {}, receive_counts = {};  ///< as in Call
  Signature signature = {};                                       ///< of the whole call, as is its number
  std::uint64_t number = 0;
};

/// One rank's of one group. Under the progress lock. May throw Error from any call; the group has failed then.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// All that take part start the same ones in the same order. Returns its number.
  virtual std::uint64_t start(const ExchangeCall& call) = 0;
  /// Looks, without waiting. REQUIRES: it was not over the last time.
  virtual bool is_over(std::uint64_t number) = 0;
  /// Whether anything is: then somebody has to look, since nothing wakes who sleeps.
  virtual bool is_under_way() const = 0;
  /// The group has failed: what is under way will not be waited for.
  virtual void give_up() noexcept = 0;
};

}  // namespace lockstep
