// Ranks are ints, sizes of containers are not: this is a std::vector that is indexed by rank, so that no cast
// stands between a rank and what belongs to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace lockstep {

/// A T for each rank of a group, in their order. As std::vector: a contiguous range (but of bool), unchecked.
template <class T>
class PerRank {
 public:
  PerRank() = default;
  explicit PerRank(int ranks, const T& each = T()) : all_(static_cast<std::size_t>(ranks), each) {}
  PerRank(std::initializer_list<T> all) : all_(all) {}

  int size() const { return static_cast<int>(all_.size()); }
  bool empty() const { return all_.empty(); }
  decltype(auto) operator[](int rank) { return all_[static_cast<std::size_t>(rank)]; }
  decltype(auto) operator[](int rank) const { return all_[static_cast<std::size_t>(rank)]; }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  auto data() { return all_.data(); }
  auto data() const { return all_.data(); }

  void resize(int ranks) { all_.resize(static_cast<std::size_t>(ranks)); }
  /// The next rank's.
  void push_back(T one) { all_.push_back(std::move(one)); }
  /// The first rank for whose value `holds`; size() where there is none.
  template <class Predicate>
  int find_if(Predicate holds) const {
    return static_cast<int>(std::find_if(begin(), end(), holds) - begin());
  }

  friend bool operator==(const PerRank&, const PerRank&) = default;

 private:
  std::vector<T> all_;
};

}  // namespace lockstep
