// A client that knows the secret and asks for the most that it can: the server holds what its limit allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/rendezvous/store_replies.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/tcp_store.h"

namespace lockstep {
namespace {

using store_wire::Operation;
using store_wire::Status;
using test::soon;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr StoreLimits small{.total_bytes = 8 * mib, .traffic_bytes = 8 * mib};
constexpr int connections = 128;
// Beside what the limits are about: one request at work, which is there up to three times, and what malloc keeps.
constexpr std::size_t most_growth = small.total_bytes + small.traffic_bytes + 16 * mib;

/// A process that serves a store with little room.
class Server {
 public:
  Server() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const StoreServer server(Listener::bind(endpoint_), {.limits = small});
    for (;;) ::pause();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  TcpStore join() const { return {endpoint_, soon()}; }
  Socket connect() const {
    Socket socket = Socket::connect(endpoint_, soon());
    prove_as_client(socket, {}, store_wire::destination_of("", endpoint_), {}, soon());
    return socket;
  }
  /// The most memory that it has had.
  std::size_t peak_bytes() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
    }
    ADD_FAILURE() << "no VmHWM";
    return 0;
  }

 private:
  const Endpoint endpoint_ = Endpoint::unix_abstract("lockstep-store-limits-" + std::to_string(::getpid()));
  const pid_t pid_;
};

class AClientThatAsksForTheMost : public testing::Test {
 protected:
  AClientThatAsksForTheMost() {
    (void)server_.join().add("warm", 1);
    before_ = server_.peak_bytes();
  }
  ~AClientThatAsksForTheMost() override {
    EXPECT_EQ(server_.join().add("warm", 0), 1) << "others are served all the same";
    const std::size_t growth = server_.peak_bytes() - before_;
    RecordProperty("limit_bytes", std::to_string(small.total_bytes));
    RecordProperty("memory_growth_bytes", std::to_string(growth));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep what is freed
    EXPECT_LT(growth, most_growth);
#endif
  }

  /// On a connection of its own, which stays. False: the server did not take it all.
  bool say(const std::string& text) {
    kept_.push_back(server_.connect());
    try {
      kept_.back().send_all(std::as_bytes(std::span(text)), soon());
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost);
      return false;
    }
  }
  bool say(Operation operation, const std::vector<std::string_view>& fields) {
    return say(store_wire::encode_request(operation, fields));
  }
  /// How the server answered what was said last.
  Status answer(Operation operation, std::size_t keys = 1) {
    StoreReplies replies(operation, keys);
    StoreReply reply = replies.receive(kept_.back(), soon());
    while (!replies.is_over() && reply.status == Status::present)
      reply = replies.receive(kept_.back(), soon());
    return reply.status;
  }

  Server server_;
  std::vector<Socket> kept_;
  std::size_t before_ = 0;
};

TEST_F(AClientThatAsksForTheMost, InValuesIsRefusedInTime) {
  TcpStore store = server_.join();
  int kept = 0;
  for (; !test::thrown_by([&] { store.set("large " + std::to_string(kept), std::string(mib, 'v')); }); ++kept)
    ASSERT_LT(kept, connections);
  EXPECT_EQ(kept, 7);
}

TEST_F(AClientThatAsksForTheMost, InTinyValuesIsRefusedInTime) {
  TcpStore store = server_.join();
  int kept = 0;
  for (; !test::thrown_by([&] { store.set(std::to_string(kept), ""); }); ++kept) ASSERT_LT(kept, 100'000);
  EXPECT_GT(kept, 50'000);
}

TEST_F(AClientThatAsksForTheMost, InWillsIsRefusedInTime) {
  const std::string value(mib, 'w');
  int refused = 0;
  for (int i = 0; i < connections; ++i) {
    ASSERT_TRUE(say(Operation::bequeath, {"heir", value}));
    if (answer(Operation::bequeath) == Status::refused) ++refused;
  }
  EXPECT_EQ(refused, connections - 7);
}

TEST_F(AClientThatAsksForTheMost, InKeysToWaitForIsRefusedInTime) {
  std::vector<std::string> keys;
  for (int i = 0; i < 20'000; ++i) keys.push_back("k" + std::to_string(i));
  const std::vector<std::string_view> fields(keys.begin(), keys.end());
  int refused = 0;
  for (int i = 0; i < connections; ++i) {
    ASSERT_TRUE(say(Operation::wait, fields));
    if (answer(Operation::wait, keys.size()) == Status::refused) ++refused;
  }
  EXPECT_EQ(refused, connections - 1) << "two do not fit";
}

TEST_F(AClientThatAsksForTheMost, InRepliesThatItDoesNotReadSharesOneCopy) {
  TcpStore store = server_.join();
  store.set("large", std::string(2 * mib, 'a'));
  for (int i = 0; i < connections; ++i) EXPECT_TRUE(say(Operation::get, {"large"}));
}

TEST_F(AClientThatAsksForTheMost, InRepliesWhoseValuesAreReplacedIsRefusedInTime) {
  TcpStore store = server_.join();
  int replaced = 0;
  for (int i = 0; i < connections; ++i) {
    if (!test::thrown_by([&] { store.set("large", std::string(2 * mib, 'a')); })) ++replaced;
    EXPECT_TRUE(say(Operation::get, {"large"}));
    (void)store.try_get("warm");  // the get before has been answered
  }
  EXPECT_LE(replaced, 3);
}

TEST_F(AClientThatAsksForTheMost, InRequestsThatItDoesNotEndIsCutOff) {
  std::string half = store_wire::encode_request(
      Operation::set, std::vector<std::string_view>{"k", std::string(2 * mib, 'h')});
  half.pop_back();
  int taken = 0;
  for (int i = 0; i < connections; ++i) {
    if (!say(half)) continue;
    (void)server_.join().try_get("warm");
    ++taken;
  }
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace lockstep
