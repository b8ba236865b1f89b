#include "lockstep/base/signature.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep {
namespace {

std::string version(const Signature& signature) {
  if (signature.detail == 0 || signature.reduce_op == ReduceOp::custom) return "";
  if (signature.operation != Operation::all_reduce) return "_v";
  return signature.root == Signature::root_of_update ? "_update" : "_grouped";
}

std::string scaled(const Signature& signature) {
  return signature.prescale == 1.0F ? "" : fmt::format(", prescaled by {}", signature.prescale);
}

std::string tagged(std::int32_t tag) {
  if (tag == 0) return "";
  return tag < 0 ? ", any tag" : fmt::format(", tag {}", tag);
}

}  // namespace

std::string to_string(const Signature& signature) {
  const std::string_view name = to_string(signature.operation);
  const auto elements = signature.elements;
  const int root = signature.root;
  switch (signature.operation) {
    case Operation::barrier: return std::string(name);
    case Operation::all_reduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
      return fmt::format("{}{} ({} of {} x {}{}{})", name, version(signature), to_string(signature.reduce_op),
                         to_string(signature.dtype), elements, scaled(signature),
                         signature.operation == Operation::reduce ? fmt::format(" to rank {}", root) : "");
    case Operation::broadcast:
    case Operation::scatter:
      return fmt::format("{}{} ({} bytes from rank {})", name, version(signature), elements, root);
    case Operation::gather:
      return fmt::format("{}{} ({} bytes to rank {})", name, version(signature), elements, root);
    case Operation::all_to_all:
      if (signature.detail != 0)
        return fmt::format("{}{}", name, version(signature));  // counts differ by rank
      [[fallthrough]];
    case Operation::all_gather: return fmt::format("{}{} ({} bytes)", name, version(signature), elements);
    case Operation::send:
    case Operation::receive:
      return fmt::format("{} ({} bytes{})", name, elements,
                         tagged(static_cast<std::int32_t>(signature.detail)));
  }
  return std::string(name);
}

std::string to_string(const Signature& signature, std::uint64_t number) {
  std::string text = to_string(signature);
  return text.insert(std::min(text.find(' '), text.size()), fmt::format(" #{}", number));
}

}  // namespace lockstep
