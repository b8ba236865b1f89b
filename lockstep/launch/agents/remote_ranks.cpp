#include "lockstep/launch/agents/remote_ranks.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"

namespace lockstep::launch::agents {
namespace {

constexpr std::uint32_t worth_telling = std::uint32_t{1} << 16;  // of room for output
// Longer than an agent takes to kill what its ranks have left behind, and to send what they did.
constexpr std::chrono::seconds time_to_finish{15};
// From the order to kill them to the word that all ranks are gone; within what the guard leaves (run.h, guard_grace).
constexpr std::chrono::seconds time_to_kill{3};
// For what the other clock says.
constexpr int quick_questions = 8;
constexpr std::chrono::milliseconds between_quick_questions{5};
constexpr std::chrono::milliseconds between_questions{1000};  // as silent_for() counts them
// An agent on a busy host may answer late.
constexpr std::chrono::seconds least_silence{2}, least_time{5};

}  // namespace

void ForwardedInput::watch(PollSet& poll, MessagePipe& pipe) {
  if (ended_ || room_ == 0) return;
  const bool in_background = ::isatty(fd_) != 0 && ::tcgetpgrp(fd_) != ::getpgrp();
  if (!in_background) poll.watch(fd_, POLLIN, [this, &pipe] { read_some(pipe); });
}

void ForwardedInput::read_some(MessagePipe& pipe) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(fd_, buffer.data(), std::min(buffer.size(), room_));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) ended_ = true;
  const auto bytes = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  room_ -= bytes;
  pipe.send(Input{.bytes = std::string(buffer.data(), bytes)});
}

RemoteRanks::RemoteRanks(Parts parts, RankOutput& output)
    : parts_(std::move(parts)),
      output_(output),
      ended_(parts_.ranks.size()),
      running_(parts_.ranks.size()),
      clock_(parts_.clock_ahead_ns),
      ask_at_(Deadline::after(std::chrono::nanoseconds(0))) {
  for (std::size_t i = 0; i < ended_.size(); ++i) {  // those that wait have no process yet
    ended_[i] = parts_.pids[i] == 0;
    running_ -= ended_[i] ? 1 : 0;
  }
  for (const Message& message : std::exchange(parts_.early, {})) take(message);
}

// A few times quickly, and then every second.
void RemoteRanks::ask_for_clock() {
  if (!ask_at_.expired() || running_ == 0) return;
  pipe().send(ClockAsked{.asked_ns = trace::now_ns()});
  if (clocks_asked_ >= quick_questions) ++unanswered_;
  ask_at_ = Deadline::after(clocks_asked_++ < quick_questions ? between_quick_questions : between_questions);
}

void RemoteRanks::note_silence() {
  const std::string& host = parts_.connection->host();
  if (silent_for() < least_silence || silent_for() < parts_.limits.runs_on) {
    if (std::exchange(told_silent_, false)) output_.say("lockstep run: host " + host + " is heard again\n");
    return;
  }
  if (running_ > 0 && !std::exchange(told_silent_, true)) {
    output_.say(fmt::format(
        "lockstep run: nothing has been heard of host {} for {} (LOCKSTEP_WARN_AFTER): its agent "
        "is stopped, or the network to it is cut; after {} (LOCKSTEP_TIMEOUT) it counts as lost\n",
        host, base::exact_duration(parts_.limits.runs_on), base::exact_duration(parts_.limits.given_up)));
  }
}

std::vector<view::RankTimeline> RemoteRanks::take_timeline() {
  return timeline_.in_our_time(clock_, parts_.connection->host());
}

void RemoteRanks::watch(PollSet& poll) {
  grant_room();
  ask_for_clock();
  parts_.connection->watch(poll, [this](const Message& message) { take(message); });
  if (parts_.input && running_ > 0) parts_.input->watch(poll, pipe());
}

