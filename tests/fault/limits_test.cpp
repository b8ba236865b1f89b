// Limits of the system that a job meets: it ends with an error that says which one and what to do, and waits
// for nothing; or it does not need what is limited.
#include <sys/mount.h>

#include <fstream>

#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const Variables impatient = {{"LOCKSTEP_INIT_TIMEOUT", "1s"}};  // where a rank may be missing
const Variables patient = {{"LOCKSTEP_INIT_TIMEOUT", "30s"}};

/// `words` in a shell that has done `before`, "ulimit -n 10".
std::vector<std::string> limited(const std::string& before, const std::vector<std::string>& words) {
  std::vector<std::string> shell = {"/bin/sh", "-c", before + R"(; exec "$@")", "sh"};
  shell.insert(shell.end(), words.begin(), words.end());
  return shell;
}

class Limits : public JobTest {
 protected:
  Ending launch(const std::string& limit, const std::vector<std::string>& actions,
                const Variables& patience = patient) {
    std::vector<std::string> words = {program("lockstep"), "run", "-np", "2", program("probe_rank")};
    words.insert(words.end(), actions.begin(), actions.end());
    return start(limited(limit, words), patience).finish();
  }
  std::vector<Ending> start_by_hand(const std::string& limit, const std::vector<std::string>& actions,
                                    const Variables& patience = patient) {
    std::vector<std::string> words = {program("probe_rank")};
    words.insert(words.end(), actions.begin(), actions.end());
    const int own_port = another_port();
    std::vector<Process> ranks;
    for (const int rank : {0, 1}) {
      Variables variables = by_hand(rank, 2, patience);
      variables.emplace_back("MASTER_PORT", std::to_string(own_port));
      ranks.push_back(start(limited(limit, words), variables));
    }
    return finish(ranks);
  }
};

// The sanitizers need descriptors and address space themselves, and say other things where there are none.
#ifndef __SANITIZE_ADDRESS__

/// What says that it is about descriptors; the dynamic linker's words are its own.
bool names_the_descriptors(const std::string& text) {
  return text.find("ulimit -n is ") != std::string::npos ||
         text.find("error while loading shared libraries") != std::string::npos;
}

/// A rank that comes a second late on a busy machine says nothing about descriptors.
bool was_only_slow(const std::string& text) {
  return text.find("waited in vain") != std::string::npos && !names_the_descriptors(text);
}

TEST_F(Limits, FewDescriptorsAreNamedByTheLauncherUntilTheyAreEnough) {
  int enough = 3, retries = 5;
  for (; enough < 64; ++enough) {
    const Ending ending =
        launch("ulimit -n " + std::to_string(enough), {"barrier", "all_reduce,f32,1000"}, impatient);
    if (ending.exit_code == 0) break;
    if (was_only_slow(ending.err) && retries-- > 0) {
      --enough;
      continue;
    }
    EXPECT_TRUE(names_the_descriptors(ending.err)) << enough << " descriptors: " << ending.err;
  }
  EXPECT_GT(enough, 4);
  EXPECT_LT(enough, 64);
}

TEST_F(Limits, FewDescriptorsAreNamedByARankStartedByHandUntilTheyAreEnough) {
  int enough = 3, retries = 5;
  for (; enough < 64; ++enough) {
    const auto endings =
        start_by_hand("ulimit -n " + std::to_string(enough), {"barrier", "all_reduce,f32,1000"}, impatient);
    if (endings[0].exit_code == 0 && endings[1].exit_code == 0) break;
    if (was_only_slow(endings[0].err + endings[1].err) && retries-- > 0) {
      --enough;
      continue;
    }
    EXPECT_TRUE(names_the_descriptors(endings[0].err + endings[1].err))
        << enough << " descriptors: " << endings[0].err << endings[1].err;
    for (const Ending& ending : endings) EXPECT_NE(ending.exit_code, 0) << enough << " descriptors";
  }
  EXPECT_GT(enough, 4);
  EXPECT_LT(enough, 64);
}

