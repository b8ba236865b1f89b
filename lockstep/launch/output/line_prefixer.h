// Output of several ranks comes in pieces of any size. What a user can read is whole lines with the rank
// before each.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// A line ends with '\n', or with a '\r' that no '\n' follows (progress bars). Not thread safe.
class LinePrefixer {
 public:
  /// A longer line is passed on in parts of this size, each a line of its own.
  static constexpr std::size_t longest_line = 65536;

  /// An empty prefix changes no byte: lines are only kept together, long ones split without a line end.
  explicit LinePrefixer(std::string prefix, std::size_t lines_kept = 0)
      : prefix_(std::move(prefix)), lines_kept_(lines_kept) {}

  /// Appends to `out` what `bytes` makes complete.
  void add(std::string_view bytes, std::string& out);
  /// The end of the stream: what is left becomes a line.
  void finish(std::string& out);

  /// The last `lines_kept` lines that are not empty, shortened where very long.
  std::vector<std::string> last_lines() const { return {kept_.begin(), kept_.end()}; }

 private:
  void pass_on(std::string_view line, std::string& out);
  void keep(std::string_view line);

  std::string prefix_;
  std::size_t lines_kept_;
  std::string part_;  // of a line whose end has not come yet
  std::deque<std::string> kept_;
};

}  // namespace lockstep::launch
