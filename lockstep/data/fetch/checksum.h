// MD5 and SHA-256 of a whole file. MD5 because that is what publishers give: it tells a damaged file, and not
// one that somebody has made to have this sum.
#pragma once

#include <string>

namespace lockstep::fetch {

/// In hex digits: SHA-256 if `like` has 64 of them, else MD5. Throws Error{system}; `name` stands in messages.
std::string checksum_of(int fd, const std::string& like, const std::string& name);

}  // namespace lockstep::fetch
