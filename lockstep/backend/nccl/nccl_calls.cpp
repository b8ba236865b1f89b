#include "lockstep/backend/nccl/nccl_calls.h"

#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/half.h"

namespace lockstep::nccl {
namespace {

using schedule::block_of;

/// NCCL's type, and how many of it an element has.
struct Elements {
  DataType type;
  std::size_t each = 1;
};

/// Nothing where NCCL has no such type.
std::optional<Elements> elements_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8: return Elements{int8};
    case Dtype::u8:
    case Dtype::boolean: return Elements{uint8};
    case Dtype::i32: return Elements{int32};
    case Dtype::u32: return Elements{uint32};
    case Dtype::i64: return Elements{int64};
    case Dtype::u64: return Elements{uint64};
    case Dtype::f16: return Elements{float16};
    case Dtype::bf16: return Elements{bfloat16};
    case Dtype::f32: return Elements{float32};
    case Dtype::f64: return Elements{float64};
    case Dtype::complex64: return Elements{float32, 2};
    case Dtype::complex128: return Elements{float64, 2};
    case Dtype::i16:
    case Dtype::u16: return std::nullopt;
  }
  return std::nullopt;
}

/// Nothing where NCCL has no such operation. A bool is 0 or 1: its sum is or, its product and.
std::optional<RedOp> op_of(ReduceOp op, Dtype dtype) {
  const bool is_bool = dtype == Dtype::boolean;
  switch (op) {
    case ReduceOp::sum: return is_bool ? max : sum;
    case ReduceOp::product: return is_bool ? min : product;
    case ReduceOp::min: return min;
    case ReduceOp::max: return max;
    case ReduceOp::average: return average;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::custom: return std::nullopt;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const Request& request, const std::string& why) {
  throw Error(ErrorCode::unsupported, to_string(request.signature) + ": " + why);
}

/// A scalar as NCCL wants it: of the elements' type.
struct Scalar {
  alignas(8) std::byte bytes[8] = {};
  template <class T>
  void set(T value) {
    static_assert(sizeof(T) <= sizeof(bytes));
    *reinterpret_cast<T*>(bytes) = value;
  }
};

Scalar scalar_of(DataType type, double value) {
  Scalar scalar;
  switch (type) {
    case float16: scalar.set(to_float16(static_cast<float>(value))); break;
    case bfloat16: scalar.set(to_bfloat16(static_cast<float>(value))); break;
    case float64: scalar.set(value); break;
    default: scalar.set(static_cast<float>(value));
  }
  return scalar;
}

}  // namespace

void require_possible(const Request& request) {
  const Signature& called = request.signature;
  if (reduces(called.operation)) {
    if (!elements_of(called.dtype))
      refuse(request, "NCCL has no " + std::string(to_string(called.dtype)) +
                          "; use a type of 32 bits, or copy to main memory for it");
    if (!op_of(called.reduce_op, called.dtype))
      refuse(request,
             "NCCL has no " + std::string(to_string(called.reduce_op)) + "; copy to main memory for it");
  }
  if (called.operation == Operation::all_to_all && request.call.in_place)
    refuse(request, "NCCL cannot do it in place; pass another output");
}

bool can_reduce(Dtype dtype, ReduceOp op) { return elements_of(dtype) && op_of(op, dtype); }

Result Calls::put(std::span<const Request> requests) {
  made_.clear();
  Result result = library_.group_start();
  for (const Request& request : requests) {
    if (result == success || result == in_progress) result = put(request);
  }
  const Result ended = library_.group_end();
  for (const RedOp op : made_) (void)library_.free_op(op, comm_);
  return result == success || result == in_progress ? ended : result;
}

Result Calls::put(const Request& request) {
  const Operation operation = request.signature.operation;
  if (operation == Operation::barrier)
    return library_.all_reduce(scratch_, scratch_, 1, float32, sum, comm_, stream_);
  if (operation == Operation::send) return send(request.input.data(), request.input.size(), request.peer);
  if (operation == Operation::receive)
    return recv(request.output.data(), request.output.size(), request.peer);
  return reduces(operation) ? put_reduction(request) : put_blocks(request);
}

std::optional<RedOp> Calls::scaled_sum(const Request& request, DataType type, Result& result) {
  const Signature& called = request.signature;
  const double share = called.reduce_op == ReduceOp::average ? ranks_ : 1;
  Scalar factor = scalar_of(type, called.prescale / share);
  RedOp op = sum;
  result = library_.make_scaled_sum(&op, factor.bytes, type, scalar_on_host, comm_);
  if (result != success) return std::nullopt;
  made_.push_back(op);
  return op;
}

