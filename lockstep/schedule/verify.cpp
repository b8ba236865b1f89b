#include "lockstep/schedule/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "lockstep/schedule/hosts.h"

namespace lockstep::schedule {
namespace {

using Clock = std::vector<std::uint32_t>;  // how much of each rank's past is known
using Expression = std::int32_t;           // index into Expressions; nothing is -1
constexpr Expression nothing = -1;

struct Refusal {
  std::string reason;
};

std::string name(const Place& place, std::size_t count) {
  return fmt::format("{}..{}", to_string(place), place.offset + count);
}

/// Expression trees, each stored once, so that equal numbers mean equal trees.
class Expressions {
 public:
  struct Node {
    std::uint64_t contributors = 0;  // one bit a rank
    bool repeated = false;           // some rank contributes twice
    bool scaled = false;
    bool rounded = false;     // to what crosses a narrow wire, and nothing since
    std::size_t element = 0;  // position in the contribution; the same in all parts
    bool mixed = false;       // parts of different positions
    bool ordered = true;      // parts in the order of ranks, none left out between them
    int first = 0, last = 0;  // ranks, if ordered
  };

  Expression contribution(int rank, std::size_t element) {
    Node node;
    node.contributors = std::uint64_t{1} << rank;
    node.element = element;
    node.first = node.last = rank;
    return intern({rank, static_cast<std::int64_t>(element), 0}, node);
  }
  Expression combine(Expression left, Expression right) {
    const Node& a = nodes_[static_cast<std::size_t>(left)];
    const Node& b = nodes_[static_cast<std::size_t>(right)];
    Node node;
    node.contributors = a.contributors | b.contributors;
    node.repeated = a.repeated || b.repeated || (a.contributors & b.contributors) != 0;
    node.scaled = a.scaled || b.scaled;
    node.element = a.element;
    node.mixed = a.mixed || b.mixed || a.element != b.element;
    node.ordered = a.ordered && b.ordered && a.last + 1 == b.first;
    node.first = a.first;
    node.last = b.last;
    return intern({left, right, 1}, node);
  }
  Expression scale(Expression inner) {
    Node node = nodes_[static_cast<std::size_t>(inner)];
    if (node.scaled) throw Refusal{"a result is scaled twice"};
    node.scaled = true;
    node.rounded = false;
    return intern({inner, 0, 2}, node);
  }
  Expression round(Expression inner) {
    Node node = nodes_[static_cast<std::size_t>(inner)];
    if (node.rounded) return inner;
    node.rounded = true;
    return intern({inner, 0, 3}, node);
  }
  const Node& operator[](Expression expression) const { return nodes_[static_cast<std::size_t>(expression)]; }

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, int>;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      const auto mix = [](std::uint64_t value) { return value * 0x9e3779b97f4a7c15ULL; };
      const auto left = mix(static_cast<std::uint64_t>(std::get<0>(key)));
      return mix((left ^ (left >> 29)) + static_cast<std::uint64_t>(std::get<1>(key)) * 4 +
                 static_cast<std::uint64_t>(std::get<2>(key)));
    }
  };

  Expression intern(const Key& key, const Node& node) {
    const auto [where, is_new] = index_.emplace(key, static_cast<Expression>(nodes_.size()));
    if (is_new) nodes_.push_back(node);
    return where->second;
  }
  std::unordered_map<Key, Expression, Hash> index_;
  std::vector<Node> nodes_;
};

/// One read or write, possibly still going on.
struct Access {
  int rank;
  std::uint32_t end = std::numeric_limits<std::uint32_t>::max();  // the rank's clock when it is over
};
using AccessId = std::int32_t;

struct Element {
  Expression value = nothing;
  AccessId writer = -1;
  std::vector<AccessId> readers;  // since that write
};

struct Transfer {
  Step step;
  std::uint32_t index = 0;
  AccessId access = -1;
  bool waited = false;
  bool matched = false;
  Clock sender_clock;
};

struct Rank {
  const Schedule* schedule = nullptr;
  std::size_t next = 0;
  Clock clock;
  std::vector<Clock> arrivals;  // by stage
  std::map<std::uint32_t, Transfer> transfers;
  std::vector<Element> memory[space_count];
  bool done = false;
};

