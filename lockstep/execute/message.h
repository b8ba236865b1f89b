// What users say and learn of messages between two ranks.
#pragma once

namespace lockstep {

inline constexpr int any_source = -1;
inline constexpr int any_tag = -1;

/// Where a message came from, for receives from any_source or of any_tag. Valid once the receive is over.
struct Received {
  int source = any_source;
  int tag = any_tag;
};

}  // namespace lockstep
