#include "lockstep/train/tensor/tensor_collectives.h"

#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/group/collectives.h"
#include "lockstep/train/tensor/host_array.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

using Use = HostArray::Use;

/// Refuses gaps also where there would be a copy anyway: what works must not depend on the device.
HostArray array_of(const torch::Tensor& tensor, const std::string& what, Use use) {
  require_contiguous(
      tensor, what,
      use == Use::read ? "pass tensor.contiguous()" : "pass tensor.contiguous() and copy the result back");
  return {tensor, what, use};
}

}  // namespace

Work all_reduce(const Group& group, const torch::Tensor& tensor, ReduceOp op) {
  const std::string what = "all_reduce's tensor";
  require_contiguous(tensor, what, "pass tensor.contiguous() and copy the result back");
  const auto dtype = reducible_dtype(tensor.scalar_type());
  if (!dtype) {
    throw Error(ErrorCode::unsupported,
                what + " is " + describe(tensor) +
                    "; only integers, bool, f16, bf16, f32, f64, complex64 and complex128 can be reduced: "
                    "convert it with .to()");
  }
  const HostArray array(tensor, what, Use::both);
  return then_put_back(all_reduce_bytes(group, array.bytes(), array.bytes(), {.dtype = *dtype, .op = op}),
                       {array});
}

Work broadcast(const Group& group, const torch::Tensor& tensor, int root) {
  const HostArray array =
      array_of(tensor, "broadcast's tensor", group.rank() == root ? Use::both : Use::write);
  return then_put_back(broadcast_bytes(group, array.bytes(), root), {array});
}

Work all_gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output) {
  const HostArray from = array_of(input, "all_gather's input", Use::read);
  const HostArray to = array_of(output, "all_gather's output", Use::write);
  if (input.scalar_type() != output.scalar_type()) {
    throw_invalid_argument("all_gather's input is " + describe(input) + ", its output " + describe(output) +
                           "; they need the same type");
  }
  return then_put_back(all_gather_bytes(group, from.bytes(), to.bytes()), {from, to});
}

Work send(const Group& group, const torch::Tensor& tensor, int destination) {
  const HostArray array = array_of(tensor, "send's tensor", Use::read);
  return then_put_back(send_bytes(group, array.bytes(), destination), {array});
}

Work recv(const Group& group, const torch::Tensor& tensor, int source) {
  const HostArray array = array_of(tensor, "recv's tensor", Use::write);
  return then_put_back(recv_bytes(group, array.bytes(), source), {array});
}

}  // namespace lockstep
