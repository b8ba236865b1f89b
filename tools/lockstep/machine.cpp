#include "machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/base/median.h"
#include "lockstep/base/words.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/impl.h"
#include "lockstep/group/shared_memory.h"
#include "measure.h"

namespace measure {
namespace {

using Clock = std::chrono::steady_clock;
using lockstep::Group;
using lockstep::ReduceOp;

constexpr std::uint64_t triad_bytes = std::uint64_t{64} << 20;  // beyond the caches of most
constexpr std::uint64_t push_bytes = std::uint64_t{64} << 20;
constexpr std::size_t link_floats = std::size_t{1} << 20;
constexpr int link_messages = 16;
constexpr int round_trips = 200;
constexpr std::chrono::milliseconds each_pass{100};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The median of some passes of `rate`, each begun by all ranks at once. The same on all ranks.
double median_rate(const Group& group, int passes, ReduceOp op, const std::function<double()>& rate) {
  std::vector<double> rates;
  for (int pass = 0; pass < passes; ++pass) {
    lockstep::barrier(group).wait();
    rates.push_back(over_all(group, rate(), op));
  }
  return lockstep::base::median(std::move(rates));
}

/// Of `host`'s first `cores` ranks at once, the others being idle.
double memory_rate(const Group& host, int passes, int cores) {
  return median_rate(host, passes, ReduceOp::sum,
                     [&] { return host.rank() < cores ? triad(triad_bytes, each_pass) : 0.0; });
}

double push_rate(const Group& host, int passes) {
  const auto arena = host.allocate<std::byte>(push_bytes);
  const std::vector<std::byte> own(push_bytes, std::byte{1});
  std::memset(arena.data(), 0, push_bytes);
  const auto place = lockstep::place_of(host, arena.span());
  // The next rank's arena may begin elsewhere than ours.
  std::vector<std::uint64_t> words(static_cast<std::size_t>(host.size()));
  const std::uint64_t word = lockstep::to_word(*place);
  lockstep::all_gather(host, std::span(&word, 1), std::span(words)).wait();
  const auto next = static_cast<std::size_t>((host.rank() + 1) % host.size());
  const std::span<std::byte> target =
      lockstep::memory_at(host, lockstep::place_of_word(words[next]), push_bytes);
  const double rate = median_rate(host, passes, ReduceOp::sum, [&] {
    const auto begin = Clock::now();
    std::uint64_t bytes = 0;
    do {
      std::memcpy(target.data(), own.data(), push_bytes);
      bytes += push_bytes;
    } while (Clock::now() - begin < each_pass);
    return static_cast<double>(bytes) / seconds_since(begin);
  });
  lockstep::barrier(host).wait();  // nobody's arena goes while another still writes there
  return rate;
}

/// All send to the next rank at once, so that each link is used in one direction by one rank of each host.
double link_rate(const Group& world, int passes) {
  const std::vector<float> out(link_floats, 1);
  std::vector<float> in(link_floats);
  const int next = (world.rank() + 1) % world.size(),
            before = (world.rank() + world.size() - 1) % world.size();
  return median_rate(world, passes, ReduceOp::min, [&] {
    const auto begin = Clock::now();
    for (int i = 0; i < link_messages; ++i) {
      lockstep::sendrecv(world, out, next, in, before).wait();
    }
    return link_messages * link_floats * sizeof(float) / seconds_since(begin);
  });
}

/// Half a round trip between neighbours, the slowest pair; pairs take turns, so that nobody is disturbed.
double link_latency(const Group& world) {
  double slowest = 0;
  for (int left = 0; left + 1 < world.size(); ++left) {
    std::vector<double> times;
    const int peer = world.rank() == left ? left + 1 : left;
    lockstep::barrier(world).wait();
    for (int trip = 0; trip < round_trips && (world.rank() == left || world.rank() == left + 1); ++trip) {
      std::uint64_t word = 0;
      const auto begin = Clock::now();
      if (world.rank() == left) {
        lockstep::send(world, std::span(&word, 1), peer).wait();
        lockstep::recv(world, std::span(&word, 1), peer).wait();
        times.push_back(seconds_since(begin) / 2);
      } else {
        lockstep::recv(world, std::span(&word, 1), peer).wait();
        lockstep::send(world, std::span(&word, 1), peer).wait();
      }
    }
    const double mine = times.empty() ? 0 : lockstep::base::median(std::move(times));
    slowest = std::max(slowest, over_all(world, mine, ReduceOp::max));
  }
  return slowest;
}

/// The ranks of this host.
Group host_of(const Group& world) {
  int first = 0;
  while (!world.impl().members[first].is_here()) ++first;
  return *world.split(first);
}

/// The slowest host counts. `has_one`: on this host there is something to measure.
double of_slowest_host(const Group& world, bool has_one, const std::function<double()>& rate) {
  return over_all(world, has_one ? rate() : std::numeric_limits<double>::infinity(), ReduceOp::min);
}

}  // namespace

double triad(std::uint64_t bytes, std::chrono::nanoseconds at_least) {
  const std::size_t count = bytes / sizeof(float);
  std::vector<float> a(count, 0), b(count, 1), c(count, 2);
  std::uint64_t rounds = 0;
  const auto begin = Clock::now();
  do {
    const auto factor = static_cast<float>(rounds++);
    for (std::size_t i = 0; i < count; ++i) a[i] = b[i] + factor * c[i];
    std::swap(a, b);
  } while (Clock::now() - begin < at_least);
  return static_cast<double>(rounds * 3 * count * sizeof(float)) / seconds_since(begin);
}

lockstep::view::MachineLimits measure_machine(const Group& world, int passes,
                                              const std::function<void(const std::string&)>& say) {
  const Group host = host_of(world);
  const auto most_cores = static_cast<int>(over_all(world, host.size(), ReduceOp::max));
  lockstep::view::MachineLimits limits{
      .ranks = world.size(),
      .hosts = static_cast<int>(over_all(world, host.rank() == 0 ? 1 : 0, ReduceOp::sum))};
  for (int cores = 1; cores <= most_cores; ++cores) {
    limits.memory_bytes_per_s.push_back(
        of_slowest_host(world, cores <= host.size(), [&] { return memory_rate(host, passes, cores); }));
    say(fmt::format("memory, {}: {:.1f} GB/s (a triad, read and written)",
                    lockstep::base::counted(cores, "core"), limits.memory_bytes_per_s.back() * 1e-9));
  }
  if (most_cores > 1) {
    limits.push_bytes_per_s =
        of_slowest_host(world, host.size() > 1, [&] { return push_rate(host, passes); });
    say(fmt::format("copies into another rank's arena, all ranks of a host together: {:.1f} GB/s",
                    limits.push_bytes_per_s * 1e-9));
  }
  limits.link_bytes_per_s = link_rate(world, passes);
  limits.link_seconds = link_latency(world);
  say(fmt::format("messages from each rank to the next: {:.2f} GB/s each, {:.2f} us for 8 bytes",
                  limits.link_bytes_per_s * 1e-9, limits.link_seconds * 1e6));
  return limits;
}

}  // namespace measure
