#include "lockstep/group/engine_choice.h"

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {

EngineChoice choose_engine(const std::optional<std::string>& name, const std::string& where) {
  const auto told = name ? name : env::text("LOCKSTEP_ENGINE");
  if (!told || *told == "native" || *told == "gloo" || *told == "tcp") return EngineChoice::native;
  if (*told == "mpi") return EngineChoice::mpi;
  const std::string said = (name ? where : "LOCKSTEP_ENGINE") + " is ";
  if (*told == "nccl") {
    throw Error(
        ErrorCode::unsupported,
        said +
            "nccl, which moves data between GPUs: this Lockstep is built without CUDA; take native or mpi");
  }
  throw_invalid_argument(said + base::quote(*told) + "; there are native (also called gloo and tcp) and mpi");
}

std::string to_string(EngineChoice engine) { return engine == EngineChoice::mpi ? "mpi" : "native"; }

}  // namespace lockstep
