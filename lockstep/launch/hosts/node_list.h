// Clusters write many hosts shortly: "rack[0-1]n[00-15],login" are 33. This is Slurm's way to do so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// All hosts, in order; of several brackets the last counts fastest. Leading zeros are kept ("n[08-10]": n08, n09, n10). At most
/// most_hosts. Throws Error{invalid_argument} that begins with `what`, and says at which character.
std::vector<std::string> parse_node_list(std::string_view text, const std::string& what);

/// A number for each host, with repetitions: "2(x3),1" is 2, 2, 2, 1. Throws as above.
std::vector<int> parse_counts(std::string_view text, const std::string& what);

}  // namespace lockstep::launch
