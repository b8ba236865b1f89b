// The engine `mpi`: under real MPIs it gives what our own gives, and what cannot be is said. Ranks are on several hosts
// because LOCKSTEP_NODE says so, while for their MPI they are on one; and at last on two hosts for both.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/mpitrace/mpi_peer.h"
#include "tests/support/ssh_job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Case {
  MpiPeer mpi;
  int ranks;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.mpi.peer << " with " << one.ranks; }

/// What an MPI leaves behind where it was not ended as it wants.
void remove_leftovers(const std::filesystem::path& folder, const std::string& beginning) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(beginning)) std::filesystem::remove_all(entry.path());
  }
}

class MpiEngine : public JobTest, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    if (!GetParam().mpi.is_installed())
      GTEST_SKIP() << "script/bootstrap --peers " << GetParam().mpi.peer << " has not been run";
  }
  // MPICH's own, which it leaves where a rank ends without MPI_Finalize().
  void TearDown() override {
    remove_leftovers("/dev/shm", "mpich_shm_");
    JobTest::TearDown();
  }
  static std::string rank_variable() {
    return GetParam().mpi.family == "openmpi" ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK";
  }
  /// Two ranks on each host, in the order of ranks.
  Ending launch(const std::string& words, const Variables& more = {}) const {
    return launch(GetParam().ranks, words, more);
  }
  Ending launch(int ranks, const std::string& words, const Variables& more) const {
    const MpiPeer& mpi = GetParam().mpi;
    std::vector<std::string> all = {mpi.home() / mpi.launcher};
    all.insert(all.end(), mpi.launcher_words.begin(), mpi.launcher_words.end());
    const std::string rank = rank_variable();
    all.insert(all.end(), {"-n", std::to_string(ranks), "/bin/sh", "-c",
                           "LOCKSTEP_NODE=$((" + rank + " / 2)) exec " + words});
    Variables variables = mpi.variables();
    variables.insert(variables.end(),
                     {{"TMPDIR", folder()}, {"LOCKSTEP_ENGINE", "mpi"}, {"LOCKSTEP_INSECURE", "1"}});
    // MPIs do not give back all that they take.
    variables.emplace_back("ASAN_OPTIONS", "detect_leaks=0");
    variables.insert(variables.end(), more.begin(), more.end());
    return start(all, variables).finish();
  }
};

TEST_P(MpiEngine, Conforms) {
  const Ending ending = launch(program("probe_conformance"));
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "conforms, all_reduce by mpi"), SizeIs(GetParam().ranks))
      << ending.out << ending.err;
}

TEST_P(MpiEngine, ServesOneWorldAfterAnother) {
  const Ending ending =
      launch(program("probe_rank") +
             " all_reduce,f32,1000 next_world all_reduce,f32,1000 shutdown all_reduce,f32,1000");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (int rank = 0; rank < GetParam().ranks; ++rank)
    EXPECT_THAT(lines_with(ending.out, "probe rank=" + std::to_string(rank) + " of"), SizeIs(3))
        << ending.out << ending.err;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const MpiPeer& mpi : all_mpis()) {
    // Two families in full; of the others, which are slower to start, that they are understood.
    const bool is_in_full = mpi.peer == "openmpi" || mpi.peer == "mpich";
    for (const int ranks : is_in_full ? std::vector{3, 4} : std::vector{3}) all.push_back({mpi, ranks});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Under, MpiEngine, ::testing::ValuesIn(cases()), [](const auto& instance) {
  return name_of(instance.param.mpi) + "_" + std::to_string(instance.param.ranks);
});

std::string library_of(const MpiPeer& mpi) {
  return mpi.in_home(mpi.libraries) + (mpi.family == "openmpi" ? "/libmpi.so.40" : "/libmpi.so.12");
}

