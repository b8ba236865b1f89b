// Ranks submit named operations in any order, but all must start them in one order, or they wait for each
// other. So the group's first rank is told of all submissions, and decides: an operation is ready when its
// last rank has submitted it, and those that are ready together and alike are fused into one call. This is
// what it decides by; it sends nothing, and has no clock.
//
//   rank 0 submits   a b c
//   rank 1 submits   b a         ready, in this order: b, a      decision: b and a as one call
//                                c waits for rank 1
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/named_request.h"

namespace lockstep {

/// What all ranks do next.
struct Decision {
  enum class Kind : std::uint8_t { start = 0, refuse = 1, all_joined = 2 };
  static constexpr std::uint32_t no_number = (std::uint32_t{1} << 31) - 1;

  Kind kind = Kind::start;
  /// Of the name, the same on all ranks from the first decision about it on; no_number where there are too
  /// many names.
  std::uint32_t number = no_number;
  /// Request and rows are those of the last decision about this number: ranks need not be told.
  bool is_known = false;
  bool with_previous = false;                     ///< one call with the decision before
  NamedRequest request{};                         ///< its rows are below; for refuse only the name
  std::vector<std::vector<std::int64_t>> rows{};  ///< by rank; empty where the operation has none
  // refuse:
  ErrorCode code = ErrorCode::mismatch;
  std::string why{};
  std::optional<int> peer{};  ///< the world rank that is to blame, if one is
  // all_joined:
  int last_joined = 0;
};

/// Thread safety: none.
class Negotiation {
 public:
  using Clock = std::chrono::steady_clock;

  /// `world_ranks`: of the group's ranks, for messages. Operations are fused up to `fusion_bytes` a call.
  Negotiation(std::vector<int> world_ranks, std::size_t fusion_bytes);

  /// Rank `rank` of the group has submitted. Throws Error{corrupt_data} where that cannot be: twice, after
  /// join(), a number that nobody knows.
  void submit(int rank, const NamedRequest& request, Clock::time_point now);
  /// The same as last time under this number. Cost: no allocation.
  void submit_known(int rank, std::uint32_t number, Clock::time_point now);
  /// From now on, until all have joined, the rank takes part in everything without data of its own.
  void join(int rank);

  /// What has become ready since the last call, in the order in which all ranks start it.
  std::vector<Decision> take_decisions();

  /// A line for each operation that some rank has submitted before `when`, and others have not, naming both;
  /// each is told once.
  std::vector<std::string> stalled_since(Clock::time_point when);
  /// The same of all that are open, however long, and whether told or not.
  std::vector<std::string> open() const;
  /// The next decisions refuse those operations, with Error{timeout}.
  void refuse_stalled_since(Clock::time_point when, std::chrono::nanoseconds waited);
  /// Whether something that `rank` waits for needs a word from others: a submission, or the end of a join.
  bool awaits_others(int rank) const {
    const auto place = static_cast<std::size_t>(rank);
    const bool all_have_joined = joined_count_ == static_cast<int>(world_ranks_.size());
    return open_of_[place] > 0 || (joined_[place] != 0 && !all_have_joined);
  }

 private:
  struct Entry {
    std::optional<NamedRequest> known;  // what the number stands for
    std::vector<std::vector<std::int64_t>> known_rows;
    // Of the operation under way:
    bool is_as_known = true;
    NamedRequest request;  // unless it is as known
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<char> submitted;
    int count = 0;
    int first = 0;         // who submitted first
    std::string conflict;  // why it cannot start, if it cannot
    bool has_timed_out = false;
    Clock::time_point since;
    bool was_told = false;
  };

  Entry& enter(int rank, std::uint32_t index, Clock::time_point now);
  std::uint32_t index_of(const std::string& name);
  const NamedRequest& request_of(const Entry& entry) const {
    return entry.is_as_known ? *entry.known : entry.request;
  }
  void look_whether_ready(std::uint32_t index);
  void make_ready(std::uint32_t index);
  Decision decide(std::uint32_t index);
  std::vector<int> missing_in(const Entry& entry) const;
  std::string line_about(const Entry& entry) const;
  void fuse(std::vector<Decision>& decisions) const;

  std::vector<int> world_ranks_;
  std::size_t fusion_bytes_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::deque<Entry> entries_;         // by number
  std::vector<std::uint32_t> spare_;  // entries without a name any more
  std::vector<std::uint32_t> ready_;
  std::vector<int> open_of_;  // by rank
  std::vector<char> joined_;
  int joined_count_ = 0;
  int last_joined_ = 0;
};

}  // namespace lockstep
