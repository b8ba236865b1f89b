#include "probe_cycles.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "footprint.h"
#include "lockstep/base/error.h"
#include "lockstep/group/in_process.h"
#include "probe_collectives.h"

namespace probe {
namespace {

using lockstep::Group;

std::string cycle(int cycles, const std::function<void(int index)>& once) {
  const int warm_up = cycles / 4;
  for (int index = 0; index < warm_up; ++index) once(index);
  const Footprint before = Footprint::now();
  for (int index = warm_up; index < warm_up + cycles; ++index) once(index);
  const Footprint after = Footprint::now();
  return Footprint::text(before, after);
}

void call(const Group& group) {
  all_reduce(group, lockstep::Dtype::f32, 1000, Memory::arena);
  all_reduce(group, lockstep::Dtype::f32, 30'000, Memory::own);
}

}  // namespace

std::string cycle_init(lockstep::InitOptions options, int other_port, int cycles) {
  const int port = options.port.value();
  return cycle(cycles, [&](int index) {
    options.port = index % 2 == 0 ? port : other_port;
    const Group world = lockstep::init(options);
    call(world);
  });
}

std::string cycle_worlds(int cycles) {
  std::vector<double> took_us;
  const auto told = cycle(cycles, [&](int index) {
    const auto begin = std::chrono::steady_clock::now();
    const Group world = lockstep::init();
    took_us.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    call(world);
    if (index % 2 == 0) lockstep::shutdown();
  });
  const double first = took_us.front();
  std::vector<double> last(took_us.end() - cycles, took_us.end());
  std::ranges::nth_element(last, last.begin() + cycles / 2);
  return told + " init_us=" + std::to_string(std::lround(first)) + ".." +
         std::to_string(std::lround(last[static_cast<std::size_t>(cycles) / 2]));
}

std::string cycle_threads(int cycles) {
  return cycle(cycles, [&](int) {
    auto world = lockstep::in_process_world(3);
    std::vector<std::thread> threads;
    for (Group& group : world) threads.emplace_back([mine = std::move(group)] { call(mine); });
    world.clear();
    for (std::thread& thread : threads) thread.join();
  });
}

std::string cycle_subgroups(const Group& world, int cycles) {
  std::vector<int> backwards(static_cast<std::size_t>(world.size()));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  return cycle(cycles, [&](int index) {
    call(world.subgroup(backwards));
    if (const auto half = world.split(world.rank() % 2, index)) call(*half);
  });
}

std::string cycle_buffers(const Group& world, int cycles) {
  return cycle(cycles, [&](int index) {
    std::vector<lockstep::ArenaBuffer<float>> buffers;
    for (int which = 0; which < 8; ++which) {
      const int elements = (index % 16 * 7919 + which * 104'729) % 50'000;
      buffers.push_back(world.allocate<float>(static_cast<std::size_t>(elements)));
      if (which % 3 == 2) buffers.erase(buffers.begin() + index % 2);
    }
    const auto shared = world.allocate<float>(5000);
    lockstep::all_reduce(world, shared).wait();
  });
}

std::string cycle_failures(const Group& world, int cycles) {
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return cycle(cycles, [&](int) {
    const Group group = world.subgroup(all);
    call(group);
    try {
      std::vector<float> values(static_cast<std::size_t>(1000 + group.rank()));
      lockstep::all_reduce(group, values).wait();
    } catch (const lockstep::Error& error) {
      if (error.code() == lockstep::ErrorCode::mismatch) return;
      throw;
    }
    throw WrongResult("a mismatch that nobody noticed");
  });
}

}  // namespace probe
