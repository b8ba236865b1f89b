#include "lockstep/engine/named_codec.h"

#include <fmt/core.h>

#include "lockstep/base/error.h"

namespace lockstep {

void throw_corrupt_message(const std::string& what) {
  throw Error(ErrorCode::corrupt_data, "message about named operations: " + what);
}

void append_list(std::string& out, std::span<const std::int64_t> numbers) {
  base::append_number(out, static_cast<base::Length>(numbers.size()));
  base::append_bytes(out, std::as_bytes(numbers));
}

void encode(const NamedRequest& request, std::string& out) {
  base::append_with_length(out, request.name);
  base::append_number(out, static_cast<std::uint8_t>(request.operation));
  base::append_number(out, static_cast<std::uint8_t>(request.dtype));
  base::append_number(out, static_cast<std::uint8_t>(request.reduce_op));
  base::append_number(out, request.prescale);
  base::append_number(out, request.root);
  base::append_number(out, static_cast<std::uint8_t>(request.is_on_gpu ? 1 : 0));
  base::append_number(out, static_cast<base::Length>(request.shapes.size()));
  for (const Shape& shape : request.shapes) append_list(out, shape);
  append_list(out, request.rows);
}

std::size_t NamedReader::length(std::size_t most) {
  const auto length = number<base::Length>();
  if (length > most)
    throw_corrupt_message(fmt::format("a length of {}, of which {} are allowed", length, most));
  return length;
}

std::string NamedReader::text(std::size_t most_bytes) {
  const auto bytes = in_.take(length(most_bytes));
  if (!bytes) throw_corrupt_message("it ends in the middle of a text");
  return std::string(base::text_of(*bytes));
}

std::vector<std::int64_t> NamedReader::list(std::size_t most) {
  const auto count = length(most);
  if (in_.left().size() / sizeof(std::int64_t) < count)
    throw_corrupt_message("it ends in the middle of a list");
  std::vector<std::int64_t> list(count);
  for (auto& value : list) value = number<std::int64_t>();
  return list;
}

NamedRequest NamedReader::request() {
  NamedRequest request;
  request.name = text(named_limits.name_bytes);
  const auto operation = number<std::uint8_t>();
  const auto dtype = number<std::uint8_t>();
  const auto reduce_op = number<std::uint8_t>();
  request.operation = static_cast<Operation>(operation);
  request.dtype = static_cast<Dtype>(dtype);
  request.reduce_op = static_cast<ReduceOp>(reduce_op);
  if (operation >= operation_count || is_message(request.operation))
    throw_corrupt_message("there is no operation " + std::to_string(operation));
  if (size_of(request.dtype) == 0) throw_corrupt_message("there is no element type " + std::to_string(dtype));
  if (reduce_op >= static_cast<std::uint64_t>(ReduceOp::custom))
    throw_corrupt_message("there is no reduction " + std::to_string(reduce_op));
  request.prescale = number<float>();
  request.root = number<std::int32_t>();
  const auto on_gpu = number<std::uint8_t>();
  if (on_gpu > 1) throw_corrupt_message("there is no place " + std::to_string(on_gpu));
  request.is_on_gpu = on_gpu != 0;
  const auto shapes = length(named_limits.buffers);
  for (std::size_t i = 0; i < shapes; ++i) request.shapes.push_back(list(named_limits.dimensions));
  request.rows = list(named_limits.rows);
  if (const auto fault = fault_of(request); !fault.empty())
    throw_corrupt_message("an operation that " + fault);
  return request;
}

}  // namespace lockstep
