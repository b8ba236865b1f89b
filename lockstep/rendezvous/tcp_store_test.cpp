// What a client promises when the server is not the one it hoped for: gone, stopped, wrong, or not there yet.
#include "lockstep/rendezvous/tcp_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/store_wire.h"

namespace lockstep {
namespace {

using test::error_of;
using test::soon;
using testing::HasSubstr;

Deadline in_a_moment() { return Deadline::after(std::chrono::milliseconds(50)); }

const Endpoint any_port = Endpoint::tcp("127.0.0.1", 0);

struct Job {
  Trust trust{.secret = Secret::random()};
  std::unique_ptr<StoreServer> server =
      std::make_unique<StoreServer>(Listener::bind(any_port), StoreServerOptions{.trust = trust});
  Endpoint endpoint = server->endpoint();

  std::unique_ptr<TcpStore> join() const {
    return std::make_unique<TcpStore>(endpoint, soon(), TcpStoreOptions{.trust = trust});
  }
  void await_waiting(int clients) const {
    for (const Deadline limit = soon(); server->waiting() != clients; std::this_thread::yield()) {
      if (limit.expired()) FAIL() << server->waiting() << " clients wait";
    }
  }
};

void expect_gone(const Error& error, const Endpoint& endpoint) {
  EXPECT_EQ(error.code(), ErrorCode::peer_lost);
  EXPECT_THAT(error.what(),
              HasSubstr("the store at " + endpoint.to_string() + " is gone (its host, rank 0, ended?)"));
}

TEST(TcpStore, LosesItsServerInTheMiddleOfAWait) {
  Job job;
  const auto store = job.join();
  const std::vector<std::string> keys = {"a", "b"};
  std::vector<std::jthread> waiters;
  waiters.emplace_back(
      [&] { expect_gone(error_of([&] { (void)store->get("k", Deadline::never()); }), job.endpoint); });
  waiters.emplace_back(
      [&] { expect_gone(error_of([&] { store->wait(keys, Deadline::never()); }), job.endpoint); });
  job.await_waiting(2);
  job.server.reset();
  waiters.clear();
  expect_gone(error_of([&] { store->set("k", "v"); }), job.endpoint);
  expect_gone(error_of([&] { (void)store->get("k", Deadline::never()); }), job.endpoint);
  expect_gone(error_of([&] { store->wait(keys, Deadline::never()); }), job.endpoint);
}

/// A process that leaves a will, and ends by a kill, or after it has withdrawn it.
void live_and_die(const Job& job, bool withdraws) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = job.join();
    auto will = store->bequeath("left", "behind");
    if (withdraws) will.reset();
    store->set("ready", "1");
    ::raise(SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

TEST(TcpStore, ExecutesTheLastWillOfAProcessThatWasKilled) {
  Job job;
  const auto store = job.join();
  std::string found;
  std::jthread heir([&] { found = store->get("left", soon()); });
  job.await_waiting(1);
  live_and_die(job, false);
  heir.join();
  EXPECT_EQ(found, "behind");
}

TEST(TcpStore, KeepsNoWillThatWasWithdrawn) {
  Job job;
  const auto store = job.join();
  live_and_die(job, true);
  store->wait(std::vector<std::string>{"ready"}, soon());
  for (const Deadline limit = soon(); job.server->clients() > 1; std::this_thread::yield())
    ASSERT_FALSE(limit.expired());
  EXPECT_EQ(store->try_get("left"), std::nullopt);
}

TEST(TcpStore, AppendsAWillToWhatIsThere) {
  Job job;
  const auto store = job.join();
  store->set("left", "earlier");
  live_and_die(job, false);
  for (const Deadline limit = soon(); job.server->clients() > 1; std::this_thread::yield())
    ASSERT_FALSE(limit.expired());
  EXPECT_EQ(store->try_get("left"), "earlierbehind");
}

TEST(TcpStore, WaitsForAServerThatComesLater) {
  const Trust trust{.secret = Secret::random()};
  const Endpoint later = Listener::bind(any_port).endpoint();
  std::optional<TcpStore> store;
  std::thread client([&] { store.emplace(later, soon(), TcpStoreOptions{.trust = trust}); });
  const StoreServer server(Listener::bind(later), {.trust = trust});
  client.join();
  EXPECT_EQ(store->add("n", 1), 1);
}

TEST(TcpStore, NamesTheServerThatNeverCame) {
  const Endpoint nobody = Listener::bind(any_port).endpoint();
  const Error error =
      error_of([&] { TcpStore(nobody, in_a_moment(), {.trust = {.secret = Secret::random()}}); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr(nobody.to_string()));
}

TEST(TcpStore, WithAnotherSecretIsTurnedAway) {
  const Job job;
  for (const Trust& trust : {Trust{.secret = Secret::random()}, Trust{.tcp_without_secret = true}}) {
    const Error error = error_of([&] { TcpStore(job.endpoint, soon(), {.trust = trust}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("wrong secret"));
  }
  EXPECT_EQ(job.join()->add("n", 1), 1);
}

TEST(TcpStore, OfAnotherJobIsTurnedAway) {
  const Job job;
  const Error error =
      error_of([&] { TcpStore(job.endpoint, soon(), {.trust = job.trust, .job = "port-29500"}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(),
              HasSubstr("is not the store of job \"port-29500\" at " + job.endpoint.to_string()));
}

// Somebody who has taken a port passes the proof of who comes there on to the store of another job.
TEST(TcpStore, IsNotDeceivedByARelay) {
  const Job job;
  Listener squatter = Listener::bind(any_port);
  std::jthread relay([&] {
    Socket deceived = squatter.accept(soon());
    Socket real = Socket::connect(job.endpoint, soon());
    const auto pass = [](Socket& from, Socket& to, std::size_t bytes) {
      std::vector<std::byte> message(bytes);
      from.receive_all(message, soon());
      to.send_all(message, soon());
    };
    pass(real, deceived, sizeof(proof::Greeting));
    pass(deceived, real, sizeof(proof::Opening));
    pass(real, deceived, sizeof(proof::Answer));
    pass(deceived, real, sizeof(proof::Confirmation));
  });
  const Error error = error_of([&] { TcpStore(squatter.endpoint(), soon(), {.trust = job.trust}); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("wrong secret"));
  EXPECT_EQ(job.server->clients(), 0);
}

TEST(TcpStore, WithoutASecretIsRefusedOverTcp) {
  const Job job;
  const Error client = error_of([&] { TcpStore(job.endpoint, soon()); });
  const Error server = error_of([] { StoreServer(Listener::bind(any_port)); });
  for (const Error& error : {client, server}) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("LOCKSTEP_SECRET_FILE"));
  }
}

// A server that proves itself and then says nothing, as one does that was stopped.
class StoppedServer {
 public:
  explicit StoppedServer(Trust trust)
      : trust_(std::move(trust)), thread_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            auto client = listener_.try_accept();
            if (!client) {
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
              continue;
            }
            try {
              (void)prove_as_server(*client, trust_, store_wire::destination_of("", endpoint()), soon());
              clients_.push_back(std::move(*client));
            } catch (const Error&) {  // gave up on a busy machine
            }
          }
        }) {}

  const Endpoint& endpoint() const { return listener_.endpoint(); }

 private:
  Trust trust_;
  Listener listener_ = Listener::bind(any_port);
  std::vector<Socket> clients_;
  std::jthread thread_;
};

TEST(TcpStore, ReturnsAtItsDeadlineFromAStoppedServer) {
  const Trust trust{.secret = Secret::random()};
  StoppedServer server(trust);
  TcpStore store(server.endpoint(), soon(),
                 {.trust = trust, .operation_timeout = std::chrono::milliseconds(50)});
  const std::vector<std::string> keys = {"k"};
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { store.add("k", 1); }, [&] { (void)store.get("k", in_a_moment()); },
           [&] { store.wait(keys, in_a_moment()); }}) {
    const Error error = error_of(call);
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_THAT(error.what(), HasSubstr("the store at " + server.endpoint().to_string() + " did not answer"));
  }
}

TEST(TcpStore, ReturnsAtItsDeadlineFromAServerThatDoesNotAccept) {
  const Listener stopped = Listener::bind(any_port);
  const Error error =
      error_of([&] { TcpStore(stopped.endpoint(), in_a_moment(), {.trust = {.secret = Secret::random()}}); });
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr(stopped.endpoint().to_string()));
}

TEST(TcpStore, BelievesNoLengthOfAGarbledReply) {
  const Trust trust{.secret = Secret::random()};
  for (const char* reply : {"\x01\x00\x00\x00\xff\xff\xff\xff", "\x02\x00\x00\x00\x00\x00\x00\x00",
                            "\x01\x09\x00\x00\x00\x00\x00\x00", "\x01\x00\x01\x00\x00\x00\x00\x00"}) {
    Listener listener = Listener::bind(any_port);
    std::jthread server([&] {
      Socket client = listener.accept(soon());
      (void)prove_as_server(client, trust, store_wire::destination_of("", listener.endpoint()), soon());
      client.send_all(std::as_bytes(std::span(reply, 8)), soon());
    });
    TcpStore store(listener.endpoint(), soon(), {.trust = trust});
    EXPECT_EQ(error_of([&] { store.add("k", 1); }).code(), ErrorCode::corrupt_data);
  }
}

// A server that answers each request with `replies`, right or wrong.
void expect_corrupt(const std::string& replies, const std::function<void(TcpStore&)>& call) {
  const Trust trust{.secret = Secret::random()};
  Listener listener = Listener::bind(any_port);
  std::jthread server([&] {
    Socket client = listener.accept(soon());
    (void)prove_as_server(client, trust, store_wire::destination_of("", listener.endpoint()), soon());
    client.send_all(std::as_bytes(std::span(replies)), soon());
    std::array<std::byte, 1000> request{};
    (void)test::thrown_by([&] { client.receive_all(request, soon()); });  // it ends before
  });
  TcpStore store(listener.endpoint(), soon(), {.trust = trust});
  EXPECT_EQ(error_of([&] { call(store); }).code(), ErrorCode::corrupt_data);
}

TEST(TcpStore, TakesNoReplyThatDoesNotFitItsRequest) {
  using store_wire::encode_reply;
  using store_wire::Status;
  const std::vector<std::string> keys = {"a", "b"};
  const std::string parked = encode_reply(Status::parked, "");
  const std::string missing = encode_reply(Status::missing, "");
  const std::string first = encode_reply(Status::present, store_wire::encode_number(0));
  const std::string third = encode_reply(Status::present, store_wire::encode_number(2));
  const std::string done = encode_reply(Status::done, "");
  expect_corrupt(parked, [](TcpStore& store) { store.set("k", "v"); });
  expect_corrupt(first, [](TcpStore& store) { (void)store.try_get("k"); });
  expect_corrupt(missing, [](TcpStore& store) { (void)store.get("k", soon()); });
  expect_corrupt(parked + parked, [](TcpStore& store) { (void)store.get("k", soon()); });
  expect_corrupt(missing, [](TcpStore& store) { (void)store.compare_set("k", "", "v"); });
  expect_corrupt(parked, [](TcpStore& store) { (void)store.bequeath("k", "v"); });
  expect_corrupt(missing, [&](TcpStore& store) { store.wait(keys, soon()); });
  expect_corrupt(third, [&](TcpStore& store) { store.wait(keys, soon()); });
  expect_corrupt(first + done, [&](TcpStore& store) { store.wait(keys, soon()); });
}

TEST(TcpStore, ForgetsAWaitThatTimedOut) {
  const Job job;
  const auto store = job.join();
  EXPECT_EQ(error_of([&] { (void)store->get("k", in_a_moment()); }).code(), ErrorCode::timeout);
  job.await_waiting(0);
  store->set("k", "v");
  EXPECT_EQ(store->get("k", soon()), "v");
}

TEST(TcpStore, SleepsThroughACompareSetThatFailed) {
  const Job job;
  const auto store = job.join();
  std::string seen;
  std::jthread waiter([&] { seen = store->get("k", soon()); });
  job.await_waiting(1);
  EXPECT_EQ(store->compare_set("k", "x", "wrong"), "");
  EXPECT_EQ(store->compare_set("k", "", "right"), "right");
  waiter.join();
  EXPECT_EQ(seen, "right");
}

// Something else than a store listens there, and closes what it does not understand.
TEST(TcpStore, GivesUpOnAServerThatClosesDuringTheProof) {
  Listener listener = Listener::bind(any_port);
  std::atomic<bool> done = false;
  std::jthread closer([&] {
    while (!done) (void)listener.try_accept();
  });
  const Error error = error_of(
      [&] { TcpStore(listener.endpoint(), in_a_moment(), {.trust = {.secret = Secret::random()}}); });
  done = true;
  EXPECT_EQ(error.code(), ErrorCode::timeout);
  EXPECT_THAT(error.what(), HasSubstr("something else"));
}

TEST(TcpStore, UsesOneConnectionForOneThread) {
  const Job job;
  const auto store = job.join();
  for (int i = 0; i < 20; ++i) {
    store->set("k", "v");
    EXPECT_EQ(store->get("k", soon()), "v");
    EXPECT_EQ(error_of([&] { store->add("k", 1); }).code(), ErrorCode::invalid_argument);
  }
  EXPECT_EQ(job.server->clients(), 1);
}

}  // namespace
}  // namespace lockstep
