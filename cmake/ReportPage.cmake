# The report's page needs nothing besides itself, so the library carries it, with Chart.js and its licence, as
# ${report_page_source}.
find_file(LOCKSTEP_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
          DOC "Chart.js 3, minified")
find_file(LOCKSTEP_CHART_JS_LICENCE NAMES copyright LICENSE.md PATHS /usr/share/doc/libjs-chart.js NO_DEFAULT_PATH
          DOC "The licence of Chart.js")
if(NOT LOCKSTEP_CHART_JS OR NOT LOCKSTEP_CHART_JS_LICENCE)
  message(FATAL_ERROR "Chart.js 3 is missing, which reports are drawn with: script/bootstrap installs it (libjs-chart.js), "
                      "or set LOCKSTEP_CHART_JS to a chart.min.js and LOCKSTEP_CHART_JS_LICENCE to its licence")
endif()

macro(lockstep_page_part name file)
  file(READ "${file}" ${name})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
endmacro()
set(report_page ${PROJECT_SOURCE_DIR}/lockstep/view/report/page)
lockstep_page_part(LOCKSTEP_PAGE_FORM ${report_page}/page.html)
lockstep_page_part(LOCKSTEP_PAGE_STYLE ${report_page}/page.css)
lockstep_page_part(LOCKSTEP_PAGE_SCRIPT ${report_page}/page.js)
lockstep_page_part(LOCKSTEP_CHART_SCRIPT ${LOCKSTEP_CHART_JS})
lockstep_page_part(LOCKSTEP_CHART_LICENCE ${LOCKSTEP_CHART_JS_LICENCE})
set(report_page_source ${PROJECT_BINARY_DIR}/report_page_parts.cpp)
configure_file(${report_page}/page_parts.cpp.in ${report_page_source} @ONLY)
# Clang warns of literals that are longer than the standard asks a compiler for.
set_source_files_properties(${report_page_source} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
