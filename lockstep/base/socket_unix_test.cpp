// Handing over descriptors, and who is at the other end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/waits_test.h"

namespace lockstep {
namespace {

using test::soon;
Deadline shortly() { return Deadline::after(std::chrono::milliseconds(20)); }

template <typename Action>
ErrorCode code_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::aborted;
}

TEST(UnixSocket, HandsOverADescriptor) {
  auto [left, right] = Socket::pair();
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(file.get(), "same", 4, 0), 4);
  left.send_fd(file.get(), std::byte{7}, soon());
  left.send_all(std::as_bytes(std::span("next", 4)), soon());
  const ReceivedFd received = right.receive_fd(soon());
  std::string text(4, '\0');
  EXPECT_EQ(::pread(received.fd.get(), text.data(), 4, 0), 4);
  EXPECT_EQ(text, "same");
  EXPECT_EQ(received.tag, std::byte{7});
  EXPECT_EQ(::fcntl(received.fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  right.receive_all(std::as_writable_bytes(std::span(text)), soon());
  EXPECT_EQ(text, "next");
}

std::size_t open_descriptors() {
  std::size_t open = 0;
  for (int fd = 0; fd < 256; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1U : 0U;
  return open;
}

void send_descriptors(const Socket& socket, std::size_t count) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  char byte = 'x';
  iovec data{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(count * sizeof(int));
  for (std::size_t i = 0; i < count; ++i) {
    const int fd = socket.fd();
    std::memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(int));
  }
  ASSERT_EQ(::sendmsg(socket.fd(), &message, 0), 1);
}

TEST(UnixSocket, AcceptsExactlyOneDescriptorAndKeepsNoOther) {
  auto sockets = Socket::pair();
  auto& left = sockets.first;
  auto& right = sockets.second;
  const std::size_t before = open_descriptors();
  for (const std::size_t count : {2U, 4U, 9U}) {
    send_descriptors(left, count);
    EXPECT_EQ(code_of([&] { (void)right.receive_fd(soon()); }), ErrorCode::corrupt_data) << count;
  }
  left.send_all(std::as_bytes(std::span("x", 1)), soon());
  EXPECT_EQ(code_of([&] { (void)right.receive_fd(soon()); }), ErrorCode::corrupt_data);
  EXPECT_EQ(code_of([&] { (void)right.receive_fd(shortly()); }), ErrorCode::timeout);
  EXPECT_EQ(open_descriptors(), before);
  left = Socket();
  EXPECT_EQ(code_of([&] { (void)right.receive_fd(soon()); }), ErrorCode::peer_lost);
}

// Another user's process, where this one may start such.
TEST(UnixSocket, ANameThatSomebodyElseHasTakenSaysWho) {
  const uid_t stranger = ::geteuid() == 0 ? 65534 : ::geteuid();
  const Endpoint name = Endpoint::unix_abstract("lockstep-squatted-" + std::to_string(::getpid()));
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    if (::setuid(stranger) != 0) ::_exit(1);
    const Listener listener = Listener::bind(name);
    for (;;) ::pause();
  }
  (void)Socket::connect(name, soon());  // it listens now
  const std::string holder = "process " + std::to_string(squatter) + " of user " + std::to_string(stranger);
  try {
    (void)Listener::bind(name);
    ADD_FAILURE() << "two have one name";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_THAT(error.what(), testing::StartsWith(name.to_string() + " is already in use by " + holder));
    EXPECT_THAT(error.what(), testing::HasSubstr("give this one another name (MASTER_PORT)"));
    EXPECT_THAT(error.what(), testing::HasSubstr("end that process"));
  }
  ::kill(squatter, SIGKILL);
  ::waitpid(squatter, nullptr, 0);
}

TEST(UnixSocket, KnowsWhoIsThereOnUnixOnly) {
  auto [left, right] = Socket::pair();
  EXPECT_EQ(left.peer_credentials().pid, ::getpid());
  EXPECT_EQ(left.peer_credentials().uid, ::geteuid());
  const Listener listener = Listener::bind(Endpoint::tcp("127.0.0.1", 0));
  Socket client = Socket::connect(listener.endpoint(), soon());
  EXPECT_EQ(code_of([&] { (void)client.peer_credentials(); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { client.send_fd(0, std::byte{}, soon()); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace lockstep
