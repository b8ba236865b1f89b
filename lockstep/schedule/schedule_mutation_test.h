// Breaks schedules, so that tests can see it noticed.
#pragma once

#include <vector>

#include "lockstep/schedule/schedule.h"

namespace lockstep {

struct ScheduleMutation {
  static std::vector<Step>& steps(Schedule& schedule) { return schedule.steps_; }
  static std::vector<Place>& places(Schedule& schedule) { return schedule.places_; }
};

}  // namespace lockstep
