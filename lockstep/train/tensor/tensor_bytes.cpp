#include "lockstep/train/tensor/tensor_bytes.h"

#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {

std::optional<Dtype> reducible_dtype(torch::ScalarType type) {
  switch (type) {
    case torch::kUInt8: return Dtype::u8;
    case torch::kInt32: return Dtype::i32;
    case torch::kInt64: return Dtype::i64;
    case torch::kFloat16: return Dtype::f16;
    case torch::kBFloat16: return Dtype::bf16;
    case torch::kFloat32: return Dtype::f32;
    case torch::kFloat64: return Dtype::f64;
    case torch::kInt8: return Dtype::i8;
    case torch::kUInt16: return Dtype::u16;
    case torch::kInt16: return Dtype::i16;
    case torch::kUInt32: return Dtype::u32;
    case torch::kUInt64: return Dtype::u64;
    case torch::kBool: return Dtype::boolean;
    case torch::kComplexFloat: return Dtype::complex64;
    case torch::kComplexDouble: return Dtype::complex128;
    default: return std::nullopt;
  }
}

std::string type_name(torch::ScalarType type) {
  const auto dtype = reducible_dtype(type);
  return dtype ? std::string(to_string(*dtype)) : c10::toString(type);
}

std::string shape_text(torch::IntArrayRef shape) {
  std::string text = "[";
  for (const auto size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

namespace {

std::string describe_on(const torch::Tensor& tensor, const std::string& device) {
  std::ostringstream text;
  text << type_name(tensor.scalar_type()) << " " << shape_text(tensor.sizes());
  if (!tensor.device().is_cpu()) text << " on " << device;
  if (tensor.layout() != torch::kStrided) text << " (" << tensor.layout() << ")";
  return text.str();
}

}  // namespace

std::string describe(const torch::Tensor& tensor) { return describe_on(tensor, tensor.device().str()); }

std::string describe_for_all_ranks(const torch::Tensor& tensor) {
  return describe_on(tensor, c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true));
}

void require_array(const torch::Tensor& tensor, const std::string& what) {
  if (tensor.is_meta()) {
    throw Error(ErrorCode::unsupported, what + " is " + describe(tensor) +
                                            ", which has a shape and no elements; make it on the device that "
                                            "is to hold them");
  }
  if (tensor.layout() == torch::kStrided) return;
  throw Error(ErrorCode::unsupported,
              what + " is " + describe(tensor) + "; only dense tensors can be moved: use .to_dense()");
}

void require_host_array(const torch::Tensor& tensor, const std::string& what) {
  require_array(tensor, what);
  if (tensor.device().is_cpu()) return;
  throw Error(ErrorCode::unsupported,
              what + " is " + describe(tensor) + "; it has to be in main memory: use .to(torch::kCPU)");
}

void require_contiguous(const torch::Tensor& tensor, const std::string& what, const std::string& remedy) {
  if (!tensor.defined()) throw_invalid_argument(what + " is an undefined tensor");
  require_array(tensor, what);
  if (tensor.is_contiguous()) return;
  throw_invalid_argument(what + " is " + describe(tensor) + " and not contiguous; " + remedy);
}

namespace {

std::span<std::byte> bytes_of(const torch::Tensor& tensor, const std::string& what,
                              const std::string& remedy) {
  require_contiguous(tensor, what, remedy);
  require_host_array(tensor, what);
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace

std::span<const std::byte> elements_of(const torch::Tensor& dense) {
  return {static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()};
}

std::span<const std::byte> readable_bytes(const torch::Tensor& tensor, const std::string& what) {
  return bytes_of(tensor, what, "pass tensor.contiguous()");
}

std::span<std::byte> writable_bytes(const torch::Tensor& tensor, const std::string& what) {
  const auto bytes = bytes_of(tensor, what, "pass tensor.contiguous() and copy the result back");
  if (!tensor.is_inference()) torch::autograd::impl::bump_version(tensor);
  return bytes;
}

}  // namespace lockstep
