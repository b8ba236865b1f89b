#include "launcher_job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <iterator>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

const Deadline::Clock::duration patience = std::chrono::seconds(30);

std::pair<UniqueFd, UniqueFd> make_pipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A file, so that an input of any size fits.
UniqueFd input_with(const fs::path& folder, const std::string& text) {
  std::ofstream(folder / "input", std::ios::binary) << text;
  return UniqueFd(::open((folder / "input").c_str(), O_RDONLY | O_CLOEXEC));
}

std::vector<std::string> processes_with(const std::string& mark) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (fs::directory_iterator entry("/proc", ignored), end; entry != end; entry.increment(ignored)) {
    std::ifstream file(entry->path() / "environ", std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(file)), {});
    if (environment.find(mark) != std::string::npos) found.push_back(entry->path());
  }
  return found;
}

// False when it has ended.
bool append_some(UniqueFd& fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  if (got <= 0) fd.reset();
  return got > 0;
}

}  // namespace

RunOptions shells(int ranks, const std::string& script) {
  RunOptions options;
  options.ranks = ranks;
  options.command = {"/bin/sh", "-c", script};
  return options;
}

RunOptions roles(int ranks) {
  RunOptions options;
  options.ranks = ranks;
  options.command = {fs::read_symlink("/proc/self/exe")};
  return options;
}

JobUnderTest::JobUnderTest(const RunOptions& options, const Surroundings& surroundings) {
  std::string name = (fs::temp_directory_path() / "lockstep-launcher-XXXXXX").string();
  folder_ = mkdtemp(name.data());
  mark_ = "FOLDER=" + folder_.string();
  const std::string life = folder_ / "life";
  EXPECT_EQ(mkfifo(life.c_str(), 0600), 0);
  life_.reset(::open(life.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto [out, out_end] = make_pipe();
  auto [err, err_end] = make_pipe();
  UniqueFd input = input_with(folder_, surroundings.input);
  pid_ = fork();
  if (pid_ == 0) {
    out.reset();
    err.reset();
    become_launcher(options, surroundings, input.get(), out_end.get(),
                    surroundings.one_stream ? out_end.get() : err_end.get());
  }
  out_ = std::move(out);
  err_ = std::move(err);
}

void JobUnderTest::become_launcher(const RunOptions& options, const Surroundings& surroundings, int input,
                                   int out, int err) {
  dup2(input, 0);
  dup2(out, 1);
  dup2(err, 2);
  setenv("FOLDER", folder_.c_str(), 1);
  for (const char* name : {"LOCKSTEP_JOB", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"}) unsetenv(name);
  for (const auto& [name, value] : surroundings.variables) setenv(name.c_str(), value.c_str(), 1);
  if (surroundings.in_launcher) surroundings.in_launcher();
  _exit(run(options));
}

JobUnderTest::~JobUnderTest() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    finish();
  } else {
    EXPECT_TRUE(processes_with(mark_).empty()) << processes_with(mark_).front();
  }
  fs::remove_all(folder_);
}

void JobUnderTest::send(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }

bool JobUnderTest::read_some(Deadline until) {
  if (!out_ && !err_) return false;
  std::array<pollfd, 2> polled = {{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};  // poll ignores -1
  if (poll(polled.data(), 2, until.poll_milliseconds(std::chrono::hours(1))) < 0) return false;
  if (polled[0].revents != 0) append_some(out_, result_.out);
  if (polled[1].revents != 0) append_some(err_, result_.err);
  return out_ || err_;
}

void JobUnderTest::await(const std::string& text, int times) {
  const Deadline deadline = Deadline::after(patience);
  while (count(result_.out, text) + count(result_.err, text) < times) {
    const bool more = read_some(deadline);
    if (!more || deadline.expired()) {
      ADD_FAILURE() << "never came: " << text << "\nstdout:\n" << result_.out << "\nstderr:\n" << result_.err;
      return;
    }
  }
}

bool JobUnderTest::read_for(int milliseconds) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(milliseconds));
  while (!deadline.expired()) {
    if (!read_some(deadline)) return true;
  }
  return false;
}

Result JobUnderTest::finish() {
  const Deadline deadline = Deadline::after(patience);
  while (read_some(deadline) && !deadline.expired()) {
  }
  if (out_ || err_) {
    ADD_FAILURE() << "the launcher did not end\nstdout:\n" << result_.out << "\nstderr:\n" << result_.err;
    kill(pid_, SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result_;
}

void JobUnderTest::await_nobody_left() {
  const Deadline deadline = Deadline::after(patience);
  std::array<char, 4096> ignored;
  for (;;) {
    pollfd polled = {life_.get(), POLLIN, 0};
    if (poll(&polled, 1, deadline.poll_milliseconds(std::chrono::hours(1))) <= 0) break;
    if (::read(life_.get(), ignored.data(), ignored.size()) <= 0) return;
  }
  ADD_FAILURE() << "processes of the job are left";
}

Result run_job(const RunOptions& options, const Surroundings& surroundings) {
  return JobUnderTest(options, surroundings).finish();
}

std::string rest_of_line(const std::string& text, const std::string& before) {
  const std::size_t found = text.find(before);
  if (found == std::string::npos) return "(there is no " + before + ")";
  const std::size_t begin = found + before.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

}  // namespace lockstep::launch
