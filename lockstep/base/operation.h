// The operations of a group, as a value that travels: in schedules, on the wire and in the record.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// The numbers are part of the wire format and of the record: never reuse one.
enum class Operation : std::uint8_t {
  barrier = 0,
  all_reduce = 1,
  broadcast = 2,
  all_gather = 3,
  send = 4,
  receive = 5
};

constexpr std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::barrier: return "barrier";
    case Operation::all_reduce: return "all_reduce";
    case Operation::broadcast: return "broadcast";
    case Operation::all_gather: return "all_gather";
    case Operation::send: return "send";
    case Operation::receive: return "recv";
  }
  return "unknown operation";
}

}  // namespace lockstep
