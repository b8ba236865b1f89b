// The collectives, as free functions that return a Work; blocking is `.wait()`.
//
// Common to all: ranks call the same operation with the same counts, type and root, in the same order; a
// difference is found and thrown as Error{mismatch} naming both ranks and both calls. Arguments that can
// never work throw Error{invalid_argument} at once; timeout, peer_lost, mismatch and aborted come from
// Work::wait(). Buffers are borrowed until the Work is over. Any contiguous range will do: std::vector,
// std::array, std::span, ArenaBuffer. Zero elements are allowed everywhere.
//
// In place: pass the same buffer as input and output; where one of them holds a block for each rank and the
// other is one block, it is this rank's block of the larger one. Any other overlap is an error.
//
// Blocks: a buffer with a block for each rank holds them in the order of ranks, all alike; in the v forms
// block r has counts[r] elements, and all ranks pass the same counts.
//
// On a GPU: a MemoryPlace says whose memory the buffers are, and in the order of which stream they are used; spans
// then hold addresses of that GPU. NCCL carries such calls where each rank has a GPU, kernels of Lockstep's own where all
// share one, and Work::wait() makes the stream wait (docs/gpu.md). Error{unsupported}: there is no GPU, or it cannot be done there.
//
// Costs and sources of each algorithm: docs/algorithms.md.
#pragma once

#include <ranges>
#include <type_traits>

#include "lockstep/base/memory_place.h"
#include "lockstep/execute/message.h"
#include "lockstep/group/custom_op.h"
#include "lockstep/group/group.h"

namespace lockstep {

template <class R>
using ElementOf = std::remove_reference_t<std::ranges::range_reference_t<R>>;
template <class R>
using ValueOf = std::remove_const_t<ElementOf<R>>;

/// A buffer that can be read, or written.
template <class R>
concept InputRange = std::ranges::contiguous_range<R> && Movable<ValueOf<R>>;
template <class R>
concept OutputRange = InputRange<R> && !std::is_const_v<ElementOf<R>>;
template <class In, class Out>
concept SameElements = std::same_as<ValueOf<In>, ValueOf<Out>>;

struct CollectiveOptions {
  /// Each contribution is multiplied by it first; sum and average of floating-point and complex types only.
  /// Inside a host at no cost and without a rounding of its own; between hosts one more pass.
  float prescale = 1.0F;
  /// Where both buffers are.
  MemoryPlace place = {};
};

/// How elements are combined: what the templates below make of T, op and options.
struct Reduction {
  Dtype dtype = Dtype::u8;
  ReduceOp op = ReduceOp::sum;
  float prescale = 1.0F;
  std::shared_ptr<const CustomReduction> custom = nullptr;
  /// all_reduce_grouped: a hash of the buffers' sizes, in which ranks have to agree; not 0.
  std::uint32_t grouping = 0;
  MemoryPlace place = {};
};

template <Element T>
Reduction reduction_of(ReduceOp op, const CollectiveOptions& options) {
  return {.dtype = dtype_of<T>, .op = op, .prescale = options.prescale, .place = options.place};
}
template <Movable T>
Reduction reduction_of(const CustomOp<T>& op, const CollectiveOptions& options) {
  return {
      .op = ReduceOp::custom, .prescale = options.prescale, .custom = op.reduction(), .place = options.place};
}
/// Op can combine elements of type T: a ReduceOp, or a CustomOp<T>.
template <class Op, class T>
concept CombinerOf = requires(const Op& op) {
  reduction_of<T>(op, CollectiveOptions{});
};

// What the templates below call: bytes, with what the bytes are.
Work all_reduce_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                      const Reduction& reduction);
/// Each in place, all on one GPU, as one call there. Ranks pass as many, of the same sizes.
Work all_reduce_on_gpu_bytes(const Group& group, std::span<const std::span<std::byte>> buffers,
                             const Reduction& reduction);
Work reduce_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output, int root,
                  const Reduction& reduction);
Work reduce_scatter_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                          const Reduction& reduction, std::span<const std::size_t> counts = {});
Work broadcast_bytes(const Group& group, std::span<std::byte> buffer, int root,
                     const MemoryPlace& place = {});
Work scatter_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                   int root, std::size_t element_bytes = 1, std::span<const std::size_t> counts = {},
                   const MemoryPlace& place = {});
Work gather_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output, int root,
                  std::size_t element_bytes = 1, std::span<const std::size_t> counts = {},
                  const MemoryPlace& place = {});
Work all_gather_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                      std::size_t element_bytes = 1, std::span<const std::size_t> counts = {},
                      const MemoryPlace& place = {});
Work all_to_all_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output,
                      std::size_t element_bytes = 1, const MemoryPlace& place = {});
