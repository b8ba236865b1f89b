#include "lockstep/base/signature.h"

#include <algorithm>

namespace lockstep {
namespace {

std::string version(const Signature& signature) {
  if (signature.detail == 0 || signature.reduce_op == ReduceOp::custom) return "";
  return signature.operation == Operation::all_reduce ? "_grouped" : "_v";
}

std::string scaled(const Signature& signature) {
  return signature.prescale == 1.0F ? "" : ", prescaled by " + std::to_string(signature.prescale);
}

std::string tagged(std::int32_t tag) {
  if (tag == 0) return "";
  return tag < 0 ? ", any tag" : ", tag " + std::to_string(tag);
}

}  // namespace

std::string to_string(const Signature& signature) {
  std::string name(to_string(signature.operation));
  const std::string count = std::to_string(signature.elements);
  const std::string root = std::to_string(signature.root);
  switch (signature.operation) {
    case Operation::barrier: return name;
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
      return name + version(signature) + " (" + std::string(to_string(signature.reduce_op)) + " of " +
             std::string(to_string(signature.dtype)) + " x " + count + scaled(signature) +
             (signature.operation == Operation::reduce ? " to rank " + root : "") + ")";
    case Operation::broadcast:
    case Operation::scatter:
      return name + version(signature) + " (" + count + " bytes from rank " + root + ")";
    case Operation::gather: return name + version(signature) + " (" + count + " bytes to rank " + root + ")";
    case Operation::all_to_all:
      if (signature.detail != 0) return name + version(signature);  // each rank has counts of its own
      [[fallthrough]];
    case Operation::all_gather: return name + version(signature) + " (" + count + " bytes)";
    case Operation::send:
    case Operation::receive:
      return name + " (" + count + " bytes" + tagged(static_cast<std::int32_t>(signature.detail)) + ")";
  }
  return name;
}

std::string to_string(const Signature& signature, std::uint64_t number) {
  std::string text = to_string(signature);
  return text.insert(std::min(text.find(' '), text.size()), " #" + std::to_string(number));
}

}  // namespace lockstep
