// A report as one page of HTML that needs nothing besides itself: no network, no other files. Whatever bytes names have, the
// page shows them and runs nothing but its own script, which its policy names by a hash.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/view/profile/timeline.h"
#include "lockstep/view/report/document.h"

namespace lockstep::view {

/// What the page's timeline shows: of more events whole slices of time are left out, and it says so.
struct PageLimits {
  static constexpr std::size_t events = 60'000;
  static constexpr std::size_t ranks = 64;
  static constexpr std::size_t rows_of_rank = 16;
};

/// What the page's script reads: JSON in which nothing looks like markup. `timeline`: null shows none.
std::string report_page_data(const ReportDocument& document, const Timeline* timeline);

/// The whole page. `refresh_seconds`: after which a browser asks for it again; 0: never.
std::string report_page(const ReportDocument& document, const Timeline* timeline, int refresh_seconds = 0);

}  // namespace lockstep::view
