// A program that starts its own ranks, once for each of its arguments:
//
//   probe_spawn 4                  four ranks that sum their ranks, with arguments, a file and a variable
//                                  of this process
//   probe_spawn 3:throw,1          rank 1 throws; also exit,1 and kill,1 (SIGKILL), while the others sum; all
//                                  sum for ever where there is no such rank
//   probe_spawn 2:nest             each rank starts ranks
//   probe_spawn 3:leave,1          spawns without joining, goes on meanwhile with a child and a handler of its own, and
//                                  joins; the ranks end well where rank 1 finds that it may
//   probe_spawn 3:drop,0           spawns without joining ranks that never end, and lets go of the handle
//   probe_spawn init 2             after init(); thread: beside a thread
//
// A lockstep::Error is a line on stdout, "spawn code=peer_lost peer=1 text=...", and does not end it.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.h"

namespace {

int at_exit_calls = 0;

void report(const lockstep::Error& error) {
  std::printf("spawn code=%s peer=%d text=%s\n", std::string(to_string(error.code())).c_str(),
              error.peer().value_or(-1), error.what());
  (void)std::fflush(stdout);
}

int sum_of_ranks(const lockstep::Group& world) {
  int sum = world.rank();
  lockstep::all_reduce(world, std::span(&sum, 1)).wait();
  return sum;
}

void sum_and_say(int rank, const std::string& greeting, std::FILE* file) {
  const lockstep::Group world = lockstep::init();
  std::printf("%s from rank %d of %d: sum %d\n", greeting.c_str(), world.rank(), world.size(),
              sum_of_ranks(world));
  if (rank != world.rank()) throw std::runtime_error("the function's rank is another one than init()'s");
  (void)std::fprintf(file, "r%d\n", rank);
}

void hurt(const std::string& how, int whom, int rank) {
  const lockstep::Group world = lockstep::init();
  (void)sum_of_ranks(world);
  std::printf("sums\n");
  (void)std::fflush(stdout);
  if (rank == whom) {
    if (how == "throw") throw std::runtime_error("rank " + std::to_string(rank) + " has had enough");
    if (how == "exit") ::_exit(7);
    ::kill(::getpid(), SIGKILL);
  }
  for (;;) (void)sum_of_ranks(world);
}

volatile sig_atomic_t alarms = 0;

/// What the caller of spawn() does with its own signals and children is its own affair.
void go_on_without(int ranks, int whom) {
  (void)::signal(SIGUSR1, [](int) { alarms = alarms + 1; });
  auto started = lockstep::spawn({.ranks = ranks, .join = false}, [&](int rank) {
    const int sum = sum_of_ranks(lockstep::init());
    if (rank == whom)
      throw std::runtime_error("rank " + std::to_string(rank) + " saw " + std::to_string(sum));
  });
  (void)::raise(SIGUSR1);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(5);
  int status = 0;
  const bool is_ours = ::waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5;
  std::printf("meanwhile: alarms %d, own child %s\n", static_cast<int>(alarms), is_ours ? "5" : "lost");
  while (!started.join_for(std::chrono::milliseconds(20))) {
  }
  std::printf("joined\n");
}

void drop(int ranks) {
  auto started = lockstep::spawn({.ranks = ranks, .join = false}, [](int) { ::pause(); });
  if (!started.join_for(std::chrono::milliseconds(100))) std::printf("they run\n");
}

/// "3" or "3:throw,1".
void spawn_as(const std::string& word) {
  int ranks = 0;
  std::from_chars(word.data(), word.data() + word.size(), ranks);
  const std::size_t colon = word.find(':');
  if (colon == std::string::npos) {
    std::FILE* file = std::tmpfile();
    std::printf("not written yet\n");  // into a buffer, which is copied
    lockstep::spawn(ranks, sum_and_say, "hello", file);
    (void)std::fseek(file, 0, SEEK_END);
    std::printf("the ranks wrote %ld bytes into this process's file\n", std::ftell(file));
    (void)std::fclose(file);
    return;
  }
  const std::string how = word.substr(colon + 1, word.find(',') - colon - 1);
  if (how == "nest") return lockstep::spawn(ranks, [](int) { spawn_as("2"); });
  const int whom = std::stoi(word.substr(word.find(',') + 1));
  if (how == "leave") return go_on_without(ranks, whom);
  if (how == "drop") return drop(ranks);
  lockstep::spawn(ranks, [&](int rank) { hurt(how, whom, rank); });
}

}  // namespace

int main(int count, char** words) {
  (void)std::atexit([] { std::printf("the end of %d process\n", ++at_exit_calls); });
  std::optional<lockstep::Group> world;
  std::atomic<bool> is_over = false;
  std::thread thread;
  for (const std::string& word : std::vector<std::string>(words + 1, words + count)) {
    try {
      if (word == "init") {
        world = lockstep::init();
      } else if (word == "thread") {
        thread = std::thread([&] { is_over.wait(false); });
      } else {
        spawn_as(word);
      }
    } catch (const lockstep::Error& error) {
      report(error);
    }
  }
  is_over = true;
  is_over.notify_all();
  if (thread.joinable()) thread.join();
  return 0;
}
