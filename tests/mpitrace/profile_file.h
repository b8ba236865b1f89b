// A profile as a reader takes it apart, and what a program says of its own calls.
#pragma once

#include <cmath>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace lockstep::testing {

struct RoutineRow {
  long long calls = 0;
  double average_bytes = 0;
  long long calls_by_size = 0;
  double bytes_by_size = 0;
};
using Rows = std::map<std::string, RoutineRow>;

/// The rows of the table and of the blocks of sizes.
inline Rows rows_of(const std::string& text) {
  static const std::regex row(R"((MPI_\w+) +(\d+) +([0-9.]+) +([0-9.]+))");
  static const std::regex block(R"((MPI_\w+) +#calls +avg\. bytes +time\(sec\))");
  static const std::regex size_row(R"( +(\d+) +([0-9.]+) +([0-9.]+))");
  Rows rows;
  std::istringstream lines(text);
  std::string current;
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, row)) {
      rows[match[1]].calls = std::stoll(match[2]);
      rows[match[1]].average_bytes = std::stod(match[3]);
    } else if (std::regex_match(line, match, block)) {
      current = match[1];
    } else if (std::regex_match(line, match, size_row)) {
      rows[current].calls_by_size += std::stoll(match[1]);
      rows[current].bytes_by_size += std::stod(match[2]) * static_cast<double>(std::stoll(match[1]));
    }
  }
  return rows;
}

struct Truth {
  long long calls = 0, bytes = 0;
  bool operator==(const Truth&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Truth& truth) {
  return out << truth.calls << " calls, " << truth.bytes << " bytes";
}
using Truths = std::map<std::string, Truth>;

/// Of one rank, from the lines "truth RANK ROUTINE CALLS BYTES" of all.
inline Truths truths_of(const std::string& output, int rank) {
  Truths truths;
  std::istringstream words(output);
  for (std::string word; words >> word;) {
    int of = -1;
    std::string routine;
    Truth truth;
    if (word == "truth" && words >> of >> routine >> truth.calls >> truth.bytes && of == rank)
      truths[routine] = truth;
  }
  return truths;
}

/// The same of a profile.
inline Truths told_by(const Rows& rows) {
  Truths truths;
  for (const auto& [routine, row] : rows) truths[routine] = {row.calls, std::llround(row.bytes_by_size)};
  return truths;
}

}  // namespace lockstep::testing
