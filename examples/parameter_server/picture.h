// How the loss of some trainings fell over time, as a picture.
#pragma once

#include <string>
#include <vector>

struct Losses {
  std::string name;
  std::vector<double> seconds = {}, losses = {};
};

/// As write_losses() has written it; its name is the file's. Throws std::runtime_error.
Losses read_losses(const std::string& path);
void write_losses(const std::string& path, const Losses& losses);
/// A line each, over the same seconds; the loss on a logarithmic axis.
std::string svg(const std::vector<Losses>& trainings, const std::string& title);
