// What a collective is called with, as far as every rank of the group knows it. An algorithm is a pure
// function of a Call, so nothing that only one rank knows may change what it sends to others or expects of
// them: two ranks with schedules that do not fit would hang.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "lockstep/base/operation.h"

namespace lockstep {

/// Whose memory the buffers are. `arena` only when every buffer that the operation wants to share (see
/// shared_buffers) lies in the arenas.
enum class BufferClass : std::uint8_t { private_memory = 0, arena = 1 };

struct Call {
  Operation operation = Operation::all_reduce;
  /// all_reduce, reduce, broadcast: of the buffer. Others: of one rank's block. The buffer that holds a block
  /// for each rank has ranks * elements, unless `counts` says otherwise.
  std::size_t elements = 0;
  int rank = 0;  ///< the rank whose steps are asked for
  int ranks = 1;
  int root = 0;  ///< broadcast, scatter: the source; reduce, gather: the destination
  BufferClass buffers = BufferClass::private_memory;
  /// This rank's input and output are one buffer. For Bindings and verify; only all_to_all has other steps.
  bool in_place = false;
  /// Where ranks are numbered node by node of this host's memory (NUMA), and there are several with as many
  /// ranks each: how many. 0 otherwise, and where the call had better not know.
  int ranks_per_node = 0;
  /// The number of each rank's host, counted from 0 in the order of their first ranks; empty: one has them all.
  /// Of a host's ranks all have the same `buffers`, but each host decides for itself: what is sent between
  /// hosts must not depend on it.
  std::vector<int> host_of = {};
  /// Contributions have to be combined in the order of ranks: a user's operation need not commute.
  bool keeps_order = false;
  /// Reductions on several hosts: elements cross between them in fewer bits than they have (Space::wire).
  bool narrow_wire = false;
  /// The v forms: elements of each rank's block; empty where all are alike. All ranks pass the same, but for
  /// all_to_all, where it is what this rank sends to each.
  std::vector<std::size_t> counts = {};
  /// all_to_all's v form: what this rank receives from each.
  std::vector<std::size_t> receive_counts = {};
  /// Largest number of elements in one message, so that a receiver can work on one while the next is under
  /// way.
  std::size_t segment_elements = 65536;
  /// The most elements of a piece that goes through staging memory (staged.cpp), which is a window of it; 0
  /// where there is none.
  std::size_t window_elements = 0;
  /// Windows that the pieces of a call take by turns. With two, everything is proven and drawn; a rank has
  /// more (staging_ring.h).
  std::size_t windows = 2;
  // clang-tidy 14 sees a 0 in what the compiler makes of it.
  friend auto operator<=>(const Call&, const Call&) = default;  // NOLINT(modernize-use-nullptr)
};

std::ostream& operator<<(std::ostream& out, const Call& call);

/// A run of elements [begin, begin + count).
struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Which buffers of `rank` the arena forms of an operation touch from other ranks.
struct SharedBuffers {
  bool input = false;
  bool output = false;
};

namespace schedule {

/// Whether two ranks share memory.
bool share_a_host(const Call& call, int one, int other);

/// The `index`th of `parts` shares of `elements`: contiguous, in order, sizes differing by at most one.
/// A rank's share is called its chunk.
Range chunk_of(std::size_t elements, int index, int parts);

/// Where `rank`'s block lies in the buffer that holds one for each rank: the input of scatter and
/// reduce_scatter, the output of gather and all_gather.
Range block_of(const Call& call, int rank);
/// all_to_all: what goes to `peer` lies there in the input, what comes from it there in the output.
Range sent_block(const Call& call, int peer);
Range received_block(const Call& call, int peer);
/// The most elements that any rank's small message has: what has to fit into a slot.
std::size_t slot_elements(const Call& call);
/// The largest block of all ranks. Not for all_to_all's v form, where no rank knows it.
std::size_t largest_block(const Call& call);

/// Sizes of call.rank's buffers; 0 where it has none (reduce's output anywhere but at the root).
std::size_t input_elements(const Call& call);
std::size_t output_elements(const Call& call);
/// Where, in elements, the smaller of both buffers begins in the larger one if they are one buffer.
std::size_t in_place_offset(const Call& call);

SharedBuffers shared_buffers(Operation operation, int rank, int root);

/// `range` cut into pieces of at most `most` elements; none for an empty range.
std::vector<Range> segments_of(Range range, std::size_t most);

/// A rank counted around the group, so that -1 is the last.
int wrapped(int rank, int ranks);

}  // namespace schedule

}  // namespace lockstep
