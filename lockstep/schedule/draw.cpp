#include "lockstep/schedule/draw.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "lockstep/schedule/replay.h"

namespace lockstep::schedule {

const char* const picture_signs =
    R"(->2 cd        sends elements c and d to rank 2
<-1 c         has received c from rank 1
+c 30         adds up: its sum of c now is rank 3's and rank 0's, in this order
|             waits until all ranks are here
->slot ab     copies a and b into its slot;  ->A, ->B into a window of its staging memory
<-slot2 a     copies a out of rank 2's slot;  <-A2, <-B2 out of its staging memory, <-in2, <-out2 its buffers
+a in01 ->A   adds up the a that lie in the inputs of ranks 0 and 1, in this order, and writes the sum into A;
              its own output is not named

An element is a letter; a-f is abcdef. A buffer that is reduced, broadcast or scattered is abcd..., and every
rank's c is added to every other rank's c. Of what is gathered, a is rank 0's, b is rank 1's. Of an
all_to_all, a1 is what rank 0 has for rank 1, and b0 what rank 1 has for rank 0. Through staging memory go two
elements for each one of these, in two pieces, and blocks in arenas have two; of an all_to_all, they are a1 and a1'.
)";

namespace {

/// Rounds have even numbers; those between them are for waits for all ranks.
constexpr int next_round = 2;
bool is_wait(int column) { return column % 2 != 0; }

/// Something that a rank does: "->2 cd".
struct Sign {
  std::string head;
  std::string elements = {};
  std::string tail = {};
};

struct Row {
  int column = 0;
  /// What is sent from now on may depend on what came in this round.
  bool has_received = false;
  std::vector<int> arrivals = {};  ///< the column of each
  std::map<int, std::vector<Sign>> cells = {};

  std::vector<Sign>& here() { return cells[column]; }
};

std::string text_of(const std::vector<Sign>& cell) {
  std::string text;
  for (const Sign& sign : cell) {
    if (!text.empty()) text += ' ';
    text += sign.head;
    if (!sign.elements.empty() && sign.head != "+") text += ' ';
    text += sign.elements + sign.tail;
  }
  return text;
}

void align(std::vector<std::string>& lines) {
  std::size_t longest = 0;
  for (const std::string& line : lines) longest = std::max(longest, line.size());
  for (std::string& line : lines) line.resize(longest, ' ');
}

std::string text_of(const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) lines.push_back(fmt::format("rank {}", rank));
  align(lines);
  std::set<int> columns;
  for (const Row& row : rows) {
    for (const auto& [column, cell] : row.cells) columns.insert(column);
  }
  bool is_after_wait = false;
  for (const int column : columns) {
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      lines[rank] += is_wait(column) || is_after_wait ? " " : "  ";
      const auto cell = rows[rank].cells.find(column);
      if (cell != rows[rank].cells.end()) lines[rank] += text_of(cell->second);
    }
    align(lines);
    is_after_wait = is_wait(column);
  }
  std::string text;
  for (const std::string& line : lines) text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  return text;
}

/// What the elements and places of a call are called.
struct Names {
  const Call& call;

  static char letter(std::size_t index) {
    return static_cast<char>(index < 26 ? 'a' + index : 'A' + (index - 26));
  }
  std::string element(std::size_t number) const {
    if (call.operation != Operation::all_to_all) return {letter(number)};
    const std::size_t block = number / call.elements;  // counted over all ranks' inputs
    const auto ranks = static_cast<std::size_t>(call.ranks);
    return letter(block / ranks) + std::to_string(block % ranks) + std::string(number % call.elements, '\'');
  }

