#include "lockstep/backend/gpu/gpu_engine.h"

#include "lockstep/base/error.h"

namespace lockstep {

std::optional<Error> failure_of(Backend& backend, bool needs_all) {
  const auto cause = backend.failure(needs_all);
  return cause ? std::optional(Error(cause->code, cause->text, cause->peer())) : std::nullopt;
}

void mark_stream_of_program(const Gpu& gpu, cuda::Event mark, cuda::Stream stream, const Signature& called) {
  const cuda::Result marked = gpu.driver().record_event(mark, stream);
  if (marked == cuda::invalid_handle || marked == cuda::invalid_value)
    throw_invalid_argument(to_string(called) + " on GPU " + std::to_string(gpu.device()) +
                           ": the call's stream is none of this GPU's");
  gpu.driver().check(marked, "marking the program's stream");
}

void require_possible_on_gpu(const Request& request) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::unsupported, to_string(request.signature) + ": " + why);
  };
  const Signature& called = request.signature;
  if (reduces(called.operation) && called.reduce_op == ReduceOp::custom)
    refuse("a function of the program's own cannot run on a GPU; copy to main memory for it");
  if (!is_message(called.operation)) return;
  if (request.peer == any_source) refuse("a GPU receives from one rank at a time; name the source");
  if (request.tag > 0)
    refuse("messages on GPUs have no tags: they arrive in the order in which they were sent");
}

}  // namespace lockstep
