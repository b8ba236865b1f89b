// Text that came from elsewhere, in a message of ours: a message is one line, and not a long one, whatever it
// quotes.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::base {

/// In quotation marks; shortened where long, bytes that are no printable text escaped.
std::string quote(std::string_view text);

}  // namespace lockstep::base