/// What programs do that use MPI themselves, and what is refused, under one MPI.
class MpiEngineUnder : public MpiEngine {
 protected:
  void remove_open_mpis_files() const {
    remove_leftovers("/dev/shm", "sm_segment.");
    remove_leftovers(folder() / "tmp", "ompi.");
  }
  /// AddressSanitizer is to be loaded first, or not to mind.
  static std::string preloading(const std::string& library) {
    return "env ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 LD_PRELOAD=" + library + " ";
  }
  /// A library whose `function` comes back to no one on rank 1, and does MPI's own elsewhere.
  std::string one_that_blocks(const std::string& name) const {
    const std::string source = folder() / "blocks.c", target = folder() / "blocks.so";
    std::ofstream(source) << "#define NAME " << name << R"(
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
int NAME(void* a, void* b, void* c, void* d) {
  while (getenv(")" << rank_variable()
                          << R"(")[0] == '1') pause();
  return ((int (*)(void*, void*, void*, void*))dlsym(RTLD_NEXT, TEXT(NAME)))(a, b, c, d);
}
)";
    const Ending made = run({.words = {"cc", "-shared", "-fPIC", source, "-o", target}});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return target;
  }
  /// A program that uses MPI itself, compiled with it; its arguments say how.
  std::string users_program() const {
    const std::string source = folder() / "user.cpp", target = folder() / "user";
    std::ofstream(source) << R"(#include <mpi.h>
#include <cstdio>
#include <exception>
#include <string>
#include "lockstep/lockstep.h"
int main(int argc, char** argv) {
  const std::string how = argv[1];
  int level = 0;
  MPI_Init_thread(&argc, &argv, how == "funneled" ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
  if (how == "finalized") MPI_Finalize();
  if (how == "errors_return") MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int exit_code = 0;
  try {
    auto world = lockstep::init();
    float one = 1;
    lockstep::all_reduce(world, std::span(&one, 1)).wait();
    std::printf("rank %d has %g\n", world.rank(), one);
    if (how == "errors_return") {
      MPI_Errhandler handler;
      MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
      int nobody = 1000;  // a mistake of the program's own: it gets its error, and goes on
      const int error = MPI_Send(&nobody, 1, MPI_INT, nobody, 0, MPI_COMM_WORLD);
      lockstep::all_reduce(world, std::span(&one, 1)).wait();
      std::printf("rank %d keeps its handler: %d, and then has %g\n", world.rank(),
                  handler == MPI_ERRORS_RETURN && error != MPI_SUCCESS, one);
    }
    for (int call = 0; how == "abort"; ++call) {
      if (call == 100 && world.rank() == 1) MPI_Abort(MPI_COMM_WORLD, 7);
      lockstep::all_reduce(world, std::span(&one, 1)).wait();
    }
    if (how == "too_early") {
      MPI_Finalize();
      lockstep::all_reduce(world, std::span(&one, 1)).wait();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    exit_code = 3;
  }
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (exit_code == 0 && !is_over) MPI_Finalize();
  return exit_code;
}
)";
    const MpiPeer& mpi = GetParam().mpi;
    const std::string binaries = std::getenv("LOCKSTEP_BINARY_DIR");
#if defined(__SANITIZE_ADDRESS__)  // the core's runtime has to come first
    const std::string sanitizer = "-fsanitize=address,undefined";
#else
    const std::string sanitizer = "-g0";
#endif
    const Ending made = run(
        {.words = {"c++", "-std=c++20", sanitizer, "-I" + std::string(std::getenv("LOCKSTEP_SOURCE_DIR")),
                   "-I" + mpi.in_home(mpi.include), source, "-o", target, "-L" + binaries + "/lib",
                   "-llockstep_core", "-Wl,-rpath," + binaries + "/lib", "-L" + mpi.in_home(mpi.libraries),
                   mpi.in_home(mpi.link_words.front()), "-Wl,-rpath," + mpi.in_home(mpi.libraries)}});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return target;
  }
};

TEST_P(MpiEngineUnder, AProgramThatUsesMpiItselfKeepsIt) {
  const Ending ending = launch(users_program() + " multiple");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const char* line : {"rank 0 has 3", "rank 1 has 3", "rank 2 has 3"})
    EXPECT_THAT(ending.out, HasSubstr(line));
}

TEST_P(MpiEngineUnder, AThreadLevelThatIsTooLowIsSaid) {
  const Ending ending = launch(users_program() + " funneled");
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(
      ending.err,
      AllOf(HasSubstr("engine mpi: MPI has the thread level funneled, but Lockstep calls it from whichever "
                      "thread waits"),
            HasSubstr("the program has to ask for it, MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)")));
}

TEST_P(MpiEngineUnder, AnMpiThatIsFinalisedAlreadyIsSaid) {
  const Ending ending = launch(users_program() + " finalized");
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err,
              HasSubstr("engine mpi: the program has called MPI_Finalize() before lockstep::init()"));
}

