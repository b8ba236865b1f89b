#include "lockstep/train/tensor_collectives.h"

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor_bytes.h"

namespace lockstep {

Work all_reduce(const Group& group, const torch::Tensor& tensor, ReduceOp op) {
  const auto bytes = writable_bytes(tensor, "all_reduce's tensor");
  const auto dtype = reducible_dtype(tensor.scalar_type());
  if (!dtype) {
    throw Error(ErrorCode::unsupported,
                "all_reduce's tensor is " + describe(tensor) +
                    "; only integers, bool, f16, bf16, f32, f64, complex64 and complex128 can be reduced: "
                    "convert it with .to()");
  }
  return all_reduce_bytes(group, bytes, bytes, {.dtype = *dtype, .op = op});
}

Work broadcast(const Group& group, const torch::Tensor& tensor, int root) {
  return broadcast_bytes(group, writable_bytes(tensor, "broadcast's tensor"), root);
}

Work all_gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output) {
  const auto from = readable_bytes(input, "all_gather's input");
  const auto to = writable_bytes(output, "all_gather's output");
  if (input.scalar_type() != output.scalar_type()) {
    throw_invalid_argument("all_gather's input is " + describe(input) + ", its output " + describe(output) +
                           "; they need the same type");
  }
  return all_gather_bytes(group, from, to);
}

Work send(const Group& group, const torch::Tensor& tensor, int destination) {
  return send_bytes(group, readable_bytes(tensor, "send's tensor"), destination);
}

Work recv(const Group& group, const torch::Tensor& tensor, int source) {
  return recv_bytes(group, writable_bytes(tensor, "recv's tensor"), source);
}

}  // namespace lockstep
