// A report before it is a text or a page: sentences, tables and charts, whose numbers have become words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/view/report/analysis.h"
#include "lockstep/view/report/verdict.h"

namespace lockstep::view {

struct ReportTable {
  std::string title = {};
  std::string note = {};  ///< what has to be known to read it
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::string>> rows = {};  ///< as wide as `columns`; the first cell names the row
};

struct ReportChart {
  enum class Kind {
    waterfall,  ///< one series, whose parts add up to the last bar
    stacked,    ///< a bar for each label, of all series
    side_by_side,
  };
  struct Series {
    std::string name = {};
    std::vector<double> values = {};  ///< by label
  };
  Kind kind = Kind::stacked;
  std::string title = {};
  std::string unit = {};
  std::vector<std::string> labels = {};
  std::vector<Series> series = {};
};

struct ReportDocument {
  std::string title = {};
  std::string sentence = {};
  struct Remedy {
    std::string gain = {};  ///< "up to 4.2 ms a step (19 %)"
    std::string why = {};   ///< "": the sentence has said it
    std::string text = {};
  };
  std::vector<Remedy> remedies = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< name and value
  std::vector<std::string> failure = {};                        ///< where each rank was
  std::vector<ReportChart> charts = {};
  std::vector<ReportTable> tables = {};
  std::vector<std::string> notes = {};
};

/// No table has more rows; what is left out is said.
inline constexpr std::size_t most_rows = 64;

ReportDocument document_of(const Analysis& analysis, const Verdict& verdict);

/// What changed from one run to the other.
ReportDocument difference_of(const Analysis& before, const Analysis& after);

}  // namespace lockstep::view
