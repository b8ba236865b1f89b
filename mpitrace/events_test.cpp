#include "mpitrace/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/folder_test.h"
#include "lockstep/view/profile/time_slices.h"
#include "mpitrace/event_file.h"
#include "mpitrace/left_files.h"
#include "mpitrace/merge.h"
#include "mpitrace/rescue.h"
#include "mpitrace/routines.h"

namespace lockstep::mpitrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr std::uint64_t first_ns = 1'000'000'000'000;
constexpr int some_routine = 1;

class EventFiles : public test::FolderTest {
 protected:
  void TearDown() override {
    for (const auto& events : all_) events->forget();
  }

  Events* make(int rank, int ranks = 1, const std::string& run = "", std::uint64_t start = 5) {
    std::string problem;
    Events* const events = Events::create(path(rank, start), problem);
    EXPECT_EQ(problem, "");
    all_.emplace_back(events);
    EventsHeader& header = events->header();
    header.routines = routine_count;
    header.rank = rank;
    header.ranks = ranks;
    header.start = start;
    header.begin_ns = first_ns;
    run.copy(header.run, sizeof(header.run));
    ("job" + std::to_string(start)).copy(header.job, sizeof(header.job));
    timeline().string().copy(header.timeline, sizeof(header.timeline));
    header.magic = events_magic;
    return events;
  }
  std::string path(int rank, std::uint64_t start = 5) const {
    return rank_file(folder_, events_beginning, "job" + std::to_string(start), rank);
  }
  fs::path timeline() const { return folder_ / "timeline.json"; }

 private:
  std::vector<std::unique_ptr<Events>> all_;
};

void call(ThreadEvents& thread, std::uint64_t begin_ns, std::uint64_t bytes = 8,
          const AboutCall& about = {}) {
  Event& event = thread.begin(some_routine, bytes, about);
  event.begin_ns = begin_ns;
  thread.end(event, begin_ns + 5);
}

std::vector<std::byte> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

RankEvents read(const std::string& path) { return read_events(bytes_of(path), "the file"); }

TEST_F(EventFiles, HaveEachCallAsItWas) {
  Events* const events = make(0);
  ThreadEvents* const thread = events->join();
  const AboutCall about{.communicator = events->number_of("rows"), .peer = 3, .source = view::mpi_any_rank};
  Event& waited = thread->begin(some_routine, 64, about);
  waited.begin_ns = first_ns + 10;
  waited.arrived_ns = first_ns + 20;
  thread->end(waited, first_ns + 30);
  call(*thread, first_ns + 40);
  const RankEvents read_again = read(path(0));
  EXPECT_THAT(read_again.names, ElementsAre("rows"));
  EXPECT_THAT(read_again.notes, IsEmpty());
  ASSERT_THAT(read_again.timeline.mpi_calls, SizeIs(2));
  const view::MpiCall& first = read_again.timeline.mpi_calls.front();
  EXPECT_EQ(first.begin_ns, first_ns + 10);
  EXPECT_EQ(first.arrived_ns, first_ns + 20);
  EXPECT_EQ(first.end_ns, first_ns + 30);
  EXPECT_EQ(first.bytes, 64U);
  EXPECT_EQ(first.routine, routines[some_routine].name);
  EXPECT_EQ(first.communicator, 1U);
  EXPECT_EQ(first.peer, 3);
  EXPECT_EQ(first.source, view::mpi_any_rank);
  EXPECT_TRUE(first.has_returned);
}

TEST_F(EventFiles, HaveTheCallInWhichTheRankIs) {
  ThreadEvents* const thread = make(0)->join();
  for (std::uint64_t i = 0; i < last_events + 3; ++i) call(*thread, first_ns + 10 * i);
  thread->begin(some_routine, 8, {});
  EXPECT_THAT(read(path(0)).timeline.mpi_calls, SizeIs(last_events + 3)) << "it has not begun";
  thread->begin(some_routine, 8, {}).begin_ns = first_ns + 10 * (last_events + 3);
  const auto calls = read(path(0)).timeline.mpi_calls;
  ASSERT_THAT(calls, SizeIs(last_events + 4));
  EXPECT_FALSE(calls.back().has_returned);
  EXPECT_TRUE(std::all_of(calls.begin(), calls.end() - 1, [](const auto& one) { return one.has_returned; }));
}

