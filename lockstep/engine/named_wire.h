// What ranks send each other about named operations: notes of a fixed size, which hold the numbers of names
// that both sides know and so are all that a training run sends after its first steps; what does not fit
// there follows as a body. docs/wire_formats.md, section "Named operations".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/engine/negotiation.h"

namespace lockstep {

/// Goes as it is (little-endian machines only).
struct NamedNote {
  static constexpr std::size_t most_words = 30;
  static constexpr std::uint32_t with_previous = std::uint32_t{1} << 31;  ///< in a decision's word

  std::uint32_t words_used = 0;
  std::uint32_t body_bytes = 0;
  std::array<std::uint32_t, most_words> words{};
};
static_assert(sizeof(NamedNote) == 128);

inline constexpr std::size_t most_named_body_bytes = std::size_t{64} << 20;

/// Throws Error{corrupt_data} if the note cannot be one.
void require_sound(const NamedNote& note);

/// The body of a submission: what a rank asks for.
struct NamedSubmission {
  std::vector<NamedRequest> requests = {};
  bool joins = false;
};
std::string encode(const NamedSubmission& submission);
NamedSubmission decode_submission(std::string_view body);

/// The body of decisions. `ranks`: how many the group has. One that is known has only its number when
/// decoded.
std::string encode(const std::vector<Decision>& decisions);
std::vector<Decision> decode_decisions(std::string_view body, std::size_t ranks);

}  // namespace lockstep
