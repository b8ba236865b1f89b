// What cannot be ended, because something that cannot be told to let go may still use it.
#pragma once

#include <atomic>
#include <utility>

namespace lockstep::base {

/// It is never destroyed, and stays where who looks for leaks finds it. Thread safe, in a forked child, too.
template <class T>
void keep_for_ever(T thing) {
  struct Kept {
    T thing;
    Kept* next;
  };
  static std::atomic<Kept*> all = nullptr;
  auto* const mine = new Kept{std::move(thing), all.load()};
  while (!all.compare_exchange_weak(mine->next, mine)) {
  }
}

}  // namespace lockstep::base
