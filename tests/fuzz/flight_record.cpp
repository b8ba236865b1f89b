// A flight record's file: what is accepted is written and read again the same, and explained, however made
// up.
#include "lockstep/trace/flight_record.h"

#include "lockstep/base/error.h"
#include "lockstep/view/explain/explain.h"
#include "lockstep/view/profile/run_profile.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::flight_record {
namespace {

constexpr std::size_t longest_message = 20000;  // texts of the file may be quoted: FlightLimits::text_bytes

void check_explanation(const trace::FlightRecord& record) {
  const std::string text = view::explain(record);
  require(!text.empty() && text.front() != '\n' && text.back() == '\n', "an explanation has lines");
  const auto is_control = [](char c) { return c != '\n' && static_cast<unsigned char>(c) < ' '; };
  require(std::ranges::none_of(text, is_control), "and does nothing to a terminal");
}

void check_profile(const trace::FlightRecord& record) {
  const auto is_control = [](char c) { return c != '\n' && static_cast<unsigned char>(c) < ' '; };
  const std::string summary = view::profile_summary(record);
  require(std::ranges::none_of(summary, is_control), "a profile does nothing to a terminal");
  for (const trace::FlightRank& rank : record.ranks) {
    const std::string text = view::profile_text(record, rank, view::extremes_of({view::costs_of(rank)}));
    require(text.starts_with("Data for rank ") && text.back() == '\n', "a rank's profile has lines");
  }
}

}  // namespace

int run_one(Input input) {
  try {
    const auto record = trace::FlightRecord::parse(Script(input).text(input.size()), "file");
    const std::string text = record.to_text();
    require(trace::FlightRecord::parse(text, "text").to_text() == text,
            "a record that is written and read again is the same");
    check_explanation(record);
    check_profile(record);
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::corrupt_data, "a wrong record is corrupt data");
    require(what.starts_with("file: "), "what is wrong in a record begins with its name");
    require(what.size() <= longest_message, "and can be read");
  }
  return 0;
}

}  // namespace lockstep::fuzz::flight_record
