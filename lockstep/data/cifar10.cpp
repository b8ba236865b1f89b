#include "lockstep/data/cifar10.h"

#include <fmt/core.h>

#include <span>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/data/corrupt.h"

namespace lockstep {
namespace {

constexpr std::size_t record_bytes = sizeof(Cifar10Record);
constexpr const char* get_it_again = "get it again: cifar-10-binary.tar.gz, unpacked";

std::vector<std::string> names_of(Cifar10Part part) {
  if (part == Cifar10Part::test) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

void require_there(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::exists(file, error)) return;
  if (error) throw_system("cannot look for " + file.string(), error.value());
  throw_invalid_argument(
      "no CIFAR-10 file " + file.string() +
      "; download \"CIFAR-10 binary version\" (cifar-10-binary.tar.gz) from "
      "https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, and name the folder cifar-10-batches-bin that "
      "comes out of it, with data_batch_1.bin to data_batch_5.bin and test_batch.bin in it");
}

void require_record(std::size_t i, std::size_t size, const std::string& where) {
  if (i < size) return;
  throw_invalid_argument(fmt::format("{} has no record {}; it has {}, counted from 0", where, i, size));
}

}  // namespace

Cifar10File::Cifar10File(const std::filesystem::path& path) : file_(path, "CIFAR-10 file") {
  const std::uint64_t rest = file_.size() % record_bytes;
  if (file_.size() != 0 && rest == 0) return;
  throw_corrupt(file_.name(), file_.size() - rest, fmt::format("a record of {} bytes", record_bytes),
                rest == 0 ? "an empty file" : fmt::format("{} bytes and the end of the file", rest),
                std::string("it is truncated, or no CIFAR-10 file: ") + get_it_again);
}

Cifar10Record Cifar10File::read(std::size_t i) const {
  require_record(i, size(), file_.name());
  Cifar10Record record;
  const std::uint64_t offset = std::uint64_t{i} * record_bytes;
  file_.read(offset, std::as_writable_bytes(std::span(&record, 1)));
  if (record.label < cifar10_classes) return record;
  throw_corrupt(file_.name(), offset, "a label of 0 to 9", fmt::format("{} (record {})", record.label, i),
                std::string("it is damaged, or no CIFAR-10 file: ") + get_it_again);
}

Cifar10Files::Cifar10Files(const std::filesystem::path& folder, Cifar10Part part) {
  for (const std::string& name : names_of(part)) {
    require_there(folder / name);
    size_ += files_.emplace_back(folder / name).size();
  }
}

Cifar10Record Cifar10Files::read(std::size_t i) const {
  require_record(i, size_, "this part of CIFAR-10");
  auto file = files_.begin();
  for (; i >= file->size(); ++file) i -= file->size();
  return file->read(i);
}

}  // namespace lockstep