TEST_P(MpiEngineUnder, AnMpiThatIsFinalisedTooEarlyIsSaid) {
  const Ending ending = launch(users_program() + " too_early");
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("the program has called MPI_Finalize() while Lockstep still uses MPI"));
}

TEST_P(MpiEngineUnder, AnErrorHandlerOfTheProgramsStaysItsOwn) {
  const Ending ending = launch(users_program() + " errors_return");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(ending.out,
                HasSubstr("rank " + std::to_string(rank) + " keeps its handler: 1, and then has 9"));
}

// MPI ends the whole job; what JobTest asks is that nothing of it is left.
TEST_P(MpiEngineUnder, ARankThatAbortsMpiEndsTheJob) {
  const Ending ending = launch(users_program() + " abort");
  EXPECT_EQ(ending.exit_code, 7) << ending.out << ending.err;  // MPICH's launcher may lose its words
  await_end_of_processes();                                    // and ends before the last of its ranks
}

TEST_P(MpiEngineUnder, OneThatIsPreloadedIsTaken) {
  const Ending ending =
      launch(preloading(library_of(GetParam().mpi)) + program("probe_rank") + " all_reduce,f32,1000");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "probe rank="), SizeIs(GetParam().ranks)) << ending.out;
}

// Whose exit() runs what the parent has registered for its own end.
TEST_P(MpiEngineUnder, AForkedChildsEndLeavesMpiAlone) {
  const Ending ending = launch(program("probe_rank") + " barrier fork all_reduce,f32,1000 barrier");
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(ending.out, HasSubstr("probe rank=" + std::to_string(rank) + " of 3 done\n")) << ending.err;
}

TEST_P(MpiEngineUnder, AGroupThatMpiDoesNotMakeIsGivenUpAtTheDeadline) {
  const Ending ending =
      launch(preloading(one_that_blocks("MPI_Comm_create_group")) + program("probe_rank") + " barrier",
             {{"LOCKSTEP_INIT_TIMEOUT", "3s"}});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(
      ending.err,
      HasSubstr("MPI_Comm_create_group has not come back by the deadline "
                "(InitOptions::arrival_timeout, LOCKSTEP_INIT_TIMEOUT): a rank does not make this call, "
                "or is stopped, or the network between the hosts carries nothing"));
  await_end_of_processes();
}

TEST_P(MpiEngineUnder, AnMpiThatDoesNotEndIsLeftAtTheDeadline) {
  const Ending ending =
      launch(preloading(one_that_blocks("MPI_Finalize")) + program("probe_rank") + " barrier",
             {{"LOCKSTEP_INIT_TIMEOUT", "3s"}});
  // The others wait for rank 1 in MPI, and MPI's launcher may end it before it has said so.
  EXPECT_THAT(ending.err,
              ::testing::ContainsRegex("rank [012]: MPI_Finalize has not come back by the deadline"));
  for (const int rank : {0, 1, 2})  // all is done
    EXPECT_THAT(ending.out, HasSubstr("probe rank=" + std::to_string(rank) + " of 3"));
  await_end_of_processes();
}

TEST_P(MpiEngineUnder, AnMpiThatDoesNotBeginIsLeftAtTheDeadline) {
  const Ending ending =
      launch(preloading(one_that_blocks("MPI_Init_thread")) + program("probe_rank") + " barrier",
             {{"LOCKSTEP_INIT_TIMEOUT", "3s"}});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, ::testing::ContainsRegex(
                              "rank [012]: MPI_Init_thread has not come back by the deadline .*; this "
                              "process ends, since MPI cannot be left"));
  await_end_of_processes();
}

TEST_P(MpiEngineUnder, AnMpiOfAnotherFamilyThanTheLaunchersIsSaid) {
  const MpiPeer& other = GetParam().mpi.family == "openmpi" ? all_mpis()[1] : all_mpis()[0];
  if (!other.is_installed()) GTEST_SKIP() << "script/bootstrap --peers " << other.peer << " has not been run";
  Variables variables = {{"LOCKSTEP_MPI_LIBRARY", library_of(other)}};
  const Ending ending = launch(program("probe_rank") + " barrier", variables);
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, ::testing::ContainsRegex(
                              "engine mpi: the MPI in this process is .*MPI.*, but its launcher is that of "
                              ".*: if it ends now, or says that it is alone, start the job by its "
                              "own launcher"));
  if (other.family == "openmpi") remove_open_mpis_files();
}

