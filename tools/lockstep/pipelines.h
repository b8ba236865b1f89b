// `lockstep pipelines`: shows what the schedules of pipelines do.
#pragma once

#include <string>
#include <vector>

/// `arguments` follow the word "pipelines". Returns the exit code.
int pipelines_command(const std::vector<std::string>& arguments);
