#include "lockstep/group/engine_choice.h"

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/group/gpu_calls.h"

namespace lockstep {

EngineChoice choose_engine(const std::optional<std::string>& name, const std::string& where) {
  const auto told = name ? name : env::text("LOCKSTEP_ENGINE");
  if (!told || *told == "native" || *told == "gloo" || *told == "tcp") return EngineChoice::native;
  if (*told == "mpi") return EngineChoice::mpi;
  if (*told == "nccl") return EngineChoice::nccl;
  throw_invalid_argument((name ? where : "LOCKSTEP_ENGINE") + " is " + base::quote(*told) +
                         "; there are native (also called gloo and tcp), mpi, and nccl for GPUs");
}

EngineChoice engine_of_rank(const std::optional<std::string>& name) {
  const EngineChoice engine = choose_engine(name, "InitOptions::engine");
  if (engine == EngineChoice::nccl) require_nccl();
  return engine;
}

std::string to_string(EngineChoice engine) {
  switch (engine) {
    case EngineChoice::native: return "native";
    case EngineChoice::mpi: return "mpi";
    case EngineChoice::nccl: return "nccl";
  }
  return "?";
}

}  // namespace lockstep
