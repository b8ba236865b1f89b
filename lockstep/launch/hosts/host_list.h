// On which hosts a job runs, and how many ranks each takes. People write it on the command line or into a file, in one of
// the forms that they know from Open MPI, MPICH or Horovod.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

inline constexpr int most_hosts = 1 << 14;
inline constexpr int most_slots = 1 << 16;  ///< of one host, and of all together

/// A host, and how many ranks it takes.
struct Host {
  std::string name = {};  ///< as ssh takes it: a name or address, "user@" before it where it was written
  int slots = 1;

  bool operator==(const Host&) const = default;
};

/// "server1:4,server2:4,10.0.0.3": each host once, in the order of first mention; slots that are written several times add
/// up, and those that are not written are one. An IPv6 address stands in brackets: "[fe80::1]:2". Throws
/// Error{invalid_argument} that begins with `what` and quotes the entry.
std::vector<Host> parse_host_list(std::string_view text, const std::string& what = "-H");

/// The lines of a hostfile, which may be Open MPI's and Horovod's ("server1 slots=4 max_slots=8"), MPICH's
/// ("server1:4 binding=..."), or a node file of PBS and Cobalt (a name a line, as often as it has slots). "#" begins a comment.
/// What says nothing of slots is not looked at. Throws Error{invalid_argument}, "what, line 3: ...".
std::vector<Host> parse_hostfile(std::string_view text, const std::string& what);

/// The same of a file of at most 1 MiB. Throws Error{invalid_argument}, too, where there is none.
std::vector<Host> read_hostfile(const std::string& path);
/// `what`: how errors call it.
std::vector<Host> read_hostfile(const std::string& path, const std::string& what);

/// What a program has printed that finds hosts: a host a line, which has `slots` where it does not say. Each host once, with the slots
/// of all its lines, 0 if it says so; maybe no host. Throws Error{invalid_argument}, "what, line 3: ...".
std::vector<Host> parse_discovered(std::string_view printed, const std::string& what, int slots);

/// The first `ranks` slots: hosts are filled in their order, and those that get none are left out. Throws
/// Error{invalid_argument} if there are fewer slots, with the hosts and what each has.
std::vector<Host> share_out(int ranks, const std::vector<Host>& hosts);

/// "server1:4, server2:4".
std::string to_string(const std::vector<Host>& hosts);

}  // namespace lockstep::launch
