#include "lockstep/group/timeline.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/background_thread.h"
#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/outcome.h"
#include "lockstep/trace/clock.h"
#include "lockstep/trace/clock_offset.h"
#include "lockstep/trace/group_names.h"
#include "lockstep/view/profile/timeline.h"
#include "lockstep/view/profile/timeline_place.h"
#include "lockstep/view/profile/timeline_spool.h"

namespace lockstep {
namespace {

using trace::ClockOffset;
using view::RankTimeline;
using GroupName = std::pair<std::uint32_t, std::string>;

/// What a rank has, as bytes for rank 0.
struct Part {
  RankTimeline rank;
  std::vector<GroupName> groups;
};

template <class Event>
void append_events(std::vector<std::byte>& out, const std::vector<Event>& events) {
  base::append_number(out, static_cast<std::uint64_t>(events.size()));
  base::append_bytes(out, std::as_bytes(std::span(events)));
}

std::vector<std::byte> bytes_of(const Part& part) {
  std::vector<std::byte> out;
  base::append_number(out, part.rank.pid);
  base::append_with_length(out, part.rank.host);
  base::append_number(out, part.rank.left_out);
  append_events(out, part.rank.calls);
  append_events(out, part.rank.steps);
  append_events(out, part.rank.spans);
  base::append_number(out, static_cast<base::Length>(part.rank.span_names.size()));
  for (const std::string& name : part.rank.span_names) base::append_with_length(out, name);
  base::append_number(out, static_cast<base::Length>(part.groups.size()));
  for (const auto& [number, name] : part.groups) {
    base::append_number(out, number);
    base::append_with_length(out, name);
  }
  return out;
}

/// Of what bytes_of() wrote in another process of this version. Throws Error{corrupt_data}.
class PartReader {
 public:
  explicit PartReader(std::span<const std::byte> bytes) : reader_(bytes) {}

  Part part() {
    Part read;
    read.rank.pid = number<int>();
    read.rank.host = text();
    read.rank.left_out = number<std::uint64_t>();
    events(read.rank.calls);
    events(read.rank.steps);
    events(read.rank.spans);
    for (auto names = number<base::Length>(); names > 0; --names) read.rank.span_names.push_back(text());
    for (auto groups = number<base::Length>(); groups > 0; --groups) {
      const auto group = number<std::uint32_t>();
      read.groups.emplace_back(group, text());
    }
    return read;
  }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    const auto taken = reader_.take(bytes);
    if (!taken) throw Error(ErrorCode::corrupt_data, "a rank's part of the timeline ends too early");
    return *taken;
  }
  template <class Number>
  Number number() {
    return base::number_at<Number>(take(sizeof(Number)));
  }
  std::string text() { return std::string(base::text_of(take(number<base::Length>()))); }
  template <class Event>
  void events(std::vector<Event>& into) {
    const auto count = number<std::uint64_t>();
    const bool are_there = count <= reader_.left().size() / sizeof(Event);
    const auto bytes = take(are_there ? count * sizeof(Event) : reader_.left().size() + 1);
    into.resize(count);
    if (count > 0) std::memcpy(into.data(), bytes.data(), bytes.size());
  }

  base::ByteReader reader_;
};

void require_place(const std::string& path, view::TimelineNames names) {
  if (path.empty()) throw_invalid_argument("a timeline needs the path of a file");
  view::require_timeline_place(path, "the timeline " + path, names);
}

/// On rank 0: of the ranks' clocks.
class Clocks {
 public:
  /// Collective, at the beginning and at the end. Each rank says what its clock is once it has heard that rank 0 asks: the answer
  /// lies between question and arrival, and the fastest exchange knows best.
  void compare(const Group& world) {
    const auto clock = trace::clock_of_this_system();
    clocks_.resize(static_cast<std::size_t>(world.size()));
    gather(world, std::span(&clock, 1), clocks_, 0).wait();
    std::vector<std::uint64_t> told(clocks_.size());
    for (int exchange = 0; exchange < exchanges; ++exchange) {
      std::uint64_t asked = trace::now_ns();
      broadcast(world, std::span(&asked, 1), 0).wait();
      const std::uint64_t now = trace::now_ns();
      gather(world, std::span(&now, 1), told, 0).wait();
      const std::uint64_t heard = trace::now_ns();
      if (world.rank() != 0) continue;
      for (std::size_t rank = 0; rank < told.size(); ++rank) {
        if (clocks_[rank] != clock)
          offsets_.try_emplace(clocks_[rank], 0).first->second.add(asked, told[rank], heard);
      }
    }
  }
  /// Null: rank 0's own.
  const ClockOffset* of(int rank) const {
    const auto found = offsets_.find(clocks_.at(static_cast<std::size_t>(rank)));
    return found == offsets_.end() ? nullptr : &found->second;
  }

