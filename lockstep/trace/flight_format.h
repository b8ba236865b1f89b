// What the writer and the reader of the flight record's file have to agree in.
#pragma once

#include <array>
#include <cstddef>

namespace lockstep::trace {

inline constexpr const char* flight_format = "lockstep flight record";
inline constexpr int flight_version = 1;

/// Of an event, which is a list: there are many.
inline constexpr std::array event_columns = {"sequence",     "group",    "operation", "dtype",
                                             "reduce_op",    "elements", "begin_ns",  "arrived_after_ns",
                                             "end_after_ns", "failed",   "algorithm"};

/// Of a row of totals, likewise.
inline constexpr std::array totals_columns = {"group", "operation", "has_counts", "size_bin",  "calls",
                                              "bytes", "ns",        "waited_ns",  "blocked_ns"};

}  // namespace lockstep::trace
