#include "lockstep/data/zip_writer.h"

#include "lockstep/data/crc32.h"

namespace lockstep {

void ZipWriter::write(std::span<const std::byte> bytes) {
  out_(bytes);
  written_ += bytes.size();
}

void ZipWriter::add(std::string name, std::span<const std::byte> content) {
  const ZipEntry& entry = entries_.emplace_back(ZipEntry{
      .name = std::move(name), .header = written_, .bytes = content.size(), .checksum = crc32(content)});
  write(zip_local_header(entry));
  write(content);
}

void ZipWriter::finish() { write(zip_directory(entries_, written_)); }

}  // namespace lockstep
