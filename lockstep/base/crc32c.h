// The checksum that record files of other programs carry: CRC-32 with Castagnoli's polynomial, of which
// TensorFlow's files hold a masked form, because a checksum of data that hold checksums says little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// As in RFC 3720, appendix B.4: 0xe3069283 for "123456789". Cost: about 2 ns a byte.
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// Turned right by 15 bits, plus a constant: what stands in event files and TFRecords.
std::uint32_t masked_crc32c(std::span<const std::byte> bytes);

}  // namespace lockstep
