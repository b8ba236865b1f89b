// A rank of a job whose ranks die and come back while others work on: the ranks of the role "steady" have a group of their own, in
// which they all-reduce all the time and which never has to notice; all that live make a group of each view, and all-reduce there
// until the view changes. Every sum is checked.
//
//   lockstep run --role steady:2 --role mortal:2 --restart mortal probe_members --lives=N
//
// A mortal rank kills itself in each of its first N lives, at some moment of its first 150 ms, and all end when those are over. Each
// steady rank then says what it holds and how long an all_reduce of its group took, at the beginning and at the end. What it holds at
// the beginning is looked at when it has been in N / 5 views: buffers and tables have come to the size then that they keep.
//
//   probe rank=0 views=200 descriptors=20..20 mappings=90..90 memory_kib=1600..1610 all_reduce_us=12.1..12.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "footprint.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"

namespace {

using lockstep::Error;
using lockstep::Group;
using lockstep::Life;
using lockstep::Membership;
using lockstep::View;
using Clock = std::chrono::steady_clock;

constexpr std::size_t elements = 20'000;

int rank_in_job() { return std::atoi(std::getenv("RANK")); }

void say(const std::string& text) {
  std::cout << "probe rank=" + std::to_string(rank_in_job()) + " " + text + "\n" << std::flush;
}

/// Of what each rank of the group gives: its rank in the job, plus one.
void all_reduce_checked(const Group& group, std::span<float> values) {
  float expected = 0;
  for (int rank = 0; rank < group.size(); ++rank) expected += static_cast<float>(group.world_rank(rank) + 1);
  std::ranges::fill(values, static_cast<float>(rank_in_job() + 1));
  lockstep::all_reduce(group, values).wait();
  for (const float value : values) {
    if (value == expected) continue;
    say("WRONG " + std::to_string(value) + " for " + std::to_string(expected) + " in " + group.name());
    ::_exit(3);
  }
}

/// The steady ranks' own group, and a thread that works in it.
class SteadyPair {
 public:
  /// `times`: how many calls a median is of; each may take milliseconds on a busy machine.
  SteadyPair(Group group, int times)
      : group_(std::move(group)), values_(group_.allocate<float>(elements)), times_(times) {
    std::thread([] {}).join();  // from its first thread on a process pays for its locks: here as in the end
    all_reduce_us_ = measure();
    thread_ = std::thread([this] { work(); });
  }
  ~SteadyPair() {
    if (thread_.joinable()) thread_.join();
  }
  SteadyPair(const SteadyPair&) = delete;
  SteadyPair& operator=(const SteadyPair&) = delete;

  /// How long an all_reduce took when it was measured last.
  double all_reduce_us() const { return all_reduce_us_; }
  /// The others have ended; the ranks of the pair agree on the end in it.
  void end() {
    is_over_ = true;
    thread_.join();
    all_reduce_us_ = measure();
  }

 private:
  /// The best of some medians, since others run on the same cores.
  double measure() {
    constexpr int windows = 8;
    double best_us = std::numeric_limits<double>::max();
    for (int window = 0; window < windows; ++window) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::vector<double> took_us;
      for (int time = 0; time < times_; ++time) {
        const auto begin = Clock::now();
        all_reduce_checked(group_, values_.span());
        took_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      }
      std::ranges::nth_element(took_us, took_us.begin() + times_ / 2);
      best_us = std::min(best_us, took_us[static_cast<std::size_t>(times_ / 2)]);
    }
    return best_us;
  }
  void work() try {
    for (;;) {
      all_reduce_checked(group_, values_.span());
      std::array<int, 1> over{is_over_ ? 1 : 0};
      lockstep::all_reduce(group_, over, lockstep::ReduceOp::max).wait();
      if (over[0] != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception& error) {
    say(std::string("NOTICED ") + error.what());
    ::_exit(4);
  }

  Group group_;
  lockstep::ArenaBuffer<float> values_;
  int times_;
  double all_reduce_us_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

/// The mortal ranks are there, after so many lives.
bool have_lived(const View& view, int lives) {
  const int mortal = std::atoi(std::getenv("WORLD_SIZE")) - std::atoi(std::getenv("ROLE_WORLD_SIZE"));
  return std::ranges::count_if(view.members, [&](const Life& life) { return life.incarnation >= lives; }) >=
         mortal;
}

void die_some_time() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 150'000));
    (void)::raise(SIGKILL);
  }).detach();
}

/// One view: the group of all that are in it, until it changes. True: all is over.
bool live(const Membership& job, const View& view, bool wants_end, bool dies_now) {
  const auto group = job.group(view);
  if (!group) return false;
  if (dies_now) die_some_time();
  const Group& all = *group;
  auto values = all.allocate<float>(elements);
  for (;;) {
    all_reduce_checked(all, values.span());
    std::array<int, 2> agreed{wants_end ? 1 : 0, job.newest() != view.number ? 1 : 0};
    lockstep::all_reduce(all, agreed, lockstep::ReduceOp::max).wait();
    if (agreed[0] != 0) return true;
    if (agreed[1] != 0) return false;
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const int lives = argc > 1 ? std::stoi(std::string(argv[1]).substr(8)) : 1;
  const bool is_to_die = lockstep::role() == "mortal" && lockstep::incarnation() < lives;
  if (is_to_die && lockstep::incarnation() > 0) die_some_time();
  const Membership job;
  std::optional<SteadyPair> pair;
  std::optional<probe::Footprint> before;
  double before_us = 0;
  if (lockstep::role() == "steady") {
    std::vector<Life> steady;
    for (int rank = 0; rank < std::atoi(std::getenv("ROLE_WORLD_SIZE")); ++rank)
      steady.push_back({.rank = rank});
    pair.emplace(job.group(steady, "steady"), lives < 10 ? 11 : 1001);
    before_us = pair->all_reduce_us();
  }
  const std::string me = lockstep::to_text(job.self());
  std::size_t views = 0;
  for (;; ++views) {
    const View view = job.view();
    std::string members;
    for (const Life& life : view.members) members += (members.empty() ? "" : ",") + lockstep::to_text(life);
    say(me + " view " + std::to_string(view.number) + " of " + members);
    if (!view.has({.rank = 0})) break;  // it has ended
    if (pair && views >= static_cast<std::size_t>(lives / 5) && !before) before = probe::Footprint::now();
    try {
      // The first lives begin to die when all have met once: the steady ranks take their time before they come.
      const bool dies_now = is_to_die && lockstep::incarnation() == 0;
      if (live(job, view, rank_in_job() == 0 && have_lived(view, lives), dies_now)) break;
    } catch (const Error& error) {
      if (error.code() != lockstep::ErrorCode::peer_lost) throw;
      (void)job.await_after(view.number, std::chrono::seconds(10));
    }
  }
  if (!pair) return 0;
  pair->end();
  if (!before) return 0;
  say("views=" + std::to_string(views) + " " + probe::Footprint::text(*before, probe::Footprint::now()) +
      " all_reduce_us=" + std::to_string(before_us) + ".." + std::to_string(pair->all_reduce_us()));
} catch (const Error& error) {
  std::cerr << "probe rank=" + std::to_string(rank_in_job()) +
                   " code=" + std::string(to_string(error.code())) + " text=" + error.what() + "\n";
  return 1;
}
