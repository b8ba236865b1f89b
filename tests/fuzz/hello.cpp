// A stranger at a rank's door: nothing he says is heard before he has proven himself, and then only that he
// is a rank of this group.
#include "lockstep/transport/tcp/hello.h"

#include "lockstep/transport/guest.h"
#include "tests/fuzz/conversation.h"
#include "tests/fuzz/proof.h"

namespace lockstep::fuzz::hello {
namespace {

constexpr int me = 1;
constexpr int ranks = 3;
constexpr std::uint64_t group = 4711;
constexpr int most_steps = 16;  // each is a system call or two

class Trial {
 public:
  void run(Script& script) {
    try {
      for (int i = 0; i < most_steps && !script.is_over() && !hello_; ++i) step(script);
      if (!hello_) serve();
    } catch (const Error& error) {
      require(error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::invalid_argument,
              "who does not prove himself is turned away");
    }
    require(!guest_.is_proven() || is_right_, "only the secret lets in");
    if (!hello_) return;
    require(is_right_ && said_ >= ServerProof::answer_bytes + sizeof(tcp::Hello), "a hello is heard whole");
    if (!tcp::is_for(*hello_, group, me, ranks)) return;
    require(hello_->from == 0 || hello_->from == 2, "it is another rank of this group");
    require(static_cast<std::uint32_t>(hello_->line) <= 2, "the line is for something");
  }

 private:
  void step(Script& script) {
    switch (script.below(4)) {
      case 0: return answer_rightly();
      case 1: return say(script.bytes(script.byte()));
      case 2: return say_hello(script);
      default: return serve();
    }
  }

  void answer_rightly() {
    if (said_ > 0) return;
    is_right_ = true;
    say(right_answer(std::as_bytes(std::span(guest_side_.hear())).first(ServerProof::challenge_bytes)));
  }
  void say_hello(Script& script) {
    const tcp::Hello hello{.line = static_cast<tcp::Line>(script.byte()),
                           .from = script.byte() - 1,
                           .to = script.byte() - 1,
                           .group = group + script.byte()};
    say(std::as_bytes(std::span(&hello, 1)));
  }
  void say(Input bytes) {
    if (guest_side_.say(bytes)) said_ += bytes.size();
  }

  // As the door does.
  void serve() {
    if (!guest_.is_proven()) {
      if (guest_.prove()) guest_.welcome();
    } else {
      hello_ = guest_.hello<tcp::Hello>();
    }
  }

  OtherSide guest_side_;
  Guest guest_{guest_side_.take_socket(), trust()};
  std::size_t said_ = 0;
  bool is_right_ = false;
  std::optional<tcp::Hello> hello_;
};

}  // namespace

int run_one(Input input) { return play<Trial>(input); }

}  // namespace lockstep::fuzz::hello
