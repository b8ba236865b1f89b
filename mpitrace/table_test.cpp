#include "mpitrace/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/folder_test.h"
#include "mpitrace/profile.h"
#include "mpitrace/rescue.h"

namespace lockstep::mpitrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Tables : public test::FolderTest {
 protected:
  void TearDown() override {
    for (Table* table : tables_) {
      table->forget();
      delete table;
    }
  }

  /// Goes with the test.
  Table* create(const std::string& path, std::string& problem) {
    Table* const table = Table::create(path, false, problem);
    if (table != nullptr) tables_.push_back(table);
    return table;
  }

  Table* make(int rank, const std::string& run = "") {
    std::string problem;
    Table* const table = create(path(rank), problem);
    EXPECT_EQ(problem, "");
    Header& header = table->header();
    header.version = table_version;
    header.slots = slot_count;
    header.rank = rank;
    header.ranks = 2;
    std::copy(run.begin(), run.end(), header.run);
    header.job[0] = 'j';
    header.magic = table_magic;
    return table;
  }
  std::string path(int rank) const { return folder_ / (".lockstep_mpitrace.j." + std::to_string(rank)); }

 private:
  std::vector<Table*> tables_;
};

std::uint64_t calls_in(const Table& table) {
  std::uint64_t calls = 0;
  const RankProfile profile = read_profile({table.data(), table.size()}, "the table");
  for (const view::RoutineSums& routine : profile.sums.routines) calls += routine.all().calls;
  return calls;
}

TEST_F(Tables, AddUpWhatThreadsCounted) {
  Table* const table = make(0);
  Sums* const one = table->join();
  Sums* const other = table->join();
  ASSERT_NE(one, other);
  add(one[0], 8, 100);
  add(other[0], 8, 100);
  table->leave(one);
  EXPECT_EQ(table->join(), one) << "what a thread left goes on with the next";
  add(one[0], 8, 100);
  EXPECT_EQ(calls_in(*table), 3U);
  table->remove_file();
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(calls_in(*table), 3U) << "the numbers stay";
}

TEST_F(Tables, OfALivingProcessStayAndAnotherHasANameOfItsOwn) {
  Table* const first = make(0);
  Table* const second = make(0);
  EXPECT_NE(first->path(), second->path());
  EXPECT_THAT(rescue(folder_, "", true).lines, IsEmpty());
  first->remove_file();
  second->remove_file();
}

TEST_F(Tables, WithoutAFolderAreInMemoryAlone) {
  std::string problem;
  Table* const table = create(folder_ / "missing" / "table", problem);
  ASSERT_NE(table, nullptr);
  EXPECT_THAT(problem, HasSubstr("No such file or directory"));
  EXPECT_EQ(table->path(), "");
  add(table->join()[0], 0, 1);
}

TEST_F(Tables, WithoutRoomOnTheDiskAreInMemoryAlone) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = page_bytes, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string problem;
  Table* const table = create(path(0), problem);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(problem, HasSubstr("File too large"));
  EXPECT_EQ(table->path(), "");
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_NE(table->join(), nullptr);
}

TEST_F(Tables, OfThoseThatAreGoneBecomeProfiles) {
  for (const int rank : {0, 1}) {
    Table* const table = make(rank, "run1");
    add(table->join()[0], 8, 100);
    table->forget();
  }
  EXPECT_THAT(rescue(folder_, "run2", true).lines, IsEmpty()) << "of another run";
  const Rescued rescued = rescue(folder_, "run1", true);
  ASSERT_THAT(rescued.lines, SizeIs(1));
  EXPECT_THAT(rescued.lines.front(), HasSubstr("2 ranks of 2 ended before MPI_Finalize"));
  EXPECT_FALSE(fs::exists(path(0)));
  std::ifstream file(folder_ / "mpi_profile.j.1");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "Data for MPI rank 1 of 2:");
  std::getline(file, line);
  EXPECT_THAT(line, HasSubstr("the rank ended before MPI_Finalize()."));
}

TEST_F(Tables, SayInWhichCallARankEnded) {
  Table* const table = make(0);
  Sums* const slots = table->join();
  const auto text = [&](RankEnd end) {
    return profile_text(read_profile({table->data(), table->size()}, "the table"), {.ranks = 2}, end);
  };
  table->header().begin_ns = 1'000'000'000;
  begin_call(slots, routines[1].slot, 3'500'000'000);
  EXPECT_THAT(text(RankEnd::early), HasSubstr("The rank ended in " + std::string(routines[1].name) +
                                              ", called 2.500 seconds after MPI_Init()"));
  EXPECT_THAT(text(RankEnd::finalized), Not(HasSubstr("The rank ended in")));
  end_call(slots, 4'000'000'000);
  EXPECT_THAT(text(RankEnd::early), Not(HasSubstr("The rank ended in")));
}

TEST_F(Tables, ThatAreDamagedAreNamedAndStay) {
  make(0)->forget();
  std::fstream(path(0), std::ios::in | std::ios::out) << "no table";
  std::ofstream(path(1)) << "short";
  const Rescued rescued = rescue(folder_, "", true);
  EXPECT_TRUE(rescued.has_failed);
  EXPECT_THAT(rescued.lines, SizeIs(2));
  EXPECT_TRUE(fs::exists(path(0)) && fs::exists(path(1)));
}

TEST_F(Tables, WithMoreThreadsThanTheFileHasAreRefused) {
  Table* const table = make(0);
  table->header().threads = 900;
  table->forget();
  EXPECT_TRUE(rescue(folder_, "", true).has_failed);
}

}  // namespace
}  // namespace lockstep::mpitrace
