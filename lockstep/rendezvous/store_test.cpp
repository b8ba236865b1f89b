// What every kind of store promises (store.h), in one suite over all of them.
#include "lockstep/rendezvous/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/rendezvous/memory_store.h"
#include "lockstep/rendezvous/prefix_store.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/tcp_store.h"

namespace lockstep {
namespace {

using test::error_of;
using test::soon;
using testing::HasSubstr;
using testing::Not;

Deadline now() { return Deadline::after(std::chrono::milliseconds(50)); }

// A place to meet; each rank comes with a store of its own.
struct Place {
  std::shared_ptr<StoreServer> server = nullptr;  // outlives what `join` made
  std::function<std::shared_ptr<Store>()> join;
};

Place in_memory() {
  auto store = std::make_shared<MemoryStore>(StoreLimits{.total_bytes = std::size_t{1} << 20});
  return {.join = [store] { return store; }};
}

Place on_server(const Endpoint& endpoint, const Trust& trust) {
  StoreServerOptions options{.trust = trust};
  options.limits.total_bytes = std::size_t{1} << 20;
  auto server = std::make_shared<StoreServer>(Listener::bind(endpoint), options);
  return {.server = server, .join = [trust, where = server->endpoint()] {
            return std::make_shared<TcpStore>(where, soon(), TcpStoreOptions{.trust = trust});
          }};
}

Place on_unix_socket() {
  static std::atomic<int> next = 0;
  const std::string name = "lockstep-store-test-" + std::to_string(::getpid()) + "-" + std::to_string(++next);
  return on_server(Endpoint::unix_abstract(name), {});
}

Place on_tcp() { return on_server(Endpoint::tcp("127.0.0.1", 0), {.secret = Secret::random()}); }

Place under_prefix() {
  Place place = on_unix_socket();
  return {.server = place.server,
          .join = [join = place.join] { return std::make_shared<PrefixStore>(join(), "job 7"); }};
}

struct Kind {
  const char* name;
  Place (*make)();
};

class AnyStore : public testing::TestWithParam<Kind> {
 protected:
  Place place_ = GetParam().make();
  std::shared_ptr<Store> store_ = place_.join();
};

INSTANTIATE_TEST_SUITE_P(Kinds, AnyStore,
                         testing::Values(Kind{"Memory", in_memory}, Kind{"Unix", on_unix_socket},
                                         Kind{"Tcp", on_tcp}, Kind{"Prefix", under_prefix}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(AnyStore, GivesBackWhatWasSetByAnyRank) {
  EXPECT_EQ(store_->try_get("a"), std::nullopt);
  store_->set("a", "1");
  store_->set("b", "");
  const std::string binary("\0\xff\n\x80", 4);
  store_->set(binary, binary);
  const auto other = place_.join();
  EXPECT_EQ(other->try_get("a"), "1");
  EXPECT_EQ(other->get("b", soon()), "");
  EXPECT_EQ(other->get(binary, soon()), binary);
  other->set("a", "2");
  EXPECT_EQ(store_->get("a", soon()), "2");
}

TEST_P(AnyStore, CarriesLargeValues) {
  std::string large(700 << 10, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i % 251);
  store_->set("large", large);
  EXPECT_TRUE(place_.join()->get("large", soon()) == large);
}

TEST_P(AnyStore, GetWaitsUntilSomebodySets) {
  std::jthread setter([other = place_.join()] { other->set("late", "here"); });
  EXPECT_EQ(store_->get("late", soon()), "here");
}

TEST_P(AnyStore, GetNamesTheKeyAtTheDeadline) {
  store_->set("other", "");
  const Error error = error_of([&] { (void)store_->get("address/3", now()); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("address/3\""));
  EXPECT_THAT(error.what(), HasSubstr("deadline"));
  store_->set("address/3", "x");
  EXPECT_EQ(store_->get("address/3", soon()), "x") << "the store works on";
}

/// Where the machine was too slow for an answer there is none that names keys, and a test tries again.
bool had_no_answer(const Error& error) {
  return std::string(error.what()).find("did not answer") != std::string::npos;
}

TEST_P(AnyStore, WaitNamesEveryMissingKey) {
  store_->set("b", "");
  const std::vector<std::string> keys = {"a\n", "b", "c", "d"};
  std::optional<Error> error;
  for (auto limit = std::chrono::milliseconds(50); !error || had_no_answer(*error); limit *= 2)
    error = error_of([&] { store_->wait(keys, Deadline::after(limit)); });
  EXPECT_EQ(error->code(), ErrorCode::timeout);
  EXPECT_THAT(error->what(), HasSubstr("a\\x0a\""));
  EXPECT_THAT(error->what(), Not(HasSubstr("b\"")));
  EXPECT_THAT(error->what(), HasSubstr("c\""));
  EXPECT_THAT(error->what(), HasSubstr("d\""));
}

TEST_P(AnyStore, WaitNamesOnlyWhatIsStillMissingAtItsEnd) {
  const std::vector<std::string> keys = {"a", "b", "c"};
  const auto own = place_.join();
  std::optional<Error> error;
  bool set_in_time = false;
  for (auto limit = std::chrono::milliseconds(50); !set_in_time || had_no_answer(*error); limit *= 2) {
    for (const std::string& key : keys) (void)store_->erase(key);
    const Deadline deadline = Deadline::after(limit);
    std::jthread waiter([&] { error = error_of([&] { own->wait(keys, deadline); }); });
    store_->set("a", "");
    store_->add("c", 1);
    set_in_time = deadline.remaining() > limit / 2;
  }
  EXPECT_EQ(error->code(), ErrorCode::timeout);
  EXPECT_THAT(error->what(), HasSubstr("b\""));
  EXPECT_THAT(error->what(), Not(HasSubstr("a\"")));
  EXPECT_THAT(error->what(), Not(HasSubstr("c\"")));
}

TEST_P(AnyStore, WaitReturnsWhenAllKeysWereSet) {
  const std::vector<std::string> keys = {"a", "b", "c", "a"};
  store_->set("a", "");
  std::jthread setter([other = place_.join()] {
    other->add("b", 1);
    (void)other->compare_set("c", "", "x");
  });
  store_->wait(keys, soon());
  store_->wait({}, soon());
  store_->wait(keys, soon());
  EXPECT_EQ(store_->try_get("b"), "1");
}

TEST_P(AnyStore, AddCountsInDecimalText) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->try_get("n"), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(store_->add("high", highest), highest);
  EXPECT_EQ(store_->add("low", std::numeric_limits<std::int64_t>::min()),
            std::numeric_limits<std::int64_t>::min());
}

TEST_P(AnyStore, AddRefusesWhatIsNoNumberAndChangesNothing) {
  for (const char* value : {"", "x", "4x", " 4", "9223372036854775807", "9223372036854775808"}) {
    store_->set("n", value);
    EXPECT_EQ(error_of([&] { store_->add("n", 1); }).code(), ErrorCode::invalid_argument) << value;
    EXPECT_EQ(store_->try_get("n"), value);
  }
}

TEST_P(AnyStore, CompareSetChangesOnlyWhatWasExpected) {
  EXPECT_EQ(store_->compare_set("k", "x", "y"), "");
  EXPECT_EQ(store_->try_get("k"), std::nullopt) << "a failed compare_set creates nothing";
  EXPECT_EQ(store_->compare_set("k", "", "first"), "first");
  EXPECT_EQ(store_->compare_set("k", "", "second"), "first");
  EXPECT_EQ(store_->compare_set("k", "first", "third"), "third");
  EXPECT_EQ(store_->try_get("k"), "third");
}

TEST_P(AnyStore, AFailedCompareSetWakesNobody) {
  std::string seen;
  std::jthread waiter([&, own = place_.join()] { seen = own->get("k", soon()); });
  EXPECT_EQ(store_->compare_set("k", "x", "wrong"), "");
  store_->set("k", "right");
  waiter.join();
  EXPECT_EQ(seen, "right");
}

TEST_P(AnyStore, EraseSaysWhetherItWasThere) {
  EXPECT_FALSE(store_->erase("k"));
  store_->set("k", "");
  EXPECT_TRUE(store_->erase("k"));
  EXPECT_FALSE(store_->erase("k"));
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  EXPECT_EQ(store_->add("k", 1), 1);
}

TEST_P(AnyStore, ErasesAllThatBeginsAlike) {
  for (const char* key : {"a", "a/1", "a/2", "a/2/3", "a0", "b"}) store_->set(key, "v");
  EXPECT_EQ(store_->erase_all("a/"), 3);
  EXPECT_EQ(store_->erase_all("a/"), 0);
  EXPECT_EQ(store_->try_get("a/1"), std::nullopt);
  for (const char* key : {"a", "a0", "b"}) EXPECT_EQ(store_->try_get(key), "v") << key;
}

TEST_P(AnyStore, KeepsItsLimitsAndWorksOn) {
  const std::string long_key(4097, 'k');
  const std::vector<std::string> long_keys = {"a", long_key};
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { store_->set(long_key, ""); }, [&] { (void)store_->get(long_key, soon()); },
           [&] { (void)store_->try_get(long_key); }, [&] { store_->add(long_key, 1); },
           [&] { (void)store_->compare_set(long_key, "", ""); }, [&] { store_->wait(long_keys, soon()); },
           [&] { (void)store_->erase(long_key); }, [&] { (void)store_->erase_all(long_key); },
           [&] { (void)store_->erase_all(""); }, [&] { store_->set("", ""); },
           [&] { store_->set("k", std::string((64 << 20) + 1, 'v')); },
           [&] { store_->set("k", std::string(1 << 20, 'v')); }}) {
    EXPECT_EQ(error_of(call).code(), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(store_->try_get("k"), std::nullopt);
  store_->set(std::string(4000, 'k'), "v");
  EXPECT_EQ(store_->try_get(std::string(4000, 'k')), "v");
}

TEST_P(AnyStore, IsFullUntilSomethingIsErasedOrReplaced) {
  const std::string half(600 << 10, 'v');
  store_->set("a", half);
  const Error error = error_of([&] { store_->set("b", half); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("full"));
  store_->set("a", half + half.substr(0, 100 << 10));
  store_->set("a", "");
  store_->set("b", half);
  EXPECT_TRUE(store_->erase("b"));
  store_->set("a", half);
}

TEST_P(AnyStore, ManyRanksCountTogether) {
  constexpr int ranks = 4;
  constexpr int rounds = 100;
  std::vector<std::jthread> threads;
  threads.reserve(ranks);
  std::atomic<int> winners = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, own = place_.join()] {
      for (int i = 0; i < rounds; ++i) {
        own->add("sum", rank + 1);
        const std::string mine = std::to_string(rank);
        if (own->compare_set("leader/" + std::to_string(i), "", mine) == mine) ++winners;
      }
      own->set("done/" + std::to_string(rank), "");
    });
  }
  const std::vector<std::string> done = {"done/0", "done/1", "done/2", "done/3"};
  store_->wait(done, soon());
  threads.clear();
  EXPECT_EQ(store_->add("sum", 0), rounds * (1 + 2 + 3 + 4));
  EXPECT_EQ(winners, rounds) << "exactly one rank wins each election";
}

// One store object, shared by the threads of one process.
TEST_P(AnyStore, ThreadsOfOneRankShareItWhileSomeWait) {
  constexpr int waiters = 12;
  std::vector<std::jthread> threads;
  threads.reserve(waiters);
  std::atomic<int> woken = 0;
  for (int i = 0; i < waiters; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(store_->get("start", soon()), "go");
      store_->add("woken", 1);
      ++woken;
    });
  }
  for (int i = 0; i < 100; ++i) store_->add("busy", 1);
  store_->set("start", "go");
  threads.clear();
  EXPECT_EQ(woken, waiters);
  EXPECT_EQ(store_->try_get("woken"), "12");
  EXPECT_EQ(store_->try_get("busy"), "100");
}

TEST(PrefixStore, KeepsGroupsApart) {
  const auto below = std::make_shared<MemoryStore>();
  PrefixStore first(below, "group 1");
  PrefixStore second(std::make_shared<PrefixStore>(below, "group 1"), "part");
  first.set("a", "1");
  EXPECT_EQ(second.try_get("a"), std::nullopt);
  second.set("a", "2");
  EXPECT_EQ(first.try_get("a"), "1");
  EXPECT_EQ(below->try_get("group 1/a"), "1");
  EXPECT_EQ(below->try_get("group 1/part/a"), "2");
  EXPECT_THAT(error_of([&] { (void)second.get("b", now()); }).what(), HasSubstr("\"group 1/part/b\""));
  EXPECT_EQ(error_of([&] { PrefixStore(below, ""); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([] { PrefixStore(nullptr, "a"); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace lockstep
