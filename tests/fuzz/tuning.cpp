// A table of algorithms: what is accepted is understood, and written and read again it is the same.
#include "lockstep/schedule/tuning.h"

#include "lockstep/base/error.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::tuning {
namespace {

constexpr std::size_t longest_message = 1000;

bool is_one_line(const std::string& text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

void check(const Tuning& tuning) {
  require(tuning.staging_bytes <= most_staging_bytes, "no table asks for more than there is");
  for (const Tuning::Rule& rule : tuning.rules) {
    require(rule.ranks > 0 && !rule.choose.empty(), "a rule has ranks and a choice");
    for (std::size_t i = 1; i < rule.choose.size(); ++i)
      require(rule.choose[i - 1].up_to_bytes <= rule.choose[i].up_to_bytes, "limits do not descend");
  }
}

}  // namespace

int run_one(Input input) {
  try {
    const Tuning tuning = Tuning::parse(Script(input).text(input.size()), "file");
    check(tuning);
    const std::string text = tuning.to_text();
    const Tuning again = Tuning::parse(text, "text");
    require(again == tuning, "a table that is written and read again is the same");
    require(again.to_text() == text, "and is written alike");
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::invalid_argument, "a wrong table is an invalid argument");
    require(what.starts_with("file: "), "what is wrong in a table begins with its name");
    require(what.size() <= longest_message && is_one_line(what), "and is a line that can be read");
  }
  return 0;
}

}  // namespace lockstep::fuzz::tuning
