// `lockstep bench`: how fast the collectives are on the machine at hand, and which algorithm is best for
// what.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "bench". Returns the exit code.
int bench_command(const std::vector<std::string>& arguments);
