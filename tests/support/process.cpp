#include "tests/support/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace lockstep::testing {
namespace {

constexpr auto patience = std::chrono::seconds(100);

// What launchers say to their ranks; a test says it itself.
bool is_of_a_launcher(const std::string& name) {
  static const std::array prefixes = {
      "LOCKSTEP_",       "HOROVOD_",  "OMPI_",     "PMI_",        "PMIX_",   "TORCHELASTIC",
      "SLURM_",          "LOCAL_",    "RANK=",     "WORLD_SIZE=", "MASTER_", "GROUP_",
      "OMP_NUM_THREADS", "TF_CONFIG", "MPI_LOCAL", "JSM_",        "FLUX_"};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_of_a_launcher(*entry)) entries.emplace_back(*entry);
  }
  for (const auto& [name, value] : variables) {
    std::erase_if(entries, [&name = name](const std::string& e) { return e.starts_with(name + "="); });
    entries.push_back(name + "=" + value);
  }
  return entries;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) ADD_FAILURE() << "pipe2";
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void append_some(UniqueFd& fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  if (got <= 0) fd.reset();
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

void PrintTo(const Ending& ending, std::ostream* stream) {
  *stream << "exit code " << ending.exit_code << ", stdout:\n" << ending.out << "stderr:\n" << ending.err;
}

Process::Owned::~Owned() {
  if (pid < 0) return;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

Process::Process(const Command& command) : owned_(std::make_unique<Owned>()) {
  auto [in, in_end] = make_pipe();
  auto [out, out_end] = make_pipe();
  auto [err, err_end] = make_pipe();
  const auto environment = environment_with(command.variables);
  const auto words = pointers(command.words);
  const auto variables = pointers(environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool entered = command.network < 0 || ::setns(command.network, CLONE_NEWNET) == 0;
    ::dup2(in.get(), 0);
    ::dup2(out_end.get(), 1);
    ::dup2(err_end.get(), 2);
    if (entered && ::getppid() == parent) ::execvpe(words[0], words.data(), variables.data());
    ::_exit(127);
  }
  owned_->pid = pid_;
  in_ = std::move(in_end);
  out_ = std::move(out);
  err_ = std::move(err);
}

Process::~Process() = default;

void Process::send(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }

void Process::type(const std::string& text) const {
  EXPECT_EQ(::write(in_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

bool Process::read_some(Deadline deadline) {
  if (!out_ && !err_) return false;
  std::array<pollfd, 2> streams = {pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
  if (::poll(streams.data(), streams.size(), deadline.poll_milliseconds(patience)) <= 0)
    return !deadline.expired();
  if (streams[0].revents != 0) append_some(out_, seen_.out);
  if (streams[1].revents != 0) append_some(err_, seen_.err);
  return true;
}

void Process::await(const std::string& text) { await(text, seen_.out); }
void Process::await_err(const std::string& text) { await(text, seen_.err); }

void Process::await(const std::string& text, const std::string& stream) {
  const Deadline deadline = Deadline::after(patience);
  while (stream.find(text) == std::string::npos) {
    if (read_some(deadline)) continue;
    ADD_FAILURE() << "process " << pid_ << " never wrote \"" << text << "\"\n" << seen_.out << seen_.err;
    return;
  }
}

Ending Process::finish() {
  const Deadline deadline = Deadline::after(patience);
  in_.reset();
  while (read_some(deadline)) {
  }
  if (out_ || err_) {
    ADD_FAILURE() << "process " << pid_ << ", or one that it started, did not end within " << patience.count()
                  << " s\n"
                  << seen_.out << seen_.err;
    owned_.reset();
    return std::move(seen_);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);  // its streams are closed: it ends
  owned_->pid = -1;
  seen_.exit_code = exit_code_of(status);
  return std::move(seen_);
}

Ending run(const Command& command) { return Process(command).finish(); }

std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry("/proc", ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry->path() / "environ", std::ios::binary);
    std::string environment((std::istreambuf_iterator<char>(file)), {});
    environment.insert(environment.begin(), '\0');
    if (environment.find('\0' + variable + '\0') != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::string program(const std::string& name) {
  // ctest's; /proc is no help to a test that runs in a chroot and has a mount namespace of its own.
  if (const char* const build = std::getenv("LOCKSTEP_BINARY_DIR"))
    return std::filesystem::path(build) / "bin" / name;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace lockstep::testing
