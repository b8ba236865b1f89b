// A stranger at a rank's door: whatever he claims is not believed before he has proven himself, and then only that he
// is another rank of this group.
#include "lockstep/transport/guest.h"

#include "lockstep/transport/tcp/line.h"
#include "tests/fuzz/conversation.h"
#include "tests/fuzz/proof.h"

namespace lockstep::fuzz::hello {
namespace {

constexpr int me = 1;
constexpr int ranks = 3;
constexpr int most_steps = 16;  // each is a system call or two

class Trial {
 public:
  void run(Script& script) {
    try {
      for (int i = 0; i < most_steps && !script.is_over() && !guest_.is_proven(); ++i) step(script);
      if (!guest_.is_proven()) serve();
    } catch (const Error& error) {
      require(error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::invalid_argument,
              "who does not prove himself is turned away");
    }
    if (!guest_.is_proven()) return;
    require(right_ && !has_disturbed_, "only the secret lets in");
    require(guest_.claim() == claim_, "who was let in is who proved himself");
    const auto strand = tcp::strand_of(guest_.claim(), me, ranks);
    if (!strand) return;
    require(guest_.claim().rank == 0 || guest_.claim().rank == 2, "it is another rank of this group");
    require(strand->line <= tcp::Line::notices, "the line is for something");
    require(strand->index >= 0 && strand->index < strand->count && strand->count <= tcp::most_strands,
            "it is one of so many");
  }

 private:
  void step(Script& script) {
    switch (script.below(4)) {
      case 0: return prove(script);
      case 1: return disturb(script.bytes(script.byte()));
      case 2: return claim(script);
      default: return serve();
    }
  }

  // The opening, and once it is answered the confirmation.
  void prove(Script&) {
    if (!right_ && !has_spoken_) {
      right_.emplace(claim_);
      has_spoken_ = true;
      (void)guest_side_.say(right_->opening());
    } else if (right_ && !has_confirmed_ && !has_disturbed_ && right_->hear(guest_side_.hear())) {
      has_confirmed_ = true;
      (void)guest_side_.say(right_->confirmation());
    }
  }
  void claim(Script& script) {
    const Claim claim{.rank = script.byte() - 1, .use = static_cast<std::uint32_t>(script.byte())};
    if (!right_) claim_ = claim;
  }
  void disturb(Input bytes) {
    if (bytes.empty()) return;
    has_spoken_ = true;
    if (!has_confirmed_) has_disturbed_ = true;
    (void)guest_side_.say(bytes);
  }

  // As the door does.
  void serve() {
    if (guest_.prove()) guest_.welcome();
  }

  OtherSide guest_side_;
  Guest guest_{guest_side_.take_socket(), trust(), destination()};
  Claim claim_{};
  std::optional<RightClient> right_;
  bool has_spoken_ = false;
  bool has_confirmed_ = false;
  bool has_disturbed_ = false;
};

}  // namespace

int run_one(Input input) { return play<Trial>(input); }

}  // namespace lockstep::fuzz::hello
