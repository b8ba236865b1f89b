#include "probe_messages.h"

#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/group/collectives.h"

namespace probe {
namespace {

struct Posted {
  std::vector<char> buffer;
  lockstep::Work work;
};

Posted& posted() {
  static Posted only;
  return only;
}

std::thread& sender() {
  static std::thread only;
  return only;
}

}  // namespace

void post_recv(const lockstep::Group& group, std::size_t bytes, int source) {
  posted().buffer.resize(bytes);
  posted().work = lockstep::recv(group, posted().buffer, source);
}

void await_posted() { posted().work.wait(); }

void send_by_thread(const lockstep::Group& group, std::size_t bytes, int destination) {
  sender() = std::thread([group, bytes, destination] {
    std::string line;
    std::getline(std::cin, line);
    lockstep::send(group, std::vector<char>(bytes), destination).wait();
  });
}

void join_thread() { sender().join(); }

}  // namespace probe
