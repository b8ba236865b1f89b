// The fields of a message as bytes, and back: numbers of their size, texts and lists with a length in front, and what says its
// own fields (T::fields).
#pragma once

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/byte_codec.h"

namespace lockstep::launch::agents {

namespace detail {

template <class T>
concept HasFields = requires(T& t) {
  T::fields(t);
};

template <base::Number T>
void put(std::string& out, T number) {
  base::append_number(out, number);
}
inline void put(std::string& out, const std::string& text) { base::append_with_length(out, text); }
template <HasFields T>
void put(std::string& out, const T& one);
template <class A, class B>
void put(std::string& out, const std::pair<A, B>& two) {
  put(out, two.first);
  put(out, two.second);
}
template <class T>
void put(std::string& out, const std::vector<T>& list) {
  base::append_number(out, static_cast<base::Length>(list.size()));
  for (const T& one : list) put(out, one);
}
template <HasFields T>
void put(std::string& out, const T& one) {
  std::apply([&](const auto&... field) { (put(out, field), ...); }, T::fields(one));
}

/// False: it ends too early.
template <base::Number T>
bool get(base::ByteReader& in, T& number) {
  const auto found = in.number<T>();
  if (found) number = *found;
  return found.has_value();
}
inline bool get(base::ByteReader& in, std::string& text) {
  base::Length length = 0;
  if (!get(in, length)) return false;
  const auto bytes = in.take(length);
  if (bytes) text = base::text_of(*bytes);
  return bytes.has_value();
}
template <HasFields T>
bool get(base::ByteReader& in, T& one);
template <class A, class B>
bool get(base::ByteReader& in, std::pair<A, B>& two) {
  return get(in, two.first) && get(in, two.second);
}
template <class T>
bool get(base::ByteReader& in, std::vector<T>& list) {
  base::Length length = 0;
  if (!get(in, length) || length > in.left().size()) return false;  // each takes a byte at least
  for (base::Length i = 0; i < length; ++i) {
    if (!get(in, list.emplace_back())) return false;
  }
  return true;
}
template <HasFields T>
bool get(base::ByteReader& in, T& one) {
  return std::apply([&](auto&... field) { return (get(in, field) && ...); }, T::fields(one));
}

}  // namespace detail

}  // namespace lockstep::launch::agents
