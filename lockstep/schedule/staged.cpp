// staged: inside a host, private buffers. Data goes through staging memory that all ranks map, in pieces that
// stay in cache, so that only the user's own buffers cost memory traffic. What a rank needs of itself it
// takes from its own buffer: its own share is never staged.
//
// Each piece has a window there. While piece k is taken out of one, piece k+1 is filled into another:
//
//             fill 0 | fill 1, take 0 | fill 2, take 1 | take 2        |: all ranks are here
//   window      A          B     A          A     B          A
//
// One wait a piece. An all_reduce takes two turns, reduce and collect: the owner of a chunk of the piece
// reads the others' staging memory and its own input, in the order of ranks, and leaves the result in its
// output and in the gap that its own share left in its staging memory; a turn later the others copy it.
// Memory traffic: 2pn bytes, (5p-2)n with the caches'. Halves are rounded once.
//
// The next call's first fill must not meet this call's last take: the executor goes on with the window that
// comes after the last one used (staging_ring.h), which nobody reads any more. So a rank that knows its
// algorithm fills before others have come, and the first wait, which is there to learn what others call, is
// not for it (Schedule::needs_no_first_wait). Source: our own; compare Li, Hoefler & Snir 2013 (NUMA-aware
// shared-memory collectives).
#include <algorithm>
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {
namespace {

Place staging(const Call& call, int rank, std::size_t piece, std::size_t offset) {
  return {Space::staging, rank, piece % call.windows * call.window_elements + offset};
}

/// The piece of `block` that is `piece` times `most` elements away from its begin; empty past its end.
Range piece_of(Range block, std::size_t piece, std::size_t most) {
  const std::size_t begin = std::min(piece * most, block.count);
  return {block.begin + begin, std::min(most, block.count - begin)};
}

std::size_t pieces_of(std::size_t elements, std::size_t most) { return (elements + most - 1) / most; }

/// Pieces are filled by some ranks, a wait, and taken by some, while the next one is filled.
/// `staged`: elements of the longest one there.
template <class Fill, class Take>
Schedule filled_and_taken(std::size_t pieces, std::size_t staged, Fill fill, Take take) {
  Schedule steps;
  steps.wait_for_all();
  if (pieces > 0) fill(steps, 0);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    steps.wait_for_all();
    if (piece + 1 < pieces) fill(steps, piece + 1);
    take(steps, piece);
  }
  steps.set_staged(pieces, staged);
  return steps;
}

/// A window with room for a share of each rank, none of which has more than `largest` elements.
struct Rooms {
  std::size_t elements;
  Rooms(const Call& call, std::size_t largest) {
    constexpr std::size_t whole_lines = 64;  // of elements of any size
    const std::size_t most =
        std::max<std::size_t>(call.window_elements / static_cast<std::size_t>(call.ranks), 1);
    elements = std::clamp<std::size_t>((largest + whole_lines - 1) / whole_lines * whole_lines, 1, most);
  }
  std::size_t of(int rank) const { return static_cast<std::size_t>(rank) * elements; }
  std::size_t all(const Call& call) const { return of(call.ranks); }
};

/// The sum of everybody's `mine` share of a piece: from their staging memory at `staged`, and from our input.
std::vector<Place> contributions(const Call& call, std::size_t piece, std::size_t staged, std::size_t own) {
  std::vector<Place> sources;
  for (int rank = 0; rank < call.ranks; ++rank) {
    sources.push_back(rank == call.rank ? input_at(call, own) : staging(call, rank, piece, staged));
  }
  return sources;
}

/// all_reduce, and reduce where only the root collects. Each rank's share has a room of its own in every
/// staging memory, so that the gaps for results are in the same place also when the last piece is shorter.
Schedule staged_reduction(const Call& call, bool all_collect) {
  const Rooms rooms(call, chunk_of(call.elements, 0, call.ranks).count);
  const std::size_t most = rooms.all(call);
  const std::size_t pieces = pieces_of(call.elements, most);
  const bool collects = all_collect || call.rank == call.root;
  // A rank's share of a piece, as it lies in the user's buffers.
  const auto share = [&](std::size_t piece, int rank) {
    const Range whole = piece_of({0, call.elements}, piece, most);
    const Range part = chunk_of(whole.count, rank, call.ranks);
    return Range{whole.begin + part.begin, part.count};
  };
  const auto fill_for = [&](Schedule& steps, std::size_t piece, int rank) {
    const Range part = share(piece, rank);
    steps.copy(input_at(call, part.begin), staging(call, call.rank, piece, rooms.of(rank)), part.count);
  };
  const auto collect_from = [&](Schedule& steps, std::size_t piece, int rank) {
    const Range part = share(piece, rank);
    steps.copy(staging(call, rank, piece, rooms.of(rank)), output_at(call, part.begin), part.count);
  };
  const auto reduce = [&](Schedule& steps, std::size_t piece) {
    const Range own = share(piece, call.rank);
    std::vector<Place> results;
    if (collects) results.push_back(output_at(call, own.begin));
    if (all_collect || !collects) results.push_back(staging(call, call.rank, piece, rooms.of(call.rank)));
    steps.reduce(contributions(call, piece, rooms.of(call.rank), own.begin), results, own.count, true);
  };
  // One piece goes out and another comes in by turns, so that the executor can do both at once
  // (kernel/copy.h).
  const auto exchange = [&](Schedule& steps, std::size_t filled, std::size_t collected) {
    for (int rank = 0; rank < call.ranks; ++rank) {
      if (rank == call.rank) continue;
      if (filled < pieces) fill_for(steps, filled, rank);
      if (collected < pieces && collects) collect_from(steps, collected, rank);
    }
  };
  constexpr std::size_t none = SIZE_MAX;
  Schedule steps;
  steps.wait_for_all();
  exchange(steps, 0, none);
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    steps.wait_for_all();
    reduce(steps, piece);
    exchange(steps, piece + 1, piece > 0 ? piece - 1 : none);
  }
  steps.wait_for_all();
  exchange(steps, none, pieces > 0 ? pieces - 1 : none);
  steps.set_staged(pieces, most);
  return steps;
}

}  // namespace

