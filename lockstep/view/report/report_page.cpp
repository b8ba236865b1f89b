#include "lockstep/view/report/report_page.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/words.h"
#include "lockstep/view/profile/free_rows.h"
#include "lockstep/view/profile/time_slices.h"
#include "lockstep/view/report/page_parts.h"

namespace lockstep::view {
namespace {

using nlohmann::json;

/// Of a script or style, as a Content-Security-Policy names it.
std::string source_hash(const std::string& source) {
  std::array<unsigned char, 32> digest{};
  (void)::EVP_Digest(source.data(), source.size(), digest.data(), nullptr, ::EVP_sha256(), nullptr);
  std::array<unsigned char, 48> text{};
  const int length = ::EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(digest.size()));
  return "'sha256-" + std::string(text.begin(), text.begin() + length) + "'";
}

/// Within a script of HTML nothing of it may look like markup.
std::string in_page(const json& value) {
  std::string text;
  for (const char c : value.dump(-1, ' ', true, json::error_handler_t::replace)) {
    if (c == '<' || c == '>' || c == '&') {
      text += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      text += c;
    }
  }
  return text;
}

json json_of(const ReportChart& chart) {
  json series = json::array();
  for (const ReportChart::Series& one : chart.series)
    series.push_back({{"name", one.name}, {"values", one.values}});
  static constexpr const char* kinds[] = {"waterfall", "stacked", "side by side"};
  json made = {{"kind", kinds[static_cast<int>(chart.kind)]},
               {"title", chart.title},
               {"unit", chart.unit},
               {"labels", chart.labels},
               {"series", series}};
  return made;
}

json json_of(const ReportDocument& document) {
  json made = {{"title", document.title},     {"sentence", document.sentence}, {"facts", document.facts},
               {"failure", document.failure}, {"notes", document.notes},       {"remedies", json::array()},
               {"charts", json::array()},     {"tables", json::array()}};
  for (const auto& remedy : document.remedies)
    made["remedies"].push_back({{"gain", remedy.gain}, {"why", remedy.why}, {"text", remedy.text}});
  for (const ReportChart& chart : document.charts) made["charts"].push_back(json_of(chart));
  for (const ReportTable& table : document.tables)
    made["tables"].push_back(
        {{"title", table.title}, {"note", table.note}, {"columns", table.columns}, {"rows", table.rows}});
  return made;
}

/// A timeline as the page's script draws it: rows of a rank, and their events one after the other in one list of numbers,
/// name, begin, length, first part (waiting; of a step until its last gradient), bytes, number; times in units of 100 ns.
class PageTimeline {
 public:
  explicit PageTimeline(const Timeline& timeline) : timeline_(timeline) {
    std::uint64_t last = 0;
    begin_ns_ = ~std::uint64_t{0};
    each_event([&](std::uint64_t begin, std::uint64_t end) {
      begin_ns_ = std::min(begin_ns_, begin);
      last = std::max(last, end);
    });
    end_ns_ = std::max(last, begin_ns_);
    while (count() > PageLimits::events && kept_of_ < (std::uint64_t{1} << 20U)) kept_of_ *= 2;
  }

  json run() {
    json ranks = json::array();
    for (const RankTimeline& rank : timeline_.ranks) {
      if (ranks.size() == PageLimits::ranks) break;
      rows_ = json::array();
      add_steps(rank);
      add_calls(rank);
      add_mpi_calls(rank);
      add_spans(rank);
      ranks.push_back({{"rank", rank.rank}, {"host", rank.host}, {"rows", std::move(rows_)}});
    }
    json made = {{"ranks", ranks}, {"end", units(end_ns_)}};
    made["names"] = names_;
    if (kept_of_ > 1 || left_out_ > 0)
      made["note"] =
          fmt::format("Of each {} the first {} is here: there are more events than a page can hold.",
                      base::duration(kept_of_ * slice_ns), base::duration(slice_ns));
    if (timeline_.ranks.size() > PageLimits::ranks)
      made["note"] = made.value("note", "") + fmt::format(" The first {} ranks are here.", PageLimits::ranks);
    return made;
  }

 private:
  template <class Use>
  void each_event(Use use) const {
    for (const RankTimeline& rank : timeline_.ranks) {
      for (const auto& event : rank.steps) use(event.begin_ns, event.end_ns);
      for (const auto& event : rank.calls) use(event.begin_ns, event.end_ns);
      for (const auto& event : rank.spans) use(event.begin_ns, event.end_ns);
      for (const auto& event : rank.mpi_calls) use(event.begin_ns, event.end_ns);
    }
  }
  bool is_kept(std::uint64_t begin_ns) const {
    return is_in_kept_slice(begin_ns - std::min(begin_ns, begin_ns_), kept_of_);
  }
  std::size_t count() const {
    std::size_t kept = 0;
    each_event([&](std::uint64_t begin, std::uint64_t) { kept += is_kept(begin) ? 1 : 0; });
    return kept;
  }
  std::uint64_t units(std::uint64_t ns) const { return (ns - std::min(ns, begin_ns_)) / 100; }

  std::size_t number_of(const std::string& name) {
    const auto [found, is_new] = numbers_.emplace(name, names_.size());
    if (is_new) names_.push_back(name);
    return found->second;
  }

