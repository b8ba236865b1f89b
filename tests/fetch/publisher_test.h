// A publisher of data sets on the loopback interface: server.py, which behaves as the address says.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/data/fetch.h"
#include "tests/support/job_test.h"

namespace lockstep::testing {

class PublisherTest : public JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    ::setenv("no_proxy", "127.0.0.1", 1);  // whatever proxy this machine has
    server_.emplace(Command{.words = {PYTHON, SERVER}});
    server_->await("ready\n");
    std::istringstream lines(server_->out());
    for (std::string word; lines >> word && word != "ready";) {
      if (word == "port") lines >> port_of_server_;
      if (word != "sum") continue;
      std::string file;
      lines >> file;
      lines >> md5_[file] >> sha256_[file];
    }
  }
  void TearDown() override {
    server_.reset();
    JobTest::TearDown();
  }

  /// An address where the server behaves so.
  std::string url(const std::string& behaviour) const {
    return "http://127.0.0.1:" + std::to_string(port_of_server_) + "/" + behaviour;
  }
  /// MNIST as this server has it. Nothing is tried again.
  FetchOptions from(const std::string& behaviour) const {
    FetchOptions options{.url = url(behaviour), .attempts = 1, .pause = std::chrono::milliseconds(1)};
    for (const auto& [file, sum] : md5_) {
      if (file.ends_with("ubyte.gz")) options.checksums[file] = sum;
    }
    return options;
  }
  /// CIFAR-10, whose archive is the one of that name.
  FetchOptions cifar10_from(const std::string& behaviour, const std::string& archive) const {
    FetchOptions options = from(behaviour);
    options.checksums = {{"cifar-10-binary.tar.gz", md5_.at(archive)}};
    return options;
  }
  const std::string& md5(const std::string& file) const { return md5_.at(file); }
  const std::string& sha256(const std::string& file) const { return sha256_.at(file); }

  Process& server() { return *server_; }
  /// What was asked for since the beginning: "FILE RANGE". Ends the server.
  std::vector<std::string> requests() {
    std::istringstream lines(server_->finish().out);
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("get ")) found.push_back(line.substr(4));
    }
    return found;
  }

  std::filesystem::path data() const { return folder() / "data"; }
  /// Names of what is in data(), in order.
  std::vector<std::string> there() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(data())) return names;
    for (const auto& entry : std::filesystem::directory_iterator(data()))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  static const std::vector<std::string>& mnist_files() {
    static const std::vector<std::string> names = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
                                                   "train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
    return names;
  }

 private:
  std::optional<Process> server_;
  int port_of_server_ = 0;
  std::map<std::string, std::string> md5_, sha256_;
};

}  // namespace lockstep::testing
