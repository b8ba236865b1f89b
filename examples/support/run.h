// What is the same in every example: its flags are read, and what goes wrong is one line on stderr.
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// "--batch-size=8" becomes "--batch_size=8": flags are written both ways, and `torch.distributed.launch` of
/// later versions passes --local-rank.
inline std::string with_underscores(std::string word) {
  if (word.starts_with("--") && word.size() > 2)
    std::replace(word.begin() + 2, std::find(word.begin(), word.end(), '='), '-', '_');
  return word;
}

/// For a number of things; CLI11 takes -1 for a very large one, and CLI::PositiveNumber says so in 300
/// digits.
inline CLI::Range count_from(std::int64_t least) {
  return {least, std::numeric_limits<std::int64_t>::max(), std::to_string(least).append(" or more")};
}

inline CLI::Range percent() { return {0, 100, "0 to 100"}; }

/// For a strength; CLI11's own takes nan.
inline CLI::Validator from_zero() {
  return {[](const std::string& word) {
            char* end = nullptr;
            const double value = std::strtod(word.c_str(), &end);
            const bool is_one = end != word.c_str() && *end == '\0' && std::isfinite(value) && value >= 0;
            return is_one ? std::string() : "'" + word + "' is no number from 0 on";
          },
          "FLOAT from 0 on"};
}

/// For a file that one rank writes at the end: what is wrong with its place is said before the work, by rank 0.
inline CLI::Validator file_to_write() {
  return {[](const std::string& path) {
            const char* const rank = std::getenv("RANK");
            if (rank != nullptr && rank != std::string("0")) return std::string();
            const std::filesystem::path file = path;
            const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
            std::error_code ignored;
            if (!std::filesystem::is_directory(folder, ignored))
              return "cannot write " + path + ": there is no folder " + folder.string();
            if (std::filesystem::is_directory(file, ignored))
              return "cannot write " + path + ": it is a folder";
            const auto& asked = std::filesystem::exists(file, ignored) ? file : folder;
            if (::access(asked.c_str(), W_OK) == 0) return std::string();
            return "cannot write " + path + ": " + std::strerror(errno);
          },
          "FILE"};
}

inline void require_number(double loss, int steps) {
  if (!std::isfinite(loss))
    throw std::runtime_error("after " + std::to_string(steps) +
                             " steps the loss is no number; take a smaller --learning_rate");
}

/// As lockstep::device_for() takes it.
inline void add_device_flag(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu, cuda (by local rank) or cuda:1 (that one)")->capture_default_str();
}

/// What an example prints is its result. Throws if it is lost, as on a full disk.
inline void require_printed() {
  const bool was_flushed = std::cout.flush().good() && std::fflush(stdout) == 0;
  if (!was_flushed || std::ferror(stdout) != 0)
    throw std::runtime_error("stdout cannot be written: what was printed is lost; is its disk full?");
}

/// Reads the flags into what `app` knows, then calls `body`. Returns the exit code of main(): 1 if something
/// failed, 2 if the flags are wrong.
inline int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  const std::string program = std::filesystem::path(argv[0]).filename().string();
  app.name(program);
  try {
    std::vector<std::string> words;
    std::transform(argv + 1, argv + argc, std::back_inserter(words), with_underscores);
    std::reverse(words.begin(), words.end());  // as it wants them
    app.parse(std::move(words));
    body();
    require_printed();
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    // libtorch's errors end in a stack trace.
    const auto trace = std::min(text.find("\nException raised from "), text.find("\nframe #0: "));
    std::cerr << program + ": " + text.substr(0, trace) << std::endl;
    return 1;
  }
}

}  // namespace examples
