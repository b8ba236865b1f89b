// Every collective of the library under the name of its function, each checked: for those who want to have
// called, or hurt, all of them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/group/group.h"
#include "tests/fault/probe_memory.h"

namespace probe {

struct Shape {
  std::size_t elements = 0;  ///< of the buffer or of one rank's block; bytes where nothing is added up
  Memory memory = Memory::own;
  int root = 0;
};

struct Collective {
  std::string_view name;
  /// Fills buffers, calls, waits and checks. Throws WrongResult, and lockstep::Error as the library does.
  void (*call)(const lockstep::Group& group, const Shape& shape);
};

std::span<const Collective> all_collectives();
/// Throws std::invalid_argument, naming those there are.
const Collective& collective_named(std::string_view name);

// Those of probe_blocks.cpp.
void scatter(const lockstep::Group& group, const Shape& shape);
void scatter_v(const lockstep::Group& group, const Shape& shape);
void gather(const lockstep::Group& group, const Shape& shape);
void gather_v(const lockstep::Group& group, const Shape& shape);
void all_gather_v(const lockstep::Group& group, const Shape& shape);
void reduce_scatter(const lockstep::Group& group, const Shape& shape);
void reduce_scatter_v(const lockstep::Group& group, const Shape& shape);
void all_to_all(const lockstep::Group& group, const Shape& shape);
void all_to_all_v(const lockstep::Group& group, const Shape& shape);

}  // namespace probe
