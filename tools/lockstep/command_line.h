// What the subcommands' command lines have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace command_line {

/// A help text that begins with `usage`, whole lines, as written.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App*, std::string) const override { return usage_; }

 private:
  std::string usage_;
};

inline void set_usage(CLI::App& app, std::string usage) {
  app.formatter(std::make_shared<Help>(std::move(usage)));
}

/// Throws as CLI::App::parse() does, which wants the last word first.
inline void parse(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());
  app.parse(std::move(words));
}

/// For `catch (...)` of `lockstep NAME`: prints the help that was asked for, or says what is wrong, with a hint. The exit code.
inline int answer(const CLI::App& app, const char* name) {
  try {
    throw;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep %s: %s\nSee `lockstep %s --help`.\n", name, error.what(), name);
    return 2;
  }
}

/// The exit code, 0: where stdout does not take it all, main() says so, and makes it 1.
inline int print(const std::string& text) {
  (void)std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace command_line
