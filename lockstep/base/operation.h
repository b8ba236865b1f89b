// The operations of a group, as a value that travels: in schedules, on the wire and in the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// The numbers are part of the wire format and of the record: never reuse one.
enum class Operation : std::uint8_t {
  barrier = 0,
  all_reduce = 1,
  broadcast = 2,
  all_gather = 3,
  send = 4,
  receive = 5,
  reduce = 6,
  scatter = 7,
  gather = 8,
  reduce_scatter = 9,
  all_to_all = 10,
};

inline constexpr std::size_t operation_count = 11;

/// As in messages and in the record; the v forms have "_v" added.
constexpr std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::barrier: return "barrier";
    case Operation::all_reduce: return "all_reduce";
    case Operation::broadcast: return "broadcast";
    case Operation::all_gather: return "all_gather";
    case Operation::send: return "send";
    case Operation::receive: return "recv";
    case Operation::reduce: return "reduce";
    case Operation::scatter: return "scatter";
    case Operation::gather: return "gather";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_to_all: return "all_to_all";
  }
  return "unknown operation";
}

/// Whether one rank is the source or the destination of all data.
constexpr bool has_root(Operation operation) {
  return operation == Operation::broadcast || operation == Operation::reduce ||
         operation == Operation::scatter || operation == Operation::gather;
}

/// The same with `_v` for a call with counts.
inline std::string name_of_call(Operation operation, bool has_counts) {
  return std::string(to_string(operation)) + (has_counts ? "_v" : "");
}

constexpr bool is_message(Operation operation) {
  return operation == Operation::send || operation == Operation::receive;
}

constexpr bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter;
}

}  // namespace lockstep
