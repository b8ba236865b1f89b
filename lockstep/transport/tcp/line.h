// What a connection between two hosts is for: the use that whoever connects claims (base/proof.h).
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/proof.h"
#include "lockstep/memory/host_region.h"

namespace lockstep::tcp {

enum class Line : std::uint32_t { collective = 0, point_to_point = 1, notices = 2 };

constexpr Line line_of(Purpose purpose) { return static_cast<Line>(purpose); }

/// Where rank `rank` of a group listens for those of other hosts.
inline Destination door_of(const std::string& job, const std::string& group, int rank,
                           const Endpoint& endpoint) {
  return {.kind = Destination::Kind::door,
          .job = job,
          .group = group,
          .rank = rank,
          .endpoint = endpoint.to_string()};
}

/// Number `index` of the `count` connections that carry a line together (stripes.h).
struct Strand {
  Line line = Line::notices;
  int index = 0;
  int count = 1;
};
inline constexpr int most_strands = 64;

constexpr Claim claim_of(int rank, const Strand& strand) {
  return {.rank = rank,
          .use = static_cast<std::uint32_t>(strand.line) | static_cast<std::uint32_t>(strand.index) << 8 |
                 static_cast<std::uint32_t>(strand.count - 1) << 16};
}

/// What another rank of a group of so many says to this rank; nullopt: nobody of them says so.
constexpr std::optional<Strand> strand_of(const Claim& claim, int rank, int ranks) {
  const std::uint32_t line = claim.use & 0xffU, index = claim.use >> 8 & 0xffU, more = claim.use >> 16;
  const bool is_member = claim.rank >= 0 && claim.rank < ranks && claim.rank != rank;
  if (!is_member || line > static_cast<std::uint32_t>(Line::notices) || more >= most_strands || index > more)
    return std::nullopt;
  return Strand{static_cast<Line>(line), static_cast<int>(index), static_cast<int>(more) + 1};
}

}  // namespace lockstep::tcp
