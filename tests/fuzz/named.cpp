// What ranks send each other about named operations: decoded, it is sound, and encoded again it says the
// same. Submissions also go to a Negotiation as two ranks might send them.
#include "lockstep/engine/named_wire.h"

#include "lockstep/base/error.h"
#include "tests/fuzz/targets.h"

namespace lockstep::fuzz::named {
namespace {

constexpr std::size_t ranks = 2;

void decode_submissions(std::string_view body) {
  const auto submission = decode_submission(body);
  for (const auto& request : submission.requests) require_sound(request);
  const auto again = decode_submission(encode(submission));
  require(again.requests == submission.requests && again.joins == submission.joins,
          "a submission changes on its way");
  Negotiation negotiation({0, 1}, std::size_t{1} << 20);
  for (const int rank : {0, 1}) {
    for (const auto& request : submission.requests) negotiation.submit(rank, request, {});
  }
  for (const auto& decision : negotiation.take_decisions()) {
    require(decision.kind == Decision::Kind::start, "what two ranks submit alike does not start");
    negotiation.submit_known(1, decision.number, {});
  }
  if (submission.joins) negotiation.join(0);
  const auto decisions = negotiation.take_decisions();
  require(decode_decisions(encode(decisions), ranks).size() == decisions.size(),
          "a decision is lost on its way");
}

void decode_all_decisions(std::string_view body) {
  const auto decisions = decode_decisions(body, ranks);
  const auto bytes = encode(decisions);
  require(encode(decode_decisions(bytes, ranks)) == bytes, "a decision changes on its way");
  for (const auto& decision : decisions)
    require(decision.rows.empty() || decision.rows.size() == ranks, "rows of some ranks only");
}

}  // namespace

int run_one(Input input) {
  if (input.empty()) return 0;
  const std::string_view body(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  try {
    if (input[0] == std::byte{0}) {
      decode_submissions(body);
    } else {
      decode_all_decisions(body);
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data, "an error of another kind");
  }
  return 0;
}

}  // namespace lockstep::fuzz::named
