// Messages that a rank waits for later than it asks for them, or that a thread of its own sends.
#pragma once

#include <cstddef>

#include "lockstep/group/group.h"

namespace probe {

/// Asks for a message, and goes on.
void post_recv(const lockstep::Group& group, std::size_t bytes, int source);
/// Waits for it. REQUIRES: post_recv() before.
void await_posted();

/// Starts a thread that sends a message when it has read a line.
void send_by_thread(const lockstep::Group& group, std::size_t bytes, int destination);
/// Waits for its end. REQUIRES: send_by_thread() before.
void join_thread();

}  // namespace probe
