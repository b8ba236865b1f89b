#include "lockstep/launch/hosts/node_list.h"

#include <fmt/core.h>

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/launch/hosts/host_list.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t most_digits = 9;

/// A text that is taken from its beginning, and where it is wrong.
class Scanner {
 public:
  Scanner(std::string_view text, std::string what) : text_(text), what_(std::move(what)) {}

  bool at_end() const { return at_ == text_.size(); }
  bool take(char wanted) {
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void need(char wanted) {
    if (!take(wanted)) refuse(fmt::format("expected '{}'", wanted));
  }
  std::string_view take_until(std::string_view ends) {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  std::string_view digits() {
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const std::string_view taken = text_.substr(begin, at_ - begin);
    if (taken.empty() || taken.size() > most_digits) refuse("expected a number");
    return taken;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw_invalid_argument(fmt::format("{}={}: {} at character {}", what_, base::quote(text_), why, at_ + 1));
  }

 private:
  std::string_view text_;
  std::string what_;
  std::size_t at_ = 0;
};

int number(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// "1-3,07]", behind the bracket: 1, 2, 3, 07.
std::vector<std::string> take_numbers(Scanner& scanner) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = scanner.digits();
    const std::string_view last = scanner.take('-') ? scanner.digits() : first;
    if (number(last) < number(first)) scanner.refuse("a range ends before it begins");
    if (number(last) - number(first) >= most_hosts - static_cast<int>(numbers.size()))
      scanner.refuse(fmt::format("more than {} hosts", most_hosts));
    for (int i = number(first); i <= number(last); ++i)
      numbers.push_back(fmt::format("{:0{}}", i, first.size()));
  } while (scanner.take(','));
  scanner.need(']');
  return numbers;
}

/// One host or one pattern with brackets, up to the comma behind it.
std::vector<std::string> take_pattern(Scanner& scanner) {
  std::vector<std::string> hosts = {""};
  for (;;) {
    const std::string_view plain = scanner.take_until("[,]");
    for (std::string& host : hosts) host += plain;
    if (!scanner.take('[')) break;
    const std::vector<std::string> numbers = take_numbers(scanner);
    if (hosts.size() * numbers.size() > most_hosts)
      scanner.refuse(fmt::format("more than {} hosts", most_hosts));
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      for (const std::string& number : numbers) longer.push_back(host + number);
    }
    hosts = std::move(longer);
  }
  if (hosts.front().empty()) scanner.refuse("expected a host");
  return hosts;
}

}  // namespace

std::vector<std::string> parse_node_list(std::string_view text, const std::string& what) {
  Scanner scanner(text, what);
  std::vector<std::string> hosts;
  do {
    for (std::string& host : take_pattern(scanner)) hosts.push_back(std::move(host));
    if (hosts.size() > most_hosts) scanner.refuse(fmt::format("more than {} hosts", most_hosts));
  } while (scanner.take(','));
  if (!scanner.at_end()) scanner.refuse("expected ','");
  return hosts;
}

std::vector<int> parse_counts(std::string_view text, const std::string& what) {
  Scanner scanner(text, what);
  std::vector<int> counts;
  do {
    const int count = number(scanner.digits());
    int times = 1;
    if (scanner.take('(')) {
      scanner.need('x');
      times = number(scanner.digits());
      scanner.need(')');
    }
    if (times > most_hosts - static_cast<int>(counts.size()))
      scanner.refuse(fmt::format("more than {} hosts", most_hosts));
    counts.insert(counts.end(), static_cast<std::size_t>(times), count);
  } while (scanner.take(','));
  if (!scanner.at_end()) scanner.refuse("expected ','");
  return counts;
}

}  // namespace lockstep::launch
