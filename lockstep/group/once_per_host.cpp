#include "lockstep/group/once_per_host.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <sstream>
#include <string>

#include "lockstep/group/collectives.h"
#include "lockstep/group/told_error.h"

namespace lockstep {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

/// What others read_error(); empty if `task` succeeds.
std::string failure_of(const Group& group, const std::function<void()>& task) {
  const int rank = group.world_rank(group.rank());
  const auto failed = [&](ErrorCode code, const std::string& text) {
    const std::string who = std::string("once_per_host: rank ").append(std::to_string(rank));
    return to_text(
        Error(code, who + " failed on host " + host_name() + ": " + text.substr(0, text.find('\n')), rank));
  };
  try {
    task();
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::exception& error) {
    return failed(ErrorCode::system, error.what());
  } catch (...) {
    return failed(ErrorCode::system, "an exception that is no std::exception");
  }
  return "";
}

}  // namespace

void once_per_host(const Group& group, const std::function<void()>& task) {
  if (group.size() == 1) return task();
  std::string failure = group.local_rank() == 0 ? failure_of(group, task) : "";
  const std::array<std::uint64_t, 1> mine = {failure.size()};
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(group.size()));
  all_gather(group, mine, lengths).wait();
  const auto failed = std::ranges::find_if(lengths, [](std::uint64_t length) { return length > 0; });
  if (failed == lengths.end()) return;
  failure.resize(*failed);
  broadcast(group, failure, static_cast<int>(failed - lengths.begin())).wait();
  std::istringstream text(failure);
  throw read_error(text);
}

}  // namespace lockstep
