#include "mpitrace/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/words.h"
#include "mpitrace/source_lines.h"

namespace lockstep::mpitrace {
namespace {

const std::string rule(65, '-');

view::CallSums to_view(const Sums& sums) { return {load(sums.calls), load(sums.bytes), load(sums.ns)}; }

std::string text_of(const char* field, std::size_t bytes) { return {field, ::strnlen(field, bytes)}; }

const Header& check(std::span<const std::byte> table, const std::string& what) {
  const auto& header = *reinterpret_cast<const Header*>(table.data());
  const bool is_whole = table.size() >= page_bytes && header.magic == table_magic &&
                        header.version == table_version && header.slots == slot_count &&
                        header.threads <= most_threads && header.modules <= module_count &&
                        (header.threads == 0 || table.size() >= threads_at + header.threads * thread_bytes);
  if (!is_whole)
    throw Error(ErrorCode::corrupt_data, what + " is no table of this version's mpitrace libraries");
  return header;
}

/// Slot by slot, of all threads; the last is the end of the last call.
std::vector<view::CallSums> sum_threads(std::span<const std::byte> table, std::uint32_t threads) {
  std::vector<view::CallSums> all(slot_count);
  std::uint64_t last_ns = 0;
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    const auto* slots = reinterpret_cast<const Sums*>(table.data() + threads_at + thread * thread_bytes);
    for (std::size_t slot = 0; slot < all.size(); ++slot) all[slot] += to_view(slots[slot]);
    last_ns = std::max(last_ns, load(slots[slot_count].ns));
  }
  all.push_back({.ns = last_ns});
  return all;
}

void add_routines(RankProfile& profile, const std::vector<view::CallSums>& slots) {
  for (const Routine& routine : routines) {
    view::RoutineSums sums{.name = routine.name, .has_sizes = routine.has_sizes};
    const auto first = slots.begin() + routine.slot;
    std::copy(first, first + slots_of(routine), sums.by_size.begin());
    const view::CallSums all = sums.all();
    profile.sums.communication_ns += all.ns;
    if (all.calls != 0) profile.sums.routines.push_back(std::move(sums));
    if (routine.wait_slot < 0) continue;
    const view::CallSums waits = slots[static_cast<std::size_t>(routine.wait_slot)];
    profile.sums.communication_ns += waits.ns;
    if (waits.calls != 0) profile.waits.push_back({routine.name, waits, all});
  }
}

/// Null: no routine's sums begin there.
const Routine* routine_at(std::uint64_t slot) {
  const auto* const found = std::ranges::find_if(
      routines, [&](const Routine& routine) { return static_cast<std::uint64_t>(routine.slot) == slot; });
  return found == std::end(routines) ? nullptr : found;
}

void add_open_calls(RankProfile& profile, std::span<const std::byte> table, const Header& header) {
  for (std::uint32_t thread = 0; thread < header.threads; ++thread) {
    const auto* slots = reinterpret_cast<const Sums*>(table.data() + threads_at + thread * thread_bytes);
    const Sums& now = slots[slot_count];
    const Routine* const routine = now.calls == 0 ? nullptr : routine_at(now.calls - 1);
    if (routine != nullptr)
      profile.open_calls.push_back({routine->name, std::max(now.bytes, header.begin_ns) - header.begin_ns});
  }
}

void add_sites(RankProfile& profile, std::span<const std::byte> table) {
  const auto* modules = reinterpret_cast<const Module*>(table.data() + modules_at);
  const auto* sites = reinterpret_cast<const Site*>(table.data() + sites_at);
  for (const Site& site : std::span(sites, site_count)) {
    const std::uint64_t slot = site.key & 0xffffU;
    const Routine* const routine = routine_at(slot);
    if (site.key == 0 || site.is_complete == 0 || site.module >= module_count || routine == nullptr) continue;
    profile.sites.push_back({.file = text_of(modules[site.module].path, sizeof(Module::path)),
                             .offset = site.offset,
                             .routine = routine->name,
                             .sums = to_view(site.sums)});
  }
}

void add_open_calls_text(std::string& text, const RankProfile& rank) {
  if (rank.open_calls.empty()) return;
  text += rule + "\n";
  for (const OpenCall& call : rank.open_calls)
    text += fmt::format(
        "The rank ended in {}, called {:.3f} seconds after MPI_Init(); it is not counted above.\n",
        call.routine, base::in_seconds(call.begin_ns));
  text += "\n";
}

void add_waits(std::string& text, const RankProfile& rank) {
  if (rank.waits.empty()) return;
  text += rule + "\nBarriers before collectives: waiting for other ranks, and the collective after it.\n" +
          "The total communication time has both, the rows above only the second.\n\n" +
          "MPI Routine                        #calls   waiting(sec)  transfer(sec)\n";
  for (const WaitSums& sums : rank.waits) {
    text += fmt::format("{:<28} {:>12}   {:>12.3f}   {:>12.3f}\n", sums.routine, sums.waits.calls,
                        base::in_seconds(sums.waits.ns), base::in_seconds(sums.calls.ns));
  }
  text += "\n";
}

/// A place in the program with all routines that it calls: an address may be a loop over a pointer to functions.
using Place = std::pair<std::string, std::uint64_t>;

void add_sites_text(std::string& text, const RankProfile& rank) {
  if (rank.sites.empty()) return;
  std::map<Place, std::vector<SiteSums>> places;
  std::map<Place, std::uint64_t> time;
  for (const SiteSums& site : rank.sites) {
    places[{site.file, site.offset}].push_back(site);
    time[{site.file, site.offset}] += site.sums.ns;
  }
  std::vector<Place> order;
  for (const auto& [place, sums] : places) order.push_back(place);
  std::ranges::stable_sort(order, std::greater(), [&](const Place& place) { return time[place]; });
  const auto lines = source_lines(order);
  text += rule + "\nCommunication by call site, the longest first:\n\n";
  for (const Place& place : order) {
    text += fmt::format("communication time = {:.3f} sec, call site address = {:#x} in {}\n    {}\n",
                        base::in_seconds(time[place]), place.second, place.first, lines.at(place));
    text += fmt::format("    {:<28} {:>12}    {:>11}   {:>12}\n", "MPI Routine", "#calls", "avg. bytes",
                        "time(sec)");
    for (const SiteSums& site : places[place]) {
      const double average = static_cast<double>(site.sums.bytes) /
                             static_cast<double>(std::max<std::uint64_t>(1, site.sums.calls));
      text += fmt::format("    {:<28} {:>12}    {:>11.1f}   {:>12.3f}\n", site.routine, site.sums.calls,
                          average, base::in_seconds(site.sums.ns));
    }
    text += "\n";
  }
  if (rank.calls_without_site != 0)
    text += fmt::format("{} calls came from more places than are kept.\n", rank.calls_without_site);
}

}  // namespace

