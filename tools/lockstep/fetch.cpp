#include "fetch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "command_line.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/data/fetch.h"
#include "lockstep/data/fetch/published.h"

namespace {

using lockstep::FetchOptions;
using lockstep::FetchProgress;
using State = lockstep::FetchProgress::State;

constexpr const char* fetch_after_help =
    R"(DIR then has the files that data sets and examples read: IdxDataset("DIR/train"), Cifar10Dataset("DIR"). What is
there already stays. Each file is whole or not there; a download that broke off goes on where it ended when the command
is given again, and of several commands for one folder one fetches and the others wait.

The exit code is 0, 1 if the set is not there now, or 2 for wrong usage.

  lockstep fetch mnist data/mnist
  lockstep fetch cifar10 data/cifar-10-batches-bin --url http://10.0.0.1/sets/
)";

struct FetchFlags {
  std::string set;
  std::string folder;
  std::string timeout = "1h";
  std::string stall_timeout = "60s";
  std::vector<std::string> checksums;
  FetchOptions options;
};

void describe(CLI::App& app, FetchFlags& flags) {
  command_line::set_usage(
      app, "Usage: lockstep fetch mnist|fashion-mnist|cifar10 DIR [--url URL] [--checksum FILE=SUM]...\n");
  app.footer(fetch_after_help);
  app.add_option("SET", flags.set, "mnist, fashion-mnist or cifar10")->required();
  app.add_option("DIR", flags.folder, "The folder for its files; it is made")->required();
  app.add_option("--url", flags.options.url, "A folder that has the publisher's files [the publisher's]");
  app.add_option("--checksum", flags.checksums,
                 "What a file of that folder must have, MD5 or SHA-256 [the publisher's]");
  app.add_option("--timeout", flags.timeout, "For all of it [1h]");
  app.add_option("--stall-timeout", flags.stall_timeout, "For a server that sends nothing [60s]");
}

std::chrono::milliseconds milliseconds(const std::string& flag, const std::string& value) {
  const auto time = lockstep::env::parse_duration(flag, value);
  if (time < std::chrono::milliseconds(1)) lockstep::throw_invalid_argument(flag + " must be more than 0");
  const auto most = std::chrono::hours(24 * 20);  // as libcurl counts
  return std::chrono::ceil<std::chrono::milliseconds>(std::min<std::chrono::nanoseconds>(time, most));
}

FetchOptions to_options(FetchFlags& flags) {
  FetchOptions& options = flags.options;
  options.timeout = milliseconds("--timeout", flags.timeout);
  options.stall_timeout = milliseconds("--stall-timeout", flags.stall_timeout);
  for (const std::string& word : flags.checksums) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      lockstep::throw_invalid_argument(
          "--checksum " + word + " is not like train-labels-idx1-ubyte.gz=d53e105ee54ea40749a09fcbcd1e9432");
    }
    options.checksums[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return options;
}

std::string size_of(std::uint64_t bytes) {
  if (bytes < std::uint64_t{1} << 20) return fmt::format("{:.0f} KiB", static_cast<double>(bytes) / 1024);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

/// One line for each file: on a terminal it changes while bytes come.
class ProgressLine {
 public:
  ~ProgressLine() { end(); }

  void show(const FetchProgress& progress) {
    if (progress.state == State::fetching) return show_bytes(progress);
    if (progress.state == State::unpacking && !is_terminal_) return;
    const bool stays = progress.state != State::unpacking;
    put(progress.file + ": " + words_of(progress), stays);
  }

 private:
  static std::string words_of(const FetchProgress& progress) {
    switch (progress.state) {
      case State::already_there: return "is there already";
      case State::waiting: return "another process fetches it; waiting";
      case State::fetching: return "";
      case State::unpacking: return "unpacking";
      case State::done: return "done, " + size_of(progress.have);
    }
    return "";
  }
  void show_bytes(const FetchProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    const bool is_new = progress.file != file_;
    if (is_new) {
      file_ = progress.file;
      began_ = now;
      began_at_ = progress.have;
    }
    if (!is_terminal_) {
      if (is_new && progress.have > 0)
        put(file_ + ": goes on, " + size_of(progress.have) + " are there", true);
      return;
    }
    std::string text = file_ + ": " + size_of(progress.have);
    if (progress.total > 0) {
      text += fmt::format(" of {} ({:.0f} %)", size_of(progress.total),
                          100.0 * static_cast<double>(progress.have) / static_cast<double>(progress.total));
    }
    const double seconds = std::chrono::duration<double>(now - began_).count();
    if (seconds > 0.5 && progress.have > began_at_) {
      const double speed = static_cast<double>(progress.have - began_at_) / seconds;
      text += ", " + size_of(static_cast<std::uint64_t>(speed)) + "/s";
    }
    put(text, false);
  }
  void put(const std::string& text, bool stays) {
    if (is_open_) (void)std::fputs("\r\033[K", stderr);
    (void)std::fputs((text + (stays ? "\n" : "")).c_str(), stderr);
    (void)std::fflush(stderr);
    is_open_ = !stays;
  }
  void end() {
    if (is_open_) (void)std::fputs("\n", stderr);
  }

  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool is_open_ = false;
  std::string file_;
  std::chrono::steady_clock::time_point began_{};
  std::uint64_t began_at_ = 0;
};

}  // namespace

int fetch_command(const std::vector<std::string>& arguments) {
  FetchFlags flags;
  CLI::App app("Brings a public data set into a folder.");
  describe(app, flags);
  const auto complain = [](const std::exception& error, const char* more) {
    (void)std::fprintf(stderr, "lockstep fetch: %s\n%s", error.what(), more);
  };
  constexpr const char* hint = "See `lockstep fetch --help`.\n";
  lockstep::PublicDataset set{};
  FetchOptions options;
  try {
    command_line::parse(app, arguments);
    set = lockstep::parse_public_dataset(flags.set);
    options = to_options(flags);
    (void)lockstep::fetch::published(set, options);  // says what is wrong with them
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    complain(error, hint);
    return 2;
  }
  try {
    ProgressLine line;
    options.progress = [&](const FetchProgress& progress) { line.show(progress); };
    lockstep::fetch_dataset(set, flags.folder, options);
    return 0;
  } catch (const std::exception& error) {
    complain(error, "");
    return 1;
  }
}
