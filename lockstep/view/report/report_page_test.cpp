#include "lockstep/view/report/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/folder_test.h"
#include "lockstep/view/report/leave_report.h"
#include "lockstep/view/report/made_up_run_test.h"
#include "lockstep/view/report/report_text.h"

namespace lockstep::view {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string hostile = "</script><script>alert(1)</script><!-- \"'&\\ \xff\x01\x1b[2J {{data}}";

RunData hostile_run() {
  RunData run = MadeUpTraining{}.run();
  run.name = hostile;
  run.notes = {hostile};
  for (RankTimeline& rank : run.timeline.ranks) {
    rank.host = hostile;
    rank.span_names[1] = hostile;
  }
  run.record->host = hostile;
  return run;
}

/// What the page's script reads.
nlohmann::json data_in(const std::string& page) {
  const std::string begin = "id=\"report\">";
  const std::size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

TEST(ReportPage, ShowsAnyNameAndRunsNothingOfIt) {
  const RunData run = hostile_run();
  const std::string page = report_page(document_of(run), &run.timeline);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)<")));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page,
              ContainsRegex("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                            "script-src 'sha256-[A-Za-z0-9+/]+=+'; style-src 'sha256-[A-Za-z0-9+/]+=+'"));
  const auto data = data_in(page);
  EXPECT_THAT(data["title"].get<std::string>(),
              HasSubstr("</script><script>alert(1)</script><!-- \"'&\\ \xef\xbf\xbd\x01"));
  EXPECT_THAT(data["timeline"]["ranks"][0]["host"].get<std::string>(), HasSubstr("alert(1)"));
}

TEST(ReportPage, LoadsNothingFromElsewhere) {
  const RunData run = MadeUpTraining{}.run();
  const std::string page = report_page(document_of(run), &run.timeline);
  for (const char* way :
       {" src=", "<link", "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML", "eval("})
    EXPECT_THAT(page, Not(HasSubstr(way))) << way;
  EXPECT_THAT(page, HasSubstr("Chart.js v3"));
  EXPECT_THAT(page, HasSubstr("Permission is hereby granted"));
}

TEST(ReportPage, HoldsABoundedPartOfALongTimeline) {
  const RunData run = made_up_calls(4, 40'000, 1, 3);
  const auto timeline = data_in(report_page(document_of(run), &run.timeline))["timeline"];
  std::size_t numbers = 0;
  for (const auto& rank : timeline["ranks"]) {
    for (const auto& row : rank["rows"]) numbers += row["events"].size();
  }
  EXPECT_GT(numbers / 6, PageLimits::events / 4);
  EXPECT_LE(numbers / 6, PageLimits::events);
  EXPECT_THAT(timeline["note"].get<std::string>(), HasSubstr("more events than a page can hold"));
}

TEST(ReportText, SaysWhoCameAndWent) {
  RunData run = MadeUpTraining{}.run();
  run.record->changes = {
      {.at_ns = 1 + 20 * made_up_ms, .view = 2, .text = "rank 1 has died: <signal> 9 (SIGKILL)"},
      {.at_ns = 1 + 3100 * made_up_ms, .view = 3, .text = "rank 1 has come back"}};
  run.record->changes_left_out = 4;
  const std::string text = report_text(document_of(run));
  EXPECT_THAT(text, HasSubstr("\nWho came and went\n"));
  EXPECT_THAT(text,
              ContainsRegex(
                  "20 ms +rank 1 has died: <signal> 9 \\(SIGKILL\\) +2\n +3.1 s +rank 1 has come back +3\n"));
  EXPECT_THAT(text, HasSubstr("4 changes before these are not kept."));
  EXPECT_THAT(report_text(document_of(MadeUpTraining{}.run())), Not(HasSubstr("Who came and went")));
}

TEST(ReportText, DoesNothingToATerminal) {
  const ReportDocument document = document_of(hostile_run());
  const auto is_control = [](char c) {
    return c != '\n' && (static_cast<unsigned char>(c) < ' ' || c == '\x7f');
  };
  EXPECT_EQ(std::ranges::count_if(report_text(document), is_control), 0);
  EXPECT_EQ(std::ranges::count_if(report_summary(document, "lockstep run"), is_control), 0);
}

class ReportFolder : public test::FolderTest {
 protected:
  std::string leave(const RunData& run) {
    return leave_report(folder_, run.timeline, *run.record, {}, "lockstep run");
  }
};

TEST_F(ReportFolder, HoldsOneRunWhichIsReadAsItWas) {
  RunData run = MadeUpTraining{}.run();
  run.timeline.job = run.record->job = "0ne";
  std::ofstream(folder_ / "lockstep_profile.else.json") << "somebody else's";
  EXPECT_EQ(what_a_report_replaces(folder_, "lockstep run"), "");
  leave(run);
  EXPECT_THAT(what_a_report_replaces(folder_, "lockstep run"),
              HasSubstr("is of another run, and is replaced"));
  run.timeline.job = run.record->job = "tw0";
  EXPECT_THAT(leave(run), AllOf(HasSubstr("lockstep run: Nothing stands out"),
                                HasSubstr("lockstep run: the report is ")));
  EXPECT_THAT(files(), ::testing::ElementsAre("lockstep_profile.else.json", "lockstep_profile.tw0.json",
                                              "report.html", "timeline.json"));
  RunData read = read_run(folder_);
  read.name = run.name;
  EXPECT_EQ(report_text(document_of(read)), report_text(document_of(run)));
}

TEST_F(ReportFolder, WithAFileThatIsMissingOrGarbledSaysWhatIsNotKnown) {
  const RunData run = MadeUpTraining{}.run();
  leave(run);
  std::filesystem::remove(folder_ / "timeline.json");
  EXPECT_THAT(read_run(folder_).notes, Each(HasSubstr("there is no timeline.json")));
  leave(run);
  std::ofstream(folder_ / "lockstep_profile.4f2a.json") << "{\"format\":";
  const RunData read = read_run(folder_);
  EXPECT_THAT(read.notes, Each(HasSubstr("the record could not be read: ")));
  EXPECT_EQ(read.timeline.ranks.size(), 4U);
  std::ofstream(folder_ / "timeline.json") << "no timeline";
  EXPECT_THROW((void)read_run(folder_), Error);
}

TEST_F(ReportFolder, ThatIsNoneIsRefusedByName) {
  for (const auto& path : {folder_ / "none", folder_}) {
    try {
      (void)read_run(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(
          error.what(),
          AllOf(HasSubstr(path.string()),
                HasSubstr("`lockstep run --report DIR` or `lockstep profile --report DIR` has filled")));
    }
  }
}

}  // namespace
}  // namespace lockstep::view
