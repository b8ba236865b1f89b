#include "lockstep/transport/guest_room.h"

#include "lockstep/base/log.h"

namespace lockstep {

bool GuestRoom::take_one(Listener& listener) {
  auto socket = listener.try_accept();
  if (!socket) return false;
  try {
    const int fd = socket->fd();
    const std::string source = socket->source();
    guests_.insert_or_assign(fd, std::make_unique<Guest>(std::move(*socket), trust_, destination_));
    if (const auto gone = newcomers_.add(fd, source)) guests_.erase(*gone);
  } catch (const Error& error) {
    log::debug("a connection was dropped: " + std::string(error.what()));
  }
  return true;
}

void GuestRoom::add_descriptors(std::vector<pollfd>& to) const {
  for (const auto& [fd, guest] : guests_) to.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

void GuestRoom::serve(std::span<const pollfd> ready, const std::function<void(Guest&)>& let_in) {
  for (const pollfd& descriptor : ready) {
    if (descriptor.revents == 0) continue;
    try {
      Guest& guest = *guests_.at(descriptor.fd);
      if (!guest.prove()) continue;
      let_in(guest);
    } catch (const Error& error) {
      log::debug("a connection was dropped: " + std::string(error.what()));
    }
    drop(descriptor.fd);
  }
}

void GuestRoom::drop_late() {
  while (const auto late = newcomers_.take_late()) guests_.erase(*late);
}

void GuestRoom::drop(int fd) {
  (void)newcomers_.remove(fd);
  guests_.erase(fd);
}

}  // namespace lockstep
