#include "lockstep/launch/hosts/host_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/split.h"
#include "lockstep/base/words.h"

namespace lockstep::launch {
namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::size_t longest_name = 255;  // of DNS, user and "@" included
constexpr std::uintmax_t most_file_bytes = 1 << 20;
constexpr std::size_t most_found = 1024;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// Takes what stands before the next `separator` off `text`, and the separator.
std::string_view take_until(std::string_view& text, std::string_view separators) {
  const auto end = std::min(text.find_first_of(separators), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

/// Of characters that no shell and no ssh takes for anything else. Names begin with none that would make them an option.
bool is_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-@:%").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= longest_name && name.front() != '-' && name.front() != '@' &&
         name.back() != '@' && std::ranges::count(name, '@') <= 1 &&
         name.find("@-") == std::string_view::npos && std::ranges::all_of(name, is_allowed);
}

using base::quote;

/// Hosts as they come, each once.
class Hosts {
 public:
  /// Of a list or a line.
  struct Entry {
    std::string_view name;
    std::optional<int> slots;  ///< if they are written behind a colon
  };

  explicit Hosts(std::string what) : what_(std::move(what)) {}

  [[noreturn]] void refuse(const std::string& why) const { throw_invalid_argument(what_ + ": " + why); }
  void at_line(const std::string& what) { what_ = what; }

  int slots(std::string_view text, std::string_view entry) const {
    int slots = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
    if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > most_slots)
      refuse(fmt::format("{} has {} slots, which is no number from 1 to {}", quote(entry), quote(text),
                         most_slots));
    return slots;
  }

  void add(std::string_view name, int slots) {
    if (!is_name(name)) refuse(quote(name) + " is no name of a host");
    const auto [found, is_new] = index_.try_emplace(std::string(name), hosts_.size());
    if (is_new) hosts_.push_back({.name = found->first, .slots = 0});
    hosts_[found->second].slots += slots;
    total_ += slots;
    if (total_ > most_slots) refuse(fmt::format("there are more than {} slots", most_slots));
    if (hosts_.size() > most_hosts) refuse(fmt::format("there are more than {} hosts", most_hosts));
  }

  /// "name", "name:4", "[fe80::1]", "[fe80::1]:4".
  Entry entry(std::string_view text) const {
    const bool is_bracketed = text.starts_with('[');
    const auto close = is_bracketed ? text.find(']') : std::string_view::npos;
    if (is_bracketed && close == std::string_view::npos) refuse(quote(text) + " has no closing bracket");
    const std::string_view name = is_bracketed ? text.substr(1, close - 1) : text.substr(0, text.find(':'));
    std::string_view rest = text.substr(is_bracketed ? close + 1 : name.size());
    if (rest.empty()) return {name, std::nullopt};
    if (rest.front() != ':') refuse(quote(text) + " goes on behind the closing bracket");
    rest.remove_prefix(1);
    if (!is_bracketed && rest.find(':') != std::string_view::npos)
      refuse(quote(text) + " has several colons; write an IPv6 address in brackets: [fe80::1]:4");
    return {name, slots(rest, text)};
  }

  std::vector<Host> take() && { return std::move(hosts_); }
  bool empty() const { return hosts_.empty(); }

 private:
  std::string what_;
  std::vector<Host> hosts_;
  std::unordered_map<std::string, std::size_t> index_;  // of each in hosts_
  int total_ = 0;
};

/// What `slots = 4`, `slots=4` and so on among `options` says; nullopt: nothing. `slots` and `=` may be words of their own.
std::optional<int> slots_option(const Hosts& hosts, std::string_view options, std::string_view line) {
  std::optional<int> found;
  while (!(options = trimmed(options)).empty()) {
    const auto end = std::min(options.find_first_of(" \t="), options.size());
    const std::string_view name = options.substr(0, end);
    options = trimmed(options.substr(end));
    if (!options.starts_with('=')) {
      hosts.refuse(fmt::format("{} has {} behind the host, which is no option like slots=4; a host a line",
                               quote(line), quote(name)));
    }
    options = trimmed(options.substr(1));
    const std::string_view value = take_until(options, blanks);
    if (name != "slots") continue;
    if (found) hosts.refuse(quote(line) + " says twice how many slots there are");
    found = hosts.slots(value, line);
  }
  return found;
}

}  // namespace

