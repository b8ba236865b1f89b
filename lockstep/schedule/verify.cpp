#include "lockstep/schedule/verify.h"

#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

namespace lockstep {
namespace {

using Clock = std::vector<std::uint32_t>;  // how much of each rank's past is known
using Expression = std::int32_t;           // index into Expressions; nothing is -1
constexpr Expression nothing = -1;

struct Refusal {
  std::string reason;
};

std::string name(const Place& place, std::size_t count) {
  return to_string(place) + ".." + std::to_string(place.offset + count);
}

/// Expression trees, each stored once, so that equal numbers mean equal trees.
class Expressions {
 public:
  struct Node {
    std::uint64_t contributors = 0;  // one bit a rank
    bool repeated = false;           // some rank contributes twice
    bool scaled = false;
    std::size_t element = 0;  // position in the contribution; the same in all parts
    bool mixed = false;       // parts of different positions
    Expression left = nothing, right = nothing;
  };

  Expression contribution(int rank, std::size_t element) {
    Node node;
    node.contributors = std::uint64_t{1} << rank;
    node.element = element;
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
    node.left = left;
    node.right = right;
    return intern({left, right, 1}, node);
  }
  Expression scale(Expression inner) {
    Node node = nodes_[static_cast<std::size_t>(inner)];
    if (node.scaled) throw Refusal{"a result is scaled twice"};
    node.scaled = true;
    return intern({inner, 0, 2}, node);
  }
  const Node& operator[](Expression expression) const { return nodes_[static_cast<std::size_t>(expression)]; }

