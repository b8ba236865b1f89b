// A topology file: what is accepted can be simulated.
#include "lockstep/schedule/simulate/topology.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/schedule/simulate/cluster.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::topology {
namespace {

constexpr std::size_t longest_message = 1000;
constexpr std::size_t slot_bytes = 4096;

bool is_one_line(const std::string& text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

void check(const schedule::Topology& made) {
  constexpr int ranks = 3;
  require(made.host.ranks > 0 && made.hosts_of(ranks) <= ranks, "a host has ranks");
  const schedule::Cluster cluster(made, ranks, Tuning::standard(), slot_bytes);
  const schedule::Cluster::Question question{.operation = Operation::all_reduce, .elements = 5};
  for (const AlgorithmEntry* entry : cluster.candidates(question)) {
    const double seconds = cluster.simulate(*entry, question).seconds;
    require(std::isfinite(seconds) && seconds >= 0, "a simulated time is one");
  }
}

}  // namespace

int run_one(Input input) {
  try {
    check(schedule::Topology::parse(Script(input).text(input.size()), "file"));
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::invalid_argument, "a wrong topology is an invalid argument");
    require(what.starts_with("file: "), "what is wrong in a topology begins with its name");
    require(what.size() <= longest_message && is_one_line(what), "and is a line that can be read");
  }
  return 0;
}

}  // namespace lockstep::fuzz::topology
