#include "lockstep/engine/named_wire.h"

#include "lockstep/base/error.h"
#include "lockstep/engine/named_codec.h"

namespace lockstep {
namespace {

using base::append_number, base::append_with_length;

constexpr std::uint8_t known_flag = 1, with_previous_flag = 2;
constexpr std::uint8_t is_request = 0, is_join = 1;
constexpr std::size_t most_why_bytes = std::size_t{64} << 10;

void encode(const Decision& decision, std::string& out) {
  const unsigned flags =
      (decision.is_known ? known_flag : 0U) | (decision.with_previous ? with_previous_flag : 0U);
  append_number(out, static_cast<std::uint8_t>(decision.kind));
  append_number(out, static_cast<std::uint8_t>(flags));
  append_number(out, decision.number);
  switch (decision.kind) {
    case Decision::Kind::start:
      if (decision.is_known) return;
      lockstep::encode(decision.request, out);
      append_number(out, static_cast<base::Length>(decision.rows.size()));
      for (const auto& rows : decision.rows) append_list(out, rows);
      return;
    case Decision::Kind::refuse:
      append_with_length(out, decision.request.name);
      append_number(out, static_cast<std::uint8_t>(decision.code));
      append_number(out, decision.peer.value_or(-1));
      append_with_length(out, std::string_view(decision.why).substr(0, most_why_bytes));
      return;
    case Decision::Kind::all_joined: append_number(out, decision.last_joined);
  }
}

void decode_start(NamedReader& in, std::size_t ranks, Decision& decision) {
  decision.request = in.request();
  const auto rows = in.length(ranks);
  if (rows != 0 && rows != ranks) throw_corrupt_message("rows of " + std::to_string(rows) + " ranks");
  for (std::size_t rank = 0; rank < rows; ++rank) decision.rows.push_back(in.list(named_limits.rows));
  // Each rank's rows are as sound as a request with them, and there are as many on all.
  for (const auto& own : decision.rows) {
    NamedRequest one = decision.request;
    one.rows = own;
    if (own.empty() || own.size() != decision.rows.front().size())
      throw_corrupt_message("rows that do not fit");
    try {
      require_sound(one);
    } catch (const Error& error) {
      throw_corrupt_message(error.what());
    }
  }
}

Decision decode_decision(NamedReader& in, std::size_t ranks) {
  Decision decision;
  const auto kind = in.number<std::uint8_t>();
  if (kind > static_cast<std::uint64_t>(Decision::Kind::all_joined))
    throw_corrupt_message("there is no decision " + std::to_string(kind));
  decision.kind = static_cast<Decision::Kind>(kind);
  const auto flags = in.number<std::uint8_t>();
  if (flags > (known_flag | with_previous_flag))
    throw_corrupt_message("unknown flags " + std::to_string(flags));
  decision.is_known = (flags & known_flag) != 0;
  decision.with_previous = (flags & with_previous_flag) != 0;
  decision.number = in.number<std::uint32_t>();
  if (decision.number > Decision::no_number)
    throw_corrupt_message("number " + std::to_string(decision.number));
  switch (decision.kind) {
    case Decision::Kind::start:
      if (!decision.is_known) decode_start(in, ranks, decision);
      break;
    case Decision::Kind::refuse: {
      decision.request.name = in.text(named_limits.name_bytes);
      const auto code = in.number<std::uint8_t>();
      if (code > static_cast<std::uint64_t>(ErrorCode::system))
        throw_corrupt_message("there is no such error");
      decision.code = static_cast<ErrorCode>(code);
      const auto peer = in.number<std::int32_t>();
      if (peer >= 0) decision.peer = peer;
      decision.why = in.text(most_why_bytes);
      break;
    }
    case Decision::Kind::all_joined: decision.last_joined = in.number<std::int32_t>();
  }
  return decision;
}

}  // namespace

void require_sound(const NamedNote& note) {
  if (note.words_used > NamedNote::most_words)
    throw_corrupt_message(std::to_string(note.words_used) + " words, of which " +
                          std::to_string(NamedNote::most_words) + " fit");
  if (note.body_bytes > most_named_body_bytes)
    throw_corrupt_message("a body of " + std::to_string(note.body_bytes) + " bytes, of which " +
                          std::to_string(most_named_body_bytes) + " are allowed");
}

std::string encode(const NamedSubmission& submission) {
  std::string out;
  for (const auto& request : submission.requests) {
    append_number(out, is_request);
    encode(request, out);
  }
  if (submission.joins) append_number(out, is_join);
  return out;
}

NamedSubmission decode_submission(std::string_view body) {
  NamedReader in(body);
  NamedSubmission submission;
  while (!in.at_end()) {
    const auto kind = in.number<std::uint8_t>();
    if (kind > is_join) throw_corrupt_message("there is no submission " + std::to_string(kind));
    if (kind == is_join) {
      submission.joins = true;
    } else {
      submission.requests.push_back(in.request());
    }
  }
  return submission;
}

std::string encode(const std::vector<Decision>& decisions) {
  std::string out;
  for (const Decision& decision : decisions) encode(decision, out);
  return out;
}

std::vector<Decision> decode_decisions(std::string_view body, std::size_t ranks) {
  NamedReader in(body);
  std::vector<Decision> decisions;
  while (!in.at_end()) decisions.push_back(decode_decision(in, ranks));
  return decisions;
}

}  // namespace lockstep
