// Lists in one text, as options and environment variables have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

/// What stands between the separators: one part more than there are of them, some maybe empty.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace lockstep::base
