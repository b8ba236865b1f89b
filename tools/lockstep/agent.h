// `lockstep agent`, which `lockstep run` starts on the hosts of a job; of no use to people.
#pragma once

#include <string>
#include <vector>

int agent_command(const std::vector<std::string>& arguments);