TEST_P(MpiEngineUnder, HalvesOnTheWireAreRefused) {
  const Ending ending = launch(program("probe_rank") + " barrier", {{"LOCKSTEP_WIRE_DTYPE", "bf16"}});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err,
              HasSubstr("rank 0 has LOCKSTEP_WIRE_DTYPE=bf16, but with the engine mpi it is MPI that "
                        "sends, in full width: leave one of them out"));
}

// MPI does not tell who is missing: ranks 0 and 1 say that they wait for each other, and rank 3 says nothing.
TEST_P(MpiEngineUnder, ARankThatDoesNotComeIsNamedAmongThoseThatWait) {
  const std::string probe = "exec " + program("probe_rank");
  const Ending ending =
      launch(4,
             "/bin/sh -c 'case $" + rank_variable() + " in 3) " + probe + " barrier sleep,4000;; 2) " +
                 probe + " barrier all_to_all_v,9-9-9-9,9-9-9-9;; *) " + probe +
                 " barrier sleep,300 all_to_all_v,9-9-9-9,9-9-9-9;; esac'",
             {{"LOCKSTEP_TIMEOUT", "2s"}});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("rank 3 did not arrive within 2 s"));
  await_end_of_processes();
}

// By what they tell each other with their elements: nobody waits.
TEST_P(MpiEngineUnder, SmallCallsThatDifferAreNamed) {
  const std::string probe = "exec " + program("probe_rank");
  for (const std::string other : {"all_reduce,f32,50", "all_reduce,f32,200", "all_reduce,i32,100"}) {
    const Ending ending =
        launch(4,
               "/bin/sh -c 'case $" + rank_variable() + " in 0|1) " + probe +
                   " barrier all_reduce,f32,100;; *) " + probe + " barrier " + other + ";; esac'",
               {});
    EXPECT_NE(ending.exit_code, 0);
    EXPECT_THAT(ending.err, ::testing::ContainsRegex("ranks called different operations: rank [01] called "
                                                     "all_reduce \\(sum of f32 x 100.*, rank [23] called"));
  }
}

TEST_P(MpiEngineUnder, RanksWithDifferentEnginesAreNamed) {
  const std::string rank = rank_variable();
  const Ending ending = launch("/bin/sh -c 'test $" + rank + " = 2 && export LOCKSTEP_ENGINE=native; exec " +
                               program("probe_rank") + " barrier'");
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("rank 0 has the engine mpi, rank 2 the engine native"));
}

TEST_P(MpiEngineUnder, ALibraryThatIsNoMpiIsNamed) {
  const Ending ending =
      launch(program("probe_rank") + " barrier", {{"LOCKSTEP_MPI_LIBRARY", "/lib/libc.so.6"}});
  EXPECT_NE(ending.exit_code, 0);
  EXPECT_THAT(ending.err, HasSubstr("LOCKSTEP_MPI_LIBRARY=/lib/libc.so.6 is no library of an MPI"));
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiEngineUnder,
                         ::testing::Values(Case{all_mpis()[0], 3}, Case{all_mpis()[1], 3}),
                         [](const auto& instance) { return name_of(instance.param.mpi); });

