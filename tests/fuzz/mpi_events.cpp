// The file in which a rank of an MPI program writes its calls, and the timeline that is made of it: whatever is in it, what makes
// sense is drawn, in rows without overlaps.
#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "mpitrace/event_file.h"
#include "mpitrace/merge.h"
#include "mpitrace/routines.h"
#include "tests/fuzz/content_file.h"

namespace lockstep::fuzz::mpi_events {
namespace {

using namespace mpitrace;

/// An input is a header without its padding, and what follows it. What says of which version the file is always fits.
std::vector<std::byte> file_of(Input input) {
  std::vector<std::byte> file(event_names_at);
  const std::size_t of_header = std::min(input.size(), sizeof(EventsHeader));
  std::copy_n(input.begin(), of_header, file.begin());
  auto& header = *reinterpret_cast<EventsHeader*>(file.data());
  header.magic = events_magic;
  header.version = events_version;
  header.routines = routine_count;
  file.insert(file.end(), input.begin() + static_cast<std::ptrdiff_t>(of_header), input.end());
  return file;
}

/// Written in their order, ranges of a row nest, as viewers want them.
void check_rows(const nlohmann::json& events) {
  std::map<std::pair<int, int>, std::vector<double>> ends;
  for (const auto& event : events) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    const double rounding = 0.002 + end * 1e-15;
    std::vector<double>& around = ends[{event.at("pid"), event.at("tid")}];
    while (!around.empty() && around.back() <= begin + rounding) around.pop_back();
    require(around.empty() || end <= around.back() + rounding, "ranges of a row nest");
    around.push_back(end);
  }
}

}  // namespace

int run_one(Input input) {
  constexpr std::size_t few_events = 64;
  const std::vector<std::byte> file = file_of(input);
  try {
    const RankEvents events = read_events(file, "file");
    require(events.timeline.mpi_calls.size() <= file.size() / sizeof(Event) + most_event_threads,
            "no more calls come of a file than are in it");
    for (const view::MpiCall& call : events.timeline.mpi_calls)
      require(call.begin_ns <= call.end_ns, "no call ends before it begins");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data, "a wrong file is corrupt data");
    require(std::string(error.what()).starts_with("file has no calls"), "and is named");
  }
  static const ContentFile content;
  content.replace(file);
  const Merged merged = merge({content.path()}, few_events);
  std::size_t calls = 0;
  for (const view::RankTimeline& rank : merged.timeline.ranks) calls += rank.mpi_calls.size();
  require(calls <= few_events, "no more events are taken than there is room for");
  require(!merged.timeline.ranks.empty() || !merged.timeline.notes.empty(), "what is not there is said");
  std::string text;
  view::write_timeline(merged.timeline, [&](std::string_view piece) { text += piece; });
  check_rows(nlohmann::json::parse(text).at("traceEvents"));
  return 0;
}

}  // namespace lockstep::fuzz::mpi_events
