// A timeline's file, as a report reads it: whatever is in it, a report comes of it, and what was read is written and read again
// the same.
#include "lockstep/view/report/leave_report.h"
#include "lockstep/view/report/report_page.h"
#include "lockstep/view/report/report_text.h"
#include "lockstep/view/report/timeline_file.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::timeline {
namespace {

constexpr std::size_t few_events = 64;  // so that slices of it are left out, too

view::TimelineParser::Result parse(std::string_view text, std::size_t most) {
  view::TimelineParser parser(most);
  parser.add(text);
  return parser.finish();
}

std::string text_of(const view::Timeline& timeline) {
  std::string text;
  view::write_timeline(timeline, [&](std::string_view piece) { text += piece; });
  return text;
}

void check_report(view::RunData run) {
  const view::ReportDocument document = view::document_of(run);
  require(document.sentence.ends_with('.'), "a verdict is a sentence");
  const auto is_control = [](char c) { return c != '\n' && static_cast<unsigned char>(c) < ' '; };
  require(std::ranges::none_of(view::report_text(document), is_control),
          "a report does nothing to a terminal");
  require(view::report_page_data(document, &run.timeline).find_first_of("<>&") == std::string::npos,
          "nothing in a page's data looks like markup");
}

}  // namespace

int run_one(Input input) {
  const std::string text = Script(input).text(input.size());
  auto read = parse(text, few_events);
  std::size_t events = 0;
  for (const view::RankTimeline& rank : read.timeline.ranks)
    events += rank.calls.size() + rank.steps.size() + rank.spans.size();
  require(events <= few_events, "no more events are kept than there is room for");
  const std::string once = text_of(read.timeline);
  require(text_of(parse(once, few_events).timeline) == once,
          "a timeline that is written and read again is the same");
  view::write_timeline(
      read.timeline, [](std::string_view) {}, true);
  check_report({.name = "file", .timeline = std::move(read.timeline), .notes = std::move(read.notes)});
  return 0;
}

}  // namespace lockstep::fuzz::timeline
