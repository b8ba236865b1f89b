// The port at which programs of a job meet that look for one themselves, as torch.distributed's do.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// `wished`, or where that is 0 one that is free at `address` now. The program listens there some seconds later, so it is none of
/// those that the system gives to connections and to whoever asks for any port (ip_local_port_range), unless those are all.
/// Throws Error{system} where `wished` is taken.
std::uint16_t pick_master_port(const std::string& address, int wished);

}  // namespace lockstep
