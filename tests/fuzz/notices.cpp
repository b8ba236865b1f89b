// A stream of notices in pieces, held against a second, simple reading of the same bytes.
#include "lockstep/transport/tcp/notice.h"

#include <cstring>

#include "tests/fuzz/conversation.h"

namespace lockstep::fuzz::notices {
namespace {

using tcp::Notice;
using tcp::NoticeStream;

constexpr int most_steps = 32;  // each is a system call or two

std::string notice_in(Script& script) {
  Notice notice{.kind = static_cast<Notice::Kind>(1 + script.below(3)), .awaited = script.byte() - 1};
  notice.cause = {static_cast<ErrorCode>(script.below(9)), script.byte() - 1, script.byte() - 1,
                  std::string(static_cast<std::size_t>(script.byte()) * 9, 'x')};
  return tcp::encode(notice);
}

std::uint32_t number_at(const std::string& text, std::size_t offset, std::size_t bytes) {
  std::uint32_t number = 0;
  std::memcpy(&number, text.data() + offset, bytes);
  return number;
}

/// The first notice in `text`, and how many bytes it has; 0: it is not whole; npos: it is none.
std::size_t parse(const std::string& text, Notice& notice) {
  if (text.size() < NoticeStream::header_bytes) return 0;
  const std::uint32_t text_bytes = number_at(text, 6, 2);
  const std::uint32_t value = number_at(text, 8, 4);
  const std::uint32_t kind = number_at(text, 4, 2);
  const bool is_failure = kind == 1;
  if (text.substr(0, 4) != "Lkn1" || kind < 1 || kind > 3 || text_bytes > (is_failure ? 2048U : 0U) ||
      (is_failure && value > 7)) {
    return std::string::npos;
  }
  if (text.size() < NoticeStream::header_bytes + text_bytes) return 0;
  notice = {.kind = static_cast<Notice::Kind>(kind)};
  if (kind == 2) notice.awaited = static_cast<int>(value);
  if (is_failure) {
    notice.cause = {static_cast<ErrorCode>(value), static_cast<int>(number_at(text, 12, 4)),
                    static_cast<int>(number_at(text, 16, 4)),
                    text.substr(NoticeStream::header_bytes, text_bytes)};
  }
  return NoticeStream::header_bytes + text_bytes;
}

bool same(const Notice& a, const Notice& b) {
  return a.kind == b.kind && a.awaited == b.awaited && a.cause.code == b.cause.code &&
         a.cause.culprit == b.cause.culprit && a.cause.reporter == b.cause.reporter &&
         a.cause.text == b.cause.text;
}

class Trial {
 public:
  void run(Script& script) {
    for (int i = 0; i < most_steps && !script.is_over(); ++i) {
      if (is_corrupt_ || other_side_.has_ended()) break;
      step(script);
    }
    read();
    require(stream_.has_ended() == (is_corrupt_ || other_side_.has_ended()),
            "a stream ends at its end, or at what is no notice");
    require(unread_.empty() || is_corrupt_ || parse(unread_, ignored_) == 0, "all notices are read");
  }

 private:
  void step(Script& script) {
    switch (script.below(6)) {
      case 0: return say(notice_in(script));
      case 1: return say(script.text(script.byte()));
      case 2: return say(notice_in(script).substr(0, script.byte()));
      case 3: return tell(script);
      case 4: return read();
      default:
        if (script.below(8) == 0) other_side_.end();
    }
  }

  void say(const std::string& text) {
    require(other_side_.say(text), "what is small can be sent");
    unread_ += text;
  }
  void tell(Script& script) {
    words_.append(script.byte(), 'w');
    stream_.tell(words_, script.byte() - 1);
    const std::string& heard = other_side_.hear();
    require(std::ranges::count(heard, 'w') >= static_cast<std::ptrdiff_t>(words_.size()), "words are told");
  }

  void read() {
    for (const Notice& notice : stream_.read()) {
      Notice expected;
      const std::size_t bytes = parse(unread_, expected);
      require(bytes != 0 && bytes != std::string::npos, "only a whole notice is read");
      require(same(notice, expected), "a notice says what was sent");
      unread_.erase(0, bytes);
    }
    is_corrupt_ = parse(unread_, ignored_) == std::string::npos;
    require(!is_corrupt_ || stream_.has_ended(), "what is no notice ends the stream");
  }

  OtherSide other_side_;
  NoticeStream stream_{other_side_.take_socket()};
  std::string unread_;
  std::string words_;
  Notice ignored_;
  bool is_corrupt_ = false;
};

}  // namespace

int run_one(Input input) { return play<Trial>(input); }

}  // namespace lockstep::fuzz::notices