RankProfile read_profile(std::span<const std::byte> table, const std::string& what) {
  const Header& header = check(table, what);
  RankProfile profile{.ranks = header.ranks,
                      .pid = header.pid,
                      .job = text_of(header.job, sizeof(header.job)),
                      .run = text_of(header.run, sizeof(header.run)),
                      .calls_without_site = header.lost_calls};
  const std::vector<view::CallSums> slots = sum_threads(table, header.threads);
  profile.sums.rank = header.rank;
  profile.sums.costs = {.elapsed_ns = std::max(slots.back().ns, header.begin_ns) - header.begin_ns,
                        .user_ns = header.user_ns - header.user_ns_before,
                        .system_ns = header.system_ns - header.system_ns_before,
                        .most_resident_bytes = header.most_resident_bytes};
  add_routines(profile, slots);
  add_open_calls(profile, table, header);
  if (header.has_sites != 0 && table.size() >= threads_at) add_sites(profile, table);
  return profile;
}

std::string profile_text(const RankProfile& rank, const view::RunExtremes& run, RankEnd end) {
  view::ProfileWords words;
  if (end == RankEnd::early)
    words.period =
        "Times and statistics from MPI_Init() to the last call: the rank ended before MPI_Finalize().";
  std::string text = view::flat_profile(rank.sums, run, words);
  if (end == RankEnd::early) add_open_calls_text(text, rank);
  add_waits(text, rank);
  add_sites_text(text, rank);
  return text;
}

std::string profile_name(const std::string& job, int rank) {
  return "mpi_profile." + job + "." + std::to_string(rank);
}

void write_profile(const std::string& path, const std::string& text) { write_file(path, "profile", text); }

}  // namespace lockstep::mpitrace