TEST_F(EventFiles, HaveACallOnceThatWasBeingMoved) {
  Events* const events = make(0);
  ThreadEvents* const thread = events->join();
  for (std::uint64_t i = 0; i < last_events; ++i) call(*thread, first_ns + 10 * i);
  auto* const part = reinterpret_cast<std::byte*>(&events->header()) + event_threads_at(most_event_names);
  auto* const ring = reinterpret_cast<Event*>(part + sizeof(EventCounts));
  ring[last_events] = ring[0];
  reinterpret_cast<EventCounts*>(part)->kept = 1;
  EXPECT_THAT(read(path(0)).timeline.mpi_calls, SizeIs(last_events));
}

TEST_F(EventFiles, LeaveNothingOutWhileThereIsRoom) {
  ThreadEvents* const thread = make(0)->join();
  const std::uint64_t most = last_events + kept_events - 1;
  for (std::uint64_t i = 0; i < most; ++i) call(*thread, first_ns + i * view::slice_ns / 1000);
  const view::RankTimeline timeline = read(path(0)).timeline;
  EXPECT_THAT(timeline.mpi_calls, SizeIs(most));
  EXPECT_EQ(timeline.left_out, 0U);
  EXPECT_EQ(timeline.left_out_when, "");
}

TEST_F(EventFiles, KeepWholeSlicesOfARunOfAnyLengthAndAllOfItsEnd) {
  ThreadEvents* const thread = make(0)->join();
  constexpr std::uint64_t all = 400'000, in_slice = 1000;
  for (std::uint64_t i = 0; i < all; ++i) call(*thread, first_ns + i * (view::slice_ns / in_slice));
  const view::RankTimeline timeline = read(path(0)).timeline;
  EXPECT_EQ(timeline.mpi_calls.size() + timeline.left_out, all);
  EXPECT_GT(timeline.mpi_calls.size(), kept_events / 4 + last_events);
  std::set<std::uint64_t> slices;
  for (std::size_t i = 0; i + last_events < timeline.mpi_calls.size(); ++i)
    slices.insert(timeline.mpi_calls[i].begin_ns / view::slice_ns);
  ASSERT_GE(slices.size(), 2U);
  const std::uint64_t kept_of = *std::next(slices.begin()) - *slices.begin();
  EXPECT_EQ(*slices.rbegin() - *slices.begin(), kept_of * (slices.size() - 1)) << "from begin to end alike";
  const auto is_first = [&](const view::MpiCall& one) {
    return one.begin_ns / view::slice_ns == *slices.begin();
  };
  EXPECT_EQ(std::ranges::count_if(timeline.mpi_calls, is_first), in_slice) << "and each is whole";
  const std::span last(timeline.mpi_calls.end() - last_events, timeline.mpi_calls.end());
  EXPECT_EQ(last.back().begin_ns - last.front().begin_ns, (last_events - 1) * (view::slice_ns / in_slice));
  EXPECT_THAT(timeline.left_out_when,
              StartsWith("thread 0 has all from 1 min 38 s after its first call on, before that of "
                         "one 250 ms in " +
                         std::to_string(kept_of) + " its first 7168 calls"));
}

