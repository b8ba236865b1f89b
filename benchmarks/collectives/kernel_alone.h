// How much of a collective is not waiting: Lockstep's own kernel on the memory traffic that the operation
// cannot do without, shared out equally, by all ranks at once and without any waiting. Each input is read by
// whoever needs it and each output written once, straight into its place, as the arena push does for
// all_reduce. It says what our waits cost, and is no bound: another kernel may be faster (triad.h stands
// beside it), and where a rank's share is smaller than a cache line the ranks write to the same lines, so that
// a library which goes through other memory may be faster, too. Its memory has the arenas' page sizes.
#pragma once

#include <functional>
#include <vector>

#include "collectives/measure.h"
#include "lockstep/kernel/reduce.h"
#include "lockstep/schedule/call.h"

namespace bench {

class KernelAlone final : public Contestant {
 public:
  /// The session's buffers hold a rank's input and, from `second_buffer` on, its output.
  KernelAlone(Session& session, std::size_t second_buffer)
      : session_(session), second_buffer_(second_buffer) {}
  std::byte* input() override { return session_.buffer(session_.rank()); }
  std::byte* output(const Case& what) override { return output_of(session_.rank(), what); }
  void barrier() override { session_.meet(); }

  std::function<void()> prepare(const Case& what) override {
    const auto dtype = what.dtype == "f32" ? lockstep::Dtype::f32 : lockstep::Dtype::bf16;
    return [passes = passes_of(what), dtype] {
      for (const Pass& pass : passes) {
        lockstep::kernel::reduce(dtype, lockstep::ReduceOp::sum, pass.elements, pass.sources,
                                 pass.destinations);
      }
    };
  }

 private:
  // Combines the sources, or copies the only one, into every destination.
  struct Pass {
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
    std::size_t elements = 0;
  };

  std::byte* output_of(int rank, const Case& what) {
    return session_.buffer(rank) + (in_place(what.op) ? 0 : second_buffer_);
  }

  // This rank's share of the work.
  std::vector<Pass> passes_of(const Case& what) {
    const std::size_t size = size_of(what.dtype);
    const auto in = [&](int rank, std::size_t element) -> const std::byte* {
      return session_.buffer(rank) + element * size;
    };
    const auto out = [&](int rank, std::size_t element) { return output_of(rank, what) + element * size; };
    const auto all_in = [&](std::size_t element) {
      std::vector<const std::byte*> places;
      for (int rank = 0; rank < what.ranks; ++rank) places.push_back(in(rank, element));
      return places;
    };
    const auto out_from = [&](int first, std::size_t element) {
      std::vector<std::byte*> places;
      for (int rank = first; rank < what.ranks; ++rank) places.push_back(out(rank, element));
      return places;
    };
    const lockstep::Range chunk = lockstep::schedule::chunk_of(what.elements, what.rank, what.ranks);
    const std::size_t part = what.part();
    const std::size_t own = static_cast<std::size_t>(what.rank) * part;
    std::vector<Pass> passes;
    switch (what.op) {
      case Operation::all_reduce: return {{all_in(chunk.begin), out_from(0, chunk.begin), chunk.count}};
      case Operation::broadcast: return {{{in(0, chunk.begin)}, out_from(1, chunk.begin), chunk.count}};
      case Operation::reduce: return {{all_in(chunk.begin), {out(0, chunk.begin)}, chunk.count}};
      case Operation::reduce_scatter: return {{all_in(own), {out(what.rank, 0)}, part}};
      case Operation::all_gather: return {{{in(what.rank, 0)}, out_from(0, own), part}};
      case Operation::all_to_all:
        for (int rank = 0; rank < what.ranks; ++rank) {
          passes.push_back({{in(what.rank, static_cast<std::size_t>(rank) * part)}, {out(rank, own)}, part});
        }
        return passes;
      case Operation::send_recv: break;
    }
    if (what.partner() == what.ranks) return {};
    const lockstep::Range half = lockstep::schedule::chunk_of(what.elements, what.rank % 2, 2);
    return {{{in(what.rank, half.begin)}, {out(what.partner(), half.begin)}, half.count},
            {{in(what.partner(), half.begin)}, {out(what.rank, half.begin)}, half.count}};
  }

  Session& session_;
  std::size_t second_buffer_;
};

}  // namespace bench
