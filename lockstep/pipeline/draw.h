// Pictures of pipelines, drawn from their simulation, so that they cannot be wrong: what docs/strategies.md shows and
// `lockstep pipelines` prints.
#pragma once

#include <string>

#include "lockstep/pipeline/schedules.h"

namespace lockstep::pipeline {

/// How to read a picture, in a few lines.
extern const char* const picture_signs;

/// A row for each rank, a column for each unit of time, where a backward takes twice as long as a forward and messages take
/// none. For example
///
///   rank 0  F0 F1 .. .. B0 -- B1 --
///   rank 1  .. F0 B0 -- F1 B1 -- ..
std::string draw(const Schedule& schedule, const Shape& shape);

}  // namespace lockstep::pipeline
