#include "mpitrace/merge.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "lockstep/trace/clock_offset.h"
#include "lockstep/view/profile/mpi_meetings.h"
#include "lockstep/view/profile/time_slices.h"
#include "mpitrace/event_file.h"

namespace lockstep::mpitrace {
namespace {

using trace::ClockOffset;

class Merger {
 public:
  explicit Merger(std::size_t most) : most_(most) {}

  Merged run(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) careful([&] { look_at(path); });
    for (const auto& found : abouts_) careful([&] { add(found.first, found.second); });
    end_open_calls();
    view::note_arrivals(merged_.timeline.ranks, merged_.timeline.clock_error_ns);
    say_what_is_missing();
    if (kept_of_ > 1)
      note(fmt::format("of each {} the first {} is here, for more than {} events there is no room",
                       base::duration(kept_of_ * view::slice_ns), base::duration(view::slice_ns), most_));
    std::ranges::sort(merged_.timeline.ranks, {}, &view::RankTimeline::rank);
    std::ranges::sort(merged_.ranks);
    return std::move(merged_);
  }

 private:
  void note(const std::string& text) { merged_.timeline.notes.push_back(text); }

  template <class Work>
  void careful(Work work) {
    try {
      work();
    } catch (const std::exception& problem) {
      note(fmt::format("not in it: {}", problem.what()));
    }
  }

  /// The clocks of all have to be known before any event is taken.
  void look_at(const std::string& path) {
    const InputFile file(path, "timeline's file");
    const std::string text = file.text(event_names_at);
    const RankAbout about = read_about(std::as_bytes(std::span(text)), path);
    abouts_.emplace_back(path, about);
    if (about.rank == 0) first_clock_ = about.clock;
    if (about.exchanged.empty()) return;  // rank 0's clock, or another rank has them
    ClockOffset& clock = clocks_.try_emplace(about.clock, 0).first->second;
    for (const ClockExchange& exchange : about.exchanged)
      clock.add(exchange.asked_ns, exchange.told_ns, exchange.heard_ns);
  }

  void add(const std::string& path, const RankAbout& about) {
    const InputFile file(path, "timeline's file");
    const Mapping mapping = file.map();
    file.require_whole();
    RankEvents events = read_events(mapping.bytes(), path);
    if (!present_.insert(about.rank).second) {
      note(fmt::format("rank {} has left more than one file: {} is not in it", about.rank, path));
      return;
    }
    merged_.timeline.job = about.job;
    merged_.wanted = about.timeline;
    most_ranks_ = std::max(most_ranks_, about.ranks);
    merged_.ranks.push_back(about.rank);
    for (std::string& text : events.notes) note(text);
    number_communicators(events);
    to_our_time(events.timeline, about);
    events.timeline.left_out += std::erase_if(events.timeline.mpi_calls, [&](const view::MpiCall& call) {
      return !view::is_in_kept_slice(call.begin_ns, kept_of_);
    });
    merged_.timeline.ranks.push_back(std::move(events.timeline));
    thin_out_if_need_be();
  }

  void number_communicators(RankEvents& events) {
    std::vector<std::uint32_t> numbers = {0};
    for (const std::string& name : events.names) {
      auto& groups = merged_.timeline.groups;
      auto found = std::ranges::find(groups, name, &std::pair<std::uint32_t, std::string>::second);
      if (found == groups.end())
        found = groups.emplace(found, static_cast<std::uint32_t>(groups.size() + 1), name);
      numbers.push_back(found->first);
    }
    for (view::MpiCall& call : events.timeline.mpi_calls) call.communicator = numbers[call.communicator];
  }

  void to_our_time(view::RankTimeline& rank, const RankAbout& about) {
    const auto clock = clocks_.find(about.clock);
    if (clock == clocks_.end() && about.clock == first_clock_.value_or(about.clock)) return;
    if (clock == clocks_.end()) {
      note(fmt::format("rank {}: the clock of {} was not held against rank 0's, and its times are its own",
                       about.rank, rank.host));
      return;
    }
    for (view::MpiCall& call : rank.mpi_calls) {
      call.begin_ns = clock->second.to_ours(call.begin_ns);
      call.end_ns = clock->second.to_ours(call.end_ns);
      if (call.has_arrived) call.arrived_ns = clock->second.to_ours(call.arrived_ns);
    }
    merged_.timeline.clock_error_ns =
        std::max(merged_.timeline.clock_error_ns, clock->second.error_ns().value_or(0));
  }

  void thin_out_if_need_be() {
    const auto events = [&] {
      std::size_t count = 0;
      for (const view::RankTimeline& rank : merged_.timeline.ranks) count += rank.mpi_calls.size();
      return count;
    };
    while (events() > most_) {
      std::vector<std::size_t> before;
      std::vector<view::RankTimeline*> ranks;
      for (view::RankTimeline& rank : merged_.timeline.ranks) {
        before.push_back(rank.mpi_calls.size());
        ranks.push_back(&rank);
      }
      view::thin_out(ranks, kept_of_, [](const auto& event) { return event.begin_ns; });
      for (std::size_t i = 0; i < ranks.size(); ++i)
        ranks[i]->left_out += before[i] - ranks[i]->mpi_calls.size();
    }
  }

  /// A call that did not return is drawn to the last moment that is known of.
  void end_open_calls() {
    std::uint64_t last = 0;
    for (const view::RankTimeline& rank : merged_.timeline.ranks) {
      for (const view::MpiCall& call : rank.mpi_calls) last = std::max(last, call.end_ns);
    }
    for (view::RankTimeline& rank : merged_.timeline.ranks) {
      for (view::MpiCall& call : rank.mpi_calls) {
        if (!call.has_returned) call.end_ns = std::max(call.begin_ns, last);
      }
    }
  }

  void say_what_is_missing() {
    const std::string missing = base::name_ranks_without(present_, most_ranks_);
    if (!missing.empty() && !present_.empty()) note("nothing is there of " + missing);
  }

  std::size_t most_;
  Merged merged_;
  std::vector<std::pair<std::string, RankAbout>> abouts_;
  std::optional<std::uint64_t> first_clock_;
  std::map<std::uint64_t, ClockOffset> clocks_;
  std::set<int> present_;
  int most_ranks_ = 0;
  std::uint64_t kept_of_ = 1;
};

}  // namespace

Merged merge(const std::vector<std::string>& paths, std::size_t most) { return Merger(most).run(paths); }

}  // namespace lockstep::mpitrace
