// A profile as a reader takes it apart, and what a program says of its own calls.
#pragma once

#include <cmath>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

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
  Rows rows;
  std::istringstream lines(text);
  std::string current;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream stream(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    if (line.starts_with("MPI_") && words.size() == 4) {
      rows[words[0]].calls = std::stoll(words[1]);
      rows[words[0]].average_bytes = std::stod(words[2]);
    } else if (line.starts_with("MPI_") && words.size() == 5 && words[1] == "#calls") {
      current = words[0];
    } else if (line.starts_with("      ") && words.size() == 3 && !current.empty()) {
      rows[current].calls_by_size += std::stoll(words[0]);
      rows[current].bytes_by_size += std::stod(words[1]) * static_cast<double>(std::stoll(words[0]));
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