std::vector<Host> parse_host_list(std::string_view text, const std::string& what) {
  Hosts hosts(what);
  const bool ends_open = text.ends_with(',');
  while (!text.empty()) {
    const auto [name, slots] = hosts.entry(trimmed(take_until(text, ",")));
    hosts.add(name, slots.value_or(1));
  }
  if (hosts.empty() || ends_open) hosts.refuse("a host is missing; write for example server1:4,server2:4");
  return std::move(hosts).take();
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& what) {
  Hosts hosts(what);
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = take_until(text, "\n");
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    hosts.at_line(fmt::format("{}, line {}", what, number));
    std::string_view options = line;
    const auto [name, slots] = hosts.entry(take_until(options, blanks));
    const auto option = slots_option(hosts, options, line);
    if (slots && option) hosts.refuse(quote(line) + " says twice how many slots there are");
    hosts.add(name, slots.value_or(option.value_or(1)));
  }
  hosts.at_line(what);
  if (hosts.empty()) hosts.refuse("it names no host; write one a line, for example: server1 slots=4");
  return std::move(hosts).take();
}

std::vector<Host> read_hostfile(const std::string& path) { return read_hostfile(path, "hostfile " + path); }

std::vector<Host> read_hostfile(const std::string& path, const std::string& what) {
  std::error_code error;
  if (std::filesystem::is_fifo(path, error) || std::filesystem::is_character_file(path, error))
    throw_invalid_argument(what + " is no file: a pipe or a terminal is not taken; write it to a file first");
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw_invalid_argument(what + " cannot be read: " + error.message());
  if (bytes > most_file_bytes)
    throw_invalid_argument(
        fmt::format("{} has {} bytes; a hostfile has at most {}", what, bytes, most_file_bytes));
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file) throw_invalid_argument(what + " cannot be read; is it being written, or yours to read?");
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // as editors of Windows begin a file
  return parse_hostfile(text.starts_with(byte_order_mark) ? text.substr(byte_order_mark.size()) : text, what);
}

std::vector<Host> parse_discovered(std::string_view printed, const std::string& what, int slots) {
  std::vector<Host> hosts;
  int number = 0, all = 0;
  for (const std::string& line : base::split(printed, '\n')) {
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const std::string entry = line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
    const bool has_none = entry.ends_with(":0");
    const auto parsed = parse_host_list(has_none ? entry.substr(0, entry.size() - 1) + "1" : entry,
                                        fmt::format("{}, line {}", what, number));
    if (parsed.size() != 1)
      throw_invalid_argument(fmt::format("{}, line {}: {} are several hosts; each has a line of its own",
                                         what, number, quote(entry)));
    const bool says_slots = entry.back() != ']' && entry.find(':') != std::string::npos;
    const int its = has_none ? 0 : says_slots ? parsed.front().slots : slots;
    const auto known = std::ranges::find(hosts, parsed.front().name, &Host::name);
    if (known == hosts.end()) {
      hosts.push_back({parsed.front().name, its});
    } else {
      known->slots += its;
    }
    if (hosts.size() > most_found || (all += its) > most_slots)
      throw_invalid_argument(fmt::format("{}, line {}: more than {} hosts, or {} slots together", what,
                                         number, most_found, most_slots));
  }
  return hosts;
}

std::vector<Host> share_out(int ranks, const std::vector<Host>& hosts) {
  std::vector<Host> shares;
  int left = ranks;
  for (const Host& host : hosts) {
    if (left == 0) break;
    shares.push_back({host.name, std::min(left, host.slots)});
    left -= shares.back().slots;
  }
  if (left > 0) {
    throw_invalid_argument(
        fmt::format("{} do not fit: there are {} on {} ({}); name more hosts or slots, or start fewer ranks",
                    base::counted(ranks, "rank"), base::counted(ranks - left, "slot"),
                    base::counted(static_cast<std::int64_t>(hosts.size()), "host"), to_string(hosts)));
  }
  return shares;
}

std::string to_string(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    const bool has_colon = host.name.find(':') != std::string::npos;
    text += fmt::format("{}{}{}{}:{}", text.empty() ? "" : ", ", has_colon ? "[" : "", host.name,
                        has_colon ? "]" : "", host.slots);
  }
  return text;
}

}  // namespace lockstep::launch
