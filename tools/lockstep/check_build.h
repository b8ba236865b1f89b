// What `lockstep run --check-build` says, in the form of horovodrun's.
#pragma once

#include <string>

/// Lines for the user.
std::string describe_build();
