// From a rank's arrival at its job's meeting place to the first connection of a world: how it speaks to the store, and what all
// groups of that world have in common.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/group/host_hint.h"
#include "lockstep/group/identity.h"
#include "lockstep/group/impl.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep {

/// A client of the job's store. Throws Error{timeout} saying who is not there, or what may differ.
std::shared_ptr<Store> connect_to_store(const Identity& identity, Deadline deadline);

/// The control page that the launcher made for this host's ranks. Throws Error{system}.
std::shared_ptr<ControlPage> launchers_page(int control_fd, int local_ranks);

/// Who is to blame where this rank cannot join because another is gone, for the launcher's verdict. Throws as launchers_page().
void tell_launcher(const Identity& identity, const Error& error);

/// What holds for groups of one rank, too, which may wait for messages of their own.
void set_options(Context& context, const InitOptions& options);

/// Of a process that speaks to others by `store`; without its page.
std::shared_ptr<Context> context_of(const Identity& identity, std::shared_ptr<Store> store,
                                    const InitOptions& options);

/// Comes to the meeting place `store`, where word is left when this process dies.
std::shared_ptr<Context> arrive(const Identity& identity, std::shared_ptr<Store> store,
                                const InitOptions& options);

/// Where ranks of other hosts reach this one: the address from which this host reaches the store; the store's own where that is
/// on this host. One for each interface that the user has named.
std::vector<std::string> listen_addresses(const Identity& identity);

/// Ranks that come together to a world, of which this is one.
struct Crew {
  int mine = 0;                        ///< this one's number among them
  std::vector<int> ranks_in_job = {};  ///< of each, how its launcher and messages call it
  PerRank<HostHint> hints = {};
  std::shared_ptr<Context> joined = {};  ///< that has joined the page already; null: none has
};

/// Gives the world `impl`, which has a context, its members, and the context all that its groups need.
/// Throws Error: timeout where the first rank did not go on; invalid_argument.
void prepare(Group::Impl& impl, const Identity& identity, const Crew& crew, Deadline deadline);

}  // namespace lockstep