TEST_F(EventFiles, KeepTheFirstCallsOfSlicesThatAreTooBusy) {
  ThreadEvents* const thread = make(0)->join();
  constexpr std::uint64_t all = 3'000'000;
  for (std::uint64_t i = 0; i < all; ++i) call(*thread, first_ns + i * 1000);
  const view::RankTimeline timeline = read(path(0)).timeline;
  EXPECT_EQ(timeline.mpi_calls.size() + timeline.left_out, all);
  std::map<std::uint64_t, std::uint64_t> in_slices;
  for (std::size_t i = 0; i + last_events < timeline.mpi_calls.size(); ++i)
    ++in_slices[timeline.mpi_calls[i].begin_ns / view::slice_ns];
  EXPECT_GE(in_slices.size(), 3U);
  for (const auto& [slice, calls] : in_slices) EXPECT_EQ(calls, most_in_slice) << slice;
}

TEST_F(EventFiles, KeepTheSameSlicesOnHostsWhoseClocksDiffer) {
  ThreadEvents* const here = make(0)->join();
  ThreadEvents* const there = make(1, 2)->join();
  constexpr std::uint64_t ahead = 3 * view::slice_ns + 70'000'000;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    call(*here, first_ns + i * 1'000'000);
    ThreadEvents::ahead_ns = ahead;
    call(*there, first_ns + ahead + i * 1'000'000);
    ThreadEvents::ahead_ns = 0;
  }
  const auto one = read(path(0)).timeline.mpi_calls, other = read(path(1)).timeline.mpi_calls;
  ASSERT_GT(one.size(), last_events);
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i].begin_ns + ahead, other[i].begin_ns);
}

TEST_F(EventFiles, AreWholeWhereverTheRankIsKilled) {
  for (std::uint64_t until = 1; until < 3'000'000; until = until * 3 + 1) {
    fs::remove(path(0));
    Events* const events = make(0);
    ThreadEvents* const thread = events->join();
    const auto& counts = *reinterpret_cast<const EventCounts*>(
        reinterpret_cast<const std::byte*>(&events->header()) + event_threads_at(most_event_names));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::uint64_t i = 0;; ++i) call(*thread, first_ns + 10'000 * i, i);
    }
    while (std::atomic_ref(const_cast<std::uint64_t&>(counts.written)).load() < until) ::sched_yield();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const RankEvents after = read(path(0));
    const auto& calls = after.timeline.mpi_calls;
    EXPECT_THAT(after.notes, IsEmpty());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      ASSERT_EQ(calls[i].begin_ns, first_ns + 10'000 * calls[i].bytes);
      ASSERT_TRUE(i == 0 || calls[i].bytes > calls[i - 1].bytes);
      ASSERT_EQ(calls[i].has_returned, calls[i].end_ns != calls[i].begin_ns);
    }
    // The oldest of the ring may have been on its way out.
    const std::size_t last = std::min<std::size_t>(calls.size(), last_events - 1);
    EXPECT_EQ(calls.back().bytes - calls[calls.size() - last].bytes, last - 1) << "the last are all there";
    if (after.timeline.left_out == 0) {
      EXPECT_EQ(calls.size(), calls.back().bytes + 1);
    }
  }
}

TEST_F(EventFiles, HaveATrackForEachThreadAsFarAsThereIsRoom) {
  Events* const events = make(0);
  ThreadEvents* const one = events->join();
  ThreadEvents* const other = events->join();
  call(*one, first_ns);
  call(*other, first_ns);
  events->leave(other);
  EXPECT_EQ(events->join(), other) << "what a thread left goes on with the next";
  for (std::uint32_t i = 2; i < most_event_threads; ++i) ASSERT_NE(events->join(), nullptr);
  EXPECT_EQ(events->join(), nullptr);
  const RankEvents all = read(path(0));
  ASSERT_THAT(all.timeline.mpi_calls, SizeIs(2));
  EXPECT_NE(all.timeline.mpi_calls[0].thread, all.timeline.mpi_calls[1].thread);
  EXPECT_THAT(all.notes, ElementsAre("rank 0: calls of 1 thread more had no room"));
}

