// What a timeline's file is made of, whatever its format: ranks with rows, ranges in rows, counters, remarks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace lockstep::view {

struct Timeline;

/// A named value of a range.
struct RangeValue {
  std::string_view name;
  std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view> value;
};

/// Each call is of the rank that was named last. Times are ns from the timeline's first event on. Names may be any bytes.
class TimelineFormat {
 public:
  virtual ~TimelineFormat() = default;

  virtual void begin(const Timeline& timeline) = 0;
  virtual void name_rank(int rank, std::string_view name) = 0;
  virtual void name_row(int row, std::string_view name) = 0;
  /// Ranges of a row nest; one that holds others comes before them. `kind`: of all ranges of a row.
  virtual void add_range(int row, std::string_view name, std::string_view kind, std::uint64_t begin,
                         std::uint64_t end, std::span<const RangeValue> values) = 0;
  virtual void add_counter(std::string_view name, std::uint64_t at, double value) = 0;
  virtual void add_remark(std::string_view text) = 0;
  virtual void end() = 0;
};

/// These pass the file to `write` piece by piece, and hold no more of it than the ranges of one rank.
std::unique_ptr<TimelineFormat> json_format(const std::function<void(std::string_view)>& write);
std::unique_ptr<TimelineFormat> perfetto_format(const std::function<void(std::string_view)>& write);

}  // namespace lockstep::view
