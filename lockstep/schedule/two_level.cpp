#include "lockstep/schedule/two_level.h"

#include <algorithm>
#include <utility>

namespace lockstep::schedule {
namespace {

// How many turns after its begin a piece goes on, and ends. What is sent when it begins and what is sent when it goes on
// follow each other between two ranks, so this is the same on all hosts. More would not fit into staging memory: from a
// piece's fill to the turn after its end its window stays as it is, and there are seven (staging_ring.h). Nor would it
// be faster: pieces on their way lie in caches as long as they are few (docs/decisions/0024).
constexpr std::size_t turns_to_go_on = 2, turns_to_end = 3;

Inside inside_of(const Call& call, const Hosts& hosts) {
  if (hosts.is_alone()) return Inside::alone;
  return call.buffers == BufferClass::arena ? Inside::arena : Inside::staged;
}

/// Also where this host has no use for windows, because others may have.
std::size_t most_in_a_piece(const Call& call, int rooms, int messages) {
  const std::size_t most =
      std::max<std::size_t>(call.segment_elements, 1) * static_cast<std::size_t>(messages);
  if (call.window_elements == 0) return most;
  return std::clamp<std::size_t>(call.window_elements / static_cast<std::size_t>(rooms), 1, most);
}

}  // namespace

TwoLevel::TwoLevel(const Call& call, std::size_t longest, int rooms, int messages)
    : call_(call), hosts_(call), inside_(inside_of(call, hosts_)) {
  constexpr std::size_t whole_lines = 64;  // of elements of any size
  piece_ = std::clamp<std::size_t>((longest + whole_lines - 1) / whole_lines * whole_lines, 1,
                                   most_in_a_piece(call, rooms, messages));
  turns_ = (longest + piece_ - 1) / piece_;
  staged_elements_ = static_cast<std::size_t>(rooms) * piece_;
}

Schedule TwoLevel::schedule() {
  static_assert(turns_to_end < most_under_way);
  const bool is_staged = inside_ == Inside::staged;
  if (inside_ != Inside::alone) steps_.wait_for_all();
  if (is_staged && turns_ > 0) fill(0);
  const std::size_t after_last = turns_ == 0 ? 0 : turns_ + turns_to_end + (is_staged ? 1 : 0);
  for (std::size_t turn = 0; turn < after_last; ++turn) {
    const auto is_one = [&](std::size_t ago) { return turn >= ago && turn - ago < turns_; };
    if (is_staged) steps_.wait_for_all();
    if (is_one(0)) begin(turn);
    if (is_staged && turn + 1 < turns_) fill(turn + 1);
    if (is_one(turns_to_go_on)) go_on(turn - turns_to_go_on);
    if (is_one(turns_to_end)) end(turn - turns_to_end);
    if (is_staged && is_one(turns_to_end + 1)) collect(turn - turns_to_end - 1);
  }
  if (inside_ == Inside::arena) steps_.wait_for_all();
  if (is_staged) steps_.set_staged(turns_, staged_elements_);
  return std::move(steps_);
}

Range TwoLevel::piece_of(const Range& whole, std::size_t turn) const {
  const std::size_t begin = std::min(turn * piece_, whole.count);
  return {whole.begin + begin, std::min(piece_, whole.count - begin)};
}

Place TwoLevel::staging(int rank, std::size_t turn, int room) const {
  return {Space::staging, rank,
          turn % call_.windows * call_.window_elements + static_cast<std::size_t>(room) * piece_};
}

void TwoLevel::hand_out(std::size_t position, std::size_t elements, std::size_t turn, int room) {
  const Place mine = output_at(call_, position);
  if (inside_ == Inside::staged) steps_.copy(mine, staging(call_.rank, turn, room), elements);
  for (const int rank : hosts_.here()) {
    if (inside_ == Inside::arena && rank != call_.rank)
      steps_.copy(mine, {Space::output, rank, position}, elements);
  }
}

void TwoLevel::take_scratch(std::size_t elements_each) {
  scratch_each_ = elements_each;
  scratch_ = steps_.scratch(call_.rank, most_under_way * elements_each);
}

Place TwoLevel::scratch(std::size_t turn) const {
  return at(scratch_, turn % most_under_way * scratch_each_);
}

void TwoLevel::take_wire(std::size_t elements_each) {
  if (!call_.narrow_wire) return;
  wire_each_ = elements_each;
  wire_ = steps_.wire(call_.rank, most_under_way * elements_each);
}

Place TwoLevel::wire(std::size_t turn) const { return at(wire_, turn % most_under_way * wire_each_); }

Place TwoLevel::leaving(Place whole, Place room, std::size_t elements) {
  if (!call_.narrow_wire) return whole;
  steps_.copy(whole, room, elements);
  return room;
}

TwoLevelOfSlices::TwoLevelOfSlices(const Call& call, int messages)
    : TwoLevel(call, chunk_of(call.elements, 0, Hosts(call).slices).count, Hosts(call).slices, messages) {}

Range TwoLevelOfSlices::part(std::size_t turn, int slice) const {
  return piece_of(chunk_of(call_.elements, slice, hosts_.slices), turn);
}

Range TwoLevelOfSlices::own_part(std::size_t turn) const {
  return hosts_.owns_one() ? part(turn, hosts_.local) : Range{};
}

void TwoLevelOfSlices::fill_slices(std::size_t turn) {
  for (int slice = 0; slice < hosts_.slices; ++slice) {
    if (slice == hosts_.local) continue;
    const Range range = part(turn, slice);
    steps_.copy(input_at(call_, range.begin), staging(call_.rank, turn, slice), range.count);
  }
}

std::vector<Place> TwoLevelOfSlices::contributions(std::size_t turn) const {
  std::vector<Place> places;
  for (const int rank : hosts_.here()) {
    const bool is_staged = inside_ == Inside::staged && rank != call_.rank;
    places.push_back(is_staged ? staging(rank, turn, hosts_.local)
                               : Place{Space::input, rank, own_part(turn).begin});
  }
  return places;
}

std::vector<Place> TwoLevelOfSlices::results(std::size_t turn, std::size_t offset) const {
  const std::size_t position = own_part(turn).begin + offset;
  std::vector<Place> places = {output_at(call_, position)};
  if (inside_ == Inside::staged) places.push_back(at(staging(call_.rank, turn, hosts_.local), offset));
  for (const int rank : hosts_.here()) {
    if (inside_ == Inside::arena && rank != call_.rank) places.push_back({Space::output, rank, position});
  }
  return places;
}

void TwoLevelOfSlices::collect_slices(std::size_t turn) {
  for (int slice = 0; slice < hosts_.slices; ++slice) {
    if (slice == hosts_.local) continue;
    const Range range = part(turn, slice);
    steps_.copy(staging(hosts_.owner(hosts_.mine, slice), turn, slice), output_at(call_, range.begin),
                range.count);
  }
}

}  // namespace lockstep::schedule