Work all_to_all_v_bytes(const Group& group, std::span<const std::byte> input,
                        std::span<const std::size_t> sent_counts, std::span<std::byte> output,
                        std::span<const std::size_t> received_counts, std::size_t element_bytes,
                        const MemoryPlace& place = {});
Work send_bytes(const Group& group, std::span<const std::byte> buffer, int destination, int tag = 0,
                const MemoryPlace& place = {});
Work recv_bytes(const Group& group, std::span<std::byte> buffer, int source, int tag = 0,
                Received* received = nullptr, const MemoryPlace& place = {});
Work sendrecv_bytes(const Group& group, std::span<const std::byte> sent, int destination, int sent_tag,
                    std::span<std::byte> arriving, int source, int received_tag, Received* received,
                    const MemoryPlace& place = {});

namespace detail {
template <InputRange R>
std::span<const std::byte> input_bytes(R& range) {
  return std::as_bytes(std::span(range));
}
template <OutputRange R>
std::span<std::byte> output_bytes(R& range) {
  return std::as_writable_bytes(std::span(range));
}
}  // namespace detail

/// Reduces `buffer` element by element over all ranks of `group`, in place; every rank ends with the same
/// bits. ReduceOp::average divides the sum by the ranks before the one rounding; integers have none. Halves
/// are added in f32 and rounded once inside a host; docs/algorithms.md bounds it between hosts.
/// Cost: inside a host 2pn bytes of memory traffic, for private buffers (5p-2)n with the caches'; between
/// hosts 2(p-1)/p n per link.
/// Source: arena push; Patarasuk & Yuan 2009 (ring); Thakur et al. 2005; Sanders et al. 2009 (double tree).
template <OutputRange R, CombinerOf<ValueOf<R>> Op = ReduceOp>
Work all_reduce(const Group& group, R&& buffer, const Op& op = ReduceOp::sum,
                CollectiveOptions options = {}) {
  const auto bytes = detail::output_bytes(buffer);
  return all_reduce_bytes(group, bytes, bytes, reduction_of<ValueOf<R>>(op, options));
}
/// The same out of place.
template <InputRange In, OutputRange Out, CombinerOf<ValueOf<In>> Op = ReduceOp>
requires SameElements<In, Out> Work all_reduce(const Group& group, In&& input, Out&& output,
                                               const Op& op = ReduceOp::sum, CollectiveOptions options = {}) {
  return all_reduce_bytes(group, detail::input_bytes(input), detail::output_bytes(output),
                          reduction_of<ValueOf<In>>(op, options));
}

/// The root gets the sum of everybody's `input` in `output`; other ranks' `output` is not looked at.
/// Cost: inside a host (p+1)n bytes of memory traffic; between hosts n per link.
template <InputRange In, OutputRange Out, CombinerOf<ValueOf<In>> Op = ReduceOp>
requires SameElements<In, Out> Work reduce(const Group& group, In&& input, Out&& output, int root,
                                           const Op& op = ReduceOp::sum, CollectiveOptions options = {}) {
  return reduce_bytes(group, detail::input_bytes(input), detail::output_bytes(output), root,
                      reduction_of<ValueOf<In>>(op, options));
}

/// `input` holds a block for each rank; each rank gets the sum of everybody's blocks for it in `output`.
/// Cost: inside a host (p+1)/p of the input's bytes a rank; between hosts (p-1)/p of them per link.
template <InputRange In, OutputRange Out, CombinerOf<ValueOf<In>> Op = ReduceOp>
requires SameElements<In, Out> Work reduce_scatter(const Group& group, In&& input, Out&& output,
                                                   const Op& op = ReduceOp::sum,
                                                   CollectiveOptions options = {}) {
  return reduce_scatter_bytes(group, detail::input_bytes(input), detail::output_bytes(output),
                              reduction_of<ValueOf<In>>(op, options));
}
template <InputRange In, OutputRange Out, CombinerOf<ValueOf<In>> Op = ReduceOp>
requires SameElements<In, Out> Work reduce_scatter_v(const Group& group, In&& input,
                                                     std::span<const std::size_t> counts, Out&& output,
                                                     const Op& op = ReduceOp::sum,
                                                     CollectiveOptions options = {}) {
  return reduce_scatter_bytes(group, detail::input_bytes(input), detail::output_bytes(output),
                              reduction_of<ValueOf<In>>(op, options), counts);
}

/// Copies the root's `buffer` into everybody's. Cost: inside a host n bytes read and written per rank; over
/// channels ceil(log2 p) rounds of n bytes in segments, or about 2n per link for long buffers.
template <OutputRange R>
Work broadcast(const Group& group, R&& buffer, int root, const MemoryPlace& place = {}) {
  return broadcast_bytes(group, detail::output_bytes(buffer), root, place);
}

