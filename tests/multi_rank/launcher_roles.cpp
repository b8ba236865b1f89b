// Ranks of the launcher's tests that have to do with the library: this very program, started by the launcher,
// plays the role that LOCKSTEP_TEST_ROLE names instead of running tests.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/rendezvous/tcp_store.h"

namespace lockstep::launch {
namespace {

int number(const char* name) { return static_cast<int>(env::integer(name, 0, 1 << 20).value()); }

const Deadline deadline = Deadline::after(std::chrono::seconds(30));

void await(const auto& condition) {
  while (!condition()) {
    if (deadline.expired()) _exit(99);
    sched_yield();
  }
}

void die() { kill(getpid(), SIGKILL); }

void blame(const ControlPage& page, int culprit, const std::string& text) {
  page.first_cause().set(
      {.code = ErrorCode::peer_lost, .culprit = culprit, .reporter = number("RANK"), .text = text});
}

// Roles return the exit code. The page's status of a rank holds its pid.

// Rank 1 leaves with 0; the others find out, and fail.
int leaves_early(const ControlPage& page, int rank) {
  if (rank == 1) return 0;
  blame(page, 1, "rank 1 left early");
  return 7;
}

// The same, but the others can live with it.
int leaves_early_unharmed(const ControlPage& page, int rank) {
  return rank == 1 ? 0 : (blame(page, 1, "left"), 0);
}

// Rank 0 blames rank 1 and is gone before rank 1 dies.
int blames_before_the_death(const ControlPage& page, int rank) {
  if (rank == 0) {
    await([&] { return page.status(1).pid.load() != 0; });
    blame(page, 1, "rank 1 broke its connection");
    return 5;
  }
  const auto reaped = [&] {
    const pid_t other = page.status(0).pid.load();
    return other != 0 && kill(other, 0) != 0;
  };
  await(reaped);
  die();
  return 0;
}

// Rank 1 is to blame, rank 0 finds out, and both say so in the same words.
int says_what_all_say(const ControlPage& page, int rank) {
  if (rank == 0) blame(page, 1, "the ranks' calls differ");
  await([&] { return page.first_cause().is_set(); });
  fprintf(stderr, "error: %s\n", page.first_cause().get()->text.c_str());
  return 1;
}

// Rank 1 dies; rank 0 sleeps until the launcher tells it so.
int hears_from_the_launcher(const ControlPage& page, int rank) {
  if (rank == 1) die();
  const std::uint32_t ticket = page.doorbell().prepare();
  if (page.first_cause().is_set()) {
    page.doorbell().cancel();
  } else {
    page.doorbell().sleep(ticket, std::chrono::seconds(30));
  }
  await([&] { return page.first_cause().is_set(); });
  fprintf(stderr, "told by %d: %s\n", page.first_cause().get()->reporter,
          page.first_cause().get()->text.c_str());
  return 8;
}

// Rank 1 says goodbye and ends with 3, once rank 0 is ready to be told to end; nobody needs rank 1 any more.
int fails_after_goodbye(const ControlPage& page, int rank) {
  if (rank == 1) {
    await([&] { return page.status(0).awaits.load() != 0; });
    page.status(1).said_goodbye = 1;
    return 3;
  }
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_BLOCK, &terminate, nullptr);
  page.status(0).awaits = 1;
  siginfo_t info;
  sigwaitinfo(&terminate, &info);
  fprintf(stderr, "cause is set: %d\n", page.first_cause().is_set() ? 1 : 0);
  return 0;
}

// All meet in the launcher's store.
int meets_in_the_store(const ControlPage&, int rank) {
  TcpStoreOptions options;
  options.trust.secret = Secret::from_inherited_fd(number("LOCKSTEP_SECRET_FD"));
  options.job = env::text("LOCKSTEP_JOB").value();
  TcpStore store(Endpoint::parse(env::text("LOCKSTEP_STORE").value()), deadline, options);
  store.set("rank " + std::to_string(rank), "here");
  for (int other = 0; other < number("WORLD_SIZE"); ++other)
    store.get("rank " + std::to_string(other), deadline);
  printf("all have met\n");
  fflush(stdout);
  return 0;
}

// Rank 1 stops itself; rank 0 ends with 0.
int stops_when_left(const ControlPage&, int rank) {
  if (rank == 0) return 0;
  printf("stops %d\n", getpid());
  fflush(stdout);
  kill(getpid(), SIGSTOP);
  return 0;
}

int play(const std::string& role) {
  static const std::map<std::string, int (*)(const ControlPage&, int)> known = {
      {"leaves_early", leaves_early},
      {"leaves_early_unharmed", leaves_early_unharmed},
      {"blames_before_the_death", blames_before_the_death},
      {"says_what_all_say", says_what_all_say},
      {"hears_from_the_launcher", hears_from_the_launcher},
      {"fails_after_goodbye", fails_after_goodbye},
      {"meets_in_the_store", meets_in_the_store},
      {"stops_when_left", stops_when_left},
  };
  const int rank = number("RANK");
  const ControlPage page =
      ControlPage::attach(UniqueFd(number("LOCKSTEP_CONTROL_FD")), number("LOCAL_WORLD_SIZE"));
  page.status(rank).pid = getpid();
  return known.at(role)(page, rank);
}

const bool is_a_rank = [] {
  const auto role = env::text("LOCKSTEP_TEST_ROLE");
  if (role && env::text("LOCKSTEP_CONTROL_FD")) _exit(play(*role));
  return false;
}();

}  // namespace
}  // namespace lockstep::launch
