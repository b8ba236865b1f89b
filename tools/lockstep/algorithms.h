// `lockstep algorithms`: shows what the collectives do.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "algorithms". Returns the exit code.
int algorithms_command(const std::vector<std::string>& arguments);
