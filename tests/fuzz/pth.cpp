// A file of tensors from Python. What its pickle asks for is never run; an index that is accepted has all its
// elements in the file, and what can be written again reads the same.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/data/pth_file.h"
#include "lockstep/data/pth_pickle.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz::pth {
namespace {

/// One for all inputs, because it is quick: anonymous, and under a path.
class File {
 public:
  File() : fd_(::memfd_create("pth", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_.get())) {}

  void replace(Input content) const {
    const bool done = ::ftruncate(fd_.get(), 0) == 0 && ::pwrite(fd_.get(), content.data(), content.size(),
                                                                 0) == static_cast<ssize_t>(content.size());
    require(done, "the test has a file");
  }
  const std::string& path() const { return path_; }

 private:
  UniqueFd fd_;
  std::string path_;
};

void check(const PthTensor& tensor, const PthStorage& storage) {
  require(tensor.shape.size() == tensor.strides.size(), "there is a stride for each size");
  require(tensor.shape.size() <= pth_most_dimensions, "there are at most 64 dimensions");
  std::int64_t bytes = static_cast<std::int64_t>(size_of(tensor.dtype)), last = tensor.offset, end = 0;
  bool is_empty = false, overflow = tensor.offset < 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    require(tensor.shape[i] >= 0 && tensor.strides[i] >= 0, "nothing is negative");
    is_empty = is_empty || tensor.shape[i] == 0;
    if (tensor.shape[i] == 0) continue;
    std::int64_t reach = 0;
    overflow = __builtin_mul_overflow(bytes, tensor.shape[i], &bytes) || overflow;
    overflow = __builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) || overflow;
    overflow = __builtin_add_overflow(last, reach, &last) || overflow;
  }
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
  overflow = __builtin_mul_overflow(is_empty ? tensor.offset : last + 1, element, &end) || overflow;
  require(!overflow, "products and sums fit into 63 bits");
  require(static_cast<std::uint64_t>(end) <= storage.bytes, "its elements are in its storage");
  require(static_cast<std::uint64_t>(bytes) <= std::max(storage.bytes, pth_most_expanded_bytes),
          "it is no larger than its storage, or than what may repeat elements");
}

void check(const PthIndex& index) {
  for (const PthTensor& tensor : index.tensors) {
    require(tensor.storage < index.storages.size(), "its storage is there");
    check(tensor, index.storages[tensor.storage]);
  }
}

void decode(Input pickle, const std::string& key) {
  const PthIndex index = decode_pth_pickle(pickle, "file", key);
  check(index);
  const PthIndex again = decode_pth_pickle(encode_pth_pickle(index), "file", "");
  require(again.tensors.size() == index.tensors.size(), "as many tensors are read as were written");
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const PthTensor &before = index.tensors[i], &after = again.tensors[i];
    require(before.name == after.name && before.dtype == after.dtype && before.shape == after.shape &&
                before.strides == after.strides && before.offset == after.offset,
            "what is written is what is read");
  }
}

void read(const std::string& path, const std::string& key, std::size_t file_bytes) {
  const PthFile file(path, key);
  check(file.index());
  std::size_t left = file_bytes;
  for (std::size_t i = 0; i < file.index().storages.size(); ++i) {
    const auto bytes = file.index().storages[i].bytes;
    require(bytes <= left, "the storages are no longer than the file");
    left -= bytes;
    std::vector<std::byte> content(bytes);
    file.read(i, content);
  }
}

}  // namespace

int run_one(Input input) {
  static const File file;
  Script script(input);
  const bool is_pickle = script.below(2) == 1;
  const std::string key = script.below(2) == 1 ? "model" : "";
  const Input content = script.bytes(input.size());
  try {
    if (is_pickle) {
      decode(content, key);
    } else {
      file.replace(content);
      read(file.path(), key, content.size());
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::unsupported ||
                error.code() == ErrorCode::invalid_argument,
            "a file is damaged, or not one of tensors alone");
  }
  return 0;
}

}  // namespace lockstep::fuzz::pth
