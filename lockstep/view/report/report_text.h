// A report for the terminal.
#pragma once

#include <string>

#include "lockstep/view/report/document.h"

namespace lockstep::view {

/// All of it, in lines. Whatever bytes names have, none of them moves the cursor.
std::string report_text(const ReportDocument& document);

/// The verdict and the few most important lines, as of `speaker`.
std::string report_summary(const ReportDocument& document, const std::string& speaker);

}  // namespace lockstep::view
