// A rank of a job whose ranks may die and come back: it makes one world after the other, and all-reduces in each.
//
//   probe_views --steps=N [--kill=RANK@STEP ...] [--stop=RANK@STEP] [--exit=RANK@STEP,CODE] [--elements=N] [--pause-us=N]
//               [--until=N]
//
// A step is one all_reduce, whose sum is checked against the ranks of its world; all ranks count the same steps, which newcomers
// are told by the first rank. RANK@STEP happens in the first incarnation of that rank; step -1 is before init(). The last
// step waits, and is repeated, until there is world#N. It says its pid, each world,
//
//   probe rank=2 incarnation=0 view world#2 of 0,2 at step 7
//
// each failure, and at the end how many steps it has done.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"

namespace {

using lockstep::Error;
using lockstep::Group;

struct Deed {
  std::string what;
  int code = 0;
};

struct Options {
  int steps = 100;
  std::size_t elements = 1000;
  int pause_us = 0;
  int until = 1;
  std::map<int, Deed> deeds;  // of this rank, by step
};

int rank_in_job() { return std::atoi(std::getenv("RANK")); }

void say(const std::string& text) {
  std::cout << "probe rank=" + std::to_string(rank_in_job()) + " " + text + "\n" << std::flush;
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  for (const std::string& word : words) {
    const std::size_t end = word.find('=');
    const std::string name = word.substr(2, end - 2), value = word.substr(end + 1);
    if (name == "steps")
      options.steps = std::stoi(value);
    else if (name == "elements")
      options.elements = std::stoull(value);
    else if (name == "pause-us")
      options.pause_us = std::stoi(value);
    else if (name == "until")
      options.until = std::stoi(value);
    else {
      const std::size_t at = value.find('@'), comma = value.find(',');
      if (std::stoi(value.substr(0, at)) != rank_in_job() || lockstep::incarnation() > 0) continue;
      const int code = comma == std::string::npos ? 0 : std::stoi(value.substr(comma + 1));
      options.deeds[std::stoi(value.substr(at + 1))] = {name, code};
    }
  }
  return options;
}

void do_deed(const Deed& deed) {
  if (deed.what == "kill") (void)::raise(SIGKILL);
  if (deed.what == "stop") (void)::raise(SIGSTOP);
  if (deed.what == "exit") ::_exit(deed.code);
}

std::string members_of(const Group& world) {
  std::string text;
  for (int rank = 0; rank < world.size(); ++rank)
    text += (rank == 0 ? "" : ",") + std::to_string(world.world_rank(rank));
  return text;
}

int number_of(const Group& world) {
  const std::size_t mark = world.name().find('#');
  return mark == std::string::npos ? 1 : std::stoi(world.name().substr(mark + 1));
}

/// False: who is in the job has changed.
bool train(const Group& world, const Options& options, int& step) {
  std::array<int, 1> told{step};
  lockstep::broadcast(world, told, 0).wait();
  step = told[0];
  say("incarnation=" + std::to_string(lockstep::incarnation()) + " view " + world.name() + " of " +
      members_of(world) + " at step " + std::to_string(step));
  float expected = 0;
  for (int rank = 0; rank < world.size(); ++rank) expected += static_cast<float>(world.world_rank(rank) + 1);
  auto values = world.allocate<float>(options.elements);
  while (step < options.steps) {
    if (const auto deed = options.deeds.find(step); deed != options.deeds.end()) do_deed(deed->second);
    for (float& value : values) value = static_cast<float>(rank_in_job() + 1);
    lockstep::all_reduce(world, values.span()).wait();
    for (const float value : values) {
      if (value == expected) continue;
      say("WRONG " + std::to_string(value) + " for " + std::to_string(expected));
      ::_exit(3);
    }
    if (step + 1 < options.steps || number_of(world) >= options.until) ++step;
    if (options.pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(options.pause_us));
    std::array<int, 1> changed{lockstep::world_has_changed() ? 1 : 0};
    lockstep::all_reduce(world, changed, lockstep::ReduceOp::max).wait();
    if (changed[0] != 0) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse({argv + 1, argv + argc});
  int step = 0;
  say("pid=" + std::to_string(::getpid()));
  if (const auto deed = options.deeds.find(-1); deed != options.deeds.end()) do_deed(deed->second);
  for (;;) {
    const Group world = lockstep::init();
    try {
      if (train(world, options, step)) break;
    } catch (const Error& error) {
      say("lost code=" + std::string(to_string(error.code())) + " " + error.what());
    }
  }
  say("done " + std::to_string(step) + " steps");
} catch (const Error& error) {
  std::cerr << "probe rank=" + std::to_string(rank_in_job()) +
                   " code=" + std::string(to_string(error.code())) + " text=" + error.what() + "\n";
  return 1;
}
