#include "curves.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>

namespace fs = std::filesystem;

namespace {

/// The 4 of ".../4.history"; 0: another file.
int processes_of(const fs::path& path) {
  const std::string stem = path.stem().string();
  int processes = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), processes);
  const bool is_number = error == std::errc() && end == stem.data() + stem.size();
  return is_number && path.extension() == ".history" ? processes : 0;
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string() + "; is there room, and may you?");
}

std::vector<lockstep::EpochResult> read(const fs::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return lockstep::decode_history(text, path.string());
}

}  // namespace

void add_to_curves(const fs::path& folder, int processes, const std::vector<lockstep::EpochResult>& history) {
  fs::create_directories(folder);
  write(folder / (std::to_string(processes) + ".history"), lockstep::encode_history(history));

  std::map<int, lockstep::NamedHistory> trainings;  // by processes
  for (const auto& entry : fs::directory_iterator(folder)) {
    const int of = processes_of(entry.path());
    if (of > 0)
      trainings[of] = {std::to_string(of) + (of == 1 ? " process" : " processes"), read(entry.path())};
  }
  std::vector<lockstep::NamedHistory> in_order;
  for (auto& [of, training] : trainings) in_order.push_back(std::move(training));

  lockstep::write_curves(folder / "curves.svg", in_order, "Digits, by number of processes");
}
