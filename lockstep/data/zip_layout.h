// A zip archive as the writers of .pth files make it: files stored as they are, one after the other, each
// beginning at a multiple of 64 so that it can be mapped; a directory of them at the end; sizes and offsets
// of 64 bits where they need it. Here are the records as bytes; zip_file.h and zip_writer.h move them.
//
//   local header    30 bytes, name, extra fields (the last one fills up to a multiple of 64)
//   content         as it is
//   descriptor      12 to 24 bytes that repeat checksum and sizes: others write it, and nobody needs it
//   ...             the next file
//   directory       for each file 46 bytes, name, extra fields
//   end, 64 bits    56 bytes; where it is: 20 bytes      (often left out by others)
//   end             22 bytes
//
// No library does this: libzip and minizip place contents where they fall, and nothing of what they would add
// (compression, encryption, archives in several parts) is wanted from files that come from elsewhere. Nor is
// zlib needed for a checksum of thirty lines.
//
// Source: PKWARE's APPNOTE.TXT, 6.3.10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct ZipEntry {
  std::string name;
  std::uint64_t header = 0;  ///< where its local header begins
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;  ///< CRC-32 of the content
};

inline constexpr std::size_t zip_alignment = 64;

inline constexpr std::uint32_t zip_local_signature = 0x04034b50;
inline constexpr std::uint32_t zip_directory_signature = 0x02014b50;
inline constexpr std::uint32_t zip_end_signature = 0x06054b50;
inline constexpr std::uint32_t zip_end64_signature = 0x06064b50;
inline constexpr std::uint32_t zip_end64_place_signature = 0x07064b50;

inline constexpr std::size_t zip_local_bytes = 30;
inline constexpr std::size_t zip_directory_bytes = 46;
inline constexpr std::size_t zip_end_bytes = 22;
inline constexpr std::size_t zip_end64_bytes = 56;
inline constexpr std::size_t zip_end64_place_bytes = 20;

/// Stands where the number does not fit into 32 bits, and is in an extra field.
inline constexpr std::uint32_t zip_elsewhere = 0xffffffff;
/// That extra field.
inline constexpr std::uint16_t zip_numbers_field = 0x0001;

/// With its name and extra fields, so long that the content, which follows, begins at a multiple of
/// zip_alignment.
std::vector<std::byte> zip_local_header(const ZipEntry& entry);

/// The directory with all that follows it, if it begins at `offset`.
std::vector<std::byte> zip_directory(std::span<const ZipEntry> entries, std::uint64_t offset);

}  // namespace lockstep
