// `lockstep simulate`: how long collectives would take on a cluster.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "simulate". Returns the exit code.
int simulate_command(const std::vector<std::string>& arguments);
