// Which family of MPI a command will run with, found out before it runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mpitrace/family.h"

/// Of the first word of a command that is a program linked with an MPI, directly or by another library, which the system's
/// loader says without starting it; else that of the launcher: a script or Python loads its MPI later.
std::optional<lockstep::mpitrace::Family> family_of_command(const std::vector<std::string>& command);

/// Whether `launcher` is Open MPI's, which passes variables to other hosts only by name.
bool is_open_mpi_launcher(const std::string& launcher);