TEST_F(Limits, LittleAddressSpaceIsNamedByAllRanks) {
  const Ending ending = launch("ulimit -v 300000", {"barrier"});
  EXPECT_EQ(ending.exit_code, 1);
  for (const char* rank : {"[0]", "[1]"}) {
    EXPECT_THAT(lines_with(ending.err, rank),
                AllOf(SizeIs(1), Each(AllOf(HasSubstr("LOCKSTEP_ARENA_BYTES"), HasSubstr("ulimit -v")))))
        << ending.err;
  }
}

#endif  // __SANITIZE_ADDRESS__

TEST_F(Limits, SmallFilesAreNamedByTheLauncher) {
  const Ending ending = launch("ulimit -f 100", {"barrier"});
  EXPECT_EQ(ending.exit_code, 1);
  EXPECT_THAT(ending.err, AllOf(HasSubstr("shared memory lockstep-control"), HasSubstr("raise ulimit -f")));
  const Ending none = launch("ulimit -f 0", {"barrier"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("writing the job secret: "), HasSubstr("raise ulimit -f")));
}

TEST_F(Limits, SmallFilesAreNamedByAllRanks) {
  const auto endings = start_by_hand("ulimit -f 100", {"barrier"});
  EXPECT_THAT(endings, Each(Field(&Ending::exit_code, 1)));
  EXPECT_THAT(endings, Each(Field(&Ending::err, HasSubstr("raise ulimit -f"))));
  EXPECT_THAT(endings[1].err, HasSubstr("code=peer_lost peer=0"));
}

TEST_F(Limits, NoLockedMemoryIsNeeded) {
  const Ending ending = launch("ulimit -l 0", {"everything"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

TEST_F(Limits, NoRoomInTheFolderOfSharedMemoryIsNeeded) {
  // In a mount namespace of this process alone (tests/support/private_folders.cpp), where that is possible.
  if (::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") != 0)
    GTEST_SKIP() << "mounting takes root's rights";
  std::ofstream("/dev/shm/all") << std::string(8192, 'x');
  EXPECT_EQ(std::filesystem::file_size("/dev/shm/all"), 4096U) << "there is room left";
  const Ending ending = launch_probes(2, {"everything"});
  const auto by_hand = start_by_hand("true", {"everything"});
  std::filesystem::remove("/dev/shm/all");
  EXPECT_TRUE(std::filesystem::is_empty("/dev/shm"));
  EXPECT_EQ(::umount("/dev/shm"), 0);
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(by_hand, Each(Field(&Ending::exit_code, 0)));
}

class Interrupts : public JobTest {};

TEST_F(Interrupts, ThatEndSystemCallsEarlyChangeNoResult) {
  const Ending ending = launch_probes(3, {"--interrupt-every=100", "everything"});
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(ending.out, HasSubstr("of 3 done"));
}

TEST_F(Interrupts, ThatEndSystemCallsEarlyDisturbNoStart) {
  for (int times = 0; times < 5; ++times) {
    auto ranks = start_probes(3, {"--interrupt-every=100", "barrier", "all_reduce,f32,100000"},
                              {{"LOCKSTEP_SECRET_FILE", secret_file("ours")}});
    for (const Ending& ending : finish(ranks)) {
      EXPECT_EQ(ending.exit_code, 0) << ending.err;
      EXPECT_EQ(ending.err, "");
    }
  }
}

TEST_F(Interrupts, ThatEndSystemCallsEarlyChangeNoResultOnTwoHosts) {
  REQUIRE_TWO_HOSTS();
  auto ranks = start_probes_on_two_hosts(3, {"--interrupt-every=100", "everything"});
  for (const Ending& ending : finish(ranks)) EXPECT_EQ(ending.exit_code, 0) << ending.err;
}

}  // namespace
}  // namespace lockstep::testing
