// What carries collectives between hosts.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

enum class EngineChoice { native, mpi };

/// By the names that init_process_group has, too: "native" ("gloo", "tcp"), "mpi". nullopt: LOCKSTEP_ENGINE, or else
/// native. Throws Error: unsupported for "nccl", with what it would take; invalid_argument for other names. `where`: the name
/// was said.
EngineChoice choose_engine(const std::optional<std::string>& name, const std::string& where);
std::string to_string(EngineChoice engine);

}  // namespace lockstep
