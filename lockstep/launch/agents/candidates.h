// The hosts of a job on their way to taking part: what each has said so far, and what is wrong with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/agents/connection.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/hosts/host_list.h"

namespace lockstep::launch::agents {

/// One host on its way to taking part.
struct Candidate {
  Host host;
  int node_rank = -1;  ///< what it says of itself, where it has come; -1: nothing
  std::unique_ptr<Connection> connection = {};
  std::optional<Hello> hello = {};
  std::int64_t clock_ahead_ns = 0;
  std::optional<Planned> planned = {};
  std::optional<Probed> probed = {};
  std::optional<Serving> serving = {};
  std::optional<Started> started = {};
  std::vector<Message> after_start = {};
  std::string problem = {};
  int exit_code = 1;
};

using Candidates = std::vector<Candidate>;

/// Their agents share shared memory. REQUIRES: both have said hello.
bool are_one_machine(const Candidate& one, const Candidate& other);

/// Two names of one machine would give two agents the same shared memory to manage: the first one takes the ranks of both, and the
/// other's connection is closed. Those who have come are left as they are. REQUIRES: all have said hello.
void merge_machines(Candidates& candidates);

/// Addresses of the first one's host that the others are to try: as the user names it, if `name` is an address of its own, before
/// the others; loopback alone where all are one machine.
std::vector<std::string> addresses_to_try(const Candidates& candidates, const std::string& name);
/// The first of `addresses` that all others reach; nullopt: there is none, and what is wrong is noted. REQUIRES: all others have
/// been asked.
std::optional<std::string> address_reached(Candidates& candidates, const std::vector<std::string>& addresses);

bool have_problems(const Candidates& candidates);
/// What is wrong with which, a line for each. REQUIRES: have_problems().
std::string table_of_problems(const Candidates& candidates);
/// Of the first one with a problem. REQUIRES: have_problems().
int exit_code_of(const Candidates& candidates);

}  // namespace lockstep::launch::agents
