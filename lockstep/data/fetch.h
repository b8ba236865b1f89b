// Data sets that the world trains on, from where their publishers keep them: the files are fetched, checked
// against the publisher's checksum, unpacked, and stand in their folder whole or not at all.
//
//   lockstep::fetch_dataset(world, lockstep::PublicDataset::mnist, "data/mnist");
//   lockstep::IdxDataset set("data/mnist/train");
//
// A download that broke off goes on where it ended, in the same call and in a later one: what has come lies
// in NAME.part, which is locked (flock), so that processes that fetch into one folder wait for each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "lockstep/group/group.h"

namespace lockstep {

enum class PublicDataset : std::uint8_t {
  mnist,          ///< Y. LeCun, C. Cortes, C. Burges; four IDX files, 12 MB to fetch, 55 MB unpacked
  fashion_mnist,  ///< H. Xiao, K. Rasul, R. Vollgraf (MIT); four IDX files, 31 MB to fetch, 55 MB unpacked
  cifar10,        ///< A. Krizhevsky; six binary files, 170 MB to fetch, 184 MB unpacked
};

/// "mnist", "fashion-mnist", "cifar10".
std::string to_string(PublicDataset set);
/// The inverse. Throws Error{invalid_argument} with the names there are.
PublicDataset parse_public_dataset(const std::string& name);

/// How far a file is. Said when something changes, and while bytes come some times a second.
struct FetchProgress {
  enum class State : std::uint8_t {
    already_there,  ///< nothing was done
    waiting,        ///< another process fetches it into the same folder
    fetching,       ///< `have` of `total` bytes
    unpacking,
    done,
  };
  State state = State::fetching;
  std::string file = {};    ///< as the publisher calls it, such as "train-images-idx3-ubyte.gz"
  std::uint64_t have = 0;   ///< bytes, with those of an earlier attempt
  std::uint64_t total = 0;  ///< 0: the server does not say
};

struct FetchOptions {
  /// A folder with the publisher's files under their names, such as "http://10.0.0.1/mnist/"; http or https.
  /// Empty: the publisher's own.
  std::string url = {};
  /// By the publisher's name of a file: the sum to expect instead of the publisher's, MD5 (32 hex digits) or
  /// SHA-256 (64).
  std::map<std::string, std::string> checksums = {};
  std::function<void(const FetchProgress&)> progress = {};
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(20);
  std::chrono::milliseconds stall_timeout = std::chrono::seconds(60);  ///< without a byte; whole seconds
  std::chrono::milliseconds timeout = std::chrono::hours(1);  ///< of all, waiting for others included
  /// How often a connection that brings nothing new is tried in a row, and the pause before the next.
  int attempts = 3;
  std::chrono::milliseconds pause = std::chrono::seconds(2);
  std::uint64_t most_fetched_bytes = std::uint64_t{256} << 20;   ///< of one file of the publisher's
  std::uint64_t most_unpacked_bytes = std::uint64_t{256} << 20;  ///< of one file in it
};

/// Makes `folder`, if there is none, and the set's files in it, as IdxDataset and Cifar10Dataset read them
/// (cifar10: data_batch_1.bin and so on, in `folder` itself). A file that is there stays as it is, and where
/// all are, nothing is asked of the network.
///
/// Throws Error, with the address and what to do: invalid_argument (the address, a checksum; a file of this
/// name that is another), system (the network, the server's answer, the disk), timeout, corrupt_data (a wrong
/// checksum, more bytes than allowed, an archive that is none or that names files outside of it), unsupported
/// (libcurl or libarchive is not installed). Files are whole then or not there; what has come stays for the
/// next call, unless it was wrong.
void fetch_dataset(PublicDataset set, const std::filesystem::path& folder, const FetchOptions& options = {});

/// The same as a collective: one rank of each host fetches, and all return when all hosts have it, as with
/// once_per_host(), whose errors and time-out hold (`options.timeout` is cut to the group's).
void fetch_dataset(const Group& group, PublicDataset set, const std::filesystem::path& folder,
                   const FetchOptions& options = {});

}  // namespace lockstep
