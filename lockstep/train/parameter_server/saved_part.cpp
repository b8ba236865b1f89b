#include "lockstep/train/parameter_server/saved_part.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/group/collectives.h"
#include "lockstep/group/outcome.h"

namespace lockstep::ps {
namespace {

/// 0: there is no file.
std::uint64_t number_in(const std::string& path) {
  if (!std::filesystem::exists(path)) return 0;
  torch::serialize::InputArchive archive = opened(path);
  c10::IValue number;
  return archive.try_read("save", number) ? static_cast<std::uint64_t>(number.toInt()) : SavedPart::no_number;
}

}  // namespace

torch::serialize::InputArchive opened(const std::string& path) {
  torch::serialize::InputArchive archive;
  try {
    archive.load_from(path);
  } catch (const c10::Error& error) {
    throw_no_part(path, error);
  }
  return archive;
}

void throw_no_part(const std::string& path, const c10::Error& error) {
  throw Error(
      ErrorCode::corrupt_data,
      c10::str("'", path, "' is no checkpoint of a parameter server: ", error.what_without_backtrace()));
}

void SavedPart::write(std::span<const std::byte> bytes) const {
  FileReplacement file(beside(), "checkpoint");
  file.write(bytes);
  (void)file.commit();
}

void SavedPart::keep() const { move_file(beside(), path_, "checkpoint"); }

void SavedPart::drop() const {
  std::error_code failure;
  std::filesystem::remove(beside(), failure);
  if (failure) throw Error(ErrorCode::system, c10::str("cannot remove ", beside(), ": ", failure.message()));
}

std::uint64_t SavedPart::settle(const Group& servers, const std::function<std::string(int)>& path_of) const {
  struct Numbers {
    std::uint64_t in_place = 0, beside = 0;
    bool have(std::uint64_t number) const { return in_place == number || beside == number; }
  };
  Numbers mine;
  on_every_rank(servers, [&] { mine = {.in_place = number_in(path_), .beside = number_in(beside())}; });
  std::vector<Numbers> all(static_cast<std::size_t>(servers.size()));
  all_gather(servers, std::span(&mine, 1), all).wait();
  const auto have_all = [&](std::uint64_t number) {
    return number != 0 && std::ranges::all_of(all, [&](const Numbers& one) { return one.have(number); });
  };
  const std::array candidates{all[0].beside, all[0].in_place};  // the newer first
  const auto* const newest = std::ranges::find_if(candidates, have_all);
  const bool is_found = newest != candidates.end();
  if (!is_found && std::ranges::any_of(all, [](const Numbers& one) { return one.in_place != 0; })) {
    const auto odd = std::ranges::find_if(
        all, [&](const Numbers& one) { return one.in_place == 0 || one.in_place != all[0].in_place; });
    const std::string path = path_of(static_cast<int>(odd - all.begin()));
    throw_invalid_argument(
        "ParameterServer: " + path +
        (odd->in_place == 0
             ? " is missing, and other servers have theirs: the file is on another host, or lost"
             : " is of another save than " + path_of(0) + ": one of them was put there") +
        "; bring back what belongs together, or remove them to begin anew");
  }
  on_every_rank(servers, [&] {
    if (is_found && mine.in_place != *newest) keep();
    drop();
  });
  return is_found ? *newest : 0;
}

}  // namespace lockstep::ps