/// On two hosts, to which the MPI's launcher comes by ssh. Both have one /dev/shm and one name, under which MPIs mix up their
/// ranks: Open MPI is told not to use it, and has two ranks on each; Intel MPI has one.
class MpiEngineBetweenHosts : public SshJobTest, public ::testing::WithParamInterface<MpiPeer> {
 protected:
  void SetUp() override {
    SshJobTest::SetUp();
    if (!GetParam().is_installed())
      GTEST_SKIP() << "script/bootstrap --peers " << GetParam().peer << " has not been run";
    make_hosts(2);
  }
  int ranks() const { return GetParam().family == "openmpi" ? 4 : 2; }
  std::string remote_shell() const {
    const std::string path = folder() / "remote_shell";
    std::ofstream(path) << "#!/bin/sh\nexec " << servers().client() << " \"$@\"\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  Ending launch(const std::string& what) const {
    std::vector<std::string> words = {GetParam().home() / GetParam().launcher};
    const auto add = [&](const std::vector<std::string>& more) {
      words.insert(words.end(), more.begin(), more.end());
    };
    Variables variables = GetParam().variables();
    if (GetParam().family == "openmpi") {
      add({"--allow-run-as-root",
           "--prtemca",
           "plm_ssh_agent",
           remote_shell(),
           "-H",
           list(2),
           "-x",
           "LOCKSTEP_ENGINE",
           "-x",
           "LOCKSTEP_INSECURE",
           "-x",
           "ASAN_OPTIONS",
           "--mca",
           "pml",
           "ob1",
           "--mca",
           "btl",
           "self,tcp",
           "--mca",
           "btl_tcp_if_include",
           "cable"});
    } else {
      const std::string both = hosts().address(0) + "," + hosts().address(1);
      add({"-bootstrap", "ssh", "-bootstrap-exec", remote_shell(), "-iface", "cable", "-hosts", both, "-ppn",
           "1"});
      variables.insert(variables.end(), {{"I_MPI_FABRICS", "shm:ofi"},
                                         {"FI_PROVIDER", "tcp"},
                                         {"FI_TCP_IFACE", "cable"},
                                         {"I_MPI_PIN", "off"}});
    }
    add({"-n", std::to_string(ranks()), what});
    variables.insert(variables.end(), {{"TMPDIR", folder()},
                                       {"LOCKSTEP_ENGINE", "mpi"},
                                       {"LOCKSTEP_INSECURE", "1"},
                                       {"ASAN_OPTIONS", "detect_leaks=0"}});
    return start(words, variables, hosts().network(0)).finish();
  }
};

TEST_P(MpiEngineBetweenHosts, Conforms) {
  const Ending ending = launch(program("probe_conformance"));
  EXPECT_EQ(ending.exit_code, 0) << ending.err;
  EXPECT_THAT(lines_with(ending.out, "conforms, all_reduce by mpi"), SizeIs(ranks()))
      << ending.out << ending.err;
}

INSTANTIATE_TEST_SUITE_P(Under, MpiEngineBetweenHosts, ::testing::Values(all_mpis()[0], all_mpis()[2]),
                         [](const auto& instance) { return name_of(instance.param); });

class EngineName : public JobTest {
 protected:
  std::vector<Ending> on_two_hosts(const std::string& engine) {
    std::vector<Process> ranks;
    for (const int rank : {0, 1}) {
      ranks.push_back(
          start({program("probe_rank"), "barrier"}, by_hand(rank, 2,
                                                            {{"LOCKSTEP_NODE", std::to_string(rank)},
                                                             {"LOCKSTEP_ENGINE", engine},
                                                             {"LOCKSTEP_INSECURE", "1"}})));
    }
    return finish(ranks);
  }
};

TEST_F(EngineName, ThatPyTorchHasForSocketsMeansOurs) {
  for (const char* name : {"native", "gloo", "tcp"}) {
    for (const Ending& ending : on_two_hosts(name))
      EXPECT_EQ(ending.exit_code, 0) << name << ": " << ending.err;
  }
}

TEST_F(EngineName, OfWhatIsNotThereIsRefusedWithWhatItTakes) {
  EXPECT_THAT(on_two_hosts("nccl"),
              Each(Field(&Ending::err,
                         HasSubstr("engine nccl, which moves data between GPUs: cannot load libcuda.so.1"))));
}

TEST_F(EngineName, ThatIsNoneIsNamedWithThoseThereAre) {
  EXPECT_THAT(on_two_hosts("ucx"),
              Each(Field(&Ending::err, HasSubstr("LOCKSTEP_ENGINE is \"ucx\"; there are native (also called "
                                                 "gloo and tcp), mpi, and nccl for GPUs"))));
}

TEST_F(EngineName, MpiWithoutItsLauncherIsRefused) {
  const auto endings = on_two_hosts("mpi");
  const auto is_refused = [](const Ending& ending) {
    return ending.err.find("engine mpi: this process was not started by the launcher of an MPI") !=
           std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(endings, is_refused)) << endings[0].err << endings[1].err;
  EXPECT_THAT(endings, Each(Field(&Ending::exit_code, 1)));
}

}  // namespace
}  // namespace lockstep::testing
