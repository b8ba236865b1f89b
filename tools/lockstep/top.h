// `lockstep top`: a table of what the ranks of a running job do, again and again.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "top". Returns the exit code.
int top_command(const std::vector<std::string>& arguments);