class Run {
 public:
  Run(const std::vector<Schedule>& schedules, const std::vector<Call>& calls)
      : calls_(calls), call_(calls.at(0)), ranks_(schedules.size()) {
    for (int rank = 0; rank < call_.ranks; ++rank) {
      Rank& state = at(rank);
      state.schedule = &schedules[static_cast<std::size_t>(rank)];
      state.clock.assign(ranks_.size(), 0);
      allocate(rank);
    }
  }

  void all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < call_.ranks; ++rank) {
        while (!at(rank).done && advance(rank)) moved = true;
      }
    }
    for (int rank = 0; rank < call_.ranks; ++rank) {
      if (!at(rank).done) throw Refusal{"deadlock: " + describe_waiting()};
    }
    for (int rank = 0; rank < call_.ranks; ++rank) {
      for (const auto& [index, transfer] : at(rank).transfers) {
        if (!transfer.matched) throw Refusal{where(rank, index) + " has no counterpart"};
      }
    }
    check_results();
  }

 private:
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::uint32_t& own_time(int rank) { return at(rank).clock[static_cast<std::size_t>(rank)]; }

  static std::string where(int rank, std::size_t step) { return fmt::format("rank {}, step {}", rank, step); }

  const Call& call_of(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }

  /// Whether a rank's input and output are one buffer, and which of both names it.
  std::optional<Space> merged(int rank) const {
    const Call& call = call_of(rank);
    if (!call.in_place || (has_root(call.operation) && rank != call.root)) return std::nullopt;
    return input_elements(call) > output_elements(call) ? Space::input : Space::output;
  }

  /// Where a place really is.
  Place real(Place place) const {
    const auto space = merged(place.rank);
    const bool is_users = place.space == Space::input || place.space == Space::output;
    if (!space || !is_users || place.space == *space) return place;
    return {*space, place.rank, place.offset + in_place_offset(call_of(place.rank))};
  }

  /// REQUIRES: a real place.
  std::vector<Element>& memory(const Place& place) {
    return at(place.rank).memory[static_cast<int>(place.space)];
  }

  std::size_t size_of(int rank, Space space) const {
    const Call& call = call_of(rank);
    switch (space) {
      case Space::input: return input_elements(call);
      case Space::output: return output_elements(call);
      case Space::scratch: return ranks_[static_cast<std::size_t>(rank)].schedule->scratch_elements();
      case Space::slot: return std::max(input_elements(call), output_elements(call));
      case Space::staging: return call.window_elements * call.windows;
      case Space::wire:
        return call.narrow_wire ? ranks_[static_cast<std::size_t>(rank)].schedule->wire_elements() : 0;
    }
    return 0;
  }

  void allocate(int rank) {
    Rank& state = at(rank);
    for (int space = 0; space < space_count; ++space) {
      const bool is_elsewhere = real({static_cast<Space>(space), rank, 0}).space != static_cast<Space>(space);
      if (!is_elsewhere) state.memory[space].resize(size_of(rank, static_cast<Space>(space)));
    }
    // The user wrote the buffers before the call.
    const AccessId written = begin_access(rank);
    for (const Space space : {Space::input, Space::output}) {
      for (Element& element : state.memory[static_cast<int>(space)]) element.writer = written;
    }
    const Space source = call_.operation == Operation::broadcast ? Space::output : Space::input;
    for (std::size_t index = 0; index < size_of(rank, source); ++index) {
      const Place place = real({source, rank, index});
      memory(place)[place.offset].value = expressions_.contribution(rank, index);
    }
    end_access(rank, written);
  }

  AccessId begin_access(int rank) {
    ++own_time(rank);
    accesses_.push_back({rank});
    return static_cast<AccessId>(accesses_.size() - 1);
  }
  void end_access(int rank, AccessId access) {
    accesses_[static_cast<std::size_t>(access)].end = own_time(rank);
    ++own_time(rank);
  }

  /// Whether an access is over for a rank that knows `clock`.
  bool is_over(AccessId id, const Clock& clock) const {
    const Access& access = accesses_[static_cast<std::size_t>(id)];
    return clock[static_cast<std::size_t>(access.rank)] >= access.end;
  }

  void check_place(int rank, std::size_t step, const Place& place, std::size_t count, bool writes) {
    const std::size_t size =
        place.rank < 0 || place.rank >= call_.ranks ? 0 : size_of(place.rank, place.space);
    if (place.offset > size || count > size - place.offset) {
      throw Refusal{where(rank, step) + " leaves its memory: " + name(place, count)};
    }
    if (place.rank != rank && (!share_a_host(call_, rank, place.rank) || !is_shared(place, writes))) {
      throw Refusal{where(rank, step) + (writes ? " writes " : " reads ") + name(place, count) +
                    ", which is not shared"};
    }
    if (writes && place.space == Space::input) throw Refusal{where(rank, step) + " writes an input"};
  }

  bool is_shared(const Place& place, bool writes) const {
    if (place.space == Space::slot || place.space == Space::staging) return !writes;
    const SharedBuffers shared = shared_buffers(call_.operation, place.rank, call_.root);
    return call_of(place.rank).buffers == BufferClass::arena &&
           ((place.space == Space::input && shared.input) || (place.space == Space::output && shared.output));
  }

  [[noreturn]] void refuse_race(int rank, bool writes, const Place& place, std::size_t count, AccessId other,
                                bool other_writes) {
    const std::string them = std::to_string(accesses_[static_cast<std::size_t>(other)].rank);
    throw Refusal{fmt::format("rank {} may {}{} before rank {}{}", rank, writes ? "write " : "read ",
                              name(place, count), them, other_writes ? " wrote it" : " has read it")};
  }

  void read(int rank, std::size_t step, Place place, std::size_t count, AccessId access) {
    check_place(rank, step, place, count, false);
    place = real(place);
    for (std::size_t index = place.offset; index < place.offset + count; ++index) {
      Element& element = memory(place)[index];
      if (element.value == nothing)
        throw Refusal{where(rank, step) + " reads " + name(place, count) + " before anything is there"};
      if (!is_over(element.writer, at(rank).clock))
        refuse_race(rank, false, place, count, element.writer, true);
      element.readers.push_back(access);
    }
  }

  /// Only the ordering; the value follows in store().
  void write(int rank, std::size_t step, Place place, std::size_t count, AccessId access) {
    check_place(rank, step, place, count, true);
    write_real(rank, real(place), count, access);
  }

  void write_real(int rank, const Place& place, std::size_t count, AccessId access) {
    for (std::size_t index = place.offset; index < place.offset + count; ++index) {
      Element& element = memory(place)[index];
      if (element.writer >= 0 && element.writer != access && !is_over(element.writer, at(rank).clock)) {
        refuse_race(rank, true, place, count, element.writer, true);
      }
      for (const AccessId reader : element.readers) {
        if (reader != access && !is_over(reader, at(rank).clock))
          refuse_race(rank, true, place, count, reader, false);
      }
      element.readers.clear();
      element.writer = access;
    }
  }

  bool advance(int rank) {
    Rank& state = at(rank);
    if (state.next == state.schedule->steps().size()) return finish(rank);
    const std::size_t index = state.next;
    const Step& step = state.schedule->steps()[index];
    switch (step.kind) {
      case StepKind::send:
      case StepKind::receive: post(rank, step, static_cast<std::uint32_t>(index)); break;
      case StepKind::wait:
        if (!wait(rank, step, index)) return false;
        break;
      case StepKind::copy:
      case StepKind::reduce: compute(rank, step, index); break;
      case StepKind::arrive:
        if (step.target != state.arrivals.size() + 1)
          throw Refusal{where(rank, index) + " arrives out of order"};
        state.arrivals.push_back(state.clock);
        ++own_time(rank);
        break;
      case StepKind::await:
        if (!await(rank, step)) return false;
        break;
      case StepKind::exchange: post_exchange(rank, step, static_cast<std::uint32_t>(index)); break;
    }
    ++state.next;
    return true;
  }

  void post(int rank, const Step& step, std::uint32_t index) {
    if (step.target >= ranks_.size() || static_cast<int>(step.target) == rank) {
      throw Refusal{fmt::format("{} names peer {}", where(rank, index), step.target)};
    }
    const AccessId access = begin_access(rank);
    const Schedule& schedule = *at(rank).schedule;
    const bool sends = step.kind == StepKind::send;
    if (sends) read(rank, index, schedule.sources(step)[0], step.elements, access);
    if (!sends) write(rank, index, schedule.destinations(step)[0], step.elements, access);
    at(rank).transfers[index] = {step, index, access, false, false, at(rank).clock};
    const int peer = static_cast<int>(step.target);
    auto& waiting = pending_[sends ? std::pair(rank, peer) : std::pair(peer, rank)];
    auto& mine = sends ? waiting.first : waiting.second;
    mine.push_back(index);
    if (!waiting.first.empty() && !waiting.second.empty()) {
      const int sender = sends ? rank : peer;
      match(sender, waiting.first.front(), sends ? peer : rank, waiting.second.front());
      waiting.first.pop_front();
      waiting.second.pop_front();
    }
  }

  void match(int sender, std::uint32_t send, int receiver, std::uint32_t receive) {
    Transfer& out = at(sender).transfers.at(send);
    Transfer& in = at(receiver).transfers.at(receive);
    if (out.step.elements != in.step.elements) {
      throw Refusal{fmt::format("{} sends {} elements, {} expects {}", where(sender, send), out.step.elements,
                                where(receiver, receive), in.step.elements)};
    }
    out.matched = in.matched = true;
    in.sender_clock = out.sender_clock;
    const Place from = real(at(sender).schedule->sources(out.step)[0]);
    const Place into = real(at(receiver).schedule->destinations(in.step)[0]);
    if ((from.space == Space::wire) != (into.space == Space::wire)) {
      throw Refusal{fmt::format("{} sends from {}, {} receives into {}: elements of another width",
                                where(sender, send), to_string(from), where(receiver, receive),
                                to_string(into))};
    }
    for (std::size_t index = 0; index < out.step.elements; ++index) {
      memory(into)[into.offset + index].value = memory(from)[from.offset + index].value;
    }
  }

  /// Who takes part in an exchange that `rank` starts.
  std::vector<int> partners(int rank, std::size_t index, Among among) const {
    std::vector<int> ranks;
    const Hosts hosts(call_of(rank));
    if (among == Among::all) {
      for (int other = 0; other < call_.ranks; ++other) ranks.push_back(other);
    } else {
      if (!hosts.owns_one()) throw Refusal{where(rank, index) + " owns no slice"};
      for (int host = 0; host < hosts.count(); ++host) ranks.push_back(hosts.owner(host, hosts.local));
    }
    return ranks;
  }

  void post_exchange(int rank, const Step& step, std::uint32_t index) {
    const auto among = static_cast<Among>(step.target);
    const bool is_whole = among == Among::all;
    const Schedule& schedule = *at(rank).schedule;
    const Place from = schedule.sources(step)[0], into = schedule.destinations(step)[0];
    const Call& call = call_of(rank);
    const AccessId access = begin_access(rank);
    // Those without blocks may be cut into several.
    const bool has_blocks = step.operation != Operation::all_reduce && step.operation != Operation::reduce &&
                            step.operation != Operation::broadcast;
    const auto size = [&](std::size_t whole) { return has_blocks ? whole : std::min(whole, step.elements); };
    // A broadcast's only buffer is the output, which its root only reads.
    if (is_whole && step.operation == Operation::broadcast && rank == call.root) {
      read(rank, index, into, step.elements, access);
    } else {
      read(rank, index, from, is_whole ? size(input_elements(call)) : step.elements, access);
      write(rank, index, into, is_whole ? size(output_elements(call)) : step.elements, access);
    }
    at(rank).transfers[index] = {step, index, access, false, false, at(rank).clock};
    const std::vector<int> ranks = partners(rank, index, among);
    auto& started = exchanges_[ranks];
    started[rank].push_back(index);
    Exchanged all{ranks, {}, among};
    for (const int other : ranks) {
      if (started[other].empty()) return;
      all.steps.push_back(started[other].front());
    }
    for (const int other : ranks) started[other].pop_front();
    carry_out(all);
  }

  /// One that all have started.
  struct Exchanged {
    const std::vector<int>& ranks;
    std::vector<std::uint32_t> steps;  // of each of them
    Among among;
  };
  Transfer& transfer(const Exchanged& all, std::size_t member) {
    return at(all.ranks[member]).transfers.at(all.steps[member]);
  }

  /// What each gets, and of whom it knows when it has it.
  void carry_out(const Exchanged& all) {
    const Step& first = transfer(all, 0).step;
    std::vector<Clock> posted;
    std::vector<std::vector<std::pair<Place, Expression>>> results;
    for (std::size_t member = 0; member < all.ranks.size(); ++member) {
      const Step& step = transfer(all, member).step;
      const bool may_differ = first.operation == Operation::all_to_all;
      if (step.operation != first.operation || (step.elements != first.elements && !may_differ)) {
        throw Refusal{where(all.ranks[0], all.steps[0]) + " meets another exchange of " +
                      where(all.ranks[member], all.steps[member])};
      }
      posted.push_back(transfer(all, member).sender_clock);
      results.push_back(results_of(all, member));
    }
    for (std::size_t member = 0; member < all.ranks.size(); ++member) {
      Transfer& mine = transfer(all, member);
      mine.matched = true;
      for (std::size_t other = 0; other < all.ranks.size(); ++other) {
        if (!needs(all, member, other)) continue;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
          mine.sender_clock[rank] = std::max(mine.sender_clock[rank], posted[other][rank]);
      }
      for (const auto& [place, value] : results[member]) memory(place)[place.offset].value = value;
    }
  }

  /// Whether an exchange cannot be over on one before another has started it.
  bool needs(const Exchanged& all, std::size_t member, std::size_t other) {
    const Step& step = transfer(all, member).step;
    const Call& call = call_of(all.ranks[member]);
    if (step.operation == Operation::barrier) return true;
    if (step.elements == 0 || !call.counts.empty()) return false;  // there may be nothing to wait for
    if (step.operation == Operation::reduce || step.operation == Operation::gather)
      return all.ranks[member] == call.root;
    if (has_root(step.operation)) return all.ranks[other] == call.root;
    return true;
  }

  /// What a member's destination holds afterwards.
  std::vector<std::pair<Place, Expression>> results_of(const Exchanged& all, std::size_t member) {
    std::vector<std::pair<Place, Expression>> results;
    const Step& step = transfer(all, member).step;
    const int rank = all.ranks[member];
    const Call& call = call_of(rank);
    const auto place = [&](std::size_t of, bool is_source, std::size_t offset) {
      const Schedule& schedule = *at(all.ranks[of]).schedule;
      const Step& its = transfer(all, of).step;
      Place found = (is_source ? schedule.sources(its) : schedule.destinations(its))[0];
      found.offset += offset;
      return real(found);
    };
    const auto given = [&](std::size_t of, std::size_t offset) {
      const Place found = place(of, step.operation != Operation::broadcast, offset);
      return memory(found)[found.offset].value;
    };
    const auto get = [&](std::size_t offset, Expression value) {
      results.emplace_back(place(member, false, offset), value);
    };
    const auto get_sums = [&](Range range) {
      for (std::size_t index = 0; index < range.count; ++index) {
        Expression sum = given(0, range.begin + index);
        for (std::size_t other = 1; other < all.ranks.size(); ++other)
          sum = expressions_.combine(sum, given(other, range.begin + index));
        get(index, sum);
      }
    };
    const auto get_block = [&](int of, std::size_t first, Range range) {
      for (std::size_t index = 0; index < range.count; ++index)
        get(range.begin + index, given(static_cast<std::size_t>(of), first + index));
    };
    switch (step.operation) {
      case Operation::all_reduce: get_sums({0, step.elements}); break;
      case Operation::reduce:
        if (rank == call.root) get_sums({0, step.elements});
        break;
      case Operation::reduce_scatter: get_sums(block_of(call, rank)); break;
      case Operation::broadcast:
        if (rank != call.root) get_block(call.root, 0, {0, step.elements});
        break;
      case Operation::scatter:
        get_block(call.root, block_of(call, rank).begin, {0, block_of(call, rank).count});
        break;
      case Operation::gather:
      case Operation::all_gather:
        if (step.operation == Operation::gather && rank != call.root) break;
        for (int other = 0; other < call.ranks; ++other) get_block(other, 0, block_of(call, other));
        break;
      case Operation::all_to_all:
        for (int other = 0; other < call.ranks; ++other)
          get_block(other, sent_block(call_of(other), rank).begin, received_block(call, other));
        break;
      default: break;
    }
    return results;
  }

  bool wait(int rank, const Step& step, std::size_t index) {
    const auto found = at(rank).transfers.find(step.target);
    if (found == at(rank).transfers.end())
      throw Refusal{where(rank, index) + " waits for what was never started"};
    Transfer& transfer = found->second;
    if (!transfer.matched) return false;
    if (transfer.step.kind != StepKind::send) join(rank, transfer.sender_clock);
    if (!transfer.waited) end_access(rank, transfer.access);
    transfer.waited = true;
    return true;
  }

  bool await(int rank, const Step& step) {
    for (int other = 0; other < call_.ranks; ++other) {
      if (share_a_host(call_, rank, other) && at(other).arrivals.size() < step.target) return false;
    }
    for (int other = 0; other < call_.ranks; ++other) {
      if (share_a_host(call_, rank, other)) join(rank, at(other).arrivals[step.target - 1]);
    }
    return true;
  }

  void join(int rank, const Clock& other) {
    Clock& mine = at(rank).clock;
    for (std::size_t index = 0; index < mine.size(); ++index)
      mine[index] = std::max(mine[index], other[index]);
  }

  void compute(int rank, const Step& step, std::size_t index) {
    const Schedule& schedule = *at(rank).schedule;
    const auto sources = schedule.sources(step);
    const auto destinations = schedule.destinations(step);
    // In place, a rank's own part is where it belongs; the executor does not touch it either.
    if (step.kind == StepKind::copy && real(sources[0]) == real(destinations[0])) return;
    const auto is_wire = [](const Place& place) { return place.space == Space::wire; };
    if (step.kind == StepKind::reduce &&
        (std::ranges::any_of(sources, is_wire) || std::ranges::any_of(destinations, is_wire)))
      throw Refusal{where(rank, index) + " adds up elements as they cross to other hosts"};
    if (is_wire(sources[0]) && is_wire(destinations[0]))
      throw Refusal{where(rank, index) + " copies elements as they cross to others of them"};
    const bool rounds = is_wire(destinations[0]);
    const AccessId access = begin_access(rank);
    for (const Place& place : sources) read(rank, index, place, step.elements, access);
    std::vector<Expression> values(step.elements);
    for (std::size_t element = 0; element < step.elements; ++element) {
      const auto value = [&](const Place& named) {
        const Place place = real(named);
        return memory(place)[place.offset + element].value;
      };
      values[element] = value(sources[0]);
      for (const Place& place : sources.subspan(1))
        values[element] = expressions_.combine(values[element], value(place));
      if (step.last_reduction) values[element] = expressions_.scale(values[element]);
      if (rounds) values[element] = expressions_.round(values[element]);
    }
    for (const Place& place : destinations) write(rank, index, place, step.elements, access);
    for (const Place& named : destinations) {
      const Place place = real(named);
      for (std::size_t element = 0; element < step.elements; ++element) {
        memory(place)[place.offset + element].value = values[element];
      }
    }
    end_access(rank, access);
  }

  bool finish(int rank) {
    Rank& state = at(rank);
    for (const auto& [index, transfer] : state.transfers) {
      if (!transfer.waited) throw Refusal{where(rank, index) + " is never waited for"};
    }
    if (call_.operation == Operation::barrier) require_all_arrived(rank);
    // From here on the user may read and write both buffers.
    const AccessId access = begin_access(rank);
    const auto steps = state.schedule->steps().size();
    for (const Space space : {Space::input, Space::output}) {
      const auto& elements = state.memory[static_cast<int>(space)];
      for (std::size_t index = 0; index < elements.size(); ++index) {
        if (elements[index].value != nothing) read(rank, steps, {space, rank, index}, 1, access);
      }
      write_real(rank, {space, rank, 0}, elements.size(), access);
    }
    end_access(rank, access);
    state.done = true;
    return true;
  }

  /// A rank that leaves a barrier knows that all have come to it.
  void require_all_arrived(int rank) {
    for (int other = 0; other < call_.ranks; ++other) {
      if (at(rank).clock[static_cast<std::size_t>(other)] == 0) {
        throw Refusal{fmt::format("rank {} may leave before rank {} has come", rank, other)};
      }
    }
  }

  std::string describe_waiting() {
    std::string text;
    for (int rank = 0; rank < call_.ranks; ++rank) {
      const Rank& state = at(rank);
      if (state.done) continue;
      const Step& step = state.schedule->steps()[state.next];
      text += (text.empty() ? "" : "; ") + where(rank, state.next);
      if (step.kind == StepKind::await) {
        text += fmt::format(" awaits stage {}", step.target);
      } else {
        const Step& started = state.transfers.at(step.target).step;
        if (started.kind == StepKind::exchange) {
          text += " waits for others in the engine's " + std::string(to_string(started.operation));
        } else {
          text += started.kind == StepKind::send ? " waits to send to rank " : " waits to receive from rank ";
          text += std::to_string(started.target);
        }
      }
    }
    return text;
  }

  void check_results() {
    for (int rank = 0; rank < call_.ranks; ++rank) {
      for (std::size_t index = 0; index < size_of(rank, Space::output); ++index) {
        check_element(rank, index, result(rank, index));
      }
    }
  }

  Expression result(int rank, std::size_t index) {
    const Place place = real({Space::output, rank, index});
    return memory(place)[place.offset].value;
  }

  void check_element(int rank, std::size_t index, Expression value) {
    const Call& call = call_of(rank);
    const auto refuse = [&](const std::string& why) {
      throw Refusal{fmt::format("rank {} ends with a wrong element {}: {}", rank, index, why)};
    };
    const auto expect = [&](int source, std::size_t element) {
      if (value == nothing) refuse("nothing was written");
      if (value != expressions_.contribution(source, element)) {
        refuse(fmt::format("not element {} of rank {}", element, source));
      }
    };
    const auto contains = [&](Range block) {
      return index >= block.begin && index < block.begin + block.count;
    };
    switch (call.operation) {
      case Operation::broadcast: return expect(call.root, index);
      case Operation::scatter: return expect(call.root, block_of(call, rank).begin + index);
      case Operation::gather:
      case Operation::all_gather:
        for (int source = 0; source < call.ranks; ++source) {
          const Range block = block_of(call, source);
          if (contains(block)) return expect(source, index - block.begin);
        }
        return;
      case Operation::all_to_all:
        for (int source = 0; source < call.ranks; ++source) {
          const Range block = received_block(call, source);
          if (!contains(block)) continue;
          return expect(source, sent_block(call_of(source), rank).begin + index - block.begin);
        }
        return;
      case Operation::reduce_scatter: return expect_sum(value, block_of(call, rank).begin + index, refuse);
      case Operation::reduce: return expect_sum(value, index, refuse);
      case Operation::all_reduce:
        expect_sum(value, index, refuse);
        if (value != result(0, index)) refuse("not in the order of rank 0's");
        return;
      default: return;
    }
  }

  template <class Refuse>
  void expect_sum(Expression value, std::size_t element, Refuse refuse) const {
    if (value == nothing) refuse("nothing was written");
    const auto& node = expressions_[value];
    const std::uint64_t everybody =
        call_.ranks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << call_.ranks) - 1;
    if (node.repeated) refuse("a contribution counts twice");
    if (node.contributors != everybody) {
      refuse(fmt::format("rank {}'s contribution is missing", std::countr_one(node.contributors)));
    }
    if (node.mixed || node.element != element) refuse("contributions of different elements are mixed");
    if (!node.scaled && call_.ranks > 1) refuse("an average would not be scaled");
    if (call_.keeps_order && !node.ordered) refuse("contributions are not in the order of ranks");
  }

  const std::vector<Call>& calls_;
  const Call& call_;  // rank 0's, for what is the same on all
  std::vector<Rank> ranks_;
  Expressions expressions_;
  std::vector<Access> accesses_;
  std::map<std::pair<int, int>, std::pair<std::deque<std::uint32_t>, std::deque<std::uint32_t>>> pending_;
  // Exchanges that some have started, by who takes part and who did.
  std::map<std::vector<int>, std::map<int, std::deque<std::uint32_t>>> exchanges_;
};

}  // namespace

Verdict verify(const std::vector<Schedule>& schedules, const std::vector<Call>& calls) {
  try {
    Run(schedules, calls).all();
  } catch (const Refusal& refusal) {
    return {false, refusal.reason};
  }
  return {true, {}};
}

Verdict verify(Algorithm algorithm, const std::vector<Call>& calls) {
  std::vector<Schedule> schedules;
  for (const Call& call : calls) schedules.push_back(algorithm(call));
  return verify(schedules, calls);
}

Verdict verify(Algorithm algorithm, const Call& call) { return verify(algorithm, calls_of_all(call)); }

std::vector<Call> calls_of_all(const Call& call) {
  std::vector<Call> calls(static_cast<std::size_t>(call.ranks), call);
  for (int rank = 0; rank < call.ranks; ++rank) calls[static_cast<std::size_t>(rank)].rank = rank;
  return calls;
}

}  // namespace lockstep::schedule
