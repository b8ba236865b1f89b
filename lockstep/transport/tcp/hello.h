// What a rank says first on a connection, once both sides have proven themselves: who it is, whom it takes
// the other side for, and what the connection is for. On the wire as it stands here (docs/wire_formats.md).
#pragma once

#include <bit>
#include <cstdint>

#include "lockstep/memory/host_region.h"

namespace lockstep::tcp {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

enum class Line : std::uint32_t { collective = 0, point_to_point = 1, notices = 2 };

constexpr Line line_of(Purpose purpose) { return static_cast<Line>(purpose); }
constexpr bool is_data(Line line) { return line == Line::collective || line == Line::point_to_point; }

struct Hello {
  static constexpr std::uint32_t expected_magic = 0x3168'6b4cU;  // "Lkh1"
  std::uint32_t magic = expected_magic;
  Line line = Line::notices;
  std::int32_t from = -1;  ///< ranks are the group's
  std::int32_t to = -1;
  std::uint64_t group = 0;  ///< fnv1a_64 of its name
};
static_assert(sizeof(Hello) == 24);

/// Whether another rank of this group of so many says it, to this rank.
constexpr bool is_for(const Hello& hello, std::uint64_t group, int rank, int ranks) {
  return hello.magic == Hello::expected_magic && hello.group == group && hello.to == rank &&
         hello.from >= 0 && hello.from < ranks && hello.from != rank &&
         (is_data(hello.line) || hello.line == Line::notices);
}

}  // namespace lockstep::tcp
