// The JSON of trace viewers: each event an object with its "ph"ase (X a range, C a counter, i an instant, M a name), times in
// microseconds ("Trace Event Format", Google).
#include <fmt/core.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/view/profile/timeline_format.h"
#include "lockstep/view/profile/timeline_text.h"

namespace lockstep::view {
namespace {

double us(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }

std::string in_json(const RangeValue& value) {
  struct {
    std::string operator()(bool is) const { return is ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(std::uint64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return fmt::format("{:.3f}", number); }
    std::string operator()(std::string_view text) const { return view::in_json(text); }
  } to_text;
  return fmt::format("\"{}\":{}", value.name, std::visit(to_text, value.value));
}

class JsonFormat final : public TimelineFormat {
 public:
  explicit JsonFormat(const std::function<void(std::string_view)>& write) : out_(write) {}

  void begin(const Timeline& timeline) override {
    std::string notes;
    for (const std::string& note : timeline.notes) notes += (notes.empty() ? "" : ",") + view::in_json(note);
    if (!notes.empty()) notes = ",\"notes\":[" + notes + "]";
    out_.text() = fmt::format(
        R"({{"displayTimeUnit":"ms","otherData":{{"job":{},"clock_error_us":{:.3f}{}}},"traceEvents":[)",
        view::in_json(timeline.job), us(timeline.clock_error_ns), notes);
  }
  void name_rank(int rank, std::string_view name) override {
    rank_ = rank;
    add_name(0, "process", name, rank);
  }
  void name_row(int row, std::string_view name) override { add_name(row, "thread", name, row); }
  void add_range(int row, std::string_view name, std::string_view kind, std::uint64_t begin,
                 std::uint64_t end, std::span<const RangeValue> values) override {
    const auto out = begin_event();
    fmt::format_to(out,
                   R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":"{}","ts":{:.3f},"dur":{:.3f},"args":{{)",
                   rank_, row, view::in_json(name), kind, us(begin), us(end) - us(begin));
    for (const RangeValue& value : values)
      fmt::format_to(out, "{}{}", &value == values.data() ? "" : ",", in_json(value));
    fmt::format_to(out, "}}}}");
  }
  void add_counter(std::string_view name, std::uint64_t at, double value) override {
    fmt::format_to(begin_event(), R"({{"ph":"C","pid":{},"name":{},"ts":{:.3f},"args":{{"value":{}}}}})",
                   rank_, view::in_json(name), us(at), nlohmann::json(value).dump());
  }
  void add_remark(std::string_view text) override {
    fmt::format_to(begin_event(), R"({{"ph":"i","s":"p","pid":{},"tid":0,"ts":0,"name":{}}})", rank_,
                   view::in_json(text));
  }
  void end() override {
    out_.text() += "\n]}\n";
    out_.flush();
  }

 private:
  std::back_insert_iterator<std::string> begin_event() {
    std::string& text = out_.text();
    text += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    return std::back_inserter(text);
  }
  /// `what`: a process or a thread.
  void add_name(int row, std::string_view what, std::string_view name, int place) {
    fmt::format_to(begin_event(), R"({{"ph":"M","pid":{},"tid":{},"name":"{}_name","args":{{"name":{}}}}})",
                   rank_, row, what, view::in_json(name));
    fmt::format_to(begin_event(),
                   R"({{"ph":"M","pid":{},"tid":{},"name":"{}_sort_index","args":{{"sort_index":{}}}}})",
                   rank_, row, what, place);
  }

  PiecewiseText out_;
  int rank_ = 0;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<TimelineFormat> json_format(const std::function<void(std::string_view)>& write) {
  return std::make_unique<JsonFormat>(write);
}

}  // namespace lockstep::view
