// Trainings with different numbers of processes are best compared in one picture. Each run leaves its curve in a
// folder, as text, and draws those of all runs that it finds there.
#pragma once

#include <lockstep/train.h>

#include <filesystem>
#include <vector>

/// Writes `folder`/N.history for a training of N processes, in the place of an earlier one, and
/// `folder`/curves.svg of all histories there. Makes the folder. One rank calls it.
void add_to_curves(const std::filesystem::path& folder, int processes,
                   const std::vector<lockstep::EpochResult>& history);