  /// "acd"; "a-h" for more than four that follow each other.
  std::string elements(const std::vector<std::size_t>& numbers) const {
    std::string text;
    for (std::size_t first = 0, end = 0; first < numbers.size(); first = end) {
      for (end = first + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
      const bool is_long = end - first > 4;
      if (is_long) text += element(numbers[first]) + "-" + element(numbers[end - 1]);
      for (std::size_t index = first; index < end && !is_long; ++index) text += element(numbers[index]);
    }
    return text;
  }

  /// "0123"; "0-9,12" where some rank has two digits.
  std::string ranks(const std::vector<int>& list) const {
    const bool have_digits = call.ranks <= 10;
    std::string text;
    for (std::size_t first = 0, end = 0; first < list.size(); first = end) {
      for (end = first + 1; !have_digits && end < list.size() && list[end] == list[end - 1] + 1;) ++end;
      text += (have_digits || first == 0 ? "" : ",") + std::to_string(list[first]);
      if (end > first + 1) text += fmt::format("-{}", list[end - 1]);
    }
    return text;
  }

  const char* space(const Place& place) const {
    static constexpr const char* names[] = {"in", "out", "scratch", "slot"};
    if (place.space != Space::staging) return names[static_cast<int>(place.space)];
    return place.offset < call.window_elements ? "A" : "B";
  }
  /// "in0 A123"
  std::string places(const std::vector<Place>& list) const {
    std::string text;
    for (std::size_t first = 0, end = 0; first < list.size(); first = end) {
      const std::string its_space = space(list[first]);
      std::vector<int> its_ranks;
      for (end = first; end < list.size() && space(list[end]) == its_space; ++end)
        its_ranks.push_back(list[end].rank);
      text += (first == 0 ? "" : " ") + its_space + ranks(its_ranks);
    }
    return text;
  }
};

bool others_see(const Place& place) { return place.space == Space::slot || place.space == Space::staging; }

struct Value {
  std::size_t element = 0;
  std::vector<int> ranks = {};  ///< whose contributions it has, in their order
};

class Picture {
 public:
  explicit Picture(const Replay& run)
      : run_(run), names_{run.calls[0]}, memories_(run), rows_(run.calls.size()) {}

  std::string text() {
    for (const Call& call : run_.calls) fill(call);
    replay(run_, [this](const Taken& taken) { take(taken); });
    return text_of(rows_);
  }

 private:
  struct Message {
    int column = 0;
    std::vector<Value> values = {};
  };

  Row& row(int rank) { return rows_[static_cast<std::size_t>(rank)]; }

  std::string elements_of(std::span<const Value> values) const {
    std::vector<std::size_t> elements;
    for (const Value& value : values) elements.push_back(value.element);
    return names_.elements(elements);
  }

  /// What the user passes in.
  void fill(const Call& call) {
    const bool is_broadcast = call.operation == Operation::broadcast;
    if (is_broadcast && call.rank != call.root) return;
    const std::size_t elements = is_broadcast ? call.elements : input_elements(call);
    std::size_t first = 0;
    if (call.operation == Operation::gather || call.operation == Operation::all_gather)
      first = block_of(call, call.rank).begin;
    if (call.operation == Operation::all_to_all) first = static_cast<std::size_t>(call.rank) * elements;
    for (std::size_t offset = 0; offset < elements; ++offset) {
      const Place place{is_broadcast ? Space::output : Space::input, call.rank, offset};
      memories_[place] = {first + offset, {call.rank}};
    }
  }

  void take(const Taken& taken) {
    Row& its_row = row(taken.rank);
    switch (taken.step.kind) {
      case StepKind::send: send(taken, its_row); break;
      case StepKind::receive: break;
      case StepKind::wait:
        if (taken.sender >= 0) receive(taken, its_row);
        break;
      case StepKind::copy: copy(taken, its_row); break;
      case StepKind::reduce: reduce(taken, its_row); break;
      case StepKind::arrive: its_row.arrivals.push_back(its_row.column); break;
      case StepKind::await: await(taken, its_row); break;
      case StepKind::exchange: break;
    }
  }

  void send(const Taken& taken, Row& its_row) {
    if (its_row.has_received) its_row.column += next_round;
    its_row.has_received = false;
    const Place& source = run_.schedule(taken.rank).sources(taken.step)[0];
    const std::vector<Value> values = memories_.read(source, taken.step.elements);
    its_row.here().push_back({fmt::format("->{}", taken.step.target), elements_of(values)});
    messages_[{taken.rank, taken.index}] = {its_row.column, values};
  }

