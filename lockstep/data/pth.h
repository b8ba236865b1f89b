// What a .pth file holds, without its elements: tensors by name, and the storages that they are views of, as
// torch has them (two tensors may share one). pth_pickle.h reads it from the bytes of data.pkl, pth_file.h
// from a file, with the elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"

namespace lockstep {

struct PthTensor {
  std::string name{};
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape{};
  std::vector<std::int64_t> strides{};  ///< in elements, one for each size
  std::int64_t offset = 0;              ///< of its first element in the storage, in elements
  std::size_t storage = 0;              ///< its number
};

struct PthStorage {
  std::string key{};  ///< its content is the archive's data/<key>
  std::uint64_t bytes = 0;
  bool has_bools = false;  ///< a tensor takes its bytes for bool
};

struct PthIndex {
  std::vector<PthTensor> tensors{};  ///< in the order of the dict
  std::vector<PthStorage> storages{};
};

inline constexpr std::size_t pth_most_dimensions = 64;
/// A tensor that repeats elements (a stride of 0) may have more bytes than its storage, up to these.
inline constexpr std::uint64_t pth_most_expanded_bytes = std::uint64_t{1} << 30;

}  // namespace lockstep
