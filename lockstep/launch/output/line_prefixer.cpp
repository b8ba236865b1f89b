#include "lockstep/launch/output/line_prefixer.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr std::size_t longest_kept = 1000;

// Where the first line of `text` ends, or npos. A '\r' at the very end may be half of a "\r\n".
std::size_t line_end(std::string_view text) {
  const std::size_t end = text.find_first_of("\r\n");
  if (end == std::string_view::npos || text[end] == '\n') return end;
  if (end + 1 == text.size()) return std::string_view::npos;
  return text[end + 1] == '\n' ? end + 1 : end;
}

}  // namespace

void LinePrefixer::add(std::string_view bytes, std::string& out) {
  std::size_t known = part_.empty() ? 0 : part_.size() - 1;  // no line ends before this, but for a '\r' last
  part_ += bytes;
  std::string_view rest = part_;
  for (;;) {
    const std::size_t end = line_end(rest.substr(known));
    const std::size_t length = end == std::string_view::npos ? rest.size() : known + end + 1;
    if (end == std::string_view::npos && rest.size() < longest_line) break;
    const std::size_t taken = std::min(length, longest_line);
    pass_on(rest.substr(0, taken), out);
    rest.remove_prefix(taken);
    known = 0;
  }
  part_.erase(0, part_.size() - rest.size());
}

void LinePrefixer::finish(std::string& out) {
  if (!part_.empty()) pass_on(part_, out);
  part_.clear();
}

void LinePrefixer::pass_on(std::string_view line, std::string& out) {
  const bool whole = line.back() == '\n' || line.back() == '\r';
  out += prefix_;
  out += line;
  if (!whole && !prefix_.empty()) out += '\n';
  keep(whole ? line.substr(0, line.find_last_not_of("\r\n") + 1) : line);
}

void LinePrefixer::keep(std::string_view line) {
  if (lines_kept_ == 0 || line.empty()) return;
  if (kept_.size() == lines_kept_) kept_.pop_front();
  kept_.emplace_back(line.substr(0, longest_kept));
}

}  // namespace lockstep::launch