void RemoteRanks::take(const Message& message) {
  unanswered_ = 0;
  switch (message.kind) {
    case Kind::output: return take_output(content_of<Output>(message));
    case Kind::output_end: {
      const auto end = content_of<OutputEnd>(message);
      (void)index_of(end.rank);
      return output_.end(end.rank, end.stream == 0 ? PrintStream::out : PrintStream::err);
    }
    case Kind::ended: return take_ending(content_of<Ended>(message));
    case Kind::cause: {
      const auto cause = content_of<Cause>(message);
      cause_.reset();
      if (!cause.text.empty()) {
        cause_ = {.code = cause.code <= ErrorCode::system ? cause.code : ErrorCode::aborted,
                  .culprit = cause.culprit,
                  .reporter = cause.reporter,
                  .text = cause.text,
                  .several = cause.several};
      }
      return;
    }
    case Kind::arrived: {
      const auto life = content_of<Arrived>(message);
      (void)index_of(life.rank);
      return arrivals_.push_back({.rank = life.rank, .incarnation = life.incarnation});
    }
    case Kind::stragglers: {
      stragglers_.clear();
      for (const auto& one : content_of<agents::Stragglers>(message).left) {
        (void)index_of(one.rank);
        stragglers_.push_back({.rank = one.rank, .pid = one.pid, .is_stopped = one.is_stopped != 0});
      }
      return;
    }
    case Kind::last_lines: {
      auto last = content_of<LastLines>(message);
      (void)index_of(last.rank);
      return output_.note_last_lines(last.rank, std::move(last.lines));
    }
    case Kind::clock_told: {
      const auto told = content_of<ClockTold>(message);
      return clock_.add(told.asked_ns, told.told_ns, trace::now_ns());
    }
    case Kind::timeline_part: {
      const auto part = content_of<TimelinePart>(message);
      (void)index_of(part.rank);
      return timeline_.take(part);
    }
    case Kind::timeline_names: {
      const auto names = content_of<TimelineNames>(message);
      (void)index_of(names.rank);
      return timeline_.take(names);
    }
    case Kind::live_part: return coming_.take(content_of<LivePart>(message));
    case Kind::live_rank: return coming_.take(content_of<LiveRankTold>(message));
    case Kind::live_end:
      is_live_asked_ = false;
      if (auto live = coming_.finish(parts_.ranks, clock_, parts_.connection->host()))
        live_ = std::move(live);
      return;
    case Kind::input_room:
      if (parts_.input) parts_.input->add_room(content_of<InputRoom>(message).bytes);
      return;
    case Kind::record_part: {
      const auto part = content_of<RecordPart>(message);
      if (record_.size() + part.text.size() <= trace::FlightLimits::bytes) record_ += part.text;
      return;
    }
    case Kind::finished:
      left_behind_ = content_of<Finished>(message).left_behind;
      finished_ = true;
      return;
    case Kind::refused:
      output_.say("lockstep run: " + parts_.connection->host() + ": " + content_of<Refused>(message).why +
                  "\n");
      return;
    default:
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("a message of kind {} is not for a launcher", static_cast<int>(message.kind)));
  }
}

std::size_t RemoteRanks::index_of(int rank) const {
  const auto found = std::ranges::lower_bound(parts_.ranks, rank);
  if (found == parts_.ranks.end() || *found != rank)
    throw Error(ErrorCode::corrupt_data, fmt::format("rank {} is not on this host", rank));
  return static_cast<std::size_t>(found - parts_.ranks.begin());
}

void RemoteRanks::take_output(const Output& output) {
  (void)index_of(output.rank);
  output_.take(output.rank, output.stream == 0 ? PrintStream::out : PrintStream::err, output.bytes);
  owed_room_[output.stream == 0 ? 0 : 1] += static_cast<std::uint32_t>(output.bytes.size());
}

void RemoteRanks::take_ending(const Ended& ended) {
  const std::size_t index = index_of(ended.rank);
  if (ended_[index]) throw Error(ErrorCode::corrupt_data, fmt::format("rank {} ends twice", ended.rank));
  ended_[index] = true;
  --running_;
  endings_.push_back({.rank = ended.rank,
                      .pid = ended.pid,
                      .wait_status = ended.wait_status,
                      .said_goodbye = ended.said_goodbye != 0,
                      .worlds = ended.worlds,
                      .was_stopped = ended.was_stopped != 0,
                      .ended_at_ns = trace::now_ns(),
                      .costs = {ended.user_ns, ended.system_ns, ended.most_resident_bytes},
                      .why_killed = ended.why_killed,
                      .lost = ended.lost});
}

// What is on its way is never more than the agent had been given room for.
void RemoteRanks::grant_room() {
  for (std::size_t i = 0; i < print_streams; ++i) {
    const auto stream = static_cast<PrintStream>(i);
    if (output_.reader_gone(stream) && !std::exchange(told_gone_[i], true))
      pipe().send(ReaderGone{.stream = static_cast<std::uint8_t>(i)});
    if (owed_room_[i] >= worth_telling && output_.has_room(stream))
      pipe().send(Room{.stream = static_cast<std::uint8_t>(i), .bytes = std::exchange(owed_room_[i], 0)});
  }
}

