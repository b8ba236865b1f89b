// `lockstep fetch`: brings a public data set into a folder.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "fetch". Returns the exit code.
int fetch_command(const std::vector<std::string>& arguments);
