// What the generated functions are written with.
#pragma once

#include "mpitrace/call.h"

#define LOCKSTEP_MPI extern "C" [[gnu::visibility("default")]]
