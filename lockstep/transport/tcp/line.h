// What a connection between two hosts is for: the use that whoever connects claims (base/proof.h).
#pragma once

#include <cstdint>

#include "lockstep/base/proof.h"
#include "lockstep/memory/host_region.h"

namespace lockstep::tcp {

enum class Line : std::uint32_t { collective = 0, point_to_point = 1, notices = 2 };

constexpr Line line_of(Purpose purpose) { return static_cast<Line>(purpose); }
constexpr bool is_data(Line line) { return line == Line::collective || line == Line::point_to_point; }

/// Where rank `rank` of a group listens for those of other hosts.
inline Destination door_of(const std::string& job, const std::string& group, int rank,
                           const Endpoint& endpoint) {
  return {.kind = Destination::Kind::door,
          .job = job,
          .group = group,
          .rank = rank,
          .endpoint = endpoint.to_string()};
}

constexpr Claim claim_of(int rank, Line line) {
  return {.rank = rank, .use = static_cast<std::uint32_t>(line)};
}

/// Whether another rank of a group of so many says it to this rank.
constexpr bool is_for(const Claim& claim, int rank, int ranks) {
  return claim.rank >= 0 && claim.rank < ranks && claim.rank != rank &&
         claim.use <= static_cast<std::uint32_t>(Line::notices);
}

}  // namespace lockstep::tcp
