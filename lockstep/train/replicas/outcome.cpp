#include "lockstep/train/replicas/outcome.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/train/replicas/broadcast_tensors.h"

namespace lockstep {
namespace {

/// How a task ended, for other ranks: empty, or the code as a letter and the message.
std::string outcome_of(const std::function<void()>& task) {
  const auto failed = [](ErrorCode code, const std::string& message) {
    return std::string(1, static_cast<char>('A' + static_cast<int>(code))) + message;
  };
  try {
    task();
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return failed(ErrorCode::system, text.substr(0, text.find('\n')));  // libtorch adds a call stack
  }
  return "";
}

std::optional<Error> failure_of(const std::string& outcome, const std::string& who = "") {
  if (outcome.empty()) return std::nullopt;
  return Error(static_cast<ErrorCode>(outcome[0] - 'A'), who + outcome.substr(1));
}

}  // namespace

std::optional<Error> failure_on_rank_0(const Group& group, const std::function<void()>& task) {
  return failure_of(broadcast_text(group, group.rank() == 0 ? outcome_of(task) : ""));
}

std::optional<Error> failure_on_any_rank(const Group& group, const std::function<void()>& task) {
  std::string outcome = outcome_of(task);
  const std::array<std::uint64_t, 1> mine = {outcome.size()};
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(group.size()));
  all_gather(group, mine, lengths).wait();
  const auto failed = std::ranges::find_if(lengths, [](std::uint64_t length) { return length > 0; });
  if (failed == lengths.end()) return std::nullopt;
  const int rank = static_cast<int>(failed - lengths.begin());
  outcome.resize(*failed);
  const std::array spans = {std::as_writable_bytes(std::span(outcome))};
  broadcast_spans(group, spans, rank);
  return failure_of(outcome,
                    group.size() == 1 ? "" : "rank " + std::to_string(group.world_rank(rank)) + ": ");
}

void on_rank_0(const Group& group, const std::function<void()>& task) {
  if (const auto failure = failure_on_rank_0(group, task)) throw Error(*failure);
}

void on_every_rank(const Group& group, const std::function<void()>& task) {
  if (const auto failure = failure_on_any_rank(group, task)) throw Error(*failure);
}

}  // namespace lockstep
