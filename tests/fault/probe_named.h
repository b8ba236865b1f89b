// Named operations of a probe: once, in an order that is told, and for ever, in orders of each rank's own.
#pragma once

#include <span>
#include <string>

#include "lockstep/group/group.h"

namespace probe {

/// Sums, each a word "name=elements", submitted in this order, then awaited; checked. Throws WrongResult.
void named(const lockstep::Group& group, std::span<const std::string> words);

/// As loop(), of named operations.
int loop_named(const lockstep::Group& group);

}  // namespace probe
