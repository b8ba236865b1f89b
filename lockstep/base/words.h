// How Lockstep speaks of ranks, times and counts. Errors, the launcher's lines, the record and its readers use the
// same words, so that what one says can be searched for in the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

/// "rank 3", "ranks 0, 1, 3": in the order given. Of more than `most` the first, and "ranks 0, 1, ...".
std::string name_ranks(std::span<const int> ranks, std::size_t most = SIZE_MAX);

/// "rank 3", "ranks 0, 2-4": in ascending order.
std::string name_rank_ranges(std::span<const int> ranks);
/// The same of those from 0 to `ranks` - 1 that are not `present`; "" where all are. Cost: by those that are.
std::string name_ranks_without(const std::set<int>& present, int ranks);

/// "0-2,5-6,8", as people and `taskset` list cores; empty for none. In ascending order.
std::string to_ranges(std::vector<int> numbers, std::string_view separator = ",");

/// A time that was measured, as exact as people read it: "0.4 ms", "850 ms", "2.1 s", "3 min 20 s", "1 h 5 min".
std::string duration(std::uint64_t nanoseconds);

/// For texts and formats of seconds.
inline double in_seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

/// A time that was set, so that it can be found where it was: "30 s", "1500 ms". Below that it is rounded up.
std::string exact_duration(std::chrono::nanoseconds time);

/// "1 core", "4 cores". `plural` is for what takes more than an s: counted(2, "process", "processes").
std::string counted(std::int64_t count, std::string_view noun, std::string_view plural = {});

/// As gethostname(2) has it; "localhost" where the system has none.
std::string host_name();

/// "SIGKILL"; "signal 42" for one without a name.
std::string signal_name(int signal);

}  // namespace lockstep::base
