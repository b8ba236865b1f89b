// A file of CIFAR-10: whatever its size and its labels are, it is a row of whole records or refused, and each
// record is read as it stands or refused. Records are long and alike, so an input says how long the file is
// and which labels it has, and not all of its pixels.
#include "lockstep/data/cifar10.h"

#include "lockstep/base/error.h"
#include "tests/fuzz/content_file.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::cifar10 {
namespace {

constexpr std::size_t record_bytes = sizeof(Cifar10Record);
constexpr std::size_t most_bytes = 4 * record_bytes;

std::vector<std::byte> content_of(Script& script) {
  std::vector<std::byte> content(script.number(2) % (most_bytes + 1));
  const auto pixel = static_cast<std::byte>(script.byte());
  std::ranges::fill(content, pixel);
  for (std::size_t at = 0; at < content.size(); at += record_bytes)
    content[at] = static_cast<std::byte>(script.byte());
  return content;
}

void read(const std::string& path, Input content) {
  const Cifar10File file(path);
  require(file.size() * record_bytes == content.size() && file.size() > 0, "records are all there is");
  for (std::size_t i = 0; i < file.size(); ++i) {
    const Input expected = content.subspan(i * record_bytes, record_bytes);
    try {
      const Cifar10Record record = file.read(i);
      require(std::ranges::equal(std::as_bytes(std::span(&record, 1)), expected), "a record is as it stands");
      require(record.label < cifar10_classes, "a label is a class");
    } catch (const Error& error) {
      require(error.code() == ErrorCode::corrupt_data, "a damaged record is corrupt data");
      require(std::to_integer<std::size_t>(expected[0]) >= cifar10_classes, "only labels are refused");
    }
  }
}

}  // namespace

int run_one(Input input) {
  static const ContentFile file;
  Script script(input);
  const std::vector<std::byte> content = content_of(script);
  file.replace(content);
  try {
    read(file.path(), content);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data, "a damaged file is corrupt data");
    require(content.empty() || content.size() % record_bytes != 0, "a row of records is no damaged file");
  }
  return 0;
}

}  // namespace lockstep::fuzz::cifar10