 private:
  static constexpr int exchanges = 8;
  std::vector<std::uint64_t> clocks_;
  std::map<std::uint64_t, ClockOffset> offsets_;
};

}  // namespace

struct TimelineRecording::State {
  State(Group its_world, std::string its_path)
      : world(std::move(its_world)),
        path(std::move(its_path)),
        spool(view::TimelineSpool::from_now(
            *world.impl().context->page, world.impl().context->rank_in_page, world.rank(),
            view::TimelineSpool::most_events / static_cast<std::size_t>(world.size()))) {}

  void begin() {
    thread.emplace("timeline", [this] { look_again_and_again(); });
  }
  void end() {
    if (thread && thread->runs_here()) {
      {
        const std::lock_guard lock(mutex);
        is_over = true;
      }
      changed.notify_all();
    }
    thread.reset();
  }
  ~State() { end(); }

  void look_again_and_again() try {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, spool.next_look().remaining(), [&] { return is_over; })) spool.look();
  } catch (const std::bad_alloc&) {  // what is overwritten until the end counts as left out
  }

  /// Of this rank.
  Part part() {
    Part mine{.rank = std::move(spool.take().front()), .groups = {}};
    const Context& context = *world.impl().context;
    for (const auto& group : trace::read_group_names(context.page->groups(context.rank_in_page)))
      mine.groups.emplace_back(group.number, group.name);
    return mine;
  }

  /// On rank 0: of all.
  view::Timeline timeline(std::span<const std::byte> bytes, std::span<const std::uint64_t> sizes) const {
    view::Timeline all{.job = world.impl().context->job};
    std::map<std::uint32_t, std::string> names;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto size = sizes[static_cast<std::size_t>(rank)];
      Part part = PartReader(bytes.first(size)).part();
      bytes = bytes.subspan(size);
      part.rank.rank = rank;
      if (const ClockOffset* const clock = clocks.of(rank)) {
        view::shift_times(part.rank, [&](std::uint64_t theirs) { return clock->to_ours(theirs); });
        all.clock_error_ns = std::max(all.clock_error_ns, clock->error_ns().value_or(0));
      }
      all.ranks.push_back(std::move(part.rank));
      names.insert(part.groups.begin(), part.groups.end());
    }
    all.groups.assign(names.begin(), names.end());
    return all;
  }

  const Group world;
  const std::string path;
  Clocks clocks;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  view::TimelineSpool spool;                                  // of the thread, until it has ended
  view::TimelineNames names = view::TimelineNames::lockstep;  // on rank 0
  std::optional<BackgroundThread> thread;
};

TimelineRecording::TimelineRecording(Group world, std::string path) {
  if (world.impl().parent) {
    throw_invalid_argument("a timeline is of the world's ranks, and group \"" + world.name() +
                           "\" is not the world");
  }
  auto names = view::TimelineNames::lockstep;
  on_rank_0(world, [&] {
    names = view::timeline_names_from_environment();
    require_place(path, names);
  });
  Clocks clocks;
  clocks.compare(world);
  state_ = std::make_unique<State>(std::move(world), std::move(path));
  state_->clocks = std::move(clocks);
  state_->names = names;
  state_->begin();
}

TimelineRecording::~TimelineRecording() = default;

std::string TimelineRecording::write() {
  if (!state_) throw_invalid_argument("this recording of a timeline was written before");
  const auto state = std::move(state_);
  state->end();
  const Group& world = state->world;
  const std::vector<std::byte> mine = bytes_of(state->part());
  state->clocks.compare(world);
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
  all_gather(world, std::span(&size, 1), sizes).wait();
  std::size_t bytes = 0;
  for (const std::uint64_t each : sizes) bytes += each;
  std::vector<std::byte> all(world.rank() == 0 ? bytes : 0);
  gather_v(world, mine, all, std::span<const std::size_t>(sizes), 0).wait();
  std::string line;
  on_rank_0(world, [&] {
    view::Timeline timeline = state->timeline(all, sizes);
    timeline.names = state->names;
    view::write_timeline_file(state->path, timeline);
    line = view::timeline_line(state->path, timeline);
  });
  return line;
}

}  // namespace lockstep
