// What `lockstep run --check-build` says, in the form of horovodrun's.
#pragma once

#include <string>

/// Of the libtorch that this build was made with; "": it has the collectives alone.
std::string torch_version();

/// Lines for the user.
std::string describe_build();
