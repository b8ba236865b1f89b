#include "agent.h"

#include <unistd.h>

#include <cstdio>

#include "lockstep/launch/agents/agent.h"

int agent_command(const std::vector<std::string>& arguments) {
  if (!arguments.empty() || ::isatty(STDIN_FILENO) != 0) {
    (void)std::fputs(
        "lockstep agent: `lockstep run -H ...` starts this on other hosts; by hand it is of no use\n",
        stderr);
    return 2;
  }
  return lockstep::launch::agents::run_agent();
}