/// The root's `input` holds a block for each rank, which gets it in `output`; other ranks' `input` is not
/// looked at. Cost: the root's input once.
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work scatter(const Group& group, In&& input, Out&& output, int root,
                                            const MemoryPlace& place = {}) {
  return scatter_bytes(group, detail::input_bytes(input), detail::output_bytes(output), root, 1, {}, place);
}
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work scatter_v(const Group& group, In&& input,
                                              std::span<const std::size_t> counts, Out&& output, int root,
                                              const MemoryPlace& place = {}) {
  return scatter_bytes(group, detail::input_bytes(input), detail::output_bytes(output), root,
                       sizeof(ValueOf<In>), counts, place);
}

/// The root's `output` gets everybody's `input` as a block; other ranks' `output` is not looked at. Cost: the
/// root's output once.
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work gather(const Group& group, In&& input, Out&& output, int root,
                                           const MemoryPlace& place = {}) {
  return gather_bytes(group, detail::input_bytes(input), detail::output_bytes(output), root, 1, {}, place);
}
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work gather_v(const Group& group, In&& input, Out&& output,
                                             std::span<const std::size_t> counts, int root,
                                             const MemoryPlace& place = {}) {
  return gather_bytes(group, detail::input_bytes(input), detail::output_bytes(output), root,
                      sizeof(ValueOf<In>), counts, place);
}

/// Everybody's `output` gets everybody's `input` as a block. Cost: inside a host twice the output's bytes a
/// rank; between hosts (p-1)/p of them per link.
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work all_gather(const Group& group, In&& input, Out&& output,
                                               const MemoryPlace& place = {}) {
  return all_gather_bytes(group, detail::input_bytes(input), detail::output_bytes(output), 1, {}, place);
}
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work all_gather_v(const Group& group, In&& input, Out&& output,
                                                 std::span<const std::size_t> counts,
                                                 const MemoryPlace& place = {}) {
  return all_gather_bytes(group, detail::input_bytes(input), detail::output_bytes(output),
                          sizeof(ValueOf<In>), counts, place);
}

/// Block q of `input` becomes block r of rank q's `output`, where r is this rank. Cost: inside a host twice
/// the buffer's bytes a rank; between hosts (p-1)/p of them per link.
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work all_to_all(const Group& group, In&& input, Out&& output,
                                               const MemoryPlace& place = {}) {
  return all_to_all_bytes(group, detail::input_bytes(input), detail::output_bytes(output),
                          sizeof(ValueOf<In>), place);
}
/// The same with blocks of different sizes: `sent_counts` is what this rank sends to each, `received_counts`
/// what it gets from each. In place only where both are equal.
template <InputRange In, OutputRange Out>
requires SameElements<In, Out> Work all_to_all_v(const Group& group, In&& input,
                                                 std::span<const std::size_t> sent_counts, Out&& output,
                                                 std::span<const std::size_t> received_counts,
                                                 const MemoryPlace& place = {}) {
  return all_to_all_v_bytes(group, detail::input_bytes(input), sent_counts, detail::output_bytes(output),
                            received_counts, sizeof(ValueOf<In>), place);
}

/// Is over when every rank has called it. On a GPU: when the streams of all have come to it.
Work barrier(const Group& group, const MemoryPlace& place = {});

/// Sends `buffer` to one rank, which may be this one, and which receives as many bytes (another size is a
/// mismatch). Messages to one rank with one tag arrive in order. `.wait()` returns when the buffer may be
/// used again. That is at once where the message fits into the room between the two ranks (less than 1 MiB
/// inside a host); a longer one has to be received first, but for what fits, so ranks that all send much
/// first wait for each other: see sendrecv(). From 1 MiB on, a buffer in an arena is copied once, by the
/// receiver, which is twice as fast. `tag`: 0 or more.
template <InputRange R>
Work send(const Group& group, R&& buffer, int destination, int tag = 0, const MemoryPlace& place = {}) {
  return send_bytes(group, detail::input_bytes(buffer), destination, tag, place);
}
/// `source` may be any_source, `tag` any_tag; `received` then says what it was, once the Work is over.
/// Borrows `received`, too.
template <OutputRange R>
Work recv(const Group& group, R&& buffer, int source, int tag = 0, Received* received = nullptr,
          const MemoryPlace& place = {}) {
  return recv_bytes(group, detail::output_bytes(buffer), source, tag, received, place);
}

/// Both at once, so that ranks in a circle do not wait for each other. Throws Error{invalid_argument} for
/// buffers that overlap.
template <InputRange In, OutputRange Out>
Work sendrecv(const Group& group, In&& sent, int destination, Out&& arriving, int source, int sent_tag = 0,
              int received_tag = 0, Received* received = nullptr, const MemoryPlace& place = {}) {
  return sendrecv_bytes(group, detail::input_bytes(sent), destination, sent_tag,
                        detail::output_bytes(arriving), source, received_tag, received, place);
}

}  // namespace lockstep
