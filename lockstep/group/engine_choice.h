// What carries collectives between hosts, and on GPUs.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

enum class EngineChoice {
  native,
  mpi,
  nccl,  ///< native for main memory; GPUs' memory has to have an engine from the start
};

/// By the names that init_process_group has, too: "native" ("gloo", "tcp"), "mpi", "nccl". nullopt: LOCKSTEP_ENGINE, or else
/// native. Throws Error{invalid_argument} for other names. `where`: the name was said.
EngineChoice choose_engine(const std::optional<std::string>& name, const std::string& where);
/// What InitOptions::engine, `name`, comes to in a rank. Throws also Error{unsupported}: nccl, where there is no GPU or no NCCL.
EngineChoice engine_of_rank(const std::optional<std::string>& name);
std::string to_string(EngineChoice engine);

}  // namespace lockstep
