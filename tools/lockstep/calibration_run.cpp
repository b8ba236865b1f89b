#include "calibration_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/median.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/native_options.h"
#include "lockstep/memory/host_region.h"
#include "lockstep/schedule/calibration.h"
#include "measure.h"

namespace measure {
namespace {

using lockstep::Group;
using lockstep::Operation;
using lockstep::Tuning;
using lockstep::Where;

constexpr std::uint64_t least_bytes = 8;
constexpr std::uint64_t step = 4;
constexpr std::uint64_t staging_probe_bytes = std::uint64_t{4} << 20;

/// A group of the same ranks that decides by another table, and buffers in it.
struct Contestant {
  Group group;
  Buffers buffers;
};

Contestant contestant(const Group& world, const Tuning& tuning, PrivateMemory& memory) {
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  Group group = lockstep::make_subgroup(world.shared_impl(), all, tuning);
  return {group, Buffers(group, memory)};
}

/// Takes algorithms of this name wherever there is one.
Tuning forcing(Tuning tuning, std::string_view name) {
  tuning.forced.clear();
  for (const lockstep::AlgorithmEntry& entry : lockstep::schedule::all_algorithms()) {
    if (entry.name == name) tuning.forced.emplace_back(entry.operation, entry.name);
  }
  return tuning;
}

/// The fastest of some settings, which differ from the present one only if it is clearly slower.
template <class Set>
std::uint64_t best_of(const Group& world, const CalibrationPlan& plan, const Tuning& tuning,
                      std::uint64_t present, const std::vector<std::uint64_t>& settings, Set set) {
  PrivateMemory memory(staging_probe_bytes);
  std::vector<Contestant> contestants;
  for (const std::uint64_t setting : settings) {
    Tuning changed = tuning;
    set(changed, setting);
    contestants.push_back(contestant(world, changed, memory));
  }
  std::vector<std::vector<double>> times(settings.size());
  const Call call{
      .operation = Operation::all_reduce, .where = Where::private_memory, .bytes = staging_probe_bytes};
  for (int pass = 0; pass < plan.passes; ++pass) {
    for (std::size_t i = 0; i < settings.size(); ++i)
      times[i].push_back(contestants[i].buffers.time(call, 5 * plan.seconds_each));
  }
  constexpr double tolerance = 0.03;
  std::map<std::uint64_t, double> medians;
  for (std::size_t i = 0; i < settings.size(); ++i) medians[settings[i]] = lockstep::base::median(times[i]);
  const auto best = std::ranges::min_element(medians, {}, [](const auto& one) { return one.second; });
  const auto now = medians.find(present);
  return now != medians.end() && now->second <= best->second * (1 + tolerance) ? present : best->first;
}

struct Task {
  lockstep::schedule::Timing timing;
  std::vector<double> seconds;
};

std::vector<Task> tasks_for(const Group& world, const CalibrationPlan& plan, const std::vector<Where>& places,
                            bool has_nodes) {
  std::vector<Task> tasks;
  for (const Operation operation : plan.operations) {
    for (const Where where : places) {
      if (operation == Operation::barrier && where == Where::arena) continue;  // it has no buffers
      for (const lockstep::AlgorithmEntry* entry :
           lockstep::schedule::candidates(operation, where, has_nodes)) {
        const bool is_small = entry->requirement == lockstep::Requirement::slots;
        for (std::uint64_t bytes = least_bytes; buffer_bytes(operation, bytes, world.size()) <=
                                                (is_small ? lockstep::slot_bytes : plan.most_bytes);
             bytes *= step) {
          tasks.push_back({{operation, where, std::string(entry->name), bytes, 0}, {}});
          if (operation == Operation::barrier) break;
        }
      }
    }
  }
  return tasks;
}

}  // namespace

Tuning run_calibration(const Group& world, const CalibrationPlan& plan,
                       const std::function<void(const std::string&)>& say) {
  Tuning tuning = world.impl().tuning;
  tuning.forced.clear();
  tuning.wire_dtype.reset();
  const bool one_host = world.local_size() == world.size();
  constexpr std::uint64_t KiB = 1024;
  if (one_host) {
    tuning.staging_bytes = best_of(world, plan, forcing(tuning, "staged"), tuning.staging_bytes,
                                   {128 * KiB, 256 * KiB, 512 * KiB, 1024 * KiB, 2048 * KiB, 4096 * KiB},
                                   [](Tuning& table, std::uint64_t bytes) { table.staging_bytes = bytes; });
    say(fmt::format("staging_bytes {}", tuning.staging_bytes));
  } else {
    tuning.segment_bytes = best_of(world, plan, forcing(tuning, "hierarchical"), tuning.segment_bytes,
                                   {32 * KiB, 64 * KiB, 128 * KiB, 256 * KiB, 512 * KiB, 1024 * KiB},
                                   [](Tuning& table, std::uint64_t bytes) { table.segment_bytes = bytes; });
    say(fmt::format("segment_bytes {}", tuning.segment_bytes));
    tuning.connections = static_cast<int>(best_of(
        world, plan, forcing(tuning, "hierarchical"), static_cast<std::uint64_t>(tuning.connections),
        {1, 2, 4, 8}, [](Tuning& table, std::uint64_t each) { table.connections = static_cast<int>(each); }));
    say(fmt::format("connections {}", tuning.connections));
  }

  const std::vector<Where> places =
      one_host ? std::vector{Where::arena, Where::private_memory} : std::vector{Where::channels};
  const int ranks_per_node = lockstep::ranks_per_node(world.impl());
  if (ranks_per_node > 0) say(fmt::format("nodes of memory with {} ranks each", ranks_per_node));
  std::vector<Task> tasks = tasks_for(world, plan, places, ranks_per_node > 0);
  PrivateMemory memory(plan.most_bytes);
  std::map<std::string, Contestant> contestants;
  for (const Task& task : tasks) {
    const std::string& name = task.timing.algorithm;
    if (!contestants.contains(name))
      contestants.emplace(name, contestant(world, forcing(tuning, name), memory));
  }
  for (int pass = 0; pass < plan.passes; ++pass) {
    say(fmt::format("pass {} of {}: {} times of {} algorithms", pass + 1, plan.passes, tasks.size(),
                    contestants.size()));
    for (Task& task : tasks) {
      const lockstep::schedule::Timing& timing = task.timing;
      task.seconds.push_back(
          contestants.at(timing.algorithm)
              .buffers.time({timing.operation, timing.where, timing.bytes}, plan.seconds_each));
    }
  }
  std::vector<lockstep::schedule::Timing> timings;
  for (Task& task : tasks) {
    task.timing.seconds = lockstep::base::median(std::move(task.seconds));
    timings.push_back(std::move(task.timing));
  }
  Tuning table = lockstep::schedule::calibrate(tuning, world.size(), timings);
  table.ranks_per_node = 0;  // that is this job's, as LOCKSTEP_ALGORITHM
  return table;
}

}  // namespace measure