std::vector<Ending> RemoteRanks::take_endings() {
  const std::string words = parts_.connection->take_words();
  if (!words.empty()) output_.say(words);
  if (parts_.connection->is_over() && !finished_) note_loss();
  note_silence();
  const bool is_given_up =
      running_ > 0 && silent_for() > std::max<std::chrono::nanoseconds>(parts_.limits.given_up, least_time);
  if (finished_by_.expired() || (killed_by_.expired() && running_ > 0) || is_given_up) {
    does_not_answer_ = true;
    output_.say("lockstep run: the agent on " + parts_.connection->host() +
                " does not answer: what runs there ends when it does, or when its guard sees that the "
                "connection is gone\n");
    parts_.connection->close();
    note_loss();
  }
  return std::exchange(endings_, {});
}

void RemoteRanks::note_loss() {
  finished_ = true;
  finished_by_ = Deadline::never();
  if (running_ == 0) return;
  const std::string why = fmt::format("its host {} was lost: {}", parts_.connection->host(),
                                      does_not_answer_ ? "its agent does not answer, and may still run there"
                                                       : parts_.connection->explain_end());
  for (std::size_t i = 0; i < ended_.size(); ++i) {
    if (ended_[i]) continue;
    ended_[i] = true;
    endings_.push_back(
        {.rank = parts_.ranks[i], .pid = parts_.pids[i], .wait_status = lost_status, .lost = why});
  }
  running_ = 0;
}

void RemoteRanks::signal(int signal, bool whole_family, std::optional<int> rank) {
  if (signal == SIGKILL && !rank) killed_by_ = killed_by_.earlier_of(Deadline::after(time_to_kill));
  pipe().send(Signal{
      .number = signal, .whole_family = static_cast<std::uint8_t>(whole_family), .rank = rank.value_or(-1)});
}

void RemoteRanks::call_off_world(int number, const Error& absent) {
  pipe().send(CallOffWorld{.number = number, .absent = absent.peer().value(), .text = absent.what()});
}

void RemoteRanks::forget_cause(const std::string& text) {
  if (cause_ && cause_->text == text) cause_.reset();
  pipe().send(ForgetCause{.text = text});
}

void RemoteRanks::publish(const ViewNews& news) {
  const auto fields_of = [](const Life& life) {
    return LifeFields{.rank = life.rank, .incarnation = life.incarnation};
  };
  Published message{.number = news.view.number};
  std::ranges::transform(news.view.members, std::back_inserter(message.members), fields_of);
  for (const auto& [life, why] : news.out) message.out.emplace_back(fields_of(life), why);
  pipe().send(message);
}

void RemoteRanks::start_again(const Life& life) {
  ended_[index_of(life.rank)] = false;
  ++running_;
  StartAgain message;
  message.rank = life.rank;
  message.incarnation = life.incarnation;
  pipe().send(message);
}

bool RemoteRanks::has_rank(int rank) const { return std::ranges::binary_search(parts_.ranks, rank); }

void RemoteRanks::tell(const FirstCause::Cause& cause) {
  Tell message;
  message.code = cause.code;
  message.culprit = cause.culprit;
  message.reporter = cause.reporter;
  message.text = cause.text;
  pipe().send(message);
}

std::vector<Straggler> RemoteRanks::stragglers() {
  pipe().send(Look{});
  std::vector<Straggler> left = stragglers_;
  std::erase_if(left, [&](const Straggler& one) { return ended_[index_of(one.rank)]; });
  return left;
}

// One question at a time: an agent that does not get to read has to read no more than one.
std::optional<view::LiveHost> RemoteRanks::look_live() {
  if (running_ > 0 && !std::exchange(is_live_asked_, true)) pipe().send(LiveAsked{});
  return live_;
}

void RemoteRanks::finish(std::chrono::milliseconds grace) {
  if (!std::exchange(is_finishing_, true)) finished_by_ = Deadline::after(grace + time_to_finish);
  pipe().send(Finish{.grace_ms = static_cast<std::uint32_t>(grace.count()),
                     .wants_record = static_cast<std::uint8_t>(parts_.wants_record)});
}

void RemoteRanks::conclude(int exit_code, const std::string& summary, bool again) {
  if (parts_.connection->has_come())
    pipe().send(
        Conclusion{.exit_code = exit_code, .summary = summary, .again = static_cast<std::uint8_t>(again)});
}

std::optional<trace::FlightRecord> RemoteRanks::record() const {
  if (record_.empty()) return std::nullopt;
  try {
    trace::FlightRecord record =
        trace::FlightRecord::parse(record_, "the record of " + parts_.connection->host());
    trace::shift_times(record, static_cast<std::int64_t>(clock_.to_ours(record.at_ns) - record.at_ns));
    record.host = parts_.connection->host();
    return record;
  } catch (const Error&) {
    return std::nullopt;  // of an agent that does not make sense; the others' records are worth having
  }
}

}  // namespace lockstep::launch::agents