Result Calls::put_reduction(const Request& request) {
  const Signature& called = request.signature;
  const Call& call = request.call;
  const Elements elements = *elements_of(called.dtype);
  // Of one rank NCCL (2.28) leaves out the last of an odd number of f64 where it averages; a sum it copies.
  const bool is_own_sum = ranks_ == 1 && called.reduce_op == ReduceOp::average;
  std::optional<RedOp> op = op_of(is_own_sum ? ReduceOp::sum : called.reduce_op, called.dtype);
  if (called.prescale != 1.0F) {
    Result result = success;
    op = scaled_sum(request, elements.type, result);
    if (!op) return result;
  }
  const std::byte* const input = request.input.data();
  std::byte* const output = request.output.data();
  const std::size_t count = call.elements * elements.each;
  if (called.operation == Operation::reduce_scatter && !call.counts.empty()) {
    Result result = success;
    for (int root = 0; root < ranks_ && (result == success || result == in_progress); ++root) {
      const Range block = block_of(call, root);
      if (block.count == 0) continue;
      result = library_.reduce(input + block.begin * request.element_bytes, root == rank_ ? output : nullptr,
                               block.count * elements.each, elements.type, *op, root, comm_, stream_);
    }
    return result;
  }
  if (count == 0) return success;
  switch (called.operation) {
    case Operation::all_reduce:
      return library_.all_reduce(input, output, count, elements.type, *op, comm_, stream_);
    case Operation::reduce:
      return library_.reduce(input, output, count, elements.type, *op, call.root, comm_, stream_);
    default: return library_.reduce_scatter(input, output, count, elements.type, *op, comm_, stream_);
  }
}

Result Calls::send(const std::byte* from, std::size_t bytes, int peer) const {
  return bytes == 0 ? success : library_.send(from, bytes, uint8, peer, comm_, stream_);
}

Result Calls::recv(std::byte* to, std::size_t bytes, int peer) const {
  return bytes == 0 ? success : library_.recv(to, bytes, uint8, peer, comm_, stream_);
}

/// What only moves data, as bytes.
Result Calls::put_blocks(const Request& request) {
  const Call& call = request.call;
  const std::size_t each = request.element_bytes;
  const std::byte* const input = request.input.data();
  std::byte* const output = request.output.data();
  const bool is_root = call.root == rank_;
  Result result = success;
  const auto then = [&](auto step) {
    if (result == success || result == in_progress) result = step();
  };
  const auto for_each_rank = [&](auto step) {
    for (int peer = 0; peer < ranks_; ++peer) then([&] { return step(peer); });
  };
  switch (call.operation) {
    case Operation::broadcast:
      if (call.elements == 0) return success;
      return library_.broadcast(output, output, call.elements * each, uint8, call.root, comm_, stream_);
    case Operation::all_gather:
      if (call.counts.empty()) {
        return call.elements == 0
                   ? success
                   : library_.all_gather(input, output, call.elements * each, uint8, comm_, stream_);
      }
      for_each_rank([&](int root) {
        const Range block = block_of(call, root);
        std::byte* const place = output + block.begin * each;
        if (block.count == 0) return success;
        return library_.broadcast(root == rank_ ? input : place, place, block.count * each, uint8, root,
                                  comm_, stream_);
      });
      return result;
    case Operation::scatter:
    case Operation::gather: {
      const bool is_scatter = call.operation == Operation::scatter;
      const bool has_own_in_place = call.in_place && is_root;
      if (is_root) {
        for_each_rank([&](int peer) {
          if (peer == rank_ && has_own_in_place) return success;
          const Range block = block_of(call, peer);
          return is_scatter ? send(input + block.begin * each, block.count * each, peer)
                            : recv(output + block.begin * each, block.count * each, peer);
        });
      }
      if (has_own_in_place) return result;
      then([&] {
        return is_scatter ? recv(output, request.output.size(), call.root)
                          : send(input, request.input.size(), call.root);
      });
      return result;
    }
    default:
      for_each_rank([&](int peer) {
        const Range block = schedule::sent_block(call, peer);
        return send(input + block.begin * each, block.count * each, peer);
      });
      for_each_rank([&](int peer) {
        const Range block = schedule::received_block(call, peer);
        return recv(output + block.begin * each, block.count * each, peer);
      });
      return result;
  }
}

}  // namespace lockstep::nccl
