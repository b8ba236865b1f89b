#include "lockstep/schedule/simulate/simulate.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/schedule/simulate/packed_schedule.h"

namespace lockstep::schedule {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr std::uint64_t quantum_bytes = 64 * 1024;
constexpr std::uint64_t socket_buffer_bytes = 256 * 1024;
constexpr std::size_t most_idle_peers = 64;  // of which a rank remembers that there is nothing under way

/// First in, first out.
template <class T>
class Line {
 public:
  bool empty() const { return first_ == items_.size(); }
  void push(const T& item) { items_.push_back(item); }
  T& front() { return items_[first_]; }
  void pop() {
    if (++first_ == items_.size()) {
      items_.clear();
      first_ = 0;
    }
  }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0;
};

/// Something that serves one after another: a port, a cable, a host's memory.
struct Server {
  double rate = 0;
  double free_at = 0;
};

/// A send or receive that is under way.
struct Request {
  double done = never;
  double cost = 0;  ///< more, to whoever waited for it
};

/// What one rank has to do with another one's messages.
struct Incoming {
  Line<double> arrived;        ///< and not yet asked for: when
  Line<std::uint32_t> posted;  ///< requests
  bool is_idle() const { return arrived.empty() && posted.empty(); }
};
struct Outgoing {
  struct Message {
    std::uint64_t left;
    std::uint32_t request;
  };
  Line<Message> messages;
  double free_at = 0;  ///< when the last quantum has left
};

struct SimulatedRank {
  PackedSchedule schedule;
  std::size_t next = 0;
  double now = 0;
  int host = 0;
  std::vector<Request> requests;
  std::uint32_t waits_for = no_request;
  std::uint32_t awaits = 0;  ///< a stage
  std::unordered_map<int, Incoming> from;
  std::unordered_map<int, Outgoing> to;
};

struct Host {
  struct Stage {
    std::size_t arrived = 0;
    double latest = 0;
  };
  std::vector<int> ranks;
  std::vector<Stage> stages;  ///< from 1
  Server memory;
};

struct Quantum {
  int from = 0, to = 0;
  int hop = 0;
  bool is_last = false;  ///< of its message
  double bytes = 0;
  double tail = 0;  ///< when its end could be at the hop
};

enum class What : std::uint32_t { rank, quantum, connection };

struct Event {
  double time = 0;
  What what = What::rank;
  std::uint32_t which = 0;  ///< rank, quantum, or the connection's sender
  std::uint32_t peer = 0;   ///< the connection's receiver
  friend bool operator>(const Event& one, const Event& other) {
    if (one.time != other.time) return one.time > other.time;
    if (one.what != other.what) return one.what > other.what;
    return one.which != other.which ? one.which > other.which : one.peer > other.peer;
  }
};

/// The ports and cables between hosts.
class Network {
 public:
  Network(const Topology::Network& made_of, int hosts) : made_of_(made_of), hosts_(hosts) {
    const auto add = [&](int count, double rate) {
      servers_.resize(servers_.size() + static_cast<std::size_t>(count), {.rate = rate});
    };
    add(hosts, made_of.send_rate);
    add(hosts, made_of.receive_rate);
    if (made_of.kind == Topology::Kind::two_level) return;
    leaves_ = (hosts + made_of.hosts_per_leaf - 1) / made_of.hosts_per_leaf;
    add(2 * leaves_ * made_of.uplinks, made_of.uplink_rate);
  }

  Server& port_of(int host) { return at(host); }
  /// The hop after the sender's port is 1; whether it is the last.
  bool is_last(int from, int to, int hop) const { return hop == (crosses_spine(from, to) ? 3 : 1); }
  Server& server(int from, int to, int hop) {
    if (is_last(from, to, hop)) return at(hosts_ + to);
    const int cable = to % made_of_.uplinks;
    const int leaf = (hop == 1 ? from : to) / made_of_.hosts_per_leaf;
    const int begin = 2 * hosts_ + (hop == 1 ? 0 : leaves_ * made_of_.uplinks);
    return at(begin + leaf * made_of_.uplinks + cable);
  }
  /// From this hop to the next.
  double latency(int hop) const { return hop == 0 ? made_of_.latency : made_of_.uplink_latency / 2; }

