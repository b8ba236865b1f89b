#include "lockstep/trace/sent.h"

namespace lockstep::trace {

void add_sent(SentTable& table, const Sent& more) {
  for (SentTable::Row& row : table.rows) {
    const std::int32_t peer_plus_one = row.peer_plus_one.load();
    if (peer_plus_one != 0 && peer_plus_one != more.peer + 1) continue;
    row.bytes.fetch_add(more.bytes);
    row.busy_ns.fetch_add(more.busy_ns);
    row.peer_plus_one.store(more.peer + 1);
    return;
  }
}

std::vector<Sent> read_sent(const SentTable& table) {
  std::vector<Sent> found;
  for (const SentTable::Row& row : table.rows) {
    const std::int32_t peer_plus_one = row.peer_plus_one.load();
    if (peer_plus_one <= 0) break;
    found.push_back({.peer = peer_plus_one - 1, .bytes = row.bytes.load(), .busy_ns = row.busy_ns.load()});
  }
  return found;
}

}  // namespace lockstep::trace
