#include "lockstep/base/signature.h"

namespace lockstep {

std::string to_string(const Signature& signature) {
  std::string name(to_string(signature.operation));
  const std::string count = std::to_string(signature.elements);
  switch (signature.operation) {
    case Operation::barrier: return name;
    case Operation::all_reduce:
      return name + " (" + std::string(to_string(signature.reduce_op)) + " of " +
             std::string(to_string(signature.dtype)) + " x " + count + ")";
    case Operation::broadcast:
      return name + " (" + count + " bytes from rank " + std::to_string(signature.root) + ")";
    case Operation::all_gather:
    case Operation::send:
    case Operation::receive: return name + " (" + count + " bytes)";
  }
  return name;
}

}  // namespace lockstep
