#include "tests/support/job_test.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
    names.push_back(entry->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Bound, but listening to nobody.
UniqueFd hold_port(int& port) {
  UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;  // a rank that listens there itself may
  ::setsockopt(holder.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(::bind(holder.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  port = ntohs(address.sin_port);
  return holder;
}

}  // namespace

void JobTest::SetUp() {
  std::string name = (fs::temp_directory_path() / "lockstep-fault-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  folder_ = name;
  fs::create_directory(folder_ / "tmp");
  mark_ = "LOCKSTEP_TEST_MARK=" + folder_.filename().string();
  another_port();
  shared_memory_ = entries_of("/dev/shm");
}

void JobTest::await_end_of_processes() const {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!processes_with(mark_).empty() && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void JobTest::TearDown() {
  EXPECT_THAT(processes_with(mark_), ::testing::IsEmpty()) << "processes were left behind";
  EXPECT_THAT(entries_of(folder_ / "tmp"), ::testing::IsEmpty()) << "temporary files were left behind";
  for (const std::string& name : entries_of("/dev/shm")) {
    const bool was_there =
        std::find(shared_memory_.begin(), shared_memory_.end(), name) != shared_memory_.end();
    EXPECT_TRUE(was_there) << "/dev/shm/" << name << " was left behind";
  }
  fs::remove_all(folder_);
}

int JobTest::another_port() {
  port_holders_.push_back(hold_port(ports_.emplace_back()));
  return ports_.back();
}

void JobTest::take_port() const { EXPECT_EQ(::listen(port_holders_.front().get(), 1), 0); }

std::string JobTest::secret_file(const std::string& secret) const {
  const fs::path path = folder_ / ("secret-" + secret);
  if (fs::exists(path)) return path;  // a process of this test may be reading it
  std::ofstream file(path);
  for (int times = 0; times < 16; ++times) file << secret;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  return path;
}

Process JobTest::start(std::vector<std::string> words, Variables variables, int network) const {
  // Most jobs here are to fail; their records would stay in the folder where the tests run.
  variables.insert(variables.begin(), {"LOCKSTEP_RECORD_DIR", "none"});
  variables.emplace_back("LOCKSTEP_TEST_MARK", folder_.filename().string());
  variables.emplace_back("TMPDIR", (folder_ / "tmp").string());
  return Process({.words = std::move(words), .variables = std::move(variables), .network = network});
}

Variables JobTest::by_hand(int rank, int size, const Variables& more) const {
  Variables variables = {{"RANK", std::to_string(rank)},
                         {"WORLD_SIZE", std::to_string(size)},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", std::to_string(port())}};
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

std::vector<Process> JobTest::start_probes(int size, const std::vector<std::string>& actions,
                                           const Variables& more) const {
  std::vector<std::string> words = {program("probe_rank")};
  words.insert(words.end(), actions.begin(), actions.end());
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) processes.push_back(start(words, by_hand(rank, size, more)));
  return processes;
}

bool JobTest::has_hosts(int count) {
  if (!hosts_) hosts_ = Hosts::make(count, why_no_hosts_);
  return hosts_.has_value();
}

std::vector<Process> JobTest::start_probes_on_two_hosts(int size, const std::vector<std::string>& actions,
                                                        const Variables& more) const {
  std::vector<std::string> words = {program("probe_rank")};
  words.insert(words.end(), actions.begin(), actions.end());
  Variables variables = {{"MASTER_ADDR", hosts_->address(0)}, {"LOCKSTEP_SECRET_FILE", secret_file("ours")}};
  variables.insert(variables.end(), more.begin(), more.end());
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) {
    const int host = rank < size / 2 ? 0 : 1;
    processes.push_back(start(words, by_hand(rank, size, variables), hosts_->network(host)));
  }
  return processes;
}

Ending JobTest::launch_probes(int size, const std::vector<std::string>& actions,
                              const Variables& more) const {
  std::vector<std::string> words = {program("lockstep"), "run", "-np", std::to_string(size),
                                    program("probe_rank")};
  words.insert(words.end(), actions.begin(), actions.end());
  return start(words, more).finish();
}

std::vector<Ending> finish(std::vector<Process>& processes) {
  std::vector<Ending> endings;
  for (Process& process : processes) endings.push_back(process.finish());
  return endings;
}

std::optional<fs::path> peer_file(const std::string& peer, const std::string& path) {
  const char* const peers = std::getenv("LOCKSTEP_PEERS");
  if (peers == nullptr) return std::nullopt;
  const fs::path file = fs::path(peers) / peer / path;
  return fs::exists(file) ? std::optional(file) : std::nullopt;
}

std::optional<fs::path> peer_program(const std::string& peer, const std::string& name) {
  return peer_file(peer, "bin/" + name);
}

std::optional<fs::path> peer_python(const std::string& peer) { return peer_program(peer, "python"); }

std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int times_of_soak(const char* variable, int otherwise) {
  const char* const wanted = getenv(variable);
  return wanted != nullptr ? std::stoi(wanted) : otherwise;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& beginning) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(beginning)) found.push_back(line);
  }
  return found;
}

}  // namespace lockstep::testing
