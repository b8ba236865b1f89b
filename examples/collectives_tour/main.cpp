// A tour of what ranks can say to each other: messages, a group of some of them, and six collectives. Each
// rank prints one line for each step.
//
//   lockstep run -np 4 build/release/bin/collectives_tour
#include <lockstep/lockstep.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "examples/support/run.h"

namespace {

std::string list(std::span<const int> numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

/// In one piece, so that lines of several ranks do not mix.
void say(const std::string& step, const std::string& what) {
  std::cout << step + ": " + what + "\n" << std::flush;
}

/// A token goes around all ranks, and each adds one to it.
void send_and_receive(const lockstep::Group& world, int left, int right) {
  std::array<int, 1> token = {1};
  if (world.rank() > 0) {
    lockstep::recv(world, token, left).wait();
    ++token[0];
  }
  lockstep::send(world, token, right).wait();
  if (world.rank() == 0) lockstep::recv(world, token, left).wait();
  say("send, recv", "the token is " + list(token));
}

/// The same calls without waiting at once: what they return is a Work, which is over some time later.
void send_and_receive_in_the_background(const lockstep::Group& world, int left, int right) {
  const std::array<int, 2> mine = {world.rank(), 10 * world.rank()};
  std::array<int, 2> theirs = {};
  lockstep::Work arriving = lockstep::recv(world, theirs, left);
  lockstep::Work leaving = lockstep::send(world, mine, right);
  // Here the rank may do anything that leaves the two buffers alone.
  arriving.wait();
  leaving.wait();
  say("isend, irecv", "rank " + std::to_string(left) + " sent " + list(theirs));
}

/// A group of its own for the first two ranks: they alone make it, and they alone add up.
void add_up_in_a_group(const lockstep::Group& world) {
  std::vector<int> members(static_cast<std::size_t>(std::min(2, world.size())));
  std::iota(members.begin(), members.end(), 0);
  if (world.rank() >= 2) return say("group", "not a member of ranks " + list(members));
  const lockstep::Group pair = world.subgroup(members);
  std::array<int, 1> sum = {world.rank() + 1};
  lockstep::all_reduce(pair, sum).wait();
  say("group", "ranks " + list(members) + " have the sum " + list(sum));
}

void six_collectives(const lockstep::Group& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const int root = 0;
  const bool at_root = world.rank() == root;
  const std::array<int, 2> mine = {world.rank(), world.rank() + 100};

  std::array<int, 3> from_root = {};
  if (at_root) from_root = {7, 8, 9};
  lockstep::broadcast(world, from_root, root).wait();
  say("broadcast", list(from_root));

  std::array<int, 2> sum = {};
  lockstep::reduce(world, mine, sum, root).wait();
  say("reduce", at_root ? list(sum) : "the root has it");

  lockstep::all_reduce(world, mine, sum).wait();
  say("all_reduce", list(sum));

  std::vector<int> blocks(at_root ? 2 * ranks : 0);  // two numbers for each rank
  std::iota(blocks.begin(), blocks.end(), 0);
  std::array<int, 2> block = {};
  lockstep::scatter(world, blocks, block, root).wait();
  say("scatter", list(block));

  std::vector<int> gathered(at_root ? 2 * ranks : 0);
  lockstep::gather(world, mine, gathered, root).wait();
  say("gather", at_root ? list(gathered) : "the root has it");

  std::vector<int> everybodys(2 * ranks);
  lockstep::all_gather(world, mine, everybodys).wait();
  say("all_gather", list(everybodys));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Messages, a group and six collectives, a line for each. Start it with `lockstep run -np N`.");
  return examples::run(app, argc, argv, [] {
    const auto world = lockstep::init();
    const int right = (world.rank() + 1) % world.size(),
              left = (world.rank() + world.size() - 1) % world.size();
    send_and_receive(world, left, right);
    send_and_receive_in_the_background(world, left, right);
    add_up_in_a_group(world);
    six_collectives(world);
  });
}
