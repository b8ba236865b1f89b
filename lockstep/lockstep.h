// Lockstep's core: ranks, groups and collectives. Training with libtorch is in <lockstep/train.h>.
#pragma once

#include <lockstep/base/error.h>
#include <lockstep/elastic/membership.h>
#include <lockstep/group/collectives.h>
#include <lockstep/group/group.h>
#include <lockstep/group/grouped.h>
#include <lockstep/group/init.h>
#include <lockstep/group/once_per_host.h>
#include <lockstep/group/profile.h>
#include <lockstep/group/reproducible.h>
#include <lockstep/group/timeline.h>
#include <lockstep/launch/spawn.h>
#include <lockstep/trace/recorder.h>
#include <lockstep/trace/traced_range.h>
