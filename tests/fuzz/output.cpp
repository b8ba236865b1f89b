// What a rank prints, in pieces: lines with a prefix, whatever the pieces, and no byte lost.
#include <algorithm>

#include "lockstep/launch/output/line_prefixer.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::output {
namespace {

using launch::LinePrefixer;

constexpr std::size_t lines_kept = 3;

struct Printed {
  std::string text;
  std::vector<std::string> last_lines;
};

Printed print(const std::string& prefix, const std::vector<std::string>& pieces) {
  LinePrefixer prefixer(prefix, lines_kept);
  Printed printed;
  for (const std::string& piece : pieces) prefixer.add(piece, printed.text);
  prefixer.finish(printed.text);
  printed.last_lines = prefixer.last_lines();
  return printed;
}

}  // namespace

int run_one(Input input) {
  Script script(input);
  std::vector<std::string> pieces;
  std::string all;
  while (!script.is_over()) {
    pieces.push_back(script.text(script.byte()));
    all += pieces.back();
  }
  require(print("", pieces).text == all, "without a prefix no byte changes");
  const Printed printed = print("[0] ", pieces);
  const Printed at_once = print("[0] ", {all});
  require(printed.text == at_once.text, "lines do not depend on the pieces");
  require(printed.last_lines == at_once.last_lines, "nor do the last ones");
  require(printed.last_lines.size() <= lines_kept, "which are few");
  require(std::ranges::none_of(printed.last_lines, [](const auto& line) { return line.empty(); }),
          "and say something");
  require(all.empty() == printed.text.empty() && (all.empty() || printed.text.starts_with("[0] ")),
          "every line has the prefix");
  return 0;
}

}  // namespace lockstep::fuzz::output