TEST_F(EventFiles, NumberNamesOfCommunicators) {
  Events* const events = make(0);
  EXPECT_EQ(events->number_of("rows"), 1);
  EXPECT_EQ(events->number_of("columns"), 2);
  EXPECT_EQ(events->number_of("rows"), 1);
  events->number_of(std::string(100, 'x'));
  for (std::uint32_t i = 3; i < most_event_names; ++i) EXPECT_EQ(events->number_of(std::to_string(i)), i + 1);
  EXPECT_EQ(events->number_of("one more"), 0);
  const std::vector<std::string> names = read(path(0)).names;
  ASSERT_THAT(names, SizeIs(most_event_names));
  EXPECT_THAT(names[2], EndsWith("x..."));
}

TEST_F(EventFiles, ThatAreCutShowWhatIsThere) {
  Events* const events = make(0);
  call(*events->join(), first_ns);
  call(*events->join(), first_ns);
  fs::resize_file(path(0), fs::file_size(path(0)) - 1);
  const RankEvents cut = read(path(0));
  EXPECT_THAT(cut.timeline.mpi_calls, SizeIs(1));
  EXPECT_THAT(cut.notes, ElementsAre("rank 0: calls of 1 of its 2 threads are cut off"));
  fs::resize_file(path(0), event_names_at - 1);
  EXPECT_THROW(read(path(0)), Error);
}

TEST_F(EventFiles, SayWhatMakesNoSense) {
  ThreadEvents* const thread = make(0)->join();
  call(*thread, first_ns);
  call(*thread, first_ns - 1);
  thread->end(thread->begin(routine_count, 8, {}), first_ns);
  call(*thread, first_ns + 10);
  const RankEvents events = read(path(0));
  EXPECT_THAT(events.timeline.mpi_calls, SizeIs(2));
  EXPECT_THAT(events.notes, ElementsAre("rank 0: 2 events make no sense and are not here"));
}

