#include "lockstep/group/outcome.h"

#include <array>
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>

#include "lockstep/base/per_rank.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/told_error.h"

namespace lockstep {
namespace {

/// Empty: it succeeded.
std::string told(const std::optional<Error>& failure) { return failure ? to_text(*failure) : ""; }

/// `text`: of `root`, everywhere else of any content. REQUIRES: `bytes` of them there, and not 0.
Error error_told_by(const Group& group, int root, std::string text, std::size_t bytes) {
  text.resize(bytes);
  broadcast(group, text, root).wait();
  std::istringstream in(text);
  return read_error(in);
}

}  // namespace

std::optional<Error> failure_in(const std::function<void()>& task) {
  try {
    task();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return Error(ErrorCode::system, text.substr(0, text.find('\n')));  // libtorch adds a call stack
  } catch (...) {
    return Error(ErrorCode::system, "an exception that is no std::exception");
  }
}

std::optional<RankFailure> lowest_failure(const Group& group, const std::optional<Error>& mine) {
  const std::string text = told(mine);
  const std::array<std::uint64_t, 1> length = {text.size()};
  PerRank<std::uint64_t> lengths(group.size());
  all_gather(group, length, lengths).wait();
  const int failed = lengths.find_if([](std::uint64_t bytes) { return bytes > 0; });
  if (failed == lengths.size()) return std::nullopt;
  return RankFailure{failed, error_told_by(group, failed, text, lengths[failed])};
}

std::optional<Error> failure_on_rank_0(const Group& group, const std::function<void()>& task) {
  const std::string text = group.rank() == 0 ? told(failure_in(task)) : "";
  std::array<std::uint64_t, 1> length = {text.size()};
  broadcast(group, length, 0).wait();
  if (length[0] == 0) return std::nullopt;
  return error_told_by(group, 0, text, length[0]);
}

std::optional<Error> failure_on_any_rank(const Group& group, const std::function<void()>& task) {
  const auto failed = lowest_failure(group, failure_in(task));
  if (!failed) return std::nullopt;
  if (group.size() == 1) return failed->error;
  const std::string who = "rank " + std::to_string(group.world_rank(failed->rank)) + ": ";
  return Error(failed->error.code(), who + failed->error.what(), failed->error.peer());
}

void on_rank_0(const Group& group, const std::function<void()>& task) {
  if (const auto failure = failure_on_rank_0(group, task)) throw Error(*failure);
}

void on_every_rank(const Group& group, const std::function<void()>& task) {
  if (const auto failure = failure_on_any_rank(group, task)) throw Error(*failure);
}

}  // namespace lockstep
