// A module's forward may return a tensor, or several in a tuple, a vector, a map, nested as it likes.
#pragma once

#include <torch/torch.h>

#include <concepts>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>

namespace lockstep {

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// Calls `visit` with every tensor in `value`, to change where that is not const. What lies in structures of the user's
/// own is not found.
template <class Value, class Visit>
void for_each_tensor(Value& value, Visit&& visit) {
  using T = std::remove_const_t<Value>;
  if constexpr (std::derived_from<T, torch::Tensor>) {
    visit(
        static_cast<std::conditional_t<std::is_const_v<Value>, const torch::Tensor, torch::Tensor>&>(value));
  } else if constexpr (is_optional<T>) {
    if (value) for_each_tensor(*value, visit);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](auto&... parts) { (for_each_tensor(parts, visit), ...); }, value);
  } else if constexpr (std::ranges::input_range<Value>) {
    if constexpr (!std::is_same_v<std::remove_cvref_t<std::ranges::range_reference_t<Value>>, T>) {
      for (auto& part : value) for_each_tensor(part, visit);
    }
  }
}

}  // namespace lockstep
