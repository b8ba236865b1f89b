// What the driver tells a measuring program, and what the program does with it before it touches its library:
// find out its rank and pin itself. Every program pins itself in the same way, so that no launcher's idea of
// binding enters the comparison.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/session.h"

namespace bench {

struct Options {
  std::string session;                  ///< --session FILE
  std::vector<int> cores;               ///< --cores 0,1: rank r runs on the (r modulo their number)th
  int ranks = 0;                        ///< --ranks N
  std::string op = "all_reduce";        ///< --op: a name of operation.h
  std::vector<std::string> dtypes;      ///< --dtypes f32,bf16
  std::vector<std::string> buffers;     ///< --buffers private,arena,kernel: what the program knows of them
  std::vector<std::string> addresses;   ///< --addresses A,B: of the hosts, where ranks are on several
  std::vector<std::size_t> elements;    ///< --elements 1,16,...: of the larger of a rank's buffers
  std::size_t most_cases = SIZE_MAX;    ///< --cases N: the first N of all dtypes' elements
  std::size_t least_repetitions = 5;    ///< --least N
  std::size_t most_repetitions = 2000;  ///< --most N
  double budget_ms = 20;                ///< --budget-ms T: after this a size gets no more than the least

  std::size_t most_bytes() const {
    return *std::max_element(elements.begin(), elements.end()) * sizeof(float);
  }
  /// Where a rank's second buffer begins if both are in one piece of memory, on a page of its own.
  std::size_t second_buffer() const { return (most_bytes() + 4095) / 4096 * 4096; }
  bool crowded() const { return static_cast<std::size_t>(ranks) > cores.size(); }
};

namespace detail {

inline std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::stringstream stream(list);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

inline unsigned long number(const std::string& flag, const std::string& text) {
  std::size_t end = 0;
  unsigned long value = 0;
  try {
    value = std::stoul(text, &end);
  } catch (const std::exception&) {
    end = std::string::npos;
  }
  if (end != text.size()) throw std::invalid_argument(flag + " needs a number, not '" + text + "'");
  return value;
}

inline void take(Options& options, const std::string& flag, const std::string& value) {
  if (flag == "--session") {
    options.session = value;
  } else if (flag == "--cores") {
    for (const auto& word : split(value)) options.cores.push_back(static_cast<int>(number(flag, word)));
  } else if (flag == "--ranks") {
    options.ranks = static_cast<int>(number(flag, value));
  } else if (flag == "--op") {
    options.op = value;
  } else if (flag == "--dtypes") {
    options.dtypes = split(value);
  } else if (flag == "--buffers") {
    options.buffers = split(value);
  } else if (flag == "--addresses") {
    options.addresses = split(value);
  } else if (flag == "--elements") {
    for (const auto& word : split(value)) options.elements.push_back(number(flag, word));
  } else if (flag == "--cases") {
    options.most_cases = number(flag, value);
  } else if (flag == "--least") {
    options.least_repetitions = number(flag, value);
  } else if (flag == "--most") {
    options.most_repetitions = number(flag, value);
  } else if (flag == "--budget-ms") {
    options.budget_ms = static_cast<double>(number(flag, value));
  } else {
    throw std::invalid_argument("unknown flag '" + flag + "'");
  }
}

}  // namespace detail

/// Throws invalid_argument for what makes no sense.
inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) throw std::invalid_argument(std::string(argv[i]) + " needs a value");
    detail::take(options, argv[i], argv[i + 1]);
  }
  if (options.session.empty() || options.cores.empty() || options.elements.empty()) {
    throw std::invalid_argument(
        "--session, --cores and --elements are needed; benchmarks/collectives/run passes them");
  }
  if (options.ranks < 1 || options.ranks > most_ranks) {
    throw std::invalid_argument("--ranks must be 1 to " + std::to_string(most_ranks));
  }
  options.most_repetitions = std::min(options.most_repetitions, most_repetitions / 2);
  options.least_repetitions = std::clamp<std::size_t>(options.least_repetitions, 1, options.most_repetitions);
  return options;
}

/// This process's rank as its launcher says, before its library was asked.
inline int rank_from_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"}) {
    if (const char* value = std::getenv(name)) return static_cast<int>(detail::number(name, value));
  }
  throw std::invalid_argument("no launcher told this process its rank");
}

/// To be called first, so that threads which the library starts stay on the same core.
inline void pin(const Options& options, int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(options.cores[static_cast<std::size_t>(rank) % options.cores.size()]),
          &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0)
    throw std::runtime_error("cannot pin to a core of --cores");
}

}  // namespace bench
