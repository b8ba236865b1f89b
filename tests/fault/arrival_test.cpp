// Ranks that never come, come twice or come with another idea of the job: every rank that is there says who
// and why, in the same words, and none waits longer than it has to.
#include <sys/wait.h>

#include <functional>
#include <thread>

#include "lockstep/group/host_hint.h"
#include "lockstep/group/joining.h"
#include "lockstep/group/meet.h"
#include "lockstep/group/place_in_job.h"
#include "lockstep/rendezvous/tcp_store.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const Variables impatient = {{"LOCKSTEP_INIT_TIMEOUT", "3s"}};
const Variables patient = {{"LOCKSTEP_INIT_TIMEOUT", "20s"}};

Variables with(const Variables& some, const Variables& more) {
  Variables all = some;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

auto failed_saying(const std::string& code, const std::string& text) {
  return AllOf(Field("exit_code", &Ending::exit_code, 1),
               Field("err", &Ending::err, AllOf(HasSubstr("code=" + code), HasSubstr(text))));
}

class Arrival : public JobTest {
 protected:
  Process probe(int rank, int size, const Variables& more) {
    return start({program("probe_rank"), "barrier"}, by_hand(rank, size, more));
  }
};

TEST_F(Arrival, ARankThatNeverComesIsNamedByAllOthers) {
  std::vector<Process> ranks;
  for (const int rank : {0, 1, 3}) ranks.push_back(probe(rank, 4, impatient));
  const auto endings = finish(ranks);
  EXPECT_THAT(endings, Each(failed_saying("timeout peer=2", "waited in vain for rank 2 of 4")));
  EXPECT_THAT(endings, Each(Field("err", &Ending::err, HasSubstr("LOCKSTEP_INIT_TIMEOUT"))));
}

TEST_F(Arrival, SeveralThatNeverComeAreAllNamed) {
  std::vector<Process> ranks;
  for (const int rank : {0, 2}) ranks.push_back(probe(rank, 5, impatient));
  EXPECT_THAT(finish(ranks),
              Each(failed_saying("timeout peer=none", "waited in vain for ranks 1, 3, 4 of 5")));
}

TEST_F(Arrival, AMissingRankZeroIsNamed) {
  std::vector<Process> ranks;
  for (const int rank : {1, 2}) ranks.push_back(probe(rank, 3, impatient));
  EXPECT_THAT(finish(ranks), Each(failed_saying("timeout peer=0", "rank 0 never arrived")));
}

TEST_F(Arrival, AMissingRankZeroIsNamedOverTcp) {
  std::vector<Process> ranks;
  const Variables secret = with(impatient, {{"LOCKSTEP_SECRET_FILE", secret_file("one")}});
  ranks.push_back(probe(1, 2, secret));
  EXPECT_THAT(finish(ranks), Each(failed_saying("timeout peer=0", "rank 0 never arrived")));
}

TEST_F(Arrival, UnderTheLauncherToo) {
  const Ending ending =
      start({program("lockstep"), "run", "-np", "3", "--", "/bin/sh", "-c",
             "if [ $RANK = 1 ]; then exec sleep 100; else exec " + program("probe_rank") + " barrier; fi"},
            impatient)
          .finish();
  EXPECT_NE(ending.exit_code, 0);
  for (const char* rank : {"[0]", "[2]"}) {
    EXPECT_THAT(lines_with(ending.err, rank), Each(HasSubstr("waited in vain for rank 1 of 3")));
    EXPECT_THAT(lines_with(ending.err, rank), SizeIs(1));
  }
}

TEST_F(Arrival, TwoProcessesWithOneRankEndTheJobAtOnce) {
  std::vector<Process> ranks;
  for (const int rank : {0, 1, 1}) ranks.push_back(probe(rank, 3, patient));
  EXPECT_THAT(finish(ranks), Each(failed_saying("invalid_argument", "two processes of the job at unix:@")));
}

TEST_F(Arrival, ASecondRankZeroIsToldWhatHappened) {
  std::vector<Process> ranks;
  for (const int rank : {0, 0}) ranks.push_back(probe(rank, 2, impatient));
  const auto endings = finish(ranks);
  EXPECT_THAT(endings, ::testing::UnorderedElementsAre(
                           failed_saying("system", "is there another rank 0, or another job"),
                           failed_saying("timeout peer=1", "waited in vain for rank 1 of 2")));
}

TEST_F(Arrival, DifferentWorldSizesEndTheJobAtOnce) {
  for (const int other : {2, 4}) {
    std::vector<Process> ranks;
    for (const int rank : {0, 1}) ranks.push_back(probe(rank, rank == 1 ? other : 3, patient));
    const auto endings = finish(ranks);
    EXPECT_THAT(endings, Each(failed_saying("invalid_argument", "WORLD_SIZE=" + std::to_string(other))));
    EXPECT_THAT(endings, Each(Field("err", &Ending::err, HasSubstr("WORLD_SIZE=3"))));
  }
}

TEST_F(Arrival, ADeathOfRankZeroWhileTheOthersWaitIsNamed) {
  Process zero = probe(0, 3, patient);
  Process one = probe(1, 3, patient);
  {
    const std::string name = "lockstep-" + std::to_string(::getuid()) + "-port-" + std::to_string(port());
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    TcpStoreOptions options;
    options.job = "port-" + std::to_string(port());
    TcpStore store(Endpoint::unix_abstract(name + "-store"), deadline, options);
    static_cast<void>(store.get("world1/rank/1", deadline));
  }
  zero.send(SIGKILL);
  EXPECT_EQ(zero.finish().exit_code, 128 + SIGKILL);
  EXPECT_THAT(one.finish(), failed_saying("peer_lost peer=0", "rank 0, which holds the meeting place"));
}

TEST_F(Arrival, ARankThatFailsAfterTheMeetingIsNamedByAllAtOnce) {
  std::vector<Process> ranks;
  for (const int rank : {0, 1, 2}) {
    const Variables wrong = {{"LOCKSTEP_SEGMENT_BYTES", "many"}};
    ranks.push_back(probe(rank, 3, rank == 1 ? with(patient, wrong) : patient));
  }
  const auto endings = finish(ranks);
  EXPECT_THAT(endings, Each(Field("err", &Ending::err, HasSubstr("LOCKSTEP_SEGMENT_BYTES=\"many\""))));
  EXPECT_THAT(endings[0], failed_saying("peer_lost peer=1", "rank 1 could not join"));
  EXPECT_THAT(endings[1], failed_saying("invalid_argument", "LOCKSTEP_SEGMENT_BYTES"));
  EXPECT_THAT(endings[2], failed_saying("peer_lost peer=1", "rank 1 could not join"));
}

TEST_F(Arrival, RanksThatNodesOfMemoryCannotShareAreToldSo) {
  std::vector<Process> ranks;
  for (const int rank : {0, 1, 2})
    ranks.push_back(probe(rank, 3, with(patient, {{"LOCKSTEP_RANKS_PER_NODE", "2"}})));
  const auto endings = finish(ranks);
  EXPECT_THAT(endings, Each(Field("exit_code", &Ending::exit_code, 1)));
  EXPECT_THAT(endings,
              Each(Field("err", &Ending::err,
                         HasSubstr("LOCKSTEP_RANKS_PER_NODE=2, which does not divide the 3 ranks"))));
}

TEST_F(Arrival, ARankZeroWithoutMemoryIsNamedByAllAtOnce) {
  std::vector<Process> ranks;
  for (const int rank : {0, 1, 2})
    ranks.push_back(probe(rank, 3, with(patient, {{"LOCKSTEP_ARENA_BYTES", "100000G"}})));
  const auto endings = finish(ranks);
  EXPECT_THAT(endings, Each(Field("err", &Ending::err, HasSubstr("LOCKSTEP_ARENA_BYTES"))));
  EXPECT_THAT(endings[0], failed_saying("system", "bytes of shared memory"));
  for (const int rank : {1, 2})
    EXPECT_THAT(endings[static_cast<std::size_t>(rank)],
                failed_saying("peer_lost peer=0", "rank 0 could not join"));
}

/// Rank 2 of 3, of another host, which comes to the meeting and then does something else than to join.
class AfterTheMeeting : public Arrival {
 protected:
  std::vector<Ending> others_when(const std::function<void()>& act, const Variables& more,
                                  const std::string& hint = of_another_host()) {
    const Variables secret = with(more, {{"LOCKSTEP_SECRET_FILE", secret_file("one")}});
    std::vector<Process> ranks;
    for (const int rank : {0, 1}) ranks.push_back(probe(rank, 3, secret));
    const pid_t two = ::fork();
    if (two == 0) be_rank_two(act, hint);
    auto endings = finish(ranks);
    ::kill(two, SIGKILL);
    EXPECT_EQ(::waitpid(two, nullptr, 0), two);
    return endings;
  }

 private:
  /// Whose ranks reach those of this one at 127.0.0.1.
  static std::string of_another_host() {
    const HostHint own = HostHint::parse(2, HostHint::own(EngineChoice::native));
    return own.machine + " " + own.place + "/elsewhere 0 0 native -1";
  }
  /// An exception must not go on as a second program of tests.
  [[noreturn]] void be_rank_two(const std::function<void()>& act, const std::string& hint) const noexcept {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    TcpStoreOptions options;
    options.trust.secret = Secret::from_file(secret_file("one"));
    options.job = "port-" + std::to_string(port());
    Identity identity;
    identity.rank = 2;
    identity.size = 3;
    identity.store = Endpoint::tcp("127.0.0.1", static_cast<std::uint16_t>(port()));
    const auto job =
        JobStore::open(nullptr, std::make_shared<TcpStore>(identity.store, deadline, options), 0).of_world;
    const auto word = leave_word_at_death(*job, 2);
    static_cast<void>(meet(*job, identity, hint, deadline));
    act();
    ::raise(SIGKILL);
    std::abort();
  }
};

TEST_F(AfterTheMeeting, ARankThatIsKilledIsNamedByAllAtOnce) {
  EXPECT_THAT(others_when([] {}, patient),
              Each(failed_saying("peer_lost peer=2", "rank 2 ended before all ranks were connected")));
}

// By then the others look for trouble at their longest intervals.
TEST_F(AfterTheMeeting, ARankThatIsKilledLateIsNamedByAll) {
  EXPECT_THAT(others_when([] { std::this_thread::sleep_for(std::chrono::seconds(3)); }, patient),
              Each(failed_saying("peer_lost peer=2", "rank 2 ended before all ranks were connected")));
}

TEST_F(AfterTheMeeting, ARankOfAnotherVersionIsNamedByAll) {
  const auto endings = others_when([] { ::pause(); }, patient, "elsewhere");
  EXPECT_THAT(endings, Each(Field("exit_code", &Ending::exit_code, 1)));
  EXPECT_THAT(endings, Each(Field("err", &Ending::err, HasSubstr("rank 2 says \"elsewhere\" of its host"))));
}

TEST_F(AfterTheMeeting, ARankThatDoesNothingIsNamedByAllAtTheDeadline) {
  EXPECT_THAT(others_when([] { ::pause(); }, {{"LOCKSTEP_INIT_TIMEOUT", "5s"}}),
              Each(failed_saying("timeout peer=2", "rank 2 did not connect to group \"world\"")));
}

TEST_F(AfterTheMeeting, ARankZeroThatStopsHoldsNobodyLongerThanTheDeadline) {
  const Variables secret = {{"LOCKSTEP_SECRET_FILE", secret_file("one")}, {"LOCKSTEP_INIT_TIMEOUT", "2s"}};
  Process zero = probe(0, 2, secret);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  TcpStoreOptions options;
  options.trust.secret = Secret::from_file(secret_file("one"));
  options.job = "port-" + std::to_string(port());
  const Endpoint endpoint = Endpoint::tcp("127.0.0.1", static_cast<std::uint16_t>(port()));
  auto watcher = std::make_unique<TcpStore>(endpoint, deadline, options);
  static_cast<void>(watcher->get("world1/rank/0", deadline));
  zero.send(SIGSTOP);
  Process one = probe(1, 2, secret);
  EXPECT_THAT(one.finish(), failed_saying("timeout", "rank 0"));
  zero.send(SIGKILL);
  zero.send(SIGCONT);
  EXPECT_EQ(zero.finish().exit_code, 128 + SIGKILL);
}

TEST_F(Arrival, ATakenPortIsNamed) {
  take_port();
  Process zero = probe(0, 2, {{"LOCKSTEP_SECRET_FILE", secret_file("one")}});
  const std::string taken = "port " + std::to_string(port()) + " on 127.0.0.1 is already in use";
  EXPECT_THAT(zero.finish(), failed_saying("system", taken));
}

class WrongSecret : public Arrival {
 protected:
  Variables secret(const std::string& text) {
    return with(impatient, {{"LOCKSTEP_SECRET_FILE", secret_file(text)}});
  }
};

TEST_F(WrongSecret, IsNamedByTheRankThatHasIt) {
  Process zero = probe(0, 2, secret("right"));
  Process one = probe(1, 2, secret("wrong"));
  EXPECT_THAT(one.finish(), failed_saying("invalid_argument", "wrong secret: this side has one"));
  const Ending ending = zero.finish();
  EXPECT_THAT(ending, failed_saying("timeout peer=1", "waited in vain for rank 1 of 2"));
  EXPECT_THAT(ending.err, HasSubstr("wrong secret: it was turned away"));
  EXPECT_THAT(ending.err, HasSubstr("LOCKSTEP_SECRET_FILE"));
}

TEST_F(WrongSecret, IsNeverPrinted) {
  Process zero = probe(0, 2, with(secret("right"), {{"LOCKSTEP_LOG", "debug"}}));
  Process one = probe(1, 2, with(secret("wrong"), {{"LOCKSTEP_LOG", "debug"}}));
  for (Process* rank : {&zero, &one}) {
    const Ending ending = rank->finish();
    EXPECT_THAT(ending.out + ending.err, AllOf(Not(HasSubstr("rightright")), Not(HasSubstr("wrongwrong"))));
  }
}

TEST_F(WrongSecret, NoneWhereRankZeroHasOneIsHintedAt) {
  Process zero = probe(0, 2, secret("right"));
  Process one = probe(1, 2, impatient);
  const Ending ending = one.finish();
  EXPECT_THAT(ending, failed_saying("timeout peer=0", "this rank has no secret"));
  EXPECT_THAT(ending.err, HasSubstr("LOCKSTEP_SECRET_FILE"));
  EXPECT_THAT(zero.finish(), failed_saying("timeout peer=1", "secret"));
}

TEST_F(WrongSecret, OneWhereRankZeroHasNoneIsHintedAt) {
  Process zero = probe(0, 2, impatient);
  Process one = probe(1, 2, secret("right"));
  EXPECT_THAT(one.finish(), failed_saying("timeout peer=0", "this rank has a secret"));
  EXPECT_THAT(zero.finish(), failed_saying("timeout peer=1", "secret"));
}

TEST_F(WrongSecret, AFileThatOthersMayReadIsRefused) {
  const std::string file = secret_file("right");
  std::filesystem::permissions(file, std::filesystem::perms::group_read, std::filesystem::perm_options::add);
  Process zero = probe(0, 2, {{"LOCKSTEP_SECRET_FILE", file}});
  EXPECT_THAT(zero.finish(), failed_saying("invalid_argument", "run chmod 600 on it"));
}

}  // namespace
}  // namespace lockstep::testing