 private:
  Server& at(int index) { return servers_[static_cast<std::size_t>(index)]; }
  bool crosses_spine(int from, int to) const {
    return made_of_.kind == Topology::Kind::fat_tree &&
           from / made_of_.hosts_per_leaf != to / made_of_.hosts_per_leaf;
  }

  const Topology::Network& made_of_;
  int hosts_;
  int leaves_ = 0;
  std::vector<Server> servers_;
};

class Simulation {
 public:
  Simulation(const AlgorithmEntry& entry, const Call& call, std::size_t element_bytes,
             const Topology& topology)
      : topology_(topology),
        element_bytes_(element_bytes),
        ranks_(static_cast<std::size_t>(call.ranks)),
        hosts_(
            static_cast<std::size_t>(call.host_of.empty() ? 1 : *std::ranges::max_element(call.host_of) + 1)),
        sent_(hosts_.size()),
        network_(topology.network, static_cast<int>(hosts_.size())) {
    for (Host& host : hosts_) host.memory.rate = topology.host.memory_rate;
    pack(entry, call);
  }

  Simulated run() {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) add({.what = What::rank, .which = rank});
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      switch (event.what) {
        case What::rank: go_on(static_cast<int>(event.which), event.time); break;
        case What::quantum: move(event.which, event.time); break;
        case What::connection:
          put_out(static_cast<int>(event.which), static_cast<int>(event.peer), event.time);
          break;
      }
    }
    for (const SimulatedRank& rank : ranks_) {
      if (rank.next < rank.schedule.steps.size())
        throw_invalid_argument("ranks wait for each other: this is no schedule that verify accepts");
      result_.seconds = std::max(result_.seconds, rank.now);
    }
    result_.bytes_of_busiest = *std::ranges::max_element(sent_);
    return result_;
  }

 private:
  SimulatedRank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Host& host_of(const SimulatedRank& rank) { return hosts_[static_cast<std::size_t>(rank.host)]; }
  void add(const Event& event) { events_.push(event); }

  void pack(const AlgorithmEntry& entry, Call call) {
    // A rank of the middle, which has as much to do as most: who asks too much need not wait for the others.
    for (const int first : {call.ranks / 2, 0}) {
      call.rank = first;
      require_steps(entry.algorithm(call).steps().size(), call.ranks, first == 0 ? 1 : call.ranks);
    }
    for (call.rank = 0; call.rank < call.ranks; ++call.rank) {
      const Schedule schedule = entry.algorithm(call);
      SimulatedRank& rank = at(call.rank);
      rank.schedule = shapes_.pack(schedule);
      rank.requests.resize(rank.schedule.requests);
      rank.host = call.host_of.empty() ? 0 : call.host_of[static_cast<std::size_t>(call.rank)];
      host_of(rank).ranks.push_back(call.rank);
      result_.steps += rank.schedule.steps.size();
      require_steps(result_.steps, call.ranks, 1);
      const std::size_t windows = std::min<std::size_t>(schedule.staged_pieces(), 8);
      const std::size_t elements = schedule.scratch_elements() + windows * schedule.staged_elements();
      result_.own_bytes = std::max(result_.own_bytes, std::uint64_t{elements} * element_bytes_);
    }
  }

  static void require_steps(std::uint64_t steps, int ranks, int times) {
    const std::uint64_t all = steps * static_cast<std::uint64_t>(times);
    if (all <= most_simulated_steps) return;
    throw_invalid_argument(
        fmt::format("{} million steps of {} ranks are more than a simulation holds ({} million): take fewer "
                    "ranks or bytes, or longer "
                    "messages (LOCKSTEP_SEGMENT_BYTES)",
                    all / 1'000'000, ranks, most_simulated_steps / 1'000'000));
  }

  /// Takes steps from `time` on, until one has to wait.
  void go_on(int number, double time) {
    SimulatedRank& rank = at(number);
    rank.now = std::max(rank.now, time);
    for (; rank.next < rank.schedule.steps.size(); ++rank.next) {
      const PackedStep step = rank.schedule.steps[rank.next];
      const StepShape shape = shapes_[step.shape];
      // What others use, too, is used in the order of time.
      if (shape.kind != StepKind::wait && shape.kind != StepKind::await && shape.kind != StepKind::receive &&
          !events_.empty() && events_.top().time < rank.now) {
        return add({.time = rank.now, .what = What::rank, .which = static_cast<std::uint32_t>(number)});
      }
      switch (shape.kind) {
        case StepKind::send: send(number, step, shape.elements * element_bytes_); break;
        case StepKind::receive: receive(rank, step, shape.elements * element_bytes_); break;
        case StepKind::wait:
          if (!wait(rank, step)) return;
          break;
        case StepKind::copy:
        case StepKind::reduce: compute(rank, shape); break;
        case StepKind::arrive: arrive(rank, step.target); break;
        case StepKind::await:
          if (!await(rank, step.target)) return;
          break;
        case StepKind::exchange: throw_invalid_argument("what an engine does cannot be simulated");
      }
    }
  }

  void send(int number, const PackedStep& step, std::uint64_t bytes) {
    SimulatedRank& rank = at(number);
    const int peer = static_cast<int>(step.target);
    Request& request = rank.requests[step.request];
    request = {};
    if (at(peer).host == rank.host) {
      use_memory(rank, static_cast<double>(bytes) / topology_.host.copy_rate, 2 * bytes);
      request.done = rank.now;
      deliver(number, peer, rank.now + topology_.host.stage);
      return;
    }
    rank.now += time_of_message(bytes);
    ++result_.messages;
    result_.bytes += bytes;
    sent_[static_cast<std::size_t>(rank.host)] += bytes;
    Outgoing& out = rank.to[peer];
    const bool was_idle = out.messages.empty();
    out.messages.push({bytes, step.request});
    if (!was_idle) return;
    if (out.free_at <= rank.now) {
      put_out(number, peer, rank.now);
    } else {
      add_connection(number, peer, out.free_at);
    }
  }

  /// That its sender is busy with it, and its receiver.
  double time_of_message(std::uint64_t bytes) const {
    return topology_.network.message + static_cast<double>(bytes) / topology_.network.socket_rate;
  }

  void add_connection(int from, int to, double time) {
    add({.time = time,
         .what = What::connection,
         .which = static_cast<std::uint32_t>(from),
         .peer = static_cast<std::uint32_t>(to)});
  }

  /// The next quantum from one rank to another, at its host's port.
  void put_out(int from, int to, double time) {
    SimulatedRank& sender = at(from);
    Outgoing& out = sender.to[to];
    Outgoing::Message& message = out.messages.front();
    const std::uint64_t bytes = std::min(message.left, quantum_bytes);
    Server& port = network_.port_of(sender.host);
    const double start = std::max(time, port.free_at);
    const double end = start + static_cast<double>(bytes) / port.rate;
    port.free_at = out.free_at = end;
    if (message.left <= socket_buffer_bytes) finish(from, message.request, time);
    message.left -= bytes;
    const double latency = network_.latency(0);
    add_quantum({.from = from,
                 .to = to,
                 .hop = 1,
                 .is_last = message.left == 0,
                 .bytes = static_cast<double>(bytes),
                 .tail = end + latency},
                start + latency);
    if (message.left == 0) out.messages.pop();
    if (!out.messages.empty()) {
      add_connection(from, to, end);
    } else if (sender.to.size() > most_idle_peers) {
      sender.to.erase(to);  // the port is busy for longer than the connection
    }
  }

  void add_quantum(const Quantum& quantum, double time) {
    if (free_quanta_.empty()) {
      free_quanta_.push_back(static_cast<std::uint32_t>(quanta_.size()));
      quanta_.emplace_back();
    }
    const std::uint32_t index = free_quanta_.back();
    free_quanta_.pop_back();
    quanta_[index] = quantum;
    add({.time = time, .what = What::quantum, .which = index});
  }

  /// Through the port or cable at which its head is now.
  void move(std::uint32_t index, double time) {
    Quantum& quantum = quanta_[index];
    const int from = at(quantum.from).host, to = at(quantum.to).host;
    Server& server = network_.server(from, to, quantum.hop);
    const double start = std::max(time, server.free_at);
    server.free_at = start + quantum.bytes / server.rate;
    const double end = std::max(server.free_at, quantum.tail);
    if (network_.is_last(from, to, quantum.hop)) {
      if (quantum.is_last) deliver(quantum.from, quantum.to, end);
      free_quanta_.push_back(index);
      return;
    }
    const double latency = network_.latency(quantum.hop);
    ++quantum.hop;
    quantum.tail = end + latency;
    add({.time = start + latency, .what = What::quantum, .which = index});
  }

  void deliver(int from, int to, double time) {
    SimulatedRank& receiver = at(to);
    Incoming& in = receiver.from[from];
    if (in.posted.empty()) return in.arrived.push(time);
    const std::uint32_t request = in.posted.front();
    in.posted.pop();
    finish(to, request, time);
    forget_idle(receiver, from, in);
  }

  void receive(SimulatedRank& rank, const PackedStep& step, std::uint64_t bytes) {
    const int peer = static_cast<int>(step.target);
    Request& request = rank.requests[step.request];
    request = {.cost = at(peer).host == rank.host ? static_cast<double>(bytes) / topology_.host.copy_rate
                                                  : time_of_message(bytes)};
    Incoming& in = rank.from[peer];
    if (in.arrived.empty()) return in.posted.push(step.request);
    request.done = in.arrived.front();
    in.arrived.pop();
    forget_idle(rank, peer, in);
  }

  static void forget_idle(SimulatedRank& rank, int peer, const Incoming& in) {
    if (in.is_idle() && rank.from.size() > most_idle_peers) rank.from.erase(peer);
  }

  void finish(int number, std::uint32_t request, double time) {
    SimulatedRank& rank = at(number);
    if (rank.requests[request].done != never) return;
    rank.requests[request].done = time;
    if (rank.waits_for != request) return;
    rank.waits_for = no_request;
    add({.time = std::max(time, rank.now), .what = What::rank, .which = static_cast<std::uint32_t>(number)});
  }

  bool wait(SimulatedRank& rank, const PackedStep& step) {
    const Request& request = rank.requests[step.request];
    if (request.done == never) {
      rank.waits_for = step.request;
      return false;
    }
    rank.now = std::max(rank.now, request.done) + request.cost;
    return true;
  }

  void compute(SimulatedRank& rank, const StepShape& shape) {
    const std::uint64_t bytes = shape.elements * element_bytes_;
    const std::uint64_t touched = bytes * (std::uint64_t{shape.sources} + shape.destinations);
    // A rate is that of one source and one destination, or of two and one.
    const double time = shape.kind == StepKind::copy
                            ? static_cast<double>(touched) / 2 / topology_.host.copy_rate
                            : static_cast<double>(touched) / 3 / topology_.host.reduce_rate;
    use_memory(rank, time, touched);
  }

  void use_memory(SimulatedRank& rank, double time, std::uint64_t touched) {
    Server& memory = host_of(rank).memory;
    memory.free_at = std::max(memory.free_at, rank.now) + static_cast<double>(touched) / memory.rate;
    rank.now = std::max(rank.now + time, memory.free_at);
  }

  Host::Stage& stage_of(Host& host, std::uint32_t stage) {
    if (host.stages.size() <= stage) host.stages.resize(stage + 1);
    return host.stages[stage];
  }

  void arrive(const SimulatedRank& rank, std::uint32_t number) {
    Host& host = host_of(rank);
    Host::Stage& stage = stage_of(host, number);
    stage.latest = std::max(stage.latest, rank.now);
    if (++stage.arrived < host.ranks.size()) return;
    for (const int other : host.ranks) {
      if (at(other).awaits != number) continue;
      at(other).awaits = 0;
      add({.time = std::max(at(other).now, stage.latest + topology_.host.stage),
           .what = What::rank,
           .which = static_cast<std::uint32_t>(other)});
    }
  }

  bool await(SimulatedRank& rank, std::uint32_t number) {
    Host& host = host_of(rank);
    const Host::Stage& stage = stage_of(host, number);
    if (stage.arrived < host.ranks.size()) {
      rank.awaits = number;
      return false;
    }
    if (host.ranks.size() > 1) rank.now = std::max(rank.now, stage.latest + topology_.host.stage);
    return true;
  }

  const Topology& topology_;
  std::size_t element_bytes_;
  StepShapes shapes_;
  std::vector<SimulatedRank> ranks_;
  std::vector<Host> hosts_;
  std::vector<std::uint64_t> sent_;  // of each host
  Network network_;
  std::vector<Quantum> quanta_;
  std::vector<std::uint32_t> free_quanta_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Simulated result_;
};

}  // namespace

Simulated simulate(const AlgorithmEntry& entry, const Call& call, std::size_t element_bytes,
                   const Topology& topology) {
  return Simulation(entry, call, element_bytes, topology).run();
}

}  // namespace lockstep::schedule
