#include "lockstep/launch/output/output_options.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/split.h"

namespace lockstep::launch {
namespace {

constexpr int highest_local_rank = 1 << 16;

unsigned bit_of(PrintStream stream) { return 1U << static_cast<unsigned>(stream); }
constexpr unsigned both = 3;

int local_rank_of(const std::string& option, const std::string& text) {
  return static_cast<int>(env::parse_integer(option, text, 0, highest_local_rank));
}

unsigned streams_of(const std::string& option, const std::string& text) {
  if (text.size() != 1 || text < "0" || text > "3") {
    throw_invalid_argument(
        fmt::format("{}=\"{}\" is none of 0 (nothing), 1 (stdout), 2 (stderr), 3 (both), or of these for "
                    "single local ranks: 0:3,1:1",
                    option, text));
  }
  return static_cast<unsigned>(text.front() - '0');
}

}  // namespace

StreamChoice StreamChoice::all() {
  StreamChoice choice;
  choice.of_all_ = both;
  return choice;
}

StreamChoice StreamChoice::parse(const std::string& option, const std::string& text) {
  StreamChoice choice;
  if (text.find(':') == std::string::npos) {
    choice.of_all_ = streams_of(option, text);
    return choice;
  }
  for (const std::string& entry : base::split(text, ',')) {
    const auto parts = base::split(entry, ':');
    if (parts.size() != 2)
      throw_invalid_argument(fmt::format("{}: \"{}\" is not LOCAL_RANK:NUMBER", option, entry));
    const int rank = local_rank_of(option, parts[0]);
    if (!choice.of_rank_.emplace(rank, streams_of(option, parts[1])).second)
      throw_invalid_argument(fmt::format("{} has local rank {} twice", option, rank));
  }
  return choice;
}

bool StreamChoice::has(int local_rank, PrintStream stream) const {
  const auto found = of_rank_.find(local_rank);
  return ((found == of_rank_.end() ? of_all_ : found->second) & bit_of(stream)) != 0;
}

bool StreamChoice::empty() const {
  return of_all_ == 0 && std::ranges::all_of(of_rank_, [](const auto& one) { return one.second == 0; });
}

std::vector<int> parse_local_ranks(const std::string& option, const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& entry : base::split(text, ',')) ranks.push_back(local_rank_of(option, entry));
  return ranks;
}

}  // namespace lockstep::launch
