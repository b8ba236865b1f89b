// `lockstep doctor`: says of this machine, and of others that are named, what training needs and what would slow it.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "doctor". Returns the exit code: 0, 1 where training would not run, 2 for wrong usage.
int doctor_command(const std::vector<std::string>& arguments);
