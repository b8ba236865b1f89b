// Ranks that are objects of one process, connected by real sockets. For tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/waits_test.h"
#include "lockstep/transport/tcp/tcp_transport.h"

namespace lockstep::tcp {

using test::error_of;
using test::eventually;
using test::soon;
using test::thrown_by;

inline std::vector<std::byte> noise(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  std::uint64_t word = seed;
  for (std::size_t at = 0; at < bytes; at += sizeof(word)) {
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(made.data() + at, &word, std::min(sizeof(word), bytes - at));
  }
  return made;
}

/// World rank = group rank + 10, so that nobody mixes them up.
class Ranks {
 public:
  explicit Ranks(int count, std::chrono::nanoseconds connect_timeout = std::chrono::seconds(20),
                 std::vector<std::string> interfaces = {"127.0.0.1"}, int connections = 1)
      : interfaces(std::move(interfaces)), connections(connections) {
    for (int rank = 0; rank < count; ++rank) members.push_back({.world = rank + 10});
    for (int rank = 0; rank < count; ++rank) {
      all.push_back(make(rank, trust, "world", connect_timeout));
      addresses.push_back(all[rank]->address());
    }
    for (auto& transport : all) transport->set_addresses(addresses);
  }
  std::unique_ptr<TcpTransport> make(
      int rank, Trust with, std::string group = "world",
      std::chrono::nanoseconds connect_timeout = std::chrono::seconds(20)) const {
    return std::make_unique<TcpTransport>(TcpTransportOptions{.members = {rank, members},
                                                              .job = "job",
                                                              .group = std::move(group),
                                                              .listen_addresses = interfaces,
                                                              .connections = connections,
                                                              .trust = std::move(with),
                                                              .connect_timeout = connect_timeout});
  }
  TcpTransport& operator[](int rank) { return *all[rank]; }
  Channel& from_to(int from, int to, Purpose purpose = Purpose::collective) {
    return (*this)[from].channel(to, purpose);
  }
  /// Ends without a word, as a killed process does.
  void kill(int rank) { all[rank].reset(); }
  void leave(int rank) {
    (*this)[rank].say_goodbye();
    kill(rank);
  }
  /// `rank`'s first news.
  PeerNews news_of(int rank) {
    std::vector<PeerNews> news;
    EXPECT_TRUE(eventually([&] { return !(news = (*this)[rank].look()).empty(); }));
    return news.empty() ? PeerNews{} : news.front();
  }
  /// All that `from` still has to write arrives at `to`.
  void move(int from, int to, std::span<const std::byte> sent, Purpose purpose = Purpose::collective) {
    std::size_t written = 0;
    std::vector<std::byte> received(sent.size());
    std::size_t read = 0;
    EXPECT_TRUE(eventually([&] {
      while (written < sent.size()) {
        const std::size_t count = from_to(from, to, purpose).try_write(sent.subspan(written));
        if (count == 0) break;
        written += count;
      }
      while (read < sent.size()) {
        const std::size_t count = from_to(to, from, purpose).try_read(std::span(received).subspan(read));
        if (count == 0) break;
        read += count;
      }
      return read == sent.size();
    }));
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin()));
  }

  std::vector<std::string> interfaces;
  int connections;
  Trust trust{.secret = Secret::random()};
  PerRank<Member> members;
  PerRank<std::string> addresses;
  PerRank<std::unique_ptr<TcpTransport>> all;
};

}  // namespace lockstep::tcp