  void receive(const Taken& wait, Row& its_row) {
    const Message& message = messages_.at({wait.sender, wait.send});
    if (message.column >= its_row.column) {
      its_row.column = message.column;
      its_row.has_received = true;
    }
    its_row.here().push_back({fmt::format("<-{}", wait.sender), elements_of(message.values)});
    const Schedule& schedule = run_.schedule(wait.rank);
    memories_.write(schedule.destinations(schedule.steps()[wait.step.target])[0], message.values);
  }

  void copy(const Taken& taken, Row& its_row) {
    const Place& source = run_.schedule(taken.rank).sources(taken.step)[0];
    const Place& destination = run_.schedule(taken.rank).destinations(taken.step)[0];
    const std::vector<Value> values = memories_.read(source, taken.step.elements);
    memories_.write(destination, values);
    std::string head;
    if (source.rank != taken.rank || others_see(source)) head += "<-" + names_.places({source});
    if (destination.rank != taken.rank) head += "->" + names_.places({destination});
    if (destination.rank == taken.rank && others_see(destination))
      head += std::string("->") + names_.space(destination);
    if (head.empty()) return;  // only the rank itself will see it
    auto& cell = its_row.here();
    if (cell.empty() || cell.back().head != head) cell.push_back({head});
    cell.back().elements += elements_of(values);
  }

  void reduce(const Taken& taken, Row& its_row) {
    const auto sources = run_.schedule(taken.rank).sources(taken.step);
    const auto destinations = run_.schedule(taken.rank).destinations(taken.step);
    std::vector<Value> values = memories_.read(sources[0], taken.step.elements);
    for (const Place& place : sources.subspan(1)) {
      const std::vector<Value> others = memories_.read(place, taken.step.elements);
      for (std::size_t index = 0; index < values.size(); ++index) {
        auto& ranks = values[index].ranks;
        ranks.insert(ranks.end(), others[index].ranks.begin(), others[index].ranks.end());
      }
    }
    for (const Place& place : destinations) memories_.write(place, values);

    const auto is_seen = [&](const Place& place) { return place.rank != taken.rank || others_see(place); };
    const bool reads_others = std::any_of(sources.begin(), sources.end(), is_seen);
    std::size_t first = 0;
    while (first < values.size()) {  // elements that have contributions of the same ranks together
      const std::vector<int>& ranks = values[first].ranks;
      std::size_t end = first + 1;
      while (end < values.size() && values[end].ranks == ranks) ++end;
      const std::string from =
          reads_others ? names_.places({sources.begin(), sources.end()}) : names_.ranks(ranks);
      its_row.here().push_back({"+", elements_of(std::span(values).subspan(first, end - first)),
                                " " + from + written(taken.rank, destinations)});
      first = end;
    }
  }

  /// " ->A", " ->out0123"; nothing for the rank's own output alone.
  std::string written(int rank, std::span<const Place> destinations) const {
    const auto is_anothers = [&](const Place& place) { return place.rank != rank; };
    if (std::any_of(destinations.begin(), destinations.end(), is_anothers))
      return " ->" + names_.places({destinations.begin(), destinations.end()});
    std::string text;
    for (const Place& place : destinations) {
      if (others_see(place)) text += std::string(" ->") + names_.space(place);
    }
    return text;
  }

  void await(const Taken& taken, Row& its_row) {
    int last = 0;
    for (int other = 0; other < run_.ranks(); ++other) {
      if (share_a_host(run_.calls[0], taken.rank, other))
        last = std::max(last, row(other).arrivals[taken.step.target - 1]);
    }
    its_row.cells[last + 1].push_back({"|"});
    its_row.column = last + next_round;
    its_row.has_received = false;
  }

  const Replay& run_;
  Names names_;
  Memories<Value> memories_;
  std::vector<Row> rows_;
  std::map<std::pair<int, std::size_t>, Message> messages_;  // by sender and its step
};

}  // namespace

std::string draw(const AlgorithmEntry& entry, int ranks) {
  const Replay run = replay_of(entry, ranks, 1);
  return Picture(run).text();
}

}  // namespace lockstep::schedule
