#include "lockstep/view/profile/horovod_timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "lockstep/trace/group_names.h"
#include "lockstep/view/profile/timeline_text.h"

namespace lockstep::view {
namespace {

using trace::CollectiveEvent;
using trace::NamedSpan;
using trace::SpanEvent;

std::string_view horovods_name(Operation operation) {
  switch (operation) {
    case Operation::barrier: return "BARRIER";
    case Operation::all_reduce: return "ALLREDUCE";
    case Operation::broadcast: return "BROADCAST";
    case Operation::all_gather: return "ALLGATHER";
    case Operation::send: return "SEND";
    case Operation::receive: return "RECV";
    case Operation::reduce: return "REDUCE";
    case Operation::scatter: return "SCATTER";
    case Operation::gather: return "GATHER";
    case Operation::reduce_scatter: return "REDUCESCATTER";
    case Operation::all_to_all: return "ALLTOALL";
  }
  return "?";
}

std::string_view horovods_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::u8: return "uint8";
    case Dtype::i8: return "int8";
    case Dtype::u16: return "uint16";
    case Dtype::i16: return "int16";
    case Dtype::i32: return "int32";
    case Dtype::i64: return "int64";
    case Dtype::f16: return "float16";
    case Dtype::bf16: return "bfloat16";
    case Dtype::f32: return "float32";
    case Dtype::f64: return "float64";
    case Dtype::boolean: return "bool";
    default: return to_string(dtype);
  }
}

/// One rank's part of an operation.
struct Part {
  int rank;
  std::uint64_t ready_ns, end_ns;
  Operation operation;
  Dtype dtype;
  std::uint64_t elements;
};

/// One time that all ranks do it: the parts in the order in which they were ready.
using Instance = std::vector<Part>;

/// The parts of one tensor, in the order of ready_ns. A rank is in each instance once, and is ready before any is done.
std::vector<Instance> instances_of(std::vector<Part> parts) {
  std::ranges::stable_sort(parts, {}, &Part::ready_ns);
  std::vector<Instance> instances;
  std::uint64_t first_end = 0;
  for (const Part& part : parts) {
    const bool is_next = instances.empty() || part.ready_ns > first_end ||
                         std::ranges::count(instances.back(), part.rank, &Part::rank) > 0;
    if (is_next) {
      instances.emplace_back();
      first_end = std::numeric_limits<std::uint64_t>::max();
    }
    instances.back().push_back(part);
    first_end = std::min(first_end, part.end_ns);
  }
  return instances;
}

class HorovodWriter {
 public:
  HorovodWriter(const Timeline& timeline, const std::function<void(std::string_view)>& write)
      : timeline_(timeline), out_(write) {
    for (const auto& [number, name] : timeline.groups) groups_[number] = name;
  }

  void run() {
    collect_named();
    collect_calls();
    for (const auto& [name, instances] : tensors_) {
      for (const Instance& instance : instances) begin_ns_ = std::min(begin_ns_, instance.front().ready_ns);
    }
    out_.text() += "[";
    int tensor = 0;
    for (const auto& [name, instances] : tensors_) add_tensor(++tensor, name, instances);
    out_.text() += "\n]\n";
    out_.flush();
  }

 private:
  void collect_named() {
    std::map<std::string, std::vector<Part>, std::less<>> parts;
    for (const RankTimeline& rank : timeline_.ranks) {
      for (const SpanEvent& span : rank.spans) {
        const auto named = trace::named_span(span);
        if (!named || named->part != NamedSpan::Part::whole) continue;
        parts[std::string(name_of(rank, span))].push_back(
            {rank.rank, span.begin_ns, span.end_ns, named->operation, named->dtype, elements_of(span)});
      }
    }
    for (auto& [name, of_tensor] : parts) tensors_[name] = instances_of(std::move(of_tensor));
  }
  void collect_calls() {
    std::map<std::tuple<std::uint32_t, Operation, std::uint64_t>, Instance> calls;
    for (const RankTimeline& rank : timeline_.ranks) {
      for (const CollectiveEvent& call : rank.calls) {
        if (call.operation == Operation::send || call.operation == Operation::receive) continue;
        if (trace::is_for_named_operations(groups_[call.group])) {
          carriers_[rank.rank].emplace(call.begin_ns, &call);
        } else {
          calls[{call.group, call.operation, call.sequence}].push_back(
              {rank.rank, call.begin_ns, call.end_ns, call.operation, call.dtype, call.elements});
        }
      }
    }
    for (auto& [key, instance] : calls) {
      const auto& [group, operation, sequence] = key;
      std::ranges::stable_sort(instance, {}, &Part::ready_ns);
      tensors_[fmt::format("{} in {}", to_string(operation), groups_[group])].push_back(std::move(instance));
    }
  }

