// Where a timeline is to be written: asked at the beginning, since a run of days should not end with the news that there is no such folder.
#pragma once

#include <string>

#include "lockstep/view/profile/timeline_names.h"

namespace lockstep::view {

/// `path`: of the file; `asked`: what the user knows it by, "--timeline FILE". Throws Error{invalid_argument} for a folder, where
/// there is no folder for it, and where Perfetto's format is to have Horovod's names; Error{system} where no file can be made there.
void require_timeline_place(const std::string& path, const std::string& asked, TimelineNames names);

}  // namespace lockstep::view