TEST_F(EventFiles, WithoutRoomOnTheDiskAreNotThere) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string problem;
  Events* const events = Events::create(path(0), problem);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(events, nullptr);
  EXPECT_THAT(problem, HasSubstr("File too large"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(EventFiles, OfSeveralRanksBecomeOneTimeline) {
  for (const int rank : {2, 0}) {
    Events* const events = make(rank, 3);
    if (rank == 2) events->number_of("rows");
    const AboutCall about{.communicator = events->number_of("columns")};
    call(*events->join(), first_ns + 10, 8, about);
    Event& open = events->join()->begin(some_routine, 8, about);
    open.begin_ns = first_ns + (rank == 0 ? 20 : 60);
  }
  const Merged merged = merge({path(2), path(0), folder_ / "missing"});
  EXPECT_EQ(merged.wanted, timeline());
  EXPECT_THAT(merged.ranks, ElementsAre(0, 2));
  ASSERT_THAT(merged.timeline.ranks, SizeIs(2));
  EXPECT_EQ(merged.timeline.clock_error_ns, 0U);
  ASSERT_THAT(merged.timeline.notes, SizeIs(2));
  EXPECT_THAT(merged.timeline.notes[0], HasSubstr("missing"));
  EXPECT_EQ(merged.timeline.notes[1], "nothing is there of rank 1");
  const auto name_of = [&](const view::MpiCall& one) {
    const auto& groups = merged.timeline.groups;
    return std::ranges::find(groups, one.communicator, &std::pair<std::uint32_t, std::string>::first)->second;
  };
  for (const view::RankTimeline& rank : merged.timeline.ranks) {
    ASSERT_THAT(rank.mpi_calls, SizeIs(2));
    EXPECT_EQ(name_of(rank.mpi_calls[0]), "columns");
    EXPECT_EQ(rank.mpi_calls[1].end_ns, first_ns + 60) << "to the last moment that is known of";
  }
}

TEST_F(EventFiles, OfOtherHostsAreInRankZerosTime) {
  constexpr std::uint64_t ahead = 77'000'000'000;
  for (const int rank : {0, 1, 2}) {
    Events* const events = make(rank, 3);
    events->header().clock = static_cast<std::uint64_t>(rank);
    call(*events->join(), first_ns + 1000 + (rank == 1 ? ahead : 0));
    if (rank != 1) continue;
    events->header().exchanges = 2;
    events->header().exchanged[0] = {first_ns, first_ns + ahead + 100, first_ns + 200};
    events->header().exchanged[1] = {first_ns, first_ns + ahead + 900, first_ns + 1000};
  }
  const Merged merged = merge({path(0), path(1), path(2)});
  EXPECT_EQ(merged.timeline.ranks[1].mpi_calls.front().begin_ns, first_ns + 1000);
  EXPECT_EQ(merged.timeline.ranks[1].mpi_calls.front().end_ns, first_ns + 1005);
  EXPECT_EQ(merged.timeline.clock_error_ns, 100U);
  ASSERT_THAT(merged.timeline.notes, SizeIs(1));
  EXPECT_THAT(merged.timeline.notes.front(), HasSubstr("rank 2: the clock of "));
  const Merged without_first = merge({path(1)});
  EXPECT_EQ(without_first.timeline.ranks.front().mpi_calls.front().begin_ns, first_ns + 1000);
}

TEST_F(EventFiles, AreThinnedOutAlikeWhereTogetherTheyAreTooMany) {
  for (const int rank : {0, 1}) {
    ThreadEvents* const thread = make(rank, 2)->join();
    for (std::uint64_t i = 0; i < 1000; ++i) call(*thread, first_ns + i * view::slice_ns / 10);
  }
  const Merged merged = merge({path(0), path(1)}, 1100);
  ASSERT_THAT(merged.timeline.ranks, SizeIs(2));
  for (const view::RankTimeline& rank : merged.timeline.ranks) {
    EXPECT_THAT(rank.mpi_calls, SizeIs(500));
    EXPECT_EQ(rank.left_out, 500U);
  }
  EXPECT_THAT(
      merged.timeline.notes,
      ElementsAre("of each 500 ms the first 250 ms is here, for more than 1100 events there is no room"));
}

TEST_F(EventFiles, OfALivingRankStay) {
  make(0);
  EXPECT_THAT(rescue_timelines(folder_, "", "").lines, IsEmpty());
  EXPECT_TRUE(fs::exists(path(0)));
}

TEST_F(EventFiles, OfRanksThatAreGoneBecomeATimelineWhereItWasWanted) {
  Events* const gone = make(0, 1, "run1");
  call(*gone->join(), first_ns);
  gone->forget();
  EXPECT_THAT(rescue_timelines(folder_, "run2", "").lines, IsEmpty()) << "of another run";
  const Rescued rescued = rescue_timelines(folder_, "run1", "");
  ASSERT_THAT(rescued.lines, SizeIs(1));
  EXPECT_THAT(rescued.lines.front(), StartsWith("timeline of 1 rank in " + timeline().string()));
  EXPECT_FALSE(fs::exists(path(0)));
  std::ifstream file(timeline());
  EXPECT_EQ(nlohmann::json::parse(file).at("traceEvents").back().at("name"), routines[some_routine].name);
}

TEST_F(EventFiles, OfSeveralJobsBecomeSeveralTimelines) {
  for (const std::uint64_t start : {5, 6}) {
    Events* const events = make(0, 1, "", start);
    call(*events->join(), first_ns);
    events->forget();
  }
  EXPECT_FALSE(rescue_timelines(folder_, "", folder_ / "all.json").has_failed);
  EXPECT_TRUE(fs::exists(folder_ / "all.job5.json") && fs::exists(folder_ / "all.job6.json"));
}

TEST_F(EventFiles, StayWhereTheTimelineCannotBeWritten) {
  make(0)->forget();
  const Rescued rescued = rescue_timelines(folder_, "", folder_ / "missing" / "timeline.json");
  EXPECT_TRUE(rescued.has_failed);
  EXPECT_THAT(rescued.lines, ElementsAre(HasSubstr("there is no folder")));
  EXPECT_TRUE(fs::exists(path(0)));
}

}  // namespace
}  // namespace lockstep::mpitrace
