// Whoever trained wants to see at a glance whether it went well: loss and accuracy over the epochs, as one
// picture that every browser shows and that a report can hold.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/trainer/history.h"

namespace lockstep {

/// An SVG of 800 x 500: losses on the left axis, the evaluation's accuracy on the right one, epochs (counted
/// from 1) below; a legend names the lines that there are. Figures that are infinite or no numbers are gaps.
/// `title` is any text; what cannot stand in XML is replaced.
std::string draw_curve(std::span<const EpochResult> history, std::string_view title = "");

/// Not collective: one rank does it. The picture as a file, whole or not at all; one that was there is
/// replaced. Throws Error{system}: no folder (it is not made), no permission, disk full.
void write_curve(const std::filesystem::path& path, std::span<const EpochResult> history,
                 std::string_view title = "");

/// One of several trainings that are compared.
struct NamedHistory {
  std::string name;
  std::vector<EpochResult> history;
};

/// As draw_curve() of several trainings in one picture: each a colour, its training's loss as a solid line and
/// the evaluation's accuracy as a dashed one. From the ninth training on colours come again.
std::string draw_curves(std::span<const NamedHistory> trainings, std::string_view title = "");

/// As write_curve().
void write_curves(const std::filesystem::path& path, std::span<const NamedHistory> trainings,
                  std::string_view title = "");

}  // namespace lockstep