  void add_tensor(int tensor, const std::string& name, std::vector<Instance> instances) {
    std::ranges::stable_sort(instances, {}, [](const Instance& one) { return one.front().ready_ns; });
    line(R"("ph":"M","pid":{0},"name":"process_name","args":{{"name":{1}}})", tensor, in_json(name));
    line(R"("ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}})", tensor);
    last_ns_ = begin_ns_;
    for (const Instance& instance : instances) add(tensor, instance);
  }
  void add(int tensor, const Instance& instance) {
    const Part& first = *std::ranges::min_element(instance, {}, &Part::rank);
    const auto name = horovods_name(first.operation);
    begin(tensor, fmt::format("NEGOTIATE_{}", name), instance.front().ready_ns);
    for (const Part& part : instance) {
      const double ready = later(part.ready_ns);
      line(R"("ph":"X","pid":{},"tid":0,"name":"{}","ts":{:.3f},"dur":0)", tensor, part.rank, ready);
    }
    end(tensor, instance.back().ready_ns);
    begin(tensor, std::string(name), instance.back().ready_ns);
    const auto [carried_from, carried_to] = carried(first, instance.back().ready_ns);
    if (carried_from > instance.back().ready_ns) {
      begin(tensor, "QUEUE", instance.back().ready_ns);
      end(tensor, carried_from);
    }
    begin(tensor, fmt::format("LOCKSTEP_{}", name), carried_from);
    end(tensor, carried_to);
    end(tensor, first.end_ns,
        fmt::format(R"(,"args":{{"dtype":"{}","shape":"[{}]"}})", horovods_name(first.dtype),
                    first.elements));
  }
  /// When the call ran that carried a named operation, alone or with others; the whole of it where that is not known.
  std::pair<std::uint64_t, std::uint64_t> carried(const Part& part, std::uint64_t from) const {
    const auto rank = carriers_.find(part.rank);
    if (rank != carriers_.end()) {
      for (auto call = rank->second.lower_bound(from); call != rank->second.end(); ++call) {
        if (call->first > part.end_ns) break;
        if (call->second->operation == part.operation && call->second->end_ns <= part.end_ns)
          return {call->first, call->second->end_ns};
      }
    }
    return {from, part.end_ns};
  }

  /// Clocks of hosts differ by a little, and ranges of a tensor have to nest all the same.
  double later(std::uint64_t ns) {
    last_ns_ = std::max(last_ns_, ns);
    return static_cast<double>(last_ns_ - begin_ns_) / 1e3;
  }
  void begin(int tensor, const std::string& name, std::uint64_t ns) {
    line(R"("ph":"B","pid":{},"tid":0,"name":"{}","ts":{:.3f})", tensor, name, later(ns));
  }
  void end(int tensor, std::uint64_t ns, const std::string& arguments = "") {
    line(R"("ph":"E","pid":{},"tid":0,"ts":{:.3f}{})", tensor, later(ns), arguments);
  }
  template <class... Values>
  void line(fmt::format_string<Values...> form, Values&&... values) {
    std::string& text = out_.text();
    text += is_first_ ? "\n{" : ",\n{";
    is_first_ = false;
    fmt::format_to(std::back_inserter(text), form, std::forward<Values>(values)...);
    text += '}';
  }

  const Timeline& timeline_;
  PiecewiseText out_;
  std::map<std::uint32_t, std::string> groups_;
  std::map<std::string, std::vector<Instance>, std::less<>> tensors_;
  std::map<int, std::multimap<std::uint64_t, const CollectiveEvent*>> carriers_;  // by rank and begin
  std::uint64_t begin_ns_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t last_ns_ = 0;
  bool is_first_ = true;
};

}  // namespace

void write_horovod_timeline(const Timeline& timeline, const std::function<void(std::string_view)>& write) {
  HorovodWriter(timeline, write).run();
}

}  // namespace lockstep::view
