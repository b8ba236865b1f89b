// A user's own reduction: an associative operation on elements that are their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace lockstep {

/// Immutable; calls may come from any thread, also from several at once.
class CustomReduction {
 public:
  /// Combines `elements` of `right` into `left`: left[i] = left[i] op right[i]. Must not throw.
  using Combine = std::function<void(std::byte* left, const std::byte* right, std::size_t elements)>;

  CustomReduction(std::string name, std::size_t element_bytes, Combine combine);

  const std::string& name() const { return name_; }
  std::size_t element_bytes() const { return element_bytes_; }
  /// The same on all ranks that mean the same operation: of name and element size.
  std::uint32_t fingerprint() const;

  /// ((source[0] op source[1]) op source[2]) ... into every destination. A destination may be one of the
  /// sources, but may not overlap one partly.
  void reduce(std::size_t elements, std::span<const std::byte* const> sources,
              std::span<std::byte* const> destinations) const;

 private:
  std::string name_;
  std::size_t element_bytes_;
  Combine combine_;
};

}  // namespace lockstep
