// What the launcher and its agents say to each other, over the two pipes of a remote shell: a line that begins the
// conversation, then messages, each a length, a kind and a body. docs/wire_formats.md, section "Launcher and agents".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/agents/message_fields.h"

namespace lockstep::launch::agents {

/// The agent's first line: this, and its version of Lockstep. What a login shell prints before it is not ours.
inline constexpr std::string_view greeting_begin = "lockstep-agent ";
/// A network that is cut is noticed within this time, also where nobody has anything to say.
inline constexpr std::chrono::seconds cut_network_limit{60};
inline constexpr std::size_t most_message_bytes = std::size_t{8} << 20;

enum class Kind : std::uint8_t {
  // The agent's
  hello = 1,
  planned,
  probed,
  serving,
  started,
  refused,
  output,
  output_end,
  ended,
  cause,
  stragglers,
  record_part,
  finished,
  input_room,
  last_lines,
  clock_told,
  timeline_part,
  timeline_names,
  live_part,
  live_rank,
  live_end,
  arrived,
  // The launcher's
  plan = 64,
  probe,
  serve,
  start,
  room,
  reader_gone,
  signal,
  tell,
  note_failure,
  look,
  finish,
  input,
  conclusion,
  clock_asked,
  live_asked,
  forget_cause,
  published,
  start_again,
  end_latecomers,
  call_off_world,
};

struct Message {
  Kind kind = Kind::hello;
  std::string body = {};
};

/// Each message says its fields once, for both directions.
struct Hello {
  static constexpr Kind kind = Kind::hello;
  std::string host = {};                         ///< as the system calls it
  std::string machine = {};                      ///< the same for agents that share a kernel
  std::string network = {};                      ///< and these interfaces
  std::vector<std::string> addresses = {};       ///< numeric, of its interfaces; loopback is left out
  std::uint64_t clock_ns = 0;                    ///< its CLOCK_MONOTONIC
  std::int32_t slots = 0;                        ///< how many ranks it takes; 0: as the launcher says
  std::int32_t least_hosts = 0, most_hosts = 0;  ///< its own launcher's --nnodes
  static auto fields(auto& m) {
    return std::tie(m.host, m.machine, m.network, m.addresses, m.clock_ns, m.slots, m.least_hosts,
                    m.most_hosts);
  }
};

/// A Role.
struct RoleFields {
  std::string name = {};
  std::int32_t ranks = 0;
  std::vector<std::string> command = {};
  static auto fields(auto& m) { return std::tie(m.name, m.ranks, m.command); }
};

struct Plan {
  static constexpr Kind kind = Kind::plan;
  std::int32_t host = 0;                          ///< which of ranks_of_hosts this is
  std::string host_name = {};                     ///< as the user calls it
  std::vector<std::int32_t> ranks_of_hosts = {};  ///< how many each takes
  std::vector<std::int32_t> begins = {};          ///< how many of them begin with the job; none: all
  std::int32_t ranks_before_on_machine = 0;       ///< of agents that share its cores
  std::int32_t ranks_on_machine = 0;              ///< of all of these, with its own
  std::string run = {};                           ///< the same for all attempts
  std::string job = {};
  std::string previous_job = {};  ///< whose ranks may still be here, where they have failed and start again
  std::string secret = {};        ///< "": that by which the agent has come
  std::vector<RoleFields> roles = {};  ///< none: the agent's own program, with folder and variables
  std::vector<std::pair<std::string, std::string>> variables = {};
  std::string folder = {};                  ///< where ranks begin
  std::uint8_t pin = 1;                     ///< 0: no
  std::uint8_t opens_door = 0;              ///< 1: others will be asked whether they reach this host
  std::uint8_t is_one_of_several_here = 0;  ///< 1: there is another agent on this machine and network
  std::int32_t restarts = 0;
  std::int32_t max_restarts = 0;
  std::uint8_t keeps_timeline = 0;
  std::uint8_t has_views = 0;  ///< 1: ranks may die and come back
  static auto fields(auto& m) {
    return std::tie(m.host, m.host_name, m.ranks_of_hosts, m.begins, m.ranks_before_on_machine,
                    m.ranks_on_machine, m.run, m.job, m.previous_job, m.secret, m.roles, m.variables,
                    m.folder, m.pin, m.opens_door, m.is_one_of_several_here, m.restarts, m.max_restarts,
                    m.keeps_timeline, m.has_views);
  }
};

/// It can be done.
struct Planned {
  static constexpr Kind kind = Kind::planned;
  std::uint16_t door = 0;      ///< a port at which it listens meanwhile, on all addresses
  std::string placement = {};  ///< a line for the user
  static auto fields(auto& m) { return std::tie(m.door, m.placement); }
};

/// What cannot be done, at whatever point.
struct Refused {
  static constexpr Kind kind = Kind::refused;
  std::int32_t exit_code = 1;
  std::string why = {};
  static auto fields(auto& m) { return std::tie(m.exit_code, m.why); }
};

/// Which of these addresses does this host reach?
struct Probe {
  static constexpr Kind kind = Kind::probe;
  std::vector<std::string> endpoints = {};
  static auto fields(auto& m) { return std::tie(m.endpoints); }
};

struct Probed {
  static constexpr Kind kind = Kind::probed;
  std::vector<std::string> problems = {};  ///< of each endpoint; "": it is reached
  static auto fields(auto& m) { return std::tie(m.problems); }
};

/// This host has the job's store, at this address of its own.
struct Serve {
  static constexpr Kind kind = Kind::serve;
  std::string address = {};
  std::uint16_t master_port = 0;  ///< 0: a free one
  static auto fields(auto& m) { return std::tie(m.address, m.master_port); }
};

struct Serving {
  static constexpr Kind kind = Kind::serving;
  std::string store = {};  ///< endpoint text
  std::uint16_t master_port = 0;
  static auto fields(auto& m) { return std::tie(m.store, m.master_port); }
};

struct Start {
  static constexpr Kind kind = Kind::start;
  std::string store = {};           ///< endpoint text
  std::string master_address = {};  ///< the same host
  std::uint16_t master_port = 0;
  static auto fields(auto& m) { return std::tie(m.store, m.master_address, m.master_port); }
};

struct Started {
  static constexpr Kind kind = Kind::started;
  std::vector<std::int32_t> pids = {};
  static auto fields(auto& m) { return std::tie(m.pids); }
};

struct Output {
  static constexpr Kind kind = Kind::output;
  std::int32_t rank = 0;
  std::uint8_t stream = 0;
  std::string bytes = {};
  static auto fields(auto& m) { return std::tie(m.rank, m.stream, m.bytes); }
};

struct OutputEnd {
  static constexpr Kind kind = Kind::output_end;
  std::int32_t rank = 0;
  std::uint8_t stream = 0;
  static auto fields(auto& m) { return std::tie(m.rank, m.stream); }
};

/// So many more bytes of a stream may come. At first there are first_room.
struct Room {
  static constexpr Kind kind = Kind::room;
  std::uint8_t stream = 0;
  std::uint32_t bytes = 0;
  static auto fields(auto& m) { return std::tie(m.stream, m.bytes); }
};
inline constexpr std::uint32_t first_room = std::uint32_t{1} << 20;

struct ReaderGone {
  static constexpr Kind kind = Kind::reader_gone;
  std::uint8_t stream = 0;
  static auto fields(auto& m) { return std::tie(m.stream); }
};

/// Of rank 0's stdin; empty: its end.
struct Input {
  static constexpr Kind kind = Kind::input;
  std::string bytes = {};
  static auto fields(auto& m) { return std::tie(m.bytes); }
};

/// So many more bytes of rank 0's stdin may come. At first there are first_input_room.
struct InputRoom {
  static constexpr Kind kind = Kind::input_room;
  std::uint32_t bytes = 0;
  static auto fields(auto& m) { return std::tie(m.bytes); }
};
inline constexpr std::uint32_t first_input_room = std::uint32_t{1} << 16;

struct Ended {
  static constexpr Kind kind = Kind::ended;
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::int32_t wait_status = 0;
  std::uint8_t said_goodbye = 0;
  std::int32_t worlds = 0;       ///< in which it was
  std::uint8_t was_stopped = 0;  ///< when the job failed
  std::string why_killed = {};   ///< by SIGKILL, where the system tells
  std::string lost = {};         ///< it could not even be started again
  std::uint64_t user_ns = 0, system_ns = 0, most_resident_bytes = 0;
  static auto fields(auto& m) {
    return std::tie(m.rank, m.pid, m.wait_status, m.said_goodbye, m.worlds, m.was_stopped, m.why_killed,
                    m.lost, m.user_ns, m.system_ns, m.most_resident_bytes);
  }
};

/// A FirstCause::Cause; without text: there is none any more.
struct CauseFields {
  ErrorCode code = ErrorCode::aborted;
  std::int32_t culprit = -1;
  std::int32_t reporter = -1;
  std::string text = {};
  std::vector<std::int32_t> several = {};
  static auto fields(auto& m) { return std::tie(m.code, m.culprit, m.reporter, m.text, m.several); }
};
struct Cause : CauseFields {
  static constexpr Kind kind = Kind::cause;
};
struct Tell : CauseFields {
  static constexpr Kind kind = Kind::tell;
};

/// Of a rank whose output the launcher has not seen: what it wrote to stderr last.
struct LastLines {
  static constexpr Kind kind = Kind::last_lines;
  std::int32_t rank = 0;
  std::vector<std::string> lines = {};
  static auto fields(auto& m) { return std::tie(m.rank, m.lines); }
};

struct Signal {
  static constexpr Kind kind = Kind::signal;
  std::int32_t number = 0;
  std::uint8_t whole_family = 0;
  std::int32_t rank = -1;  ///< -1: to all
  static auto fields(auto& m) { return std::tie(m.number, m.whole_family, m.rank); }
};

/// The cause with this text concerns nobody any more.
struct ForgetCause {
  static constexpr Kind kind = Kind::forget_cause;
  std::string text = {};
  static auto fields(auto& m) { return std::tie(m.text); }
};

/// A Life.
struct LifeFields {
  std::int32_t rank = 0;
  std::int32_t incarnation = 0;
  static auto fields(auto& m) { return std::tie(m.rank, m.incarnation); }
};

/// Who is in the job now, and who is no longer.
struct Published {
  static constexpr Kind kind = Kind::published;
  std::uint64_t number = 0;
  std::vector<LifeFields> members = {};
  std::vector<std::pair<LifeFields, std::string>> out = {};
  static auto fields(auto& m) { return std::tie(m.number, m.members, m.out); }
};

/// A rank that has ended becomes this.
struct StartAgain : LifeFields {
  static constexpr Kind kind = Kind::start_again;
};

/// Those that were started again and are not with the others yet are ended.
struct EndLatecomers {
  static constexpr Kind kind = Kind::end_latecomers;
  static auto fields(auto&) { return std::tie(); }
};

/// One that was started again has come to the job's meeting place.
struct Arrived : LifeFields {
  static constexpr Kind kind = Kind::arrived;
};

/// To the host that has the store: a rank that has ended with 0 will not come to this world of the job.
struct CallOffWorld {
  static constexpr Kind kind = Kind::call_off_world;
  std::int32_t number = 0;
  std::int32_t absent = 0;
  std::string text = {};
  static auto fields(auto& m) { return std::tie(m.number, m.absent, m.text); }
};

struct NoteFailure {
  static constexpr Kind kind = Kind::note_failure;
  static auto fields(auto&) { return std::tie(); }
};

/// How are the ranks that have not ended?
struct Look {
  static constexpr Kind kind = Kind::look;
  static auto fields(auto&) { return std::tie(); }
};

struct Stragglers {
  static constexpr Kind kind = Kind::stragglers;
  struct One {
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    std::uint8_t is_stopped = 0;
    static auto fields(auto& m) { return std::tie(m.rank, m.pid, m.is_stopped); }
  };
  std::vector<One> left = {};
  static auto fields(auto& m) { return std::tie(m.left); }
};

/// All ranks have ended; what is left behind has so long, and the agent ends after that.
struct Finish {
  static constexpr Kind kind = Kind::finish;
  std::uint32_t grace_ms = 0;
  std::uint8_t wants_record = 0;
  static auto fields(auto& m) { return std::tie(m.grace_ms, m.wants_record); }
};

/// A piece of the text of this host's flight record.
struct RecordPart {
  static constexpr Kind kind = Kind::record_part;
  std::string text = {};
  static auto fields(auto& m) { return std::tie(m.text); }
};

/// What does your clock say?
struct ClockAsked {
  static constexpr Kind kind = Kind::clock_asked;
  std::uint64_t asked_ns = 0;  ///< by the asker's
  static auto fields(auto& m) { return std::tie(m.asked_ns); }
};

struct ClockTold {
  static constexpr Kind kind = Kind::clock_told;
  std::uint64_t asked_ns = 0;
  std::uint64_t told_ns = 0;
  static auto fields(auto& m) { return std::tie(m.asked_ns, m.told_ns); }
};

/// Some of a rank's events, as they stand in its rings: little-endian machines only.
struct TimelinePart {
  static constexpr Kind kind = Kind::timeline_part;
  enum class Of : std::uint8_t { calls, steps, spans };
  std::int32_t rank = 0;
  Of of = Of::calls;
  std::string bytes = {};
  static auto fields(auto& m) { return std::tie(m.rank, m.of, m.bytes); }
};

/// The rest of a rank's part of the timeline.
struct TimelineNames {
  static constexpr Kind kind = Kind::timeline_names;
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::vector<std::string> names = {};
  std::uint64_t left_out = 0;
  static auto fields(auto& m) { return std::tie(m.rank, m.pid, m.names, m.left_out); }
};

/// What do the ranks do now?
struct LiveAsked {
  static constexpr Kind kind = Kind::live_asked;
  static auto fields(auto&) { return std::tie(); }
};

/// A piece of the text of their record.
struct LivePart {
  static constexpr Kind kind = Kind::live_part;
  std::string text = {};
  static auto fields(auto& m) { return std::tie(m.text); }
};

/// What is known of one of them beside it, a view::LiveRank.
struct LiveRankTold {
  static constexpr Kind kind = Kind::live_rank;
  std::int32_t rank = 0;
  std::uint64_t resident_bytes = 0, user_ns = 0, system_ns = 0, last_arrivals = 0;
  std::vector<std::pair<std::string, double>> counters = {};
  static auto fields(auto& m) {
    return std::tie(m.rank, m.resident_bytes, m.user_ns, m.system_ns, m.last_arrivals, m.counters);
  }
};

/// That is all, of one look.
struct LiveEnd {
  static constexpr Kind kind = Kind::live_end;
  static auto fields(auto&) { return std::tie(); }
};

/// The last one.
struct Finished {
  static constexpr Kind kind = Kind::finished;
  std::int32_t left_behind = 0;
  static auto fields(auto& m) { return std::tie(m.left_behind); }
};

/// To an agent that has a launcher of its own: how it came out.
struct Conclusion {
  static constexpr Kind kind = Kind::conclusion;
  std::int32_t exit_code = 0;
  std::string summary = {};  ///< lines for the user; "": there is nothing to say
  std::uint8_t again = 0;    ///< 1: all ranks start again, and it is to come once more
  static auto fields(auto& m) { return std::tie(m.exit_code, m.summary, m.again); }
};

template <detail::HasFields T>
Message to_message(const T& content) {
  Message message{.kind = T::kind};
  detail::put(message.body, content);
  return message;
}

/// Throws Error{corrupt_data} for bytes that are missing or too many. REQUIRES: message.kind is T's.
template <detail::HasFields T>
T content_of(const Message& message) {
  T content;
  base::ByteReader in(message.body);
  if (!detail::get(in, content) || !in.at_end()) {
    throw Error(ErrorCode::corrupt_data, "a message of kind " + std::to_string(static_cast<int>(T::kind)) +
                                             " with " + std::to_string(message.body.size()) +
                                             " bytes is none");
  }
  return content;
}

}  // namespace lockstep::launch::agents