 private:
  Expression intern(std::tuple<std::int64_t, std::int64_t, int> key, const Node& node) {
    const auto [where, is_new] = index_.emplace(key, static_cast<Expression>(nodes_.size()));
    if (is_new) nodes_.push_back(node);
    return where->second;
  }
  std::map<std::tuple<std::int64_t, std::int64_t, int>, Expression> index_;
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
  Run(const std::vector<Schedule>& schedules, const Call& call) : call_(call), ranks_(schedules.size()) {
    for (int rank = 0; rank < call.ranks; ++rank) {
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

  static std::string where(int rank, std::size_t step) {
    return "rank " + std::to_string(rank) + ", step " + std::to_string(step);
  }

  std::vector<Element>& memory(const Place& place) {
    return at(place.rank).memory[static_cast<int>(place.space)];
  }

  void allocate(int rank) {
    Rank& state = at(rank);
    const bool gathers = call_.operation == Operation::all_gather;
    const std::size_t output = call_.elements * (gathers ? ranks_.size() : 1);
    state.memory[static_cast<int>(Space::input)].resize(call_.elements);
    state.memory[static_cast<int>(Space::output)].resize(output);
    state.memory[static_cast<int>(Space::slot)].resize(call_.elements);
    state.memory[static_cast<int>(Space::scratch)].resize(state.schedule->scratch_elements());
    // The user wrote the buffers before the call.
    const AccessId written = begin_access(rank);
    const bool in_place = call_.operation == Operation::all_reduce || call_.operation == Operation::broadcast;
    for (const Space space : {Space::input, Space::output}) {
      auto& elements = state.memory[static_cast<int>(space)];
      for (std::size_t index = 0; index < elements.size(); ++index) {
        elements[index].writer = written;
        if ((space == Space::output) == in_place)
          elements[index].value = expressions_.contribution(rank, index);
      }
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
    if (place.rank < 0 || place.rank >= call_.ranks || place.offset > memory(place).size() ||
        count > memory(place).size() - place.offset) {
      throw Refusal{where(rank, step) + " leaves its memory: " + name(place, count)};
    }
    const bool shared = place.space == Space::slot
                            ? !writes
                            : place.space != Space::scratch && (place.space == Space::output || !writes) &&
                                  call_.buffers == BufferClass::arena;
    if (place.rank != rank && !shared) {
      throw Refusal{where(rank, step) + (writes ? " writes " : " reads ") + name(place, count) +
                    ", which is not shared"};
    }
    if (writes && place.space == Space::input) throw Refusal{where(rank, step) + " writes an input"};
  }

  [[noreturn]] void refuse_race(int rank, bool writes, const Place& place, std::size_t count, AccessId other,
                                bool other_writes) {
    const std::string them = std::to_string(accesses_[static_cast<std::size_t>(other)].rank);
    throw Refusal{"rank " + std::to_string(rank) + " may " + (writes ? "write " : "read ") +
                  name(place, count) + " before rank " + them +
                  (other_writes ? " wrote it" : " has read it")};
  }

  void read(int rank, std::size_t step, const Place& place, std::size_t count, AccessId access) {
    check_place(rank, step, place, count, false);
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
  void write(int rank, std::size_t step, const Place& place, std::size_t count, AccessId access) {
    check_place(rank, step, place, count, true);
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
    }
    ++state.next;
    return true;
  }

  void post(int rank, const Step& step, std::uint32_t index) {
    if (step.target >= ranks_.size() || static_cast<int>(step.target) == rank) {
      throw Refusal{where(rank, index) + " names peer " + std::to_string(step.target)};
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
      throw Refusal{where(sender, send) + " sends " + std::to_string(out.step.elements) + " elements, " +
                    where(receiver, receive) + " expects " + std::to_string(in.step.elements)};
    }
    out.matched = in.matched = true;
    in.sender_clock = out.sender_clock;
    const Place from = at(sender).schedule->sources(out.step)[0];
    const Place into = at(receiver).schedule->destinations(in.step)[0];
    for (std::size_t index = 0; index < out.step.elements; ++index) {
      memory(into)[into.offset + index].value = memory(from)[from.offset + index].value;
    }
  }

  bool wait(int rank, const Step& step, std::size_t index) {
    const auto found = at(rank).transfers.find(step.target);
    if (found == at(rank).transfers.end())
      throw Refusal{where(rank, index) + " waits for what was never started"};
    Transfer& transfer = found->second;
    if (!transfer.matched) return false;
    if (transfer.step.kind == StepKind::receive) join(rank, transfer.sender_clock);
    if (!transfer.waited) end_access(rank, transfer.access);
    transfer.waited = true;
    return true;
  }

  bool await(int rank, const Step& step) {
    for (Rank& other : ranks_) {
      if (other.arrivals.size() < step.target) return false;
    }
    for (Rank& other : ranks_) join(rank, other.arrivals[step.target - 1]);
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
    const AccessId access = begin_access(rank);
    for (const Place& place : sources) read(rank, index, place, step.elements, access);
    std::vector<Expression> values(step.elements);
    for (std::size_t element = 0; element < step.elements; ++element) {
      const auto value = [&](const Place& place) { return memory(place)[place.offset + element].value; };
      values[element] = value(sources[0]);
      for (const Place& place : sources.subspan(1))
        values[element] = expressions_.combine(values[element], value(place));
      if (step.last_reduction) values[element] = expressions_.scale(values[element]);
    }
    for (const Place& place : destinations) write(rank, index, place, step.elements, access);
    for (const Place& place : destinations) {
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
    // From here on the user may read and write both buffers.
    const AccessId access = begin_access(rank);
    const auto steps = state.schedule->steps().size();
    for (const Space space : {Space::input, Space::output}) {
      auto& elements = state.memory[static_cast<int>(space)];
      const Place whole{space, rank, 0};
      for (std::size_t index = 0; index < elements.size(); ++index) {
        if (elements[index].value != nothing) read(rank, steps, {space, rank, index}, 1, access);
      }
      if (space == Space::output) write(rank, steps, whole, elements.size(), access);
    }
    end_access(rank, access);
    state.done = true;
    return true;
  }

  std::string describe_waiting() {
    std::string text;
    for (int rank = 0; rank < call_.ranks; ++rank) {
      const Rank& state = at(rank);
      if (state.done) continue;
      const Step& step = state.schedule->steps()[state.next];
      text += (text.empty() ? "" : "; ") + where(rank, state.next);
      if (step.kind == StepKind::await) {
        text += " awaits stage " + std::to_string(step.target);
      } else {
        const Transfer& transfer = state.transfers.at(step.target);
        text +=
            transfer.step.kind == StepKind::send ? " waits to send to rank " : " waits to receive from rank ";
        text += std::to_string(transfer.step.target);
      }
    }
    return text;
  }

  void check_results() {
    for (int rank = 0; rank < call_.ranks; ++rank) {
      const auto& output = at(rank).memory[static_cast<int>(Space::output)];
      for (std::size_t index = 0; index < output.size(); ++index)
        check_element(rank, index, output[index].value);
    }
  }

  void check_element(int rank, std::size_t index, Expression value) {
    const auto refuse = [&](const std::string& why) {
      throw Refusal{"rank " + std::to_string(rank) + " ends with a wrong element " + std::to_string(index) +
                    ": " + why};
    };
    const auto expect = [&](int source, std::size_t element) {
      if (value == nothing) refuse("nothing was written");
      if (value != expressions_.contribution(source, element)) {
        refuse("not element " + std::to_string(element) + " of rank " + std::to_string(source));
      }
    };
    switch (call_.operation) {
      case Operation::barrier: return;
      case Operation::broadcast: return expect(call_.root, index);
      case Operation::all_gather:
        return expect(static_cast<int>(index / call_.elements), index % call_.elements);
      case Operation::send:
      case Operation::receive:
        if (rank == call_.destination) expect(call_.root, index);
        return;
      case Operation::all_reduce: break;
    }
    const auto& node = expressions_[value];
    const std::uint64_t everybody =
        call_.ranks == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << call_.ranks) - 1;
    if (node.repeated) refuse("a contribution counts twice");
    if (node.contributors != everybody) {
      refuse("rank " + std::to_string(std::countr_one(node.contributors)) + "'s contribution is missing");
    }
    if (node.mixed || node.element != index) refuse("contributions of different elements are mixed");
    if (!node.scaled && call_.ranks > 1) refuse("an average would not be scaled");
    if (value != at(0).memory[static_cast<int>(Space::output)][index].value)
      refuse("not in the order of rank 0's");
  }

  Call call_;
  std::vector<Rank> ranks_;
  Expressions expressions_;
  std::vector<Access> accesses_;
  std::map<std::pair<int, int>, std::pair<std::deque<std::uint32_t>, std::deque<std::uint32_t>>> pending_;
};

}  // namespace

Verdict verify(const std::vector<Schedule>& schedules, const Call& call) {
  try {
    Run(schedules, call).all();
  } catch (const Refusal& refusal) {
    return {false, refusal.reason};
  }
  return {true, {}};
}

Verdict verify(Algorithm algorithm, const Call& call) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < call.ranks; ++rank) {
    Call mine = call;
    mine.rank = rank;
    schedules.push_back(algorithm(mine));
  }
  return verify(schedules, call);
}

}  // namespace lockstep
