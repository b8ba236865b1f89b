// Reductions of the user's own: any associative operation on any type that is its bytes.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/custom_reduction.h"
#include "lockstep/base/dtype.h"

namespace lockstep {

/// A value; copies share what they do. See custom_op().
template <Movable T>
class CustomOp {
 public:
  explicit CustomOp(std::shared_ptr<const CustomReduction> reduction) : reduction_(std::move(reduction)) {}
  const std::shared_ptr<const CustomReduction>& reduction() const { return reduction_; }

 private:
  std::shared_ptr<const CustomReduction> reduction_;
};

/// `combine(const T&, const T&)` returns T, is associative, and does not throw; it need not commute:
/// contributions are combined in the order of ranks. All ranks give the same operation the same name.
///
///   auto longest = lockstep::custom_op<Route>("longest", [](const Route& a, const Route& b) { ... });
///   all_reduce(world, routes, longest).wait();
///
/// `combine` may be called in any thread of this process that uses a group, also in several at once.
template <Movable T, class Combine>
CustomOp<T> custom_op(std::string name, Combine combine) {
  auto on_bytes = [combine = std::move(combine)](std::byte* left, const std::byte* right,
                                                 std::size_t elements) {
    for (std::size_t index = 0; index < elements; ++index) {
      T a, b;  // the bytes need not be aligned as a T is
      std::memcpy(&a, left + index * sizeof(T), sizeof(T));
      std::memcpy(&b, right + index * sizeof(T), sizeof(T));
      const T result = combine(std::as_const(a), std::as_const(b));
      std::memcpy(left + index * sizeof(T), &result, sizeof(T));
    }
  };
  return CustomOp<T>(
      std::make_shared<const CustomReduction>(std::move(name), sizeof(T), std::move(on_bytes)));
}

}  // namespace lockstep
