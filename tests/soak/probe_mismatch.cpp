// Mismatched calls, one after the other, each in a group of its own:
//
//   probe_mismatch --count=N --seed=S [--threads=RANKS]
//
// as a rank of its job, or with ranks that are threads. Says "mismatch rank=0 found=1000 missed=0", and on
// stderr what was missed. Exit code: 0 where all were found.
#include <array>
#include <atomic>
#include <iostream>
#include <map>
#include <thread>

#include "lockstep/base/env.h"
#include "lockstep/group/in_process.h"
#include "lockstep/group/init.h"
#include "tests/soak/mismatched_calls.h"

namespace soak {
namespace {

using lockstep::Error;
using lockstep::ErrorCode;
using lockstep::Group;

struct Options {
  int count = 100;
  std::uint64_t seed = 0;
  int threads = 0;
};

struct Tally {
  int found = 0;
  int missed = 0;
  std::map<std::string, int> kinds;  ///< of differences -> how many
};

void miss(const DrawnMismatch& drawn, int rank, const std::string& why, const std::string& said) {
  const DrawnCall& one = drawn.ones[drawn.number];
  const DrawnCall& other = drawn.others[drawn.number];
  std::cerr << "rank " + std::to_string(rank) + ", " + drawn.what + ", " + one.text() + " and " +
                   other.text() + ": " + why + (said.empty() ? "" : ": " + said) + "\n";
}

/// Empty where this rank's calls ended as they have to.
std::string fault_of(const Group& group, const DrawnMismatch& drawn, std::string& said) {
  const bool is_other = drawn.is_other[static_cast<std::size_t>(group.rank())];
  std::size_t done = 0;
  try {
    for (const DrawnCall& call : is_other ? drawn.others : drawn.ones) {
      call.run(group);
      ++done;
    }
    lockstep::barrier(group).wait();
  } catch (const Error& error) {
    said = error.what();
    if (error.code() != ErrorCode::mismatch) return "code " + std::string(to_string(error.code()));
    if (done < drawn.number) return "call " + std::to_string(done) + " was in order";
    return fault_in(said, drawn);
  }
  return "nobody noticed";
}

Tally run(const Group& world, const Options& options) {
  Tally tally;
  for (int index = 0; index < options.count; ++index) {
    std::mt19937_64 dice(options.seed + static_cast<std::uint64_t>(index));
    const DrawnMismatch drawn = draw_mismatch(dice, world.size());
    const Group group = world.subgroup(drawn.ranks);
    std::string said;
    const std::string fault = fault_of(group, drawn, said);
    ++(fault.empty() ? tally.found : tally.missed);
    ++tally.kinds[drawn.what];
    if (!fault.empty()) miss(drawn, world.rank(), fault, said);
  }
  return tally;
}

int report(int rank, const Tally& tally) {
  std::string line = "mismatch rank=" + std::to_string(rank) + " found=" + std::to_string(tally.found) +
                     " missed=" + std::to_string(tally.missed);
  for (const auto& [what, times] : tally.kinds) line += " " + what + "=" + std::to_string(times);
  std::cout << line + "\n" << std::flush;
  return tally.missed == 0 ? 0 : 1;
}

int run_threads(const Options& options) {
  auto world = lockstep::in_process_world(options.threads, lockstep::GroupOptions::from_environment());
  std::vector<std::thread> threads;
  std::atomic<int> exit_code = 0;
  for (int rank = 0; rank < options.threads; ++rank) {
    threads.emplace_back([&, rank, mine = std::move(world[static_cast<std::size_t>(rank)])] {
      if (report(rank, run(mine, options)) != 0) exit_code = 1;
    });
  }
  for (auto& thread : threads) thread.join();
  return exit_code;
}

Options parse(int argc, char** argv) {
  Options options;
  for (const std::string word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto value = lockstep::env::parse_integer(
        name, equals == std::string::npos ? "" : word.substr(equals + 1), 0, INT64_MAX);
    if (name == "--count") {
      options.count = static_cast<int>(value);
    } else if (name == "--seed") {
      options.seed = static_cast<std::uint64_t>(value);
    } else if (name == "--threads") {
      options.threads = static_cast<int>(value);
    } else {
      lockstep::throw_invalid_argument(name + " is no option");
    }
  }
  return options;
}

}  // namespace
}  // namespace soak

int main(int argc, char** argv) try {
  const soak::Options options = soak::parse(argc, argv);
  if (options.threads > 0) return soak::run_threads(options);
  const lockstep::Group world = lockstep::init();
  return soak::report(world.rank(), soak::run(world, options));
} catch (const lockstep::Error& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
