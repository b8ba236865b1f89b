// A file of images or labels. The header is believed only as far as the file is long, and then every record
// can be read.
#include "lockstep/data/idx.h"

#include "lockstep/base/error.h"
#include "tests/fuzz/content_file.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::idx {
namespace {

void parse(Input start, std::uint64_t file_bytes) {
  const IdxHeader header = parse_idx_header(start, file_bytes, "file");
  require(!header.shape.empty() && header.shape.size() <= idx_max_dimensions, "there are 1 to 8 dimensions");
  require(header.data_offset() <= file_bytes, "the header is in the file");
  std::uint64_t left = file_bytes - header.data_offset();
  for (const std::size_t size : header.shape) {
    require(left % size == 0, "header and file agree");
    left /= size;
  }
  require(left == size_of(header.type), "header and file agree");
  require(header.elements() * size_of(header.type) + header.data_offset() == file_bytes,
          "and multiply without overflow");
}

void read(const std::string& path) {
  const IdxArray array = read_idx(path);
  const IdxFile file(path);
  require(file.header().shape == array.shape, "a file read whole is the one read in records");
  const std::size_t elements = file.header().record_elements();
  std::vector<float> values(elements);
  for (const std::size_t i : {std::size_t{0}, file.size() / 2, file.size() - 1}) {
    file.decode(i, values);
    require(file.record(i).size() * file.size() == array.data.size(), "the records are all there is");
  }
}

}  // namespace

int run_one(Input input) {
  static const ContentFile file;
  Script script(input);
  const bool is_huge = script.below(2) == 1;  // in what its header and its size say
  try {
    if (is_huge) {
      const std::uint64_t file_bytes = script.number(8);
      parse(script.bytes(std::min<std::uint64_t>(file_bytes, 4 + 4 * idx_max_dimensions)), file_bytes);
    } else {
      file.replace(script.bytes(input.size()));
      read(file.path());
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data, "a damaged file is corrupt data");
  }
  return 0;
}

}  // namespace lockstep::fuzz::idx
