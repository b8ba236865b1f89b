// What publishers offer: names, addresses, checksums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/fetch.h"

namespace lockstep::fetch {

/// A file that comes out of a publisher's.
struct Unpacked {
  std::string name;         ///< in the folder
  std::string member;       ///< in the archive; empty: all of it, in a .gz
  std::uint64_t bytes = 0;  ///< as published
};

struct Published {
  std::string name;      ///< at the publisher's
  std::string checksum;  ///< MD5, or SHA-256 where the user says so
  std::vector<Unpacked> files;
  bool is_the_publishers = true;  ///< the checksum is, so sizes are known
};

struct PublishedSet {
  std::string title;              ///< as people write it
  std::vector<std::string> urls;  ///< of the folder, tried in this order
  std::vector<Published> files;
};

/// With `options`' address and checksums in place of the publisher's. Throws Error{invalid_argument}.
PublishedSet published(PublicDataset set, const FetchOptions& options);

}  // namespace lockstep::fetch
