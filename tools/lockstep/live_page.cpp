#include "live_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "lockstep/base/process_status.h"
#include "lockstep/base/random_name.h"
#include "lockstep/base/words.h"
#include "lockstep/view/report/leave_report.h"
#include "lockstep/view/report/report_page.h"

using lockstep::ControlPage;
using lockstep::Deadline;
using lockstep::launch::HttpAnswer;
namespace view = lockstep::view;
namespace trace = lockstep::trace;

namespace {

constexpr std::size_t token_bytes = 16;
constexpr std::chrono::seconds kept_for{1}, between_pages{1};
constexpr int refresh_seconds = 5;
// The address, which has the token in it, stays here; and nobody puts the page into one of theirs.
constexpr const char* headers =
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
    "X-Content-Type-Options: nosniff\r\n";

/// As if it ended now.
trace::FlightRecord record_so_far(const ControlPage& page, const std::string& job) {
  trace::FlightRecord record = lockstep::launch::read_running(page);
  record.job = job;
  record.host = lockstep::base::host_name();
  for (trace::FlightRank& rank : record.ranks) {
    if (!rank.joined || rank.left) continue;
    const lockstep::base::ProcessUse use = lockstep::base::read_use(rank.pid);
    rank.costs.left_at_ns = record.at_ns;
    rank.costs.process = {
        .user_ns = use.user_ns, .system_ns = use.system_ns, .most_resident_bytes = use.resident_bytes};
  }
  return record;
}

/// "Rank 1 is stopped. ", of each that does not run; "" where all do.
std::string standing_of(const trace::FlightRecord& record) {
  std::string text;
  for (const trace::FlightRank& rank : record.ranks) {
    const bool is_there =
        !rank.joined || rank.left ||
        (rank.state != trace::ProcessState::stopped && rank.state != trace::ProcessState::gone);
    if (!is_there) text += fmt::format("Rank {} is {}. ", rank.rank, trace::to_string(rank.state));
  }
  return text;
}

}  // namespace

LivePage::LivePage(lockstep::launch::RunningJob job, std::uint16_t port)
    : pages_(std::move(job)),
      path_("/" + lockstep::base::random_name(token_bytes)),
      server_(lockstep::Endpoint::tcp("127.0.0.1", port), "--page",
              [this](const std::string& path) { return answer_to(path); }) {
  look();
}

void LivePage::look() {
  if (next_page_.expired()) {
    next_page_ = Deadline::after(between_pages);
    if (auto page = pages_.next()) {  // ranks have started, or started again
      spool_.reset();
      page_ = std::move(page);
      std::vector<int> places(static_cast<std::size_t>(page_->local_ranks()));
      std::iota(places.begin(), places.end(), 0);
      spool_.emplace(*page_, places);
    }
  }
  if (spool_) spool_->look();
}

Deadline LivePage::wake_at() const {
  const Deadline next = server_.wake_at().earlier_of(next_page_);
  return spool_ ? next.earlier_of(spool_->next_look()) : next;
}

HttpAnswer LivePage::answer_to(const std::string& path) {
  if (path != path_)
    return {.status = "404 Not Found",
            .body = "This page's address has a token in it, which `lockstep top --page` has said.\n",
            .headers = headers};
  if (made_until_.expired()) {
    made_ = make();
    made_until_ = Deadline::after(kept_for);
  }
  return {.type = "text/html; charset=utf-8", .body = made_, .headers = headers};
}

std::string LivePage::make() {
  const std::string& job = pages_.job().name;
  view::RunData run{.name = "job " + job + ", which goes on"};
  run.timeline.job = job;
  if (spool_) {
    run.record = record_so_far(*page_, job);
    for (const trace::FlightGroup& group : run.record->groups)
      run.timeline.groups.emplace_back(group.number, group.name);
    run.timeline.ranks = spool_->copy();
    for (view::RankTimeline& timeline : run.timeline.ranks) {  // places, so far
      const auto known = std::ranges::find(run.record->ranks, timeline.pid, &trace::FlightRank::pid);
      if (known != run.record->ranks.end()) timeline.rank = known->rank;
    }
    std::ranges::sort(run.timeline.ranks, {}, &view::RankTimeline::rank);
  } else {
    run.notes.emplace_back("its ranks have not started yet");
  }
  view::ReportDocument document = view::document_of(run);
  if (run.record) document.sentence = standing_of(*run.record) + document.sentence;
  return view::report_page(document, &run.timeline, refresh_seconds);
}
