#include "lockstep/launch/stop_orders.h"

#include <csignal>

namespace lockstep::launch {

bool StopOrders::take(int signal, Deadline::Clock::time_point now) {
  if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP && signal != SIGQUIT) return false;
  if (first_ == 0) first_ = signal;
  if (signal != SIGINT) return true;
  if (first_interrupt_ == Deadline::Clock::time_point{}) first_interrupt_ = now;
  if (now - first_interrupt_ > one_press) hurried_ = true;
  return true;
}

}  // namespace lockstep::launch
