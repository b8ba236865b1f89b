// The pickle in a .pth file, data.pkl: a dict from names to tensors, each told by its type, shape, strides
// and place in a storage. Bytes come in and an index goes out, or the other way round, without a file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/pth.h"

namespace lockstep {

inline constexpr std::size_t pth_most_pickle_bytes = std::size_t{64} << 20;

/// What the pickle of a file called `name` says; with a `key`, of the dict that its dict has under that. It
/// is consistent: names are there once, every element of every tensor lies in its storage, and all products
/// and sums of a tensor's sizes, strides and offset fit into 63 bits.
///
/// Throws Error: corrupt_data; unsupported (see parse_pickle(); a view that is conjugated or negated when it
/// is read; what repeats elements beyond pth_most_expanded_bytes); invalid_argument (no dict of tensors; what
/// is at the top level, and which key would do).
PthIndex decode_pth_pickle(std::span<const std::byte> bytes, std::string_view name, const std::string& key);

/// The same bytes for the same index. REQUIRES: an index as decode_pth_pickle() returns.
std::vector<std::byte> encode_pth_pickle(const PthIndex& index);

}  // namespace lockstep
