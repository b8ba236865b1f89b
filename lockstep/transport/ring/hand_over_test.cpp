#include "lockstep/transport/ring/hand_over.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/transport/ring/presence.h"

namespace lockstep {
namespace {

using test::eventually;
using test::soon;
using testing::HasSubstr;

// For the first rank; its endpoint is one that no other test uses.
Meeting new_meeting(int local_ranks) {
  static std::atomic<int> meetings = 0;
  const std::string name =
      "lockstep-shm-test-" + std::to_string(::getpid()) + "-" + std::to_string(++meetings);
  return {
      .endpoint = Endpoint::unix_abstract(name), .local_ranks = local_ranks, .trust = {}, .deadline = soon()};
}

Meeting as_rank(Meeting meeting, int local_rank) {
  meeting.local_rank = local_rank;
  return meeting;
}

// A process that is a rank, killed at the latest when the test is over.
class Child {
 public:
  template <class Life>
  explicit Child(Life life) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      life();
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill();
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

TEST(HandOver, ProcessesShareOneRegionAndNoticeTheDeadAndOnlyThose) {
  constexpr int ranks = 4;
  const Meeting meeting = new_meeting(ranks);
  std::vector<Child> children;
  for (int rank = 1; rank < ranks; ++rank) {
    children.emplace_back([&] {
      const auto region =
          HostRegion::attach(std::move(hand_over(as_rank(meeting, rank), {}, 1).front()), ranks);
      const auto is_alive = watch_presence(region, rank);
      region->arena(rank)[0] = static_cast<std::byte>(40 + rank);
      region->progress(rank).completed.store(1);
      for (;;) ::pause();
    });
  }
  const auto region = HostRegion::create(ranks, 4096);
  const int fd = region->fd();
  EXPECT_TRUE(hand_over(meeting, std::span(&fd, 1), 1).empty());
  const auto is_alive = watch_presence(region, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    ASSERT_TRUE(eventually([&] { return region->progress(rank).completed.load() == 1; }));
    EXPECT_EQ(region->arena(rank)[0], static_cast<std::byte>(40 + rank));
    EXPECT_TRUE(is_alive(rank));
  }
  children[1].kill();
  EXPECT_TRUE(eventually([&] { return !is_alive(2); }));
  EXPECT_TRUE(is_alive(1));
  EXPECT_TRUE(is_alive(3));
}

TEST(HandOver, AFirstRankAloneMeetsNobody) {
  const int fd = 0;
  EXPECT_TRUE(hand_over(new_meeting(1), std::span(&fd, 1), 1).empty());
}

TEST(HandOver, SaysWhoNeverCame) {
  Meeting meeting = new_meeting(3);
  meeting.deadline = Deadline::after(std::chrono::milliseconds(50));
  const int fd = 0;
  try {
    (void)hand_over(meeting, std::span(&fd, 1), 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2 of this host did not come"));
  }
}

// What strangers do before rank 1 comes must neither end nor hold up the meeting of two ranks.
template <class Strange>
void expect_meeting_in_spite_of(Strange strange, Trust trust = {}) {
  Meeting meeting = new_meeting(2);
  meeting.trust = std::move(trust);
  const auto begin = std::chrono::steady_clock::now();
  std::thread other([&] {
    [[maybe_unused]] const auto strangers = strange(meeting);
    EXPECT_EQ(hand_over(as_rank(meeting, 1), {}, 2).size(), 2U);
  });
  const UniqueFd file = make_memfd("test", 4096);
  const std::array<int, 2> offered{file.get(), file.get()};
  EXPECT_TRUE(hand_over(meeting, offered, 2).empty());
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

Destination region_of(const Meeting& meeting) {
  return {.kind = Destination::Kind::region, .rank = 0, .endpoint = meeting.endpoint.to_string()};
}

void expect_closed(Socket& socket) {
  std::byte byte{};
  EXPECT_THROW(socket.receive_all(std::span(&byte, 1), soon()), Error);
}

TEST(HandOver, StrangersThatCloseAtOnceBreakNothing) {
  expect_meeting_in_spite_of([](const Meeting& meeting) {
    for (int i = 0; i < 20; ++i) (void)Socket::connect(meeting.endpoint, soon());
    return 0;
  });
}

TEST(HandOver, StrangersThatKeepSilentHoldNobodyUp) {
  expect_meeting_in_spite_of([](const Meeting& meeting) {
    std::vector<Socket> strangers(30);
    for (Socket& socket : strangers) socket = Socket::connect(meeting.endpoint, soon());
    const ClientProof half(meeting.trust, region_of(meeting), {.rank = 1, .use = 2});
    strangers.back().send_all(half.opening(), soon());
    return strangers;
  });
}

TEST(HandOver, MoreSilentStrangersThanThereIsRoomForAreThrownOutSooner) {
  expect_meeting_in_spite_of([](const Meeting& meeting) {
    std::vector<Socket> strangers(80);
    for (Socket& socket : strangers) socket = Socket::connect(meeting.endpoint, soon());
    return strangers;
  });
}

TEST(HandOver, GarbageIsNotParsed) {
  expect_meeting_in_spite_of([](const Meeting& meeting) {
    std::vector<Socket> strangers;
    for (const std::size_t bytes : {1U, 64U, 3000U}) {
      strangers.push_back(Socket::connect(meeting.endpoint, soon()));
      try {
        strangers.back().send_all(std::vector<std::byte>(bytes, std::byte{0x5a}), soon());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_lost);
      }
    }
    return strangers;
  });
}

TEST(HandOver, NothingIsGivenToWhoCannotProveHimself) {
  expect_meeting_in_spite_of([](const Meeting& meeting) {
    Socket stranger = Socket::connect(meeting.endpoint, soon());
    const ClientProof guess({.secret = Secret::random()}, region_of(meeting), {.rank = 1, .use = 2});
    stranger.send_all(guess.opening(), soon());
    stranger.send_all(proof::Confirmation{}, soon());
    std::vector<std::byte> heard(sizeof(proof::Greeting) + sizeof(proof::Answer) + 32 + 1);
    EXPECT_THROW(stranger.receive_all(heard, soon()), Error) << "greeting, answer and refusal at most";
    return 0;
  });
}

TEST(HandOver, ARankComesOnce) {
  const Meeting meeting = new_meeting(3);
  std::thread others([&] {
    EXPECT_EQ(hand_over(as_rank(meeting, 1), {}, 1).size(), 1U);
    EXPECT_THROW((void)hand_over(as_rank(meeting, 1), {}, 1), Error);
    EXPECT_EQ(hand_over(as_rank(meeting, 2), {}, 1).size(), 1U);
  });
  const UniqueFd file = make_memfd("test", 4096);
  const int fd = file.get();
  EXPECT_NO_THROW((void)hand_over(meeting, std::span(&fd, 1), 1));
  others.join();
}

/// What rank 1 of a host throws whose first rank is world rank 4 and does `life` with its listener.
template <class Life>
Error thrown_where_the_first_rank(const Life& life, Meeting meeting) {
  meeting.world_ranks = {4, 7};
  Listener listener = Listener::bind(meeting.endpoint);
  std::thread first([&] { life(std::move(listener)); });
  try {
    (void)hand_over(as_rank(meeting, 1), {}, 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    first.join();
    return error;
  }
  first.join();
  return {ErrorCode::aborted, "nothing"};
}

TEST(HandOver, AFirstRankThatEndsEarlyIsNamed) {
  const auto end = [](Listener listener) { static_cast<void>(listener.accept(soon())); };
  const Error error = thrown_where_the_first_rank(end, new_meeting(2));
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_EQ(error.peer(), 4);
  EXPECT_THAT(error.what(),
              HasSubstr("rank 4, which hands out this host's shared memory, ended before that"));
}

TEST(HandOver, AFirstRankThatStopsIsNamed) {
  Meeting meeting = new_meeting(2);
  meeting.deadline = Deadline::after(std::chrono::milliseconds(100));
  const auto stop = [&](Listener listener) {
    Socket socket = listener.accept(soon());
    std::byte byte{};
    EXPECT_THROW(socket.receive_all(std::span(&byte, 1), soon()), Error);
  };
  const Error error = thrown_where_the_first_rank(stop, meeting);
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_EQ(error.peer(), 4);
  EXPECT_THAT(error.what(), HasSubstr("rank 4, which hands out this host's shared memory, did not do so"));
}

TEST(HandOver, WhoMadeTheFirstRankGiveUpIsNamedInItsStead) {
  Meeting meeting = new_meeting(2);
  meeting.check = [] { throw Error(ErrorCode::peer_lost, "rank 5 ended", 5); };
  const auto end = [](Listener listener) { static_cast<void>(listener.accept(soon())); };
  EXPECT_EQ(thrown_where_the_first_rank(end, meeting).peer(), 5);
}

TEST(HandOver, ARankThatDoesNotFitIsTurnedAway) {
  expect_meeting_in_spite_of([](const Meeting& meeting) {
    for (const Claim claim : {Claim{0, 2}, Claim{2, 2}, Claim{-1, 2}, Claim{1, 3}, Claim{1, 0xffffffffU}}) {
      Socket socket = Socket::connect(meeting.endpoint, soon());
      EXPECT_THROW(prove_as_client(socket, meeting.trust, region_of(meeting), claim, soon()), Error);
      expect_closed(socket);
    }
    return 0;
  });
}

TEST(HandOver, AWrongSecretIsTurnedAwayAndTold) {
  const Trust trust{.secret = Secret::random()};
  expect_meeting_in_spite_of(
      [](Meeting meeting) {
        meeting.trust.secret = Secret::random();
        try {
          (void)hand_over(as_rank(meeting, 1), {}, 1);
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("wrong secret"));
        }
        return 0;
      },
      trust);
}

}  // namespace
}  // namespace lockstep
