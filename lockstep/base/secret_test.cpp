#include "lockstep/base/secret.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

using test::error_of;
using test::soon;
using testing::HasSubstr;

Secret secret_of(const std::string& text) { return Secret::from_bytes(std::as_bytes(std::span(text))); }

class SecretFile : public testing::Test {
 public:
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

 protected:
  SecretFile() {
    std::string pattern = testing::TempDir() + "lockstep-secret-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/secret";
  }

  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  Error refusal() {
    return error_of([&] { Secret::from_file(path_); });
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SecretFile, IsReadWithoutItsLineEnd) {
  for (const char* end : {"", "\n", "\r\n"}) {
    write("0123456789abcdef" + std::string(end));
    EXPECT_TRUE(Secret::from_file(path_) == secret_of("0123456789abcdef"));
  }
  write("0123456789abcdef\n\n");
  EXPECT_TRUE(Secret::from_file(path_) == secret_of("0123456789abcdef\n"));
  write(std::string(4096, 'x') + "\n");
  EXPECT_TRUE(Secret::from_file(path_) == secret_of(std::string(4096, 'x')));
}

TEST_F(SecretFile, ThatOthersMayTouchIsRefused) {
  for (const mode_t mode : {0640U, 0604U, 0620U, 0601U}) {
    write("0123456789abcdef", mode);
    const Error error = refusal();
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("chmod 600"));
    EXPECT_THAT(error.what(), HasSubstr(path_));
  }
}

TEST_F(SecretFile, OfAWrongSizeOrKindIsRefused) {
  for (const std::string& text : {std::string(), std::string(15, 'x'), std::string(15, 'x') + "\n",
                                  std::string(4097, 'x'), std::string(1 << 20, 'x')}) {
    write(text);
    EXPECT_EQ(refusal().code(), ErrorCode::invalid_argument) << text.size();
    EXPECT_THAT(refusal().what(), HasSubstr("16 to 4096"));
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(refusal().code(), ErrorCode::system);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(refusal().what(), HasSubstr("not a regular file"));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(refusal().what(), HasSubstr("not a regular file"));
}

TEST_F(SecretFile, NeverAppearsInAnError) {
  write("hunter2", 0600);
  EXPECT_THAT(refusal().what(), Not(HasSubstr("hunter2")));
}

TEST(Secret, TravelsThroughAnInheritedDescriptor) {
  const Secret secret = Secret::random();
  const UniqueFd memfd = secret.to_memfd();
  ASSERT_EQ(::lseek(memfd.get(), 5, SEEK_SET), 5);
  for (int child = 0; child < 2; ++child) EXPECT_TRUE(Secret::from_inherited_fd(memfd.get()) == secret);
  EXPECT_EQ(::lseek(memfd.get(), 0, SEEK_CUR), 5) << "a shared position must not move";
  EXPECT_EQ(::pwrite(memfd.get(), "x", 1, 0), -1) << "sealed";
  EXPECT_NE(::ftruncate(memfd.get(), 0), 0) << "sealed";
  EXPECT_EQ(::fcntl(memfd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(error_of([] { Secret::from_inherited_fd(-1); }).code(), ErrorCode::system);
}

TEST(Secret, DiffersEachTimeAndCopiesAreEqual) {
  const Secret first = Secret::random();
  Secret second = Secret::random();
  EXPECT_FALSE(first == second);
  EXPECT_EQ(first.bytes().size(), 32U);
  second = first;
  EXPECT_TRUE(first == second);
  EXPECT_FALSE(secret_of(std::string(16, 'a')) == secret_of(std::string(17, 'a')));
}

// Both sides at once; what each of them threw, if anything.
struct Outcome {
  std::optional<Error> client;
  std::optional<Error> server;
};

Outcome prove(const Trust& client_trust, const Trust& server_trust, bool over_tcp = false) {
  auto [client, server] = Socket::pair();
  if (over_tcp) {
    Listener listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
    client = Socket::connect(listener.endpoint(), soon());
    server = listener.accept(soon());
  }
  Outcome outcome;
  const auto record = [](std::optional<Error>& into, Socket& socket, const auto& half, const Trust& trust) {
    try {
      half(socket, trust, soon());
      const std::array<std::byte, 1> hello{std::byte{1}};
      socket.send_all(hello, soon());
      std::array<std::byte, 1> answer{};
      socket.receive_all(answer, soon());
    } catch (const Error& error) {
      into = error;
      socket.shutdown();
    }
  };
  std::thread other([&, &socket = server] { record(outcome.server, socket, prove_as_server, server_trust); });
  record(outcome.client, client, prove_as_client, client_trust);
  other.join();
  return outcome;
}

void expect_wrong_secret(const std::optional<Error>& error) {
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error->what(), HasSubstr("wrong secret"));
  EXPECT_THAT(error->what(), HasSubstr("LOCKSTEP_SECRET_FILE"));
}

TEST(Proof, LetsInWhoHoldsTheSecret) {
  const Trust trust{.secret = Secret::random()};
  for (const bool over_tcp : {false, true}) {
    const Outcome outcome = prove(trust, trust, over_tcp);
    EXPECT_FALSE(outcome.client) << outcome.client->what();
    EXPECT_FALSE(outcome.server) << outcome.server->what();
  }
}

TEST(Proof, TellsBothSidesOfAWrongSecret) {
  const Trust ours{.secret = Secret::random()};
  const Trust theirs{.secret = Secret::random()};
  for (const bool over_tcp : {false, true}) {
    const Outcome outcome = prove(theirs, ours, over_tcp);
    expect_wrong_secret(outcome.client);
    expect_wrong_secret(outcome.server);
  }
}

TEST(Proof, TellsBothSidesThatOnlyOneHasASecret) {
  const Trust with{.secret = Secret::random()};
  const Trust without{.tcp_without_secret = true};
  for (const bool over_tcp : {false, true}) {
    for (const auto& outcome : {prove(with, without, over_tcp), prove(without, with, over_tcp)}) {
      expect_wrong_secret(outcome.client);
      expect_wrong_secret(outcome.server);
    }
  }
}

TEST(Proof, NeedsNoSecretBetweenProcessesOfOneUserOnOneHost) {
  const Outcome outcome = prove({}, {});
  EXPECT_FALSE(outcome.client);
  EXPECT_FALSE(outcome.server);
}

TEST(Proof, OverTcpWithoutSecretHasToBeAskedFor) {
  const Outcome refused = prove({}, {}, true);
  for (const auto& error : {refused.client, refused.server}) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error->what(), HasSubstr("needs a job secret"));
  }
  const Trust insecure{.tcp_without_secret = true};
  const Outcome allowed = prove(insecure, insecure, true);
  EXPECT_FALSE(allowed.client);
  EXPECT_FALSE(allowed.server);
}

