// Perfetto's own format, less than half the JSON's size: packets of protocol buffers with track events
// (protos/perfetto/trace/ of Perfetto's sources has the fields' numbers; its documentation calls these fields stable).
//
//   packet: track_descriptor   a process for each rank, a thread for each row, a counter's own track
//           track_event        SLICE_BEGIN and SLICE_END of ranges, COUNTER, INSTANT
//
// Names stand in the file once, and are numbers from then on.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/words.h"
#include "lockstep/view/profile/timeline_format.h"
#include "lockstep/view/profile/timeline_text.h"

namespace lockstep::view {
namespace {

// Numbers of fields, by message.
namespace trace_ {
constexpr int packet = 1;
}
namespace packet_ {
constexpr int timestamp = 8, sequence = 10, track_event = 11, interned = 12, sequence_flags = 13,
              track_descriptor = 60;
constexpr std::uint64_t begins_names = 1, needs_names = 2;
}  // namespace packet_
namespace interned_ {
constexpr int categories = 1, event_names = 2, value_names = 3, number = 1, text = 2;
}
namespace track_ {
constexpr int uuid = 1, name = 2, process = 3, thread = 4, parent = 5, counter = 8;
}
namespace process_ {
constexpr int pid = 1, sort_order = 3, name = 6;
}
namespace thread_ {
constexpr int pid = 1, tid = 2, sort_index = 3, name = 5;
}
namespace event_ {
constexpr int category = 3, value = 4, type = 9, name = 10, track = 11, plain_name = 23, counter = 44;
enum Type : std::uint64_t { begin = 1, end = 2, instant = 3, counts = 4 };
}  // namespace event_
namespace value_ {
constexpr int name = 1, of_bool = 2, of_unsigned = 3, of_signed = 4, of_double = 5, of_text = 6;
}

/// The encoding of protocol buffers: each field its number and kind, then a number of 7 bits a byte, 8 bytes, or a length and
/// bytes.
class Message {
 public:
  void add(int field, std::uint64_t number) {
    append(tag(field, 0));
    append(number);
  }
  void add_double(int field, double number) {
    append(tag(field, 1));
    const auto bits = std::bit_cast<std::uint64_t>(number);
    for (int byte = 0; byte < 8; ++byte) bytes_ += static_cast<char>(bits >> (8 * byte));
  }
  void add(int field, std::string_view text) {
    append(tag(field, 2));
    append(text.size());
    bytes_ += text;
  }
  void add(int field, const Message& message) { add(field, std::string_view(message.bytes_)); }

  std::string_view bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  static std::uint64_t tag(int field, std::uint64_t kind) {
    return static_cast<std::uint64_t>(field) << 3 | kind;
  }
  void append(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_ += static_cast<char>(number | 0x80);
    bytes_ += static_cast<char>(number);
  }

  std::string bytes_;
};

/// Names that have numbers, from 1 on.
class Names {
 public:
  explicit Names(int field) : field_(field) {}
  /// Where it is new, it goes into the packet's `interned` names.
  std::uint64_t number(std::string_view name, Message& interned) {
    const auto [place, is_new] = numbers_.try_emplace(std::string(name), numbers_.size() + 1);
    if (is_new) {
      Message entry;
      entry.add(interned_::number, place->second);
      entry.add(interned_::text, as_utf8(name));
      interned.add(field_, entry);
    }
    return place->second;
  }

 private:
  int field_;
  std::unordered_map<std::string, std::uint64_t> numbers_;
};

class PerfettoFormat final : public TimelineFormat {
 public:
  explicit PerfettoFormat(const std::function<void(std::string_view)>& write) : out_(write) {}

  void begin(const Timeline& timeline) override {
    std::vector<std::string> remarks = timeline.notes;
    if (timeline.clock_error_ns > 0)
      remarks.push_back("clocks of hosts agree within " + base::duration(timeline.clock_error_ns));
    if (remarks.empty()) return;
    constexpr std::uint64_t of_the_job = 1;
    Message track;
    track.add(track_::uuid, of_the_job);
    track.add(track_::name, as_utf8("job " + timeline.job));
    put(packet_::track_descriptor, track);
    for (const std::string& remark : remarks) add_instant(of_the_job, remark);
  }

  void name_rank(int rank, std::string_view name) override {
    put_ranges();
    rank_ = rank;
    counters_.clear();
    Message process;
    process.add(process_::pid, number_of(rank));
    process.add(process_::sort_order, number_of(rank));
    process.add(process_::name, as_utf8(name));
    Message track;
    track.add(track_::uuid, uuid_of_rank());
    track.add(track_::process, process);
    put(packet_::track_descriptor, track);
  }

  void name_row(int row, std::string_view name) override {
    Message thread;
    thread.add(thread_::pid, number_of(rank_));
    thread.add(thread_::tid, number_of(row));
    thread.add(thread_::sort_index, number_of(row));
    thread.add(thread_::name, as_utf8(name));
    Message track;
    track.add(track_::uuid, uuid_of_row(row));
    track.add(track_::parent, uuid_of_rank());
    track.add(track_::thread, thread);
    put(packet_::track_descriptor, track);
  }

