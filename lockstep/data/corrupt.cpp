#include "lockstep/data/corrupt.h"

#include <fmt/core.h>

#include "lockstep/base/error.h"

namespace lockstep {

void throw_corrupt(std::string_view file, std::uint64_t offset, const std::string& expected,
                   const std::string& found, std::string_view what_to_do) {
  throw Error(ErrorCode::corrupt_data, fmt::format("{}: at byte {} expected {}, found {}; {}", file, offset,
                                                   expected, found, what_to_do));
}

}  // namespace lockstep
