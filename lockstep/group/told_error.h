// Errors that ranks tell each other through the store, and the one that they throw when the store is gone.
#pragma once

#include <functional>
#include <istream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

/// Code and peer in a line, then the message.
std::string to_text(const Error& error);
/// The inverse; reads to the end of `text`.
Error read_error(std::istream& text);

/// `store_host`: the rank that served the store; -1: the launcher. `place`: "the meeting place unix:@...";
/// `before`: what it should have waited for, "all ranks had arrived".
Error store_gone(int store_host, const std::string& place, const std::string& before);
/// Runs `call`, which asks the store something that it can answer at once. Where it is gone or silent, the
/// error names who serves it: as store_gone(), or timeout.
void ask_store(int store_host, const std::string& place, const std::string& before,
               const std::function<void()>& call);

}  // namespace lockstep
