#pragma once

#include <string>
#include <vector>

/// `lockstep profile`: what stands behind the subcommand. Returns the command's exit code.
int profile_command(const std::vector<std::string>& arguments);
