#include "lockstep/engine/named_request.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr std::size_t length_bytes = 4;
// Elements are multiplied by 16 bytes at most, and summed over ranks.
constexpr std::int64_t most_elements = std::int64_t{1} << 48;

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const auto size : shape) text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  return text + "]";
}

/// Whether the product of the dimensions, and of no part of them, is beyond what is allowed.
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

/// What is wrong; empty if nothing is.
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

}  // namespace

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

void throw_corrupt_message(const std::string& what) {
  throw Error(ErrorCode::corrupt_data, "message about named operations: " + what);
}

void put_number(std::string& out, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> (8 * i)));
}

void put_text(std::string& out, std::string_view text) {
  put_number(out, text.size(), length_bytes);
  out.append(text);
}

void put_numbers(std::string& out, std::span<const std::int64_t> numbers) {
  put_number(out, numbers.size(), length_bytes);
  for (const auto number : numbers) put_number(out, static_cast<std::uint64_t>(number), 8);
}

void encode(const NamedRequest& request, std::string& out) {
  put_text(out, request.name);
  put_number(out, static_cast<std::uint64_t>(request.operation), 1);
  put_number(out, static_cast<std::uint64_t>(request.dtype), 1);
  put_number(out, static_cast<std::uint64_t>(request.reduce_op), 1);
  put_number(out, std::bit_cast<std::uint32_t>(request.prescale), 4);
  put_number(out, static_cast<std::uint32_t>(request.root), 4);
  put_number(out, request.shapes.size(), length_bytes);
  for (const Shape& shape : request.shapes) put_numbers(out, shape);
  put_numbers(out, request.rows);
}

std::uint64_t NamedReader::number(std::size_t bytes) {
  if (bytes_.size() < bytes) throw_corrupt_message("it ends in the middle of a number");
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    number |= std::uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
  bytes_.remove_prefix(bytes);
  return number;
}

std::size_t NamedReader::length(std::size_t most) {
  const auto length = number(length_bytes);
  if (length > most)
    throw_corrupt_message("a length of " + std::to_string(length) + ", of which " + std::to_string(most) +
                          " are allowed");
  return length;
}

std::string NamedReader::text(std::size_t most_bytes) {
  const auto bytes = length(most_bytes);
  if (bytes_.size() < bytes) throw_corrupt_message("it ends in the middle of a text");
  std::string text(bytes_.substr(0, bytes));
  bytes_.remove_prefix(bytes);
  return text;
}

std::vector<std::int64_t> NamedReader::numbers(std::size_t most) {
  const auto count = length(most);
  if (bytes_.size() / 8 < count) throw_corrupt_message("it ends in the middle of a list");
  std::vector<std::int64_t> numbers(count);
  for (auto& value : numbers) value = static_cast<std::int64_t>(number(8));
  return numbers;
}

NamedRequest NamedReader::request() {
  NamedRequest request;
  request.name = text(named_limits.name_bytes);
  const auto operation = number(1);
  const auto dtype = number(1);
  const auto reduce_op = number(1);
  request.operation = static_cast<Operation>(operation);
  request.dtype = static_cast<Dtype>(dtype);
  request.reduce_op = static_cast<ReduceOp>(reduce_op);
  if (operation >= operation_count || is_message(request.operation))
    throw_corrupt_message("there is no operation " + std::to_string(operation));
  if (size_of(request.dtype) == 0) throw_corrupt_message("there is no element type " + std::to_string(dtype));
  if (reduce_op >= static_cast<std::uint64_t>(ReduceOp::custom))
    throw_corrupt_message("there is no reduction " + std::to_string(reduce_op));
  request.prescale = std::bit_cast<float>(static_cast<std::uint32_t>(number(4)));
  request.root = static_cast<int>(static_cast<std::uint32_t>(number(4)));
  const auto shapes = length(named_limits.buffers);
  for (std::size_t i = 0; i < shapes; ++i) request.shapes.push_back(numbers(named_limits.dimensions));
  request.rows = numbers(named_limits.rows);
  if (const auto fault = fault_of(request); !fault.empty())
    throw_corrupt_message("an operation that " + fault);
  return request;
}

}  // namespace lockstep
