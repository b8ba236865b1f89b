// What all ranks of a job on one host share, and what is left of them when they are killed: why the job
// failed first, who waits for whom, the doorbell, and the record. The launcher makes it and hands its
// descriptor down; without a launcher the first rank of the host does. Being a memfd it leaves no file
// behind.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/mapping.h"
#include "lockstep/base/wait.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/trace/open_calls.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/trace/sent.h"
#include "lockstep/trace/spans.h"
#include "lockstep/trace/totals.h"

namespace lockstep {

/// The first failure of a world: the cause that is set first holds, and all ranks report that one. In shared memory,
/// zeroed at the start.
class FirstCause {
 public:
  struct Cause {
    ErrorCode code = ErrorCode::aborted;
    int culprit = -1;   ///< world rank that is to blame; -1 where it is not one alone
    int reporter = -1;  ///< world rank that found out; -1: the launcher
    std::string text;   ///< one sentence, without the operation in which the reporter noticed
    std::vector<int> several =
        {};  ///< of several that are to blame the first ones, as far as this host knows

    /// As an Error has it.
    std::optional<int> peer() const { return culprit >= 0 ? std::optional(culprit) : std::nullopt; }
  };

  /// True if this was the first; false leaves the earlier one.
  bool set(const Cause& cause);
  /// Cheap enough for every look of a wait.
  bool is_set() const { return state_.load(std::memory_order_acquire) == written; }
  /// Where another rank is just setting it, waits for that a moment: all have to repeat the same.
  std::optional<Cause> get() const;
  /// For the next world. REQUIRES: no rank is in the one that it is of.
  void clear() { state_.store(empty, std::memory_order_release); }

 private:
  static constexpr std::uint32_t empty = 0, writing = 1, written = 2;
  static constexpr std::size_t text_capacity = 2000, several_capacity = 64;
  std::atomic<std::uint32_t> state_;
  std::uint32_t code_;
  std::int32_t culprit_;
  std::int32_t reporter_;
  std::uint32_t text_bytes_;
  std::uint32_t several_count_;
  std::int32_t several_[several_capacity];
  char text_[text_capacity];
};

/// What a rank says of itself. In shared memory, zeroed at the start.
struct alignas(64) RankStatus {
  std::atomic<std::int32_t> pid;            ///< 0 until init() has attached
  std::atomic<std::uint32_t> said_goodbye;  ///< 1: left in an orderly way
  std::atomic<std::int32_t> awaits;         ///< world rank that a long wait is for, plus one; 0: not waiting
  std::atomic<std::uint64_t> awaits_at_ns;  ///< when it said so last (trace::now_ns); it says so every few ms
  // By trace::now_ns(); 0: not yet; joined: its first world. What the process has taken stands here when it leaves.
  std::atomic<std::uint64_t> joined_at_ns, left_at_ns;
  std::atomic<std::uint64_t> user_ns, system_ns, most_resident_bytes, on_core_ns, core_wait_ns;
  /// Of a rank that was started again: its incarnation, when it has come and wants to be in the job's next view.
  std::atomic<std::int32_t> wants_in;
  std::atomic<std::int32_t> worlds;  ///< that it has met the others for
  std::atomic<std::uint32_t>
      has_worked;  ///< 1: has been in a world, or a Membership, and so knows what others have done

  /// For the next process of this rank. REQUIRES: the one before has ended.
  void begin_life();
};

struct RankRecord;  // all that a rank leaves to be read of what it did

class ControlPage {
 public:
  static constexpr const char* file_name = "lockstep-control";  ///< as /proc shows the descriptor

  /// For `local_ranks` ranks of one host. Throws Error{system}.
  static ControlPage create(int local_ranks);
  /// Throws corrupt_data if the descriptor is no control page of this version, or one for other than
  /// `local_ranks` ranks (any number where that is 0).
  static ControlPage attach(UniqueFd fd, int local_ranks);
  /// Another process's, to be looked at: writing to it ends this process. Keeps no descriptor. Throws as attach() does.
  static ControlPage read_only(UniqueFd fd);
  /// For ranks that are threads of this process.
  static ControlPage in_process(int local_ranks);

  int fd() const { return fd_.get(); }
  int local_ranks() const { return local_ranks_; }
  /// True once: of the ranks of a page that no launcher made, one leaves the profile of all.
  bool take_profile_turn() const;
  FirstCause& first_cause() const;
  Doorbell& doorbell() const;
  /// The number of the job's newest view (rendezvous/view.h), which its store has or is just getting; 0: none yet.
  std::uint64_t view() const;
  void set_view(std::uint64_t number) const;
  RankStatus& status(int local_rank) const;
  trace::RecordRings& record(int local_rank) const;
  trace::TotalsTable& totals(int local_rank) const;
  trace::SpanRings& spans(int local_rank) const;
  trace::OpenCallTable& open_calls(int local_rank) const;
  trace::GroupTable& groups(int local_rank) const;
  trace::SentTable& sent(int local_rank) const;

 private:
  ControlPage(UniqueFd fd, Mapping mapping, int local_ranks)
      : fd_(std::move(fd)), mapping_(std::move(mapping)), local_ranks_(local_ranks) {}
  static ControlPage attach(Mapping mapping, UniqueFd fd, int local_ranks);
  RankRecord& rank_record(int local_rank) const;
  UniqueFd fd_;
  Mapping mapping_;
  int local_ranks_;  // as when it was made: a rank can write there by mistake, and where others' parts lie follows from it
};

}  // namespace lockstep
