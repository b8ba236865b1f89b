#pragma once

#include <string>
#include <vector>

/// `lockstep report`.
int report_command(const std::vector<std::string>& arguments);