TEST(Proof, IsFreshForEveryConnection) {
  auto [client, server] = Socket::pair();
  const Trust trust{.secret = Secret::random()};
  const ServerProof first(server, trust);
  const ServerProof second(server, trust);
  EXPECT_FALSE(std::ranges::equal(first.challenge(), second.challenge()));
}

// What a stranger can do without the secret: send back what it heard on another connection.
TEST(Proof, RefusesAReplayAndAReflection) {
  auto [client, server] = Socket::pair();
  const Trust trust{.secret = Secret::random()};
  std::array<std::byte, ServerProof::answer_bytes> answer{};
  ServerProof honest(server, trust);
  std::thread prover([&, &socket = client] {
    EXPECT_EQ(error_of([&] { prove_as_client(socket, trust, soon()); }).code(), ErrorCode::peer_lost);
  });
  server.send_all(honest.challenge(), soon());
  server.receive_all(answer, soon());
  server.shutdown();
  prover.join();
  EXPECT_TRUE(honest.check(answer));

  ServerProof replayed(server, trust);
  EXPECT_FALSE(replayed.check(answer));
  EXPECT_EQ(replayed.reply()[0], std::byte{0});
  std::array<std::byte, ServerProof::answer_bytes> reflected = answer;
  std::ranges::copy(honest.reply(), reflected.begin() + 32);
  EXPECT_FALSE(honest.check(reflected)) << "a server's proof is no client's";
  for (std::size_t i = 0; i < answer.size(); ++i) {
    auto damaged = answer;
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(honest.check(damaged)) << i;
  }
}

TEST(Proof, OfAServerThatKnowsNothingIsRefused) {
  for (const std::byte fake : {std::byte{0}, std::byte{1}}) {
    auto [client, server] = Socket::pair();
    std::thread impostor([&, &socket = server] {
      std::array<std::byte, 64> bytes{};
      socket.send_all(std::span(bytes).first<32>(), soon());
      socket.receive_all(bytes, soon());
      bytes.fill(fake);
      socket.send_all(std::span(bytes).first<32>(), soon());
    });
    expect_wrong_secret(
        error_of([&, &socket = client] { prove_as_client(socket, {.secret = Secret::random()}, soon()); }));
    impostor.join();
  }
}

TEST(Proof, StopsAtTheDeadline) {
  auto [client, server] = Socket::pair();
  const auto now = [] { return Deadline::after(std::chrono::milliseconds(20)); };
  const Trust trust{.secret = Secret::random()};
  EXPECT_EQ(error_of([&, &socket = client] { prove_as_client(socket, trust, now()); }).code(),
            ErrorCode::timeout);
  EXPECT_EQ(error_of([&, &socket = server] { prove_as_server(socket, trust, now()); }).code(),
            ErrorCode::timeout);
}

}  // namespace
}  // namespace lockstep
