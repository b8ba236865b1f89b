// Reads what view/profile/timeline.h has written, also where the file was cut or garbled: it has one event a line, so what can
// be read is read, and the rest is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

/// What is believed of a file.
struct TimelineLimits {
  static constexpr std::size_t events = std::size_t{1} << 20;  ///< kept, of all ranks together
  static constexpr std::size_t line_bytes = std::size_t{1} << 16;
  static constexpr std::size_t name_bytes = 200;  ///< of each, the rest is cut off
  static constexpr std::size_t names = 4096;      ///< of ranges and of groups, each
  static constexpr std::size_t routines = 1024;   ///< of MPI, of all files that a process reads
  static constexpr std::size_t ranks = std::size_t{1} << 12;
  static constexpr double most_us = 1e13;  ///< four months
};

class TimelineParser {
 public:
  explicit TimelineParser(std::size_t most_events = TimelineLimits::events) : most_events_(most_events) {}

  /// The file's next bytes, in pieces of any size.
  void add(std::string_view bytes);

  struct Result {
    Timeline timeline = {};               ///< ranks in ascending order; times in it begin with 0
    std::vector<std::string> notes = {};  ///< what is missing, a sentence each
    bool is_ours = false;                 ///< it had the beginning of such a file, or events
  };
  Result finish();

 private:
  struct Event;
  void take_line(std::string_view line);
  void take_event(const Event& event);
  void take_call(const Event& event);
  void take_part_of_call(const Event& event);
  void take_mpi_call(const Event& event);
  void take_part_of_mpi_call(const Event& event);
  void take_training(const Event& event);
  void take_span(const Event& event);
  void take_meta(const Event& event);
  RankTimeline& rank(int number);
  std::uint32_t number_of_group(const std::string& name);
  void keep_within_bounds();

  std::size_t most_events_;
  std::string line_;
  bool skips_line_ = false;  // it is too long
  std::map<int, RankTimeline> ranks_;
  std::map<std::string, std::uint32_t> groups_;
  std::map<int, std::map<std::string, std::uint32_t>> span_numbers_;
  struct Last {  // the call or step whose parts follow it
    int rank = -1;
    std::int64_t row = -1;
  };
  Last last_call_, last_step_, last_mpi_call_;
  std::size_t events_ = 0;
  std::uint64_t kept_of_ = 1;
  std::uint64_t unreadable_ = 0, left_out_ = 0;
  std::string job_;
  std::uint64_t clock_error_ns_ = 0;
  bool has_begun_ = false, has_ended_ = false;
};

}  // namespace lockstep::view