  /// `first`: the row of the kind's first one in rows_.
  void add(std::size_t first, int row, const char* kind, const std::string& name, std::uint64_t begin_ns,
           std::uint64_t end_ns, std::uint64_t part_ns, std::uint64_t bytes, std::uint64_t number) {
    const std::size_t at = first + static_cast<std::size_t>(row);
    if (at >= PageLimits::rows_of_rank || drawn_ >= PageLimits::events) {
      ++left_out_;
      return;
    }
    while (rows_.size() <= at) rows_.push_back({{"kind", kind}, {"events", json::array()}});
    json& events = rows_[at]["events"];
    for (const std::uint64_t value : {std::uint64_t{number_of(name)}, units(begin_ns),
                                      units(end_ns) - units(begin_ns), part_ns / 100, bytes, number})
      events.push_back(value);
    ++drawn_;
  }

  template <class Event, class Add>
  void each_in_row(const std::vector<Event>& events, Add add_event) const {
    std::vector<const Event*> ordered;
    for (const Event& event : events) {
      if (is_kept(event.begin_ns)) ordered.push_back(&event);
    }
    std::ranges::stable_sort(ordered, {}, &Event::begin_ns);
    FreeRows rows;
    for (const Event* event : ordered) add_event(rows.take(event->begin_ns, event->end_ns).first, *event);
  }

  void add_steps(const RankTimeline& rank) {
    const std::size_t first = rows_.size();
    each_in_row(rank.steps, [&](int row, const trace::TrainingStepEvent& step) {
      const std::uint64_t last =
          std::clamp(step.last_gradient_ns, step.begin_ns, std::max(step.begin_ns, step.end_ns));
      add(first, row, "training", "step", step.begin_ns, std::max(step.begin_ns, step.end_ns),
          last - step.begin_ns, step.gradient_bytes, step.step);
    });
  }
  void add_calls(const RankTimeline& rank) {
    const std::size_t first = rows_.size();
    each_in_row(rank.calls, [&](int row, const trace::CollectiveEvent& call) {
      const std::uint64_t end = std::max(call.begin_ns, call.end_ns);
      add(first, row, "calls", std::string(to_string(call.operation)), call.begin_ns, end,
          std::clamp(call.arrived_ns, call.begin_ns, end) - call.begin_ns,
          call.elements * size_of(call.dtype), call.sequence);
    });
  }
  void add_mpi_calls(const RankTimeline& rank) {
    const std::size_t first = rows_.size();
    std::uint64_t number = 0;
    each_in_row(rank.mpi_calls, [&](int row, const MpiCall& call) {
      const std::uint64_t end = std::max(call.begin_ns, call.end_ns);
      const std::uint64_t arrived =
          call.has_arrived ? std::clamp(call.arrived_ns, call.begin_ns, end) : call.begin_ns;
      add(first, row, "calls", std::string(call.routine), call.begin_ns, end, arrived - call.begin_ns,
          call.bytes, ++number);
    });
  }
  void add_spans(const RankTimeline& rank) {
    std::map<std::uint32_t, std::vector<trace::SpanEvent>> threads;
    for (const trace::SpanEvent& span : rank.spans) {
      if (trace::is_of_thread(span)) threads[span.thread].push_back(span);
    }
    for (const auto& [thread, spans] : threads) {
      const std::size_t first = rows_.size();
      each_in_row(spans, [&](int row, const trace::SpanEvent& span) {
        add(first, row, "program", std::string(name_of(rank, span)), span.begin_ns,
            std::max(span.begin_ns, span.end_ns), 0, 0, 0);
      });
    }
  }

  const Timeline& timeline_;
  std::uint64_t begin_ns_ = 0, end_ns_ = 0;
  std::uint64_t kept_of_ = 1;
  std::size_t drawn_ = 0, left_out_ = 0;
  json rows_;
  std::vector<std::string> names_;
  std::map<std::string, std::size_t> numbers_;
};

/// What stands in {{name}} is replaced, and nothing within what is put there.
std::string filled(std::string_view form, const std::map<std::string, std::string, std::less<>>& parts) {
  std::string page;
  while (true) {
    const std::size_t begin = form.find("{{"), end = form.find("}}", begin);
    page += form.substr(0, begin);
    if (begin == std::string_view::npos) return page;
    page += parts.at(std::string(form.substr(begin + 2, end - begin - 2)));
    form.remove_prefix(end + 2);
  }
}

}  // namespace

std::string report_page_data(const ReportDocument& document, const Timeline* timeline) {
  json data = json_of(document);
  const bool has_events =
      timeline != nullptr && std::ranges::any_of(timeline->ranks, [](const RankTimeline& rank) {
        return !rank.calls.empty() || !rank.steps.empty() || !rank.spans.empty() || !rank.mpi_calls.empty();
      });
  if (has_events) data["timeline"] = PageTimeline(*timeline).run();
  return in_page(data);
}

std::string report_page(const ReportDocument& document, const Timeline* timeline, int refresh_seconds) {
  const std::string style = page_style;
  const std::string script = std::string(chart_script) + "\n" + page_script;
  const std::string policy =
      fmt::format("default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
                  source_hash(script), source_hash(style));
  const std::string refresh =
      refresh_seconds > 0 ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", refresh_seconds)
                          : "";
  return filled(page_form, {{"policy", policy},
                            {"refresh", refresh},
                            {"style", style},
                            {"licence", chart_licence},
                            {"data", report_page_data(document, timeline)},
                            {"script", script}});
}

}  // namespace lockstep::view
