// A rank that uses a GPU (the stand-in's number 0), and does what its one argument says.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/device_arena/kernel_image.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "tests/gpu/standin.h"

namespace {

const lockstep::MemoryPlace gpu{.device = 0};

void say(const std::string& text) { std::cout << "probe " + text + "\n" << std::flush; }

/// All ranks' numbers, from 1, on their GPUs.
float sum(const lockstep::Group& world, const std::function<void()>& before_the_second = {},
          std::size_t elements = 1000, lockstep::ReduceOp op = lockstep::ReduceOp::sum,
          const std::function<void()>& once_called = {}) {
  lockstep::barrier(world, gpu).synchronize();
  void* const memory = standin::allocate(0, elements * sizeof(float));
  const std::span<float> values(static_cast<float*>(memory), elements);
  auto* const seen = reinterpret_cast<float*>(standin::host(memory));
  if (before_the_second) before_the_second();
  std::fill_n(seen, elements, static_cast<float>(world.rank() + 1));
  lockstep::Work work = lockstep::all_reduce(world, values, op, {.place = gpu});
  if (once_called) once_called();
  work.synchronize();
  const float result = seen[0];
  standin::release(memory);
  return result;
}

void say_sum(const lockstep::Group& world) { say("sum " + std::to_string(static_cast<int>(sum(world)))); }

void run(const std::string& action) {
  const lockstep::Group world = lockstep::init();
  const auto rank_1 = [&](int signal) {
    return [&world, signal] {
      if (world.rank() == 1) (void)::raise(signal);
    };
  };
  // What rank 1 does wrong is told at once: it waits until the others are in the call.
  char word = 0;
  const auto tell_rank_1 = [&] {
    if (world.rank() != 1) lockstep::send(world, std::span(&word, 1), 1).wait();
  };
  const auto await_the_others = [&] {
    for (int rank = 0; world.rank() == 1 && rank < world.size(); ++rank) {
      if (rank != 1) lockstep::recv(world, std::span(&word, 1), rank).wait();
    }
  };
  if (action == "sum") say_sum(world);
  if (action == "main_memory") lockstep::barrier(world).wait();
  if (action == "kill") (void)sum(world, rank_1(SIGKILL));
  if (action == "stop") (void)sum(world, rank_1(SIGSTOP));
  if (action == "stop_in_average") (void)sum(world, rank_1(SIGSTOP), 1000, lockstep::ReduceOp::average);
  if (action == "sum_and_average")
    (void)sum(world, await_the_others, 1000,
              world.rank() == 1 ? lockstep::ReduceOp::average : lockstep::ReduceOp::sum, tell_rank_1);
  if (action == "mismatch")
    (void)sum(world, await_the_others, world.rank() == 1 ? 999 : 1000, lockstep::ReduceOp::sum, tell_rank_1);
  // A kernel of rank 1's program goes wrong.
  if (action == "break") {
    const auto break_rank_1 = [&] {
      await_the_others();
      if (world.rank() == 1) standin::break_gpu(0, lockstep::cuda::illegal_address);
    };
    (void)sum(world, break_rank_1, 1000, lockstep::ReduceOp::sum, tell_rank_1);
  }
  if (action == "worlds") say_sum(world);
  if (action == "leave") {
    lockstep::barrier(world, gpu).synchronize();
    if (world.rank() == 0) (void)sum(world);
  }
  if (action == "fork") {
    say_sum(world);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        (void)sum(world);
      } catch (const lockstep::Error& error) {
        say(std::string("child: ") + error.what());
      }
#ifdef __SANITIZE_ADDRESS__  // which takes for lost what only the parent's threads reach
      ::_exit(0);
#endif
      return;
    }
    int status = 0;
    (void)::waitpid(child, &status, 0);
    say("child ended with " + std::to_string(status));
    say_sum(world);
  }
  if (action == "shut_down") {
    say_sum(world);
    lockstep::shutdown();
    (void)sum(world);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  lockstep::device_arena::take_kernels_of_the_driver();
  const std::string action = argc > 1 ? argv[1] : "";
  run(action);
  if (action == "worlds") run(action);
} catch (const lockstep::Error& error) {
  const char* const rank = std::getenv("RANK");
  say("rank " + std::string(rank != nullptr ? rank : "?") +
      " failed: " + std::string(to_string(error.code())) + " " +
      (error.peer() ? std::to_string(*error.peer()) : "-") + " " + error.what());
  return argc > 1 && std::strcmp(argv[1], "shut_down") == 0 ? 0 : 1;
}
