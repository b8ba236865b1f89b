// What pictures and counts of an algorithm have in common (draw.h, cost.h): a small call of it on all ranks,
// their steps in an order in which they can happen, and memory to follow what they move.
//
// Messages arrive here as soon as they are sent, and nobody waits for a send: whether that is true is for
// verify.h to say, which proves algorithms without such help.
#pragma once

#include <functional>
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {

/// One call, as every rank makes it, and the steps that it gives them.
struct Replay {
  std::vector<Call> calls;
  std::vector<Schedule> schedules;

  int ranks() const { return static_cast<int>(calls.size()); }
  const Schedule& schedule(int rank) const { return schedules[static_cast<std::size_t>(rank)]; }
};

/// So that an element of each rank, or two, are one letter each.
inline constexpr int most_replayed_ranks = 26;

/// What is to be replayed, drawn and counted: all but what an engine carries out.
inline bool is_seen(const AlgorithmEntry& entry) { return entry.requirement != Requirement::exchange; }

/// A call from root 0 with separate buffers and no segments, in which a chunk, or a block, has
/// `chunk_elements`. With staging memory, it has two such chunks, and the memory is so small that they are
/// two pieces; in arenas a block has two, since blocks are moved from both ends.
Replay replay_of(const AlgorithmEntry& entry, int ranks, std::size_t chunk_elements);

/// A step that a rank has taken.
struct Taken {
  int rank = 0;
  std::size_t index = 0;
  const Step& step;
  /// The first wait for a receive: who sent, and with which step. Else -1.
  int sender = -1;
  std::size_t send = 0;
};

/// Calls `take` for every step of every rank, a rank's in their order, and each wait after what it waits for.
/// Throws Error{invalid_argument} where ranks wait for each other.
void replay(const Replay& run, const std::function<void(const Taken&)>& take);

/// Everything that the schedules name, with a T for each element.
template <class T>
class Memories {
 public:
  explicit Memories(const Replay& run) : spaces_(run.calls.size() * space_count) {
    for (std::size_t rank = 0; rank < run.calls.size(); ++rank) {
      const Call& call = run.calls[rank];
      const std::size_t sizes[space_count] = {input_elements(call),
                                              output_elements(call),
                                              run.schedules[rank].scratch_elements(),
                                              slot_elements(call),
                                              call.window_elements * call.windows,
                                              run.schedules[rank].wire_elements()};
      for (std::size_t space = 0; space < space_count; ++space)
        spaces_[rank * space_count + space].resize(sizes[space]);
    }
  }

  T& operator[](const Place& place) {
    const std::size_t space = static_cast<std::size_t>(place.rank) * space_count;
    return spaces_[space + static_cast<std::size_t>(place.space)].at(place.offset);
  }
  std::vector<T> read(Place place, std::size_t elements) {
    std::vector<T> values;
    for (; values.size() < elements; ++place.offset) values.push_back((*this)[place]);
    return values;
  }
  void write(Place place, const std::vector<T>& values) {
    for (const T& value : values) {
      (*this)[place] = value;
      ++place.offset;
    }
  }

 private:
  std::vector<std::vector<T>> spaces_;
};

}  // namespace lockstep::schedule
