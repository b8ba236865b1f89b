#include "lockstep/engine/named_codec.h"

#include <bit>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t length_bytes = 4;

}  // namespace

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
