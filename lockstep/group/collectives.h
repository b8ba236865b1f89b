// The collectives, as free functions that return a Work; blocking is `.wait()`.
//
// Common to all: ranks call the same operation with the same count, type and root, in the same order; a
// difference is found and thrown as Error{mismatch} naming both ranks and both calls. Arguments that can
// never work throw Error{invalid_argument} at once; timeout, peer_lost, mismatch and aborted come from
// Work::wait(). Buffers are borrowed until the Work is over. Any contiguous range will do: std::vector,
// std::array, std::span, ArenaBuffer.
#pragma once

#include <ranges>
#include <type_traits>

#include "lockstep/group/group.h"

namespace lockstep {

template <class R>
using ElementOf = std::remove_reference_t<std::ranges::range_reference_t<R>>;

template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && Element<ElementOf<R>> && !std::is_const_v<ElementOf<R>>;
template <class R>
concept MovableRange = std::ranges::contiguous_range<R> && Movable<ElementOf<R>>;

// What the templates below call: bytes, with what the bytes are.
Work all_reduce_bytes(const Group& group, std::span<std::byte> buffer, Dtype dtype, ReduceOp op);
Work broadcast_bytes(const Group& group, std::span<std::byte> buffer, int root);
Work all_gather_bytes(const Group& group, std::span<const std::byte> input, std::span<std::byte> output);
Work send_bytes(const Group& group, std::span<const std::byte> buffer, int destination);
Work recv_bytes(const Group& group, std::span<std::byte> buffer, int source);

/// Reduces `buffer` element by element over all ranks of `group`, in place; every rank ends with the same
/// bits. Every rank passes the same element count and type. ReduceOp::average divides the sum by the ranks
/// before the one rounding; integers have none. Cost: inside a host 2pn bytes of memory traffic for arena
/// buffers, at most 11(p-1)n for private ones; between hosts 2(p-1)/p n per link. Source: docs/algorithms.md
/// (arena push; ring: Patarasuk & Yuan 2009; tree: Thakur et al. 2005).
template <ElementRange R>
Work all_reduce(const Group& group, R&& buffer, ReduceOp op = ReduceOp::sum) {
  return all_reduce_bytes(group, std::as_writable_bytes(std::span(buffer)), dtype_of<ElementOf<R>>, op);
}

/// Copies the root's `buffer` into everybody's. Cost: inside a host n bytes read and written per rank
/// (arena); over channels ceil(log2 p) rounds of n bytes, in segments.
template <MovableRange R>
Work broadcast(const Group& group, R&& buffer, int root) {
  return broadcast_bytes(group, std::as_writable_bytes(std::span(buffer)), root);
}

/// Concatenates everybody's `input` in rank order into everybody's `output`, which has size() times as many
/// elements. Cost: inside a host 2pn bytes of memory traffic (arena); over channels (p-1) n per link.
template <MovableRange In, MovableRange Out>
requires std::same_as<std::remove_const_t<ElementOf<In>>, ElementOf<Out>> Work all_gather(const Group& group,
                                                                                          In&& input,
                                                                                          Out&& output) {
  return all_gather_bytes(group, std::as_bytes(std::span(input)), std::as_writable_bytes(std::span(output)));
}

/// Is over when every rank has called it.
Work barrier(const Group& group);

/// Sends `buffer` to one rank, which receives as many bytes. Messages between two ranks arrive in order. Over
/// when the buffer may be used again, which may be before it was received.
template <MovableRange R>
Work send(const Group& group, R&& buffer, int destination) {
  return send_bytes(group, std::as_bytes(std::span(buffer)), destination);
}
template <MovableRange R>
Work recv(const Group& group, R&& buffer, int source) {
  return recv_bytes(group, std::as_writable_bytes(std::span(buffer)), source);
}

}  // namespace lockstep
