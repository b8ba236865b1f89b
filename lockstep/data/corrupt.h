// What readers of data sets say of a damaged file: where, what was expected, what was found, what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Throws Error{corrupt_data} reading "<file>: at byte <offset> expected <expected>, found <found>;
/// <what_to_do>".
[[noreturn]] void throw_corrupt(std::string_view file, std::uint64_t offset, const std::string& expected,
                                const std::string& found, std::string_view what_to_do);

}  // namespace lockstep
