#include "lockstep/backend/native/bind.h"

namespace lockstep {

void bind_call(Bindings& bindings, const Request& request, int rank, int ranks) {
  const Signature& signature = request.signature;
  const auto count = static_cast<std::size_t>(ranks);
  bindings.element_bytes = request.element_bytes;
  bindings.dtype = signature.dtype;
  bindings.reduce_op = signature.reduce_op;
  bindings.custom = request.custom.get();
  bindings.scale = static_cast<double>(signature.prescale) / divisor_of(request, ranks);
  bindings.inputs.resize(count);
  bindings.outputs.resize(count);
  bind_buffers(bindings, request, rank);
}

void bind_buffers(Bindings& bindings, const Request& request, int rank) {
  bindings.inputs[static_cast<std::size_t>(rank)] = request.input.data();
  bindings.outputs[static_cast<std::size_t>(rank)] = request.output.data();
}

Outgoing outgoing(const Request& request, std::uint64_t number) {
  return {.peer = request.peer, .number = number, .signature = request.signature, .bytes = request.input};
}

Incoming incoming(const Request& request, std::uint64_t number) {
  return {.source = request.peer,
          .tag = request.tag,
          .number = number,
          .signature = request.signature,
          .bytes = request.output};
}

void bind_slots(Bindings& bindings, const Arrivals& arrivals, std::uint64_t number, const Plan& plan,
                int ranks) {
  bindings.slots.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    bindings.slots[static_cast<std::size_t>(rank)] = arrivals.slot(number, rank, plan.slot_bytes);
}

}  // namespace lockstep
