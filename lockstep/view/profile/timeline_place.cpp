#include "lockstep/view/profile/timeline_place.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/view/profile/timeline.h"

namespace lockstep::view {

void require_timeline_place(const std::string& path, const std::string& asked, TimelineNames names) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (std::filesystem::is_directory(path)) throw_invalid_argument(asked + " is a folder; name a file in it");
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw_invalid_argument(asked + ": there is no folder " + folder.string() + "; make it first");
  if (names == TimelineNames::horovod && is_perfettos(path)) {
    throw_invalid_argument(asked +
                           ": what reads Horovod's names reads JSON; name a file that ends in .json, or "
                           "leave the names Lockstep's");
  }
  const FileReplacement made_and_removed(path, "timeline");
}

}  // namespace lockstep::view
