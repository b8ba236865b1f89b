// `lockstep explain`: says in words which rank is where, and why the others wait.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "explain". Returns the exit code.
int explain_command(const std::vector<std::string>& arguments);
