// A wrong table for the choice of algorithms ends the job before it begins, in words that say which file it
// was and what is wrong with it, on whichever ranks it was given.
#include <fstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Wrong {
  const char* name;
  std::string content;  ///< "": there is no such file
  std::string says;
};

std::ostream& operator<<(std::ostream& out, const Wrong& wrong) { return out << wrong.name; }

const Wrong wrongs[] = {
    {"Missing", "", "cannot open the tuning file"},
    {"NotJson", "{", "is no JSON; `lockstep bench --calibrate` writes a new one"},
    {"OfAnotherFormat", R"({"format": "lockstep-tuning-9"})",
     R"("format" is "lockstep-tuning-9", not "lockstep-tuning-1")"},
    {"WithoutSizes", R"({"format": "lockstep-tuning-1"})", R"(lacks "segment_bytes")"},
};

class TuningFile : public JobTest, public ::testing::WithParamInterface<Wrong> {
 protected:
  std::string file() const {
    const std::string path = folder() / "table.json";
    if (!GetParam().content.empty()) std::ofstream(path) << GetParam().content;
    return path;
  }
  auto names_it(const std::string& path) const { return AllOf(HasSubstr(path), HasSubstr(GetParam().says)); }
};

TEST_P(TuningFile, OnAllRanksIsNamedByAll) {
  const std::string path = file();
  const Ending ending = launch_probes(3, {"barrier"}, {{"LOCKSTEP_TUNING_FILE", path}});
  EXPECT_EQ(ending.exit_code, 1);
  for (const char* rank : {"[0]", "[1]", "[2]"})
    EXPECT_THAT(lines_with(ending.err, rank), AllOf(SizeIs(1), Each(names_it(path)))) << ending.err;
}

TEST_P(TuningFile, OnOneRankIsNamedByAllAndBlamedOnIt) {
  const std::string path = file();
  for (const int wrong : {0, 1}) {
    std::vector<Process> ranks;
    const std::string own_port = std::to_string(another_port());
    for (const int rank : {0, 1, 2}) {
      Variables variables = by_hand(rank, 3);
      variables.emplace_back("MASTER_PORT", own_port);
      if (rank == wrong) variables.emplace_back("LOCKSTEP_TUNING_FILE", path);
      ranks.push_back(start({program("probe_rank"), "barrier"}, variables));
    }
    const auto endings = finish(ranks);
    for (int rank = 0; rank < 3; ++rank) {
      const Ending& ending = endings[static_cast<std::size_t>(rank)];
      EXPECT_EQ(ending.exit_code, 1);
      EXPECT_THAT(ending.err, names_it(path));
      if (rank == wrong) continue;
      EXPECT_THAT(ending.err, HasSubstr("code=peer_lost peer=" + std::to_string(wrong)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, TuningFile, ::testing::ValuesIn(wrongs),
                         [](const auto& info) { return info.param.name; });

class UnreadableTuningFile : public JobTest {};

TEST_F(UnreadableTuningFile, IsNamed) {
  const std::string folder_path = folder() / "folder";
  std::filesystem::create_directory(folder_path);
  for (const auto& [path, says] : {std::pair<std::string, std::string>{folder_path, "found a directory"},
                                   {"/dev/null", "found a device or socket"}}) {
    const Ending ending = launch_probes(2, {"barrier"}, {{"LOCKSTEP_TUNING_FILE", path}});
    EXPECT_EQ(ending.exit_code, 1) << path;
    EXPECT_THAT(lines_with(ending.err, "["), AllOf(SizeIs(2), Each(AllOf(HasSubstr(path), HasSubstr(says)))))
        << ending.err;
  }
}

}  // namespace
}  // namespace lockstep::testing
