// A rank that takes another branch, or fewer steps, is found in whatever collective comes next, which the
// program has not called itself: so what fails in it says in which part of training that was.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

/// Whether it says that others are gone, or their group: those who live may go on in another one.
inline bool is_loss_of_others(const Error& error) {
  const ErrorCode code = error.code();
  return code == ErrorCode::peer_lost || code == ErrorCode::timeout || code == ErrorCode::aborted;
}

/// `error` with `where` it came up, if other ranks have a part in it: "the backward of step 3".
inline Error told_where(const Error& error, const std::string& where) {
  std::string text = error.what();
  switch (error.code()) {
    case ErrorCode::mismatch:
      return {error.code(),
              text.append(" (in ").append(where).append(
                  "; ranks take the same steps and branches, and have as many batches, or join())"),
              error.peer()};
    case ErrorCode::peer_lost:
    case ErrorCode::timeout:
      return {error.code(), text.append(" (in ").append(where).append(")"), error.peer()};
    default: return error;
  }
}

/// What `act` returns; what it throws is told_where().
template <class Act>
decltype(auto) telling_where(const char* where, Act act) {
  try {
    return act();
  } catch (const Error& error) {
    throw told_where(error, where);
  }
}

}  // namespace lockstep
