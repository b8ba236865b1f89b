#include "lockstep/engine/named_request.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

using base::quote;

// Few enough to be multiplied by an element's bytes (16 at most) and added up over all ranks without an
// overflow.
constexpr std::int64_t most_elements = std::int64_t{1} << 48;

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const auto size : shape) text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  return text + "]";
}

/// Whether no dimension is negative, and their product, with 1 in place of each 0, is within what is allowed.
bool is_sound(const Shape& shape) {
  if (shape.size() > named_limits.dimensions) return false;
  std::int64_t elements = 1;
  for (const auto size : shape) {
    if (size < 0 || size > most_elements) return false;
    if (size > 0 && elements > most_elements / size) return false;
    elements *= std::max<std::int64_t>(size, 1);
  }
  return true;
}

}  // namespace

std::string fault_of(const NamedRequest& request) {
  if (request.name.empty()) return "has no name";
  if (request.name.size() > named_limits.name_bytes)
    return "has a name of " + std::to_string(request.name.size()) + " bytes, of which " +
           std::to_string(named_limits.name_bytes) + " are allowed";
  if (request.shapes.size() > named_limits.buffers)
    return "has " + std::to_string(request.shapes.size()) + " buffers; at most " +
           std::to_string(named_limits.buffers) + " go into one call";
  if (!std::ranges::all_of(request.shapes, is_sound)) return "has a shape that no memory can hold";
  if (!std::isfinite(request.prescale)) return "has a prescale that is no number";
  if (request.rows.size() > named_limits.rows) return "has too many counts of rows";
  for (const auto rows : request.rows) {
    if (rows < 0) return "has a negative number of rows";
    Shape whole = request.shapes.empty() ? Shape{} : request.shapes.front();
    if (whole.size() >= named_limits.dimensions) return "has too many dimensions";
    whole.push_back(rows);
    if (!is_sound(whole)) return "has more rows than memory can hold";
  }
  return {};
}

bool NamedRequest::fits(const NamedRequest& other) const {
  return name == other.name && operation == other.operation && dtype == other.dtype &&
         reduce_op == other.reduce_op &&
         std::bit_cast<std::uint32_t>(prescale) == std::bit_cast<std::uint32_t>(other.prescale) &&
         root == other.root && shapes == other.shapes && rows.size() == other.rows.size();
}

std::string to_string(const NamedRequest& request) {
  std::string text(to_string(request.operation));
  text.append(" ").append(quote(request.name));
  if (request.operation == Operation::barrier) return text;
  text.append(" (");
  if (reduces(request.operation)) text.append(to_string(request.reduce_op)).append(" of ");
  text.append(to_string(request.dtype));
  for (std::size_t i = 0; i < std::min<std::size_t>(request.shapes.size(), 3); ++i) {
    text.append(i == 0 ? " " : " + ");
    if (request.rows.empty()) {
      text.append(to_string(request.shapes[i]));
    } else {
      text.append("rows of ").append(to_string(request.shapes[i]));
    }
  }
  if (request.shapes.size() > 3)
    text.append(" and ").append(std::to_string(request.shapes.size() - 3)).append(" more");
  if (has_root(request.operation)) text.append(" from rank ").append(std::to_string(request.root));
  if (request.prescale != 1.0F) text.append(", each times ").append(std::to_string(request.prescale));
  return text.append(")");
}

std::size_t elements_of(const Shape& shape) {
  std::size_t elements = 1;
  for (const auto size : shape) elements *= static_cast<std::size_t>(size);
  return elements;
}

std::size_t bytes_of(const NamedRequest& request) {
  std::size_t bytes = 0;
  for (const Shape& shape : request.shapes) bytes += elements_of(shape) * size_of(request.dtype);
  return bytes;
}

void require_sound(const NamedRequest& request) {
  if (const auto fault = fault_of(request); !fault.empty())
    throw_invalid_argument(std::string(to_string(request.operation)).append(" by name ").append(fault));
}

}  // namespace lockstep
