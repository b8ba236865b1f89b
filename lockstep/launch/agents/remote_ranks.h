// The ranks of another host, behind the connection to its agent.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/agents/connection.h"
#include "lockstep/launch/agents/live_messages.h"
#include "lockstep/launch/agents/timeline_messages.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/host_ranks.h"
#include "lockstep/launch/output/rank_output.h"
#include "lockstep/trace/clock_offset.h"

namespace lockstep::launch::agents {

/// What rank 0 of another host reads: this process's stdin, a piece at a time.
class ForwardedInput {
 public:
  /// Reads from `fd` (borrowed). Where that is a terminal, only while this process is in its foreground.
  explicit ForwardedInput(int fd) : fd_(fd) {}
  void watch(PollSet& poll, MessagePipe& pipe);
  void add_room(std::size_t bytes) { room_ += bytes; }

 private:
  void read_some(MessagePipe& pipe);

  int fd_;
  std::size_t room_ = first_input_room;
  bool ended_ = false;
};

class RemoteRanks final : public HostRanks {
 public:
  /// `pids` of `ranks`, which have been started; `clock_ahead_ns`: of that host's CLOCK_MONOTONIC before ours. `input`: rank 0
  /// is among them. Borrows `output`.
  struct Parts {
    std::unique_ptr<Connection> connection = {};
    std::vector<int> ranks = {};
    std::vector<std::int32_t> pids = {};
    std::int64_t clock_ahead_ns = 0;
    bool wants_record = true;
    std::vector<Message> early = {};  ///< what the agent has said since
    std::optional<ForwardedInput> input = {};
    StragglerLimits limits = {};  ///< so long it may say nothing: until it is named, and until it is given up
  };
  RemoteRanks(Parts parts, RankOutput& output);

  void watch(PollSet& poll) override;
  Deadline wake_at() const override {
    return running_ > 0 ? finished_by_.earlier_of(ask_at_).earlier_of(killed_by_) : finished_by_;
  }
  std::vector<Ending> take_endings() override;
  bool any_running() const override { return running_ > 0; }
  std::optional<FirstCause::Cause> first_cause() const override { return cause_; }
  void signal(int signal, bool whole_family, std::optional<int> rank) override;
  void tell(const FirstCause::Cause& cause) override;
  void call_off_world(int number, const Error& absent) override;
  void forget_cause(const std::string& text) override;
  void publish(const ViewNews& news) override;
  void start_again(const Life& life) override;
  void end_latecomers() override { pipe().send(EndLatecomers{}); }
  bool can_start() const override { return !finished_; }
  bool has_rank(int rank) const override;
  std::vector<Life> take_arrivals() override { return std::exchange(arrivals_, {}); }
  void note_failure() override { pipe().send(NoteFailure{}); }
  std::vector<Straggler> stragglers() override;
  std::optional<view::LiveHost> look_live() override;
  void finish(std::chrono::milliseconds grace) override;
  bool is_finished() const override { return finished_; }
  bool is_silent() const override { return silent_for() > std::chrono::seconds(1); }
  int left_behind() const override { return left_behind_; }
  void conclude(int exit_code, const std::string& summary, bool again) override;
  bool is_concluded() const override {
    return !parts_.connection->has_come() || parts_.connection->is_over();
  }
  std::optional<trace::FlightRecord> record() const override;
  std::vector<view::RankTimeline> take_timeline() override;
  std::uint64_t clock_error_ns() const override { return clock_.error_ns().value_or(0); }

 private:
  MessagePipe& pipe() { return parts_.connection->pipe(); }
  void take(const Message& message);
  void take_output(const Output& output);
  void take_ending(const Ended& ended);
  void grant_room();
  void ask_for_clock();
  void note_silence();
  /// The first question that nobody has answered was so long ago.
  std::chrono::seconds silent_for() const { return std::chrono::seconds(std::max(unanswered_ - 1, 0)); }
  void note_loss();
  std::size_t index_of(int rank) const;

  Parts parts_;
  RankOutput& output_;
  std::vector<bool> ended_;  // by index of ranks
  std::size_t running_;
  std::vector<Ending> endings_;  // that were not taken
  std::optional<FirstCause::Cause> cause_;
  std::vector<Straggler> stragglers_;
  std::vector<Life> arrivals_;  // that were not taken
  std::array<std::uint32_t, print_streams> owed_room_{};
  std::array<bool, print_streams> told_gone_{};
  std::string record_;
  bool is_finishing_ = false;
  bool does_not_answer_ = false;
  bool finished_ = false;
  Deadline finished_by_ = Deadline::never();
  Deadline killed_by_ = Deadline::never();  // of ranks that are to be killed
  trace::ClockOffset clock_;
  Deadline ask_at_;  // the other clock
  int clocks_asked_ = 0;
  int unanswered_ = 0;  // questions, a second each: while this process is stopped there are none
  bool told_silent_ = false;
  ReceivedTimeline timeline_;
  ReceivedLive coming_;  // of the look that was asked for
  std::optional<view::LiveHost> live_;
  bool is_live_asked_ = false;
  int left_behind_ = 0;
};

}  // namespace lockstep::launch::agents
