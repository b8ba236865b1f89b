// Where a timeline is to be written: asked at the beginning, since a run of days should not end with the news that there is no such folder.
#pragma once

#include <string>

namespace lockstep::view {

/// `path`: of the file; `asked`: what the user knows it by, "--timeline FILE". Throws Error{invalid_argument} for a folder, and
/// where there is no folder for it; Error{system} where no file can be made there.
void require_timeline_place(const std::string& path, const std::string& asked);

}  // namespace lockstep::view
