// `lockstep run`: starts a program on several ranks of this host.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "run". Returns the exit code.
int run_command(const std::vector<std::string>& arguments);
