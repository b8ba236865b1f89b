// What the page is made of, carried by the library: page/ and Chart.js, as cmake/ReportPage.cmake puts them in.
#pragma once

namespace lockstep::view {

extern const char* const page_form;
extern const char* const page_style;
extern const char* const page_script;
extern const char* const chart_script;
extern const char* const chart_licence;

}  // namespace lockstep::view