  void add_range(int row, std::string_view name, std::string_view kind, std::uint64_t begin,
                 std::uint64_t end, std::span<const RangeValue> values) override {
    event_.clear();
    event_.add(event_::type, event_::begin);
    event_.add(event_::track, uuid_of_row(row));
    event_.add(event_::category, categories_.number(kind, interned_));
    event_.add(event_::name, event_names_.number(name, interned_));
    for (const RangeValue& value : values) add_value(value);
    rows_[row].push_back({begin, std::max(begin, end), std::string(event_.bytes())});
  }

  void add_counter(std::string_view name, std::uint64_t at, double value) override {
    const auto [counter, is_new] =
        counters_.try_emplace(std::string(name), uuid_of_rank() + first_counter + counters_.size());
    if (is_new) {
      Message track;
      track.add(track_::uuid, counter->second);
      track.add(track_::parent, uuid_of_rank());
      track.add(track_::name, as_utf8(name));
      track.add(track_::counter, Message());
      put(packet_::track_descriptor, track);
    }
    event_.clear();
    event_.add(event_::type, event_::counts);
    event_.add(event_::track, counter->second);
    event_.add_double(event_::counter, value);
    put_event(at, event_.bytes());
  }

  void add_remark(std::string_view text) override { add_instant(uuid_of_rank(), text); }

  void end() override {
    put_ranges();
    out_.flush();
  }

 private:
  struct Range {
    std::uint64_t begin, end;
    std::string event;  ///< that begins it
  };
  static constexpr std::uint64_t first_counter = std::uint64_t{1} << 31;  // above all rows

  static std::uint64_t number_of(int number) { return static_cast<std::uint64_t>(std::int64_t{number}); }
  std::uint64_t uuid_of_rank() const { return (number_of(rank_) + 1) << 32; }
  std::uint64_t uuid_of_row(int row) const { return uuid_of_rank() + number_of(row); }

  void add_value(const RangeValue& value) {
    value_.clear();
    value_.add(value_::name, value_names_.number(value.name, interned_));
    struct {
      Message& to;
      void operator()(bool is) const { to.add(value_::of_bool, std::uint64_t{is}); }
      void operator()(std::int64_t number) const {
        to.add(value_::of_signed, static_cast<std::uint64_t>(number));
      }
      void operator()(std::uint64_t number) const { to.add(value_::of_unsigned, number); }
      void operator()(double number) const { to.add_double(value_::of_double, number); }
      void operator()(std::string_view text) const { to.add(value_::of_text, as_utf8(text)); }
    } add{value_};
    std::visit(add, value.value);
    event_.add(event_::value, value_);
  }

  void add_instant(std::uint64_t track, std::string_view text) {
    event_.clear();
    event_.add(event_::type, event_::instant);
    event_.add(event_::track, track);
    event_.add(event_::plain_name, as_utf8(text));
    put_event(0, event_.bytes());
  }

  /// Begins and ends of a row in the order in which they nest: what reads them does not sort events of the same time.
  void put_ranges() {
    for (auto& [row, ranges] : rows_) {
      std::ranges::stable_sort(ranges, [](const Range& a, const Range& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
      std::vector<std::uint64_t> open;  // ends
      event_.clear();
      event_.add(event_::type, event_::end);
      event_.add(event_::track, uuid_of_row(row));
      const auto close = [&](std::uint64_t until) {
        for (; !open.empty() && open.back() <= until; open.pop_back()) put_event(open.back(), event_.bytes());
      };
      for (const Range& range : ranges) {
        close(range.begin);
        put_event(range.begin, range.event);
        // One that ends after what it is in was cut, as viewers of the JSON do it.
        open.push_back(open.empty() ? range.end : std::min(range.end, open.back()));
      }
      close(std::numeric_limits<std::uint64_t>::max());
    }
    rows_.clear();
  }

  void put_event(std::uint64_t at, std::string_view event) {
    packet_.add(packet_::timestamp, at);
    packet_.add(packet_::track_event, event);
    put_packet();
  }
  void put(int field, const Message& message) {
    packet_.add(field, message);
    put_packet();
  }
  void put_packet() {
    packet_.add(packet_::sequence, std::uint64_t{1});
    packet_.add(packet_::sequence_flags,
                packet_::needs_names | (std::exchange(is_first_, false) ? packet_::begins_names : 0));
    if (!interned_.bytes().empty()) packet_.add(packet_::interned, interned_);
    interned_.clear();
    Message framed;
    framed.add(trace_::packet, packet_);
    out_.text() += framed.bytes();
    packet_.clear();
  }

  PiecewiseText out_;
  int rank_ = 0;
  std::map<int, std::vector<Range>> rows_;
  std::map<std::string, std::uint64_t, std::less<>> counters_;  // their tracks
  Names categories_{interned_::categories}, event_names_{interned_::event_names},
      value_names_{interned_::value_names};
  Message packet_, event_, value_, interned_;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<TimelineFormat> perfetto_format(const std::function<void(std::string_view)>& write) {
  return std::make_unique<PerfettoFormat>(write);
}

}  // namespace lockstep::view
