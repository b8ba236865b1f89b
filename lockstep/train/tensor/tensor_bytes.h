// A tensor seen as what the core moves: bytes with a type. The core knows no tensors, and a tensor can be
// many things that have no bytes here (on a GPU, sparse, with holes); what cannot be moved is refused by
// name. host_array.h moves what is elsewhere.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/dtype.h"

namespace lockstep {

/// The type under which collectives reduce elements of `type`; nullopt if they cannot.
std::optional<Dtype> reducible_dtype(torch::ScalarType type);

/// As in messages: "f32", "i64", "bool"; libtorch's own name for a type that has no such.
std::string type_name(torch::ScalarType type);

/// As in messages: "[10, 64]".
std::string shape_text(torch::IntArrayRef shape);

/// As in messages: "f32 [10, 64]", "f32 [10, 64] on cuda:0", "f32 [10, 64] (Sparse)".
std::string describe(const torch::Tensor& tensor);
/// The same with the kind of device alone ("on cuda"): ranks that do the same have a GPU each.
std::string describe_for_all_ranks(const torch::Tensor& tensor);

/// Throws Error{unsupported} unless `tensor` is a plain array, wherever it is. The message begins with
/// `what`.
void require_array(const torch::Tensor& tensor, const std::string& what);
/// The same unless it is in main memory.
void require_host_array(const torch::Tensor& tensor, const std::string& what);
/// The same, wherever it is, and invalid_argument if it is undefined or has gaps; `remedy` ends the message.
void require_contiguous(const torch::Tensor& tensor, const std::string& what, const std::string& remedy);

/// The bytes of a tensor in main memory without gaps, in the order in which they lie there. Nothing is
/// checked.
std::span<const std::byte> elements_of(const torch::Tensor& dense);

/// The elements of a contiguous tensor in main memory. Errors as below.
std::span<const std::byte> readable_bytes(const torch::Tensor& tensor, const std::string& what);

/// The elements of a contiguous tensor in main memory, to be written to; tells autograd that they change.
/// Throws Error: unsupported (see require_host_array), invalid_argument if it is not contiguous.
std::span<std::byte> writable_bytes(const torch::Tensor& tensor, const std::string& what);

}  // namespace lockstep
