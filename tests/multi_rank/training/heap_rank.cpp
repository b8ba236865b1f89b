// A SharedHeap that lives through failures: rank 1 kills itself in each of its lives but the last, in the middle of all_reduces
// of a tensor that lies in the heap; rank 0 goes on in the next world with the heap that it has. Says how long an all_reduce
// takes in the first world and in the last.
//
//   lockstep run -np 2 --restart all --max-restarts 20 heap_rank 20
#include <lockstep/lockstep.h>
#include <lockstep/train.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr std::int64_t elements = 1 << 20;
constexpr int calls = 200;

/// Median in microseconds of sums of a tensor that is written before each.
double all_reduce_us(const lockstep::Group& world) {
  const auto tensor = torch::empty({elements});
  std::vector<double> took;
  for (int i = 0; i < calls; ++i) {
    tensor.fill_(1);
    lockstep::barrier(world).wait();
    const auto begin = std::chrono::steady_clock::now();
    lockstep::all_reduce(world, tensor).wait();
    took.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    if (tensor.min().item<double>() != world.size() || tensor.max().item<double>() != world.size())
      throw std::runtime_error("a wrong sum in " + world.name());
  }
  std::ranges::nth_element(took, took.begin() + calls / 2);
  return took[calls / 2];
}

/// Until the other rank dies, or dies itself.
void fail(const lockstep::Group& world) {
  const auto tensor = torch::ones({elements});
  try {
    for (int i = 0;; ++i) {
      if (world.world_rank(world.rank()) == 1 && i == 3) (void)raise(SIGKILL);
      lockstep::all_reduce(world, tensor).wait();
    }
  } catch (const lockstep::Error& error) {
    if (error.code() != lockstep::ErrorCode::peer_lost) throw;
  }
}

/// A world of both: a rank that is dead is not there before it has come back.
lockstep::Group world_of_both() {
  while (true) {
    const auto world = lockstep::init();
    if (world.size() == 2) return world;
    lockstep::shutdown();
    while (!lockstep::world_has_changed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const int deaths = argc > 1 ? std::atoi(argv[1]) : 2;
  std::optional<lockstep::SharedHeap> heap;
  double first = 0, last = 0;
  for (int worlds = lockstep::incarnation(); worlds <= deaths; ++worlds) {
    const auto world = world_of_both();
    heap ? heap->move_to(world) : (void)heap.emplace(world);
    last = all_reduce_us(world);
    if (worlds == 0) first = last;
    if (worlds < deaths) fail(world);
    lockstep::shutdown();  // the heap still holds the world
  }
  if (first > 0)
    std::printf("heap: all_reduce of 4 MiB takes %.0f us in the first world, %.0f us after %d failures\n",
                first, last, deaths);
  return 0;
} catch (const std::exception& error) {
  (void)std::fprintf(stderr, "heap_rank: %s\n", error.what());
  return 1;
}
