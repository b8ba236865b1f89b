#include "lockstep/data/pickle.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/byte_codec.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr std::uint32_t most_memos = 2 * pickle_most_values;

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view name, std::span<const PickleGlobal> known)
      : in_(bytes), name_(name), known_(known) {}

  Pickle run() {
    if (byte() != 0x80) refuse("a pickle (80)", "other bytes");
    if (const auto protocol = byte(); protocol != 2)
      fail(ErrorCode::unsupported, fmt::format("it is of pickle protocol {}; torch.save's is 2", protocol));
    for (;;) {
      at_ = in_.at();
      const unsigned char opcode = byte();
      if (opcode == '.') break;
      if (!(scalar(opcode) || container(opcode) || memo(opcode) || object(opcode)))
        fail(ErrorCode::unsupported, fmt::format("opcode {:02x} is not one that torch.save writes", opcode));
    }
    if (!in_.at_end()) refuse("the end", fmt::format("{} more bytes", in_.left().size()));
    if (stack_.size() != 1 || !marks_.empty())
      refuse("one value to be left", fmt::format("{} and {} marks", stack_.size(), marks_.size()));
    pickle_.root = stack_.front();
    return std::move(pickle_);
  }

 private:
  using Number = std::uint32_t;  // of a value

  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    throw Error(code, fmt::format("{}: at byte {} {}", name_, at_, what));
  }
  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    fail(ErrorCode::corrupt_data, fmt::format("expected {}, found {}", expected, found));
  }

  std::span<const std::byte> take(std::size_t count) {
    const auto taken = in_.take(count);
    if (!taken) refuse(fmt::format("{} more bytes", count), fmt::format("{}", in_.left().size()));
    return *taken;
  }
  template <class T>
  T number() {
    return base::number_at<T>(take(sizeof(T)));
  }
  unsigned char byte() { return number<unsigned char>(); }
  std::string text(std::size_t count) { return std::string(base::text_of(take(count))); }
  std::string line() {
    const auto left = in_.left();
    const auto end = std::ranges::find(left, std::byte{'\n'});
    if (end == left.end()) refuse("a line", "no end of it");
    std::string found = text(static_cast<std::size_t>(end - left.begin()));
    (void)byte();
    return found;
  }

  PickleValue& value(Number number) { return pickle_.values[number]; }
  void push(Number number) { stack_.push_back(number); }
  void push(PickleValue made) {
    if (pickle_.values.size() == pickle_most_values)
      fail(ErrorCode::unsupported, fmt::format("there are more than {} values", pickle_most_values));
    push(static_cast<Number>(pickle_.values.size()));
    pickle_.values.push_back(std::move(made));
  }
  /// How many values lie above the last mark.
  std::size_t above() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Number top() const {
    if (above() == 0) refuse("a value on the stack", "none");
    return stack_.back();
  }
  Number pop() {
    const Number number = top();
    stack_.pop_back();
    return number;
  }
  std::vector<Number> pop(std::size_t count) {
    if (above() < count) refuse(fmt::format("{} values on the stack", count), fmt::format("{}", above()));
    std::vector<Number> popped(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return popped;
  }
  std::vector<Number> pop_to_mark() {
    if (marks_.empty()) refuse("a mark on the stack", "none");
    auto popped = pop(above());
    marks_.pop_back();
    return popped;
  }

  bool scalar(unsigned char opcode) {
    switch (opcode) {
      case 'N': push(PickleValue{.kind = PickleKind::none}); return true;
      case 0x88: push(PickleValue{.kind = PickleKind::boolean, .integer = 1}); return true;
      case 0x89: push(PickleValue{.kind = PickleKind::boolean, .integer = 0}); return true;
      case 'K': push_integer(number<std::uint8_t>()); return true;
      case 'M': push_integer(number<std::uint16_t>()); return true;
      case 'J': push_integer(number<std::int32_t>()); return true;
      case 0x8a: push_integer(long_integer()); return true;
      case 'G':
        push(PickleValue{.kind = PickleKind::real, .real = base::big_endian_at<double>(take(8))});
        return true;
      case 'X':
        push(PickleValue{.kind = PickleKind::text, .text = text(number<std::uint32_t>())});
        return true;
      default: return false;
    }
  }
  void push_integer(std::int64_t integer) {
    push(PickleValue{.kind = PickleKind::integer, .integer = integer});
  }
  /// A byte that says how many follow, and these: two's complement, the least significant first.
  std::int64_t long_integer() {
    const std::size_t count = byte();
    if (count > 8) fail(ErrorCode::unsupported, fmt::format("an int has {} bytes; up to 8 are read", count));
    const auto digits = take(count);
    std::array<std::byte, 8> whole{};
    const bool is_negative = count > 0 && (digits.back() & std::byte{0x80}) != std::byte{0};
    if (is_negative) whole.fill(std::byte{0xff});
    std::ranges::copy(digits, whole.begin());
    return base::number_at<std::int64_t>(whole);
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(': mark(); return true;
      case ')': push_tuple({}); return true;
      case 0x85: push_tuple(pop(1)); return true;
      case 0x86: push_tuple(pop(2)); return true;
      case 0x87: push_tuple(pop(3)); return true;
      case 't': push_tuple(pop_to_mark()); return true;
      case ']': push(PickleValue{.kind = PickleKind::list}); return true;
      case 'a': append(PickleKind::list, pop(1)); return true;
      case 'e': append(PickleKind::list, pop_to_mark()); return true;
      case '}': push(PickleValue{.kind = PickleKind::dict}); return true;
      case 's': append(PickleKind::dict, pop(2)); return true;
      case 'u': append(PickleKind::dict, pop_to_mark()); return true;
      default: return false;
    }
  }
  void mark() {
    if (marks_.size() == pickle_most_depth)
      fail(ErrorCode::unsupported, fmt::format("it goes deeper than {}", pickle_most_depth));
    marks_.push_back(stack_.size());
  }
  void push_tuple(std::vector<Number> items) {
    push(PickleValue{.kind = PickleKind::tuple, .items = std::move(items)});
  }
  void append(PickleKind kind, const std::vector<Number>& items) {
    PickleValue& target = value(top());
    if (target.kind != kind)
      refuse(kind == PickleKind::list ? "a list to append to" : "a dict to add to", describe(target));
    if (kind == PickleKind::dict && items.size() % 2 != 0) refuse("keys with values", "a key without one");
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  bool memo(unsigned char opcode) {
    switch (opcode) {
      case 'q': keep(byte()); return true;
      case 'r': keep(number<std::uint32_t>()); return true;
      case 'h': push(kept(byte())); return true;
      case 'j': push(kept(number<std::uint32_t>())); return true;
      default: return false;
    }
  }
  void keep(std::uint32_t place) {
    if (place >= most_memos)
      fail(ErrorCode::unsupported, fmt::format("it keeps more than {} values in mind", most_memos));
    if (place >= memo_.size()) memo_.resize(place + 1, nothing);
    memo_[place] = top();
  }
  Number kept(std::uint32_t place) const {
    if (place >= memo_.size() || memo_[place] == nothing)
      refuse(fmt::format("a value to be in mind under {}", place), "none");
    return memo_[place];
  }

  bool object(unsigned char opcode) {
    switch (opcode) {
      case 'c': push(PickleValue{.kind = PickleKind::global, .text = global()}); return true;
      case 'R': call(); return true;
      case 'Q': push(PickleValue{.kind = PickleKind::persistent, .items = pop(1)}); return true;
      case 'b': build(); return true;
      default: return false;
    }
  }
  const PickleGlobal* find(std::string_view name) const {
    const auto found = std::ranges::find(known_, name, &PickleGlobal::name);
    return found == known_.end() ? nullptr : &*found;
  }
  std::string global() {
    std::string name = line() + ".";
    name += line();
    if (name != pickle_ordered_dict && find(name) == nullptr) {
      fail(ErrorCode::unsupported,
           fmt::format("it asks for {}, which is not among what is read: tensors in dicts; "
                       "nothing of the file was run. Save the tensors alone: "
                       "torch.save(model.state_dict(), path)",
                       base::quote(name)));
    }
    return name;
  }
  void call() {
    const Number arguments = pop();
    const Number callee = pop();
    if (value(callee).kind != PickleKind::global || value(arguments).kind != PickleKind::tuple)
      refuse("a function and a tuple of arguments",
             describe(value(callee)) + " and " + describe(value(arguments)));
    const std::string& name = value(callee).text;
    if (name == pickle_ordered_dict) {
      if (!value(arguments).items.empty()) refuse("an empty OrderedDict", "one that is made of something");
      push(PickleValue{.kind = PickleKind::dict, .is_ordered = true});
      return;
    }
    if (!find(name)->is_function)
      fail(ErrorCode::unsupported, fmt::format("it calls {}, which torch.save does not", base::quote(name)));
    push(PickleValue{.kind = PickleKind::call, .items = {callee, arguments}});
  }
  /// Attributes of an object, which torch gives to a state dict alone.
  void build() {
    const PickleValue& state = value(pop());
    const PickleValue& target = value(top());
    const bool is_metadata = target.is_ordered && state.kind == PickleKind::dict && state.items.size() == 2 &&
                             value(state.items[0]).kind == PickleKind::text &&
                             value(state.items[0]).text == "_metadata";
    if (!is_metadata) {
      fail(ErrorCode::unsupported,
           fmt::format("it gives attributes to {}; only the _metadata of an OrderedDict "
                       "is known, and nothing of the file was run",
                       describe(target)));
    }
  }

  static constexpr Number nothing = ~Number{0};

  base::ByteReader in_;
  std::string_view name_;
  std::span<const PickleGlobal> known_;
  std::size_t at_ = 0;  ///< the opcode that is being read
  Pickle pickle_;
  std::vector<Number> stack_;
  std::vector<std::size_t> marks_;  ///< heights of the stack
  std::vector<Number> memo_;
};

}  // namespace

Pickle parse_pickle(std::span<const std::byte> bytes, std::string_view name,
                    std::span<const PickleGlobal> known) {
  return Parser(bytes, name, known).run();
}

std::string describe(const PickleValue& value) {
  switch (value.kind) {
    case PickleKind::none: return "None";
    case PickleKind::boolean: return "a bool";
    case PickleKind::integer: return "an int";
    case PickleKind::real: return "a float";
    case PickleKind::text: return "a str";
    case PickleKind::tuple: return fmt::format("a tuple of {}", value.items.size());
    case PickleKind::list: return fmt::format("a list of {}", value.items.size());
    case PickleKind::dict: return fmt::format("a dict of {}", value.items.size() / 2);
    case PickleKind::global: return value.text;
    case PickleKind::call: return "an object";
    case PickleKind::persistent: return "a storage";
  }
  return "?";
}

}  // namespace lockstep