Schedule staged_all_reduce(const Call& call) { return staged_reduction(call, true); }
Schedule staged_reduce(const Call& call) { return staged_reduction(call, false); }

// A piece holds, for each rank, a piece of its block.
Schedule staged_reduce_scatter(const Call& call) {
  const Rooms rooms(call, largest_block(call));
  return filled_and_taken(
      pieces_of(largest_block(call), rooms.elements), rooms.all(call),
      [&](Schedule& steps, std::size_t piece) {
        for (int rank = 0; rank < call.ranks; ++rank) {
          if (rank == call.rank) continue;
          const Range part = piece_of(block_of(call, rank), piece, rooms.elements);
          steps.copy(input_at(call, part.begin), staging(call, call.rank, piece, rooms.of(rank)), part.count);
        }
      },
      [&](Schedule& steps, std::size_t piece) {
        const Range block = block_of(call, call.rank);
        const Range part = piece_of(block, piece, rooms.elements);
        const Place mine = output_at(call, part.begin - block.begin);
        steps.reduce(contributions(call, piece, rooms.of(call.rank), part.begin), std::span(&mine, 1),
                     part.count, true);
      });
}

Schedule staged_all_to_all(const Call& call) {
  const Rooms rooms(call, call.elements);
  return filled_and_taken(
      pieces_of(call.elements, rooms.elements), rooms.all(call),
      [&](Schedule& steps, std::size_t piece) {
        for (int rank = 0; rank < call.ranks; ++rank) {
          const Range part = piece_of(sent_block(call, rank), piece, rooms.elements);
          if (rank == call.rank) {
            steps.copy(input_at(call, part.begin), output_at(call, part.begin), part.count);
          } else {
            steps.copy(input_at(call, part.begin), staging(call, call.rank, piece, rooms.of(rank)),
                       part.count);
          }
        }
      },
      [&](Schedule& steps, std::size_t piece) {
        for (int rank = 0; rank < call.ranks; ++rank) {
          if (rank == call.rank) continue;
          const Range part = piece_of(received_block(call, rank), piece, rooms.elements);
          steps.copy(staging(call, rank, piece, rooms.of(call.rank)), output_at(call, part.begin),
                     part.count);
        }
      });
}

Schedule staged_broadcast(const Call& call) {
  const std::size_t most = std::max<std::size_t>(call.window_elements, 1);
  const auto part = [&](std::size_t piece) { return piece_of({0, call.elements}, piece, most); };
  return filled_and_taken(
      pieces_of(call.elements, most), std::min(most, call.elements),
      [&](Schedule& steps, std::size_t piece) {
        if (call.rank != call.root) return;
        steps.copy(output_at(call, part(piece).begin), staging(call, call.root, piece, 0), part(piece).count);
      },
      [&](Schedule& steps, std::size_t piece) {
        if (call.rank == call.root) return;
        steps.copy(staging(call, call.root, piece, 0), output_at(call, part(piece).begin), part(piece).count);
      });
}

Schedule staged_scatter(const Call& call) {
  const Rooms rooms(call, largest_block(call));
  return filled_and_taken(
      pieces_of(largest_block(call), rooms.elements), rooms.all(call),
      [&](Schedule& steps, std::size_t piece) {
        for (int rank = 0; rank < call.ranks && call.rank == call.root; ++rank) {
          const Range block = block_of(call, rank);
          const Range part = piece_of(block, piece, rooms.elements);
          if (rank == call.rank) {
            steps.copy(input_at(call, part.begin), output_at(call, part.begin - block.begin), part.count);
          } else {
            steps.copy(input_at(call, part.begin), staging(call, call.root, piece, rooms.of(rank)),
                       part.count);
          }
        }
      },
      [&](Schedule& steps, std::size_t piece) {
        if (call.rank == call.root) return;
        const Range block = block_of(call, call.rank);
        const Range part = piece_of(block, piece, rooms.elements);
        steps.copy(staging(call, call.root, piece, rooms.of(call.rank)),
                   output_at(call, part.begin - block.begin), part.count);
      });
}

namespace {

/// all_gather, and gather where only the root collects.
Schedule staged_gathering(const Call& call, bool all_collect) {
  const std::size_t most = std::max<std::size_t>(call.window_elements, 1);
  const bool collects = all_collect || call.rank == call.root;
  return filled_and_taken(
      pieces_of(largest_block(call), most), std::min(most, largest_block(call)),
      [&](Schedule& steps, std::size_t piece) {
        const Range block = block_of(call, call.rank);
        const Range part = piece_of(block, piece, most);
        const Place from = input_at(call, part.begin - block.begin);
        if (collects) steps.copy(from, output_at(call, part.begin), part.count);
        if (all_collect || !collects) steps.copy(from, staging(call, call.rank, piece, 0), part.count);
      },
      [&](Schedule& steps, std::size_t piece) {
        for (int rank = 0; rank < call.ranks && collects; ++rank) {
          if (rank == call.rank) continue;
          const Range part = piece_of(block_of(call, rank), piece, most);
          steps.copy(staging(call, rank, piece, 0), output_at(call, part.begin), part.count);
        }
      });
}

}  // namespace

Schedule staged_gather(const Call& call) { return staged_gathering(call, false); }
Schedule staged_all_gather(const Call& call) { return staged_gathering(call, true); }

}  // namespace lockstep::schedule
