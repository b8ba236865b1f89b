#include "lockstep/launch/hosts/discovery.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/child.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t most_printed = 1 << 20;
// Whoever reaps the job's children may know how it ended before we ask, so the script's end is told in its output.
constexpr const char* wrapper = R"(sh -c "$0"; echo "
lockstep-exit $?")";
constexpr std::string_view end_mark = "\nlockstep-exit ";

std::string named(const DiscoveryOptions& options) { return "--host-discovery-script " + options.script; }

}  // namespace

Discovery::Discovery(DiscoveryOptions options, const sigset_t& signal_mask)
    : options_(std::move(options)), signal_mask_(signal_mask) {}

Discovery::~Discovery() {
  if (pid_ <= 0) return;
  (void)::kill(-pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

void Discovery::begin() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return end(fmt::format("no pipe: {}", errno));
  out_ = UniqueFd(ends[0]);
  const UniqueFd in(ends[1]);
  (void)::fcntl(out_.get(), F_SETFL, O_NONBLOCK);
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  printed_.clear();
  try {
    pid_ = start_program("/bin/sh", {"sh", "-c", wrapper, options_.script},
                         {.standard = {nothing.get(), in.get(), STDERR_FILENO}, .signal_mask = signal_mask_});
    limit_ = Deadline::after(options_.limit);
  } catch (const Error& error) {
    end(error.what());
  }
}

void Discovery::read_some() {
  std::array<char, 4096> buffer{};
  const ssize_t got = ::read(out_.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got > 0) {
    printed_.append(buffer.data(), static_cast<std::size_t>(got));
    if (printed_.size() > most_printed) return end("it prints more than 1 MiB");
  }
  // Not the end of the pipe: what the script has left behind may hold it.
  const std::size_t mark = printed_.rfind(end_mark);
  const bool is_whole = mark != std::string::npos && printed_.back() == '\n';
  if (!is_whole) return got > 0 ? void() : end("it was ended by a signal");
  const std::string code = printed_.substr(mark + end_mark.size());
  printed_.resize(mark);
  end(code == "0\n" ? "" : "it ended with exit code " + code.substr(0, code.find('\n')));
}

void Discovery::end(const std::string& problem) {
  if (pid_ > 0) {
    (void)::kill(-pid_, SIGKILL);  // and what it has left behind
    (void)::waitpid(pid_, nullptr, 0);
  }
  pid_ = 0;
  out_ = UniqueFd();
  limit_ = Deadline::never();
  next_ = Deadline::after(options_.between);
  Found found{.problem = problem};
  try {
    if (problem.empty()) found.hosts = parse_discovered(printed_, named(options_), options_.slots);
  } catch (const Error& error) {
    found.problem = error.what();
  }
  if (!problem.empty()) found.problem = named(options_) + ": " + problem;
  found_ = std::move(found);
}

void Discovery::watch(PollSet& poll) {
  if (pid_ == 0 && next_.expired()) begin();
  if (limit_.expired()) end(fmt::format("it runs for more than {} s", options_.limit.count() / 1000));
  if (pid_ > 0) poll.watch(out_.get(), POLLIN, [this] { read_some(); });
}

Deadline Discovery::wake_at() const { return pid_ > 0 ? limit_ : next_; }

std::optional<Discovery::Found> Discovery::take() { return std::exchange(found_, std::nullopt); }

std::vector<Host> discover(const DiscoveryOptions& options) {
  sigset_t none;
  sigemptyset(&none);
  Discovery discovery(options, none);
  std::optional<Discovery::Found> found;
  while (!(found = discovery.take())) {
    PollSet poll;
    discovery.watch(poll);
    poll.wait(discovery.wake_at());
  }
  if (!found->problem.empty()) throw_invalid_argument(found->problem);
  return found->hosts;
}

}  // namespace lockstep::launch
