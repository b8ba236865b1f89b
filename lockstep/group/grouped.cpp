#include "lockstep/group/grouped.h"

#include <cstring>
#include <exception>
#include <utility>

#include "lockstep/base/hash.h"
#include "lockstep/group/impl.h"

namespace lockstep {
namespace {

/// An all_reduce of copies, which go back into the buffers when it is over.
class Packed final : public PendingWork {
 public:
  Packed(const Group& group, std::vector<std::span<std::byte>> buffers, std::size_t bytes,
         const Reduction& reduction)
      : block_(group.allocate_bytes(bytes)), buffers_(std::move(buffers)) {
    std::byte* position = block_.bytes().data();
    for (const auto buffer : buffers_) {
      if (!buffer.empty()) std::memcpy(position, buffer.data(), buffer.size());
      position += buffer.size();
    }
    work_ = all_reduce_bytes(group, block_.bytes(), block_.bytes(), reduction);
  }

  bool poll() override {
    return end([this] { return work_.test(); });
  }
  void wait() override {
    end([this] {
      work_.wait();
      return true;
    });
    if (failure_) std::rethrow_exception(failure_);
  }
  bool wait_for(std::chrono::nanoseconds duration) override {
    return end([&] { return work_.wait_for(duration); });
  }
  // The copies are our own: nothing that an exception destroys is needed by others.
  void abandon() noexcept override {
    end([this] {
      work_.wait();
      return true;
    });
  }

 private:
  template <class IsOver>
  bool end(IsOver is_over) noexcept {
    if (is_over_) return true;
    try {
      if (!is_over()) return false;
      unpack();
    } catch (...) {
      failure_ = std::current_exception();
    }
    return is_over_ = true;
  }

  void unpack() {
    const std::byte* position = block_.bytes().data();
    for (const auto buffer : buffers_) {
      if (!buffer.empty()) std::memcpy(buffer.data(), position, buffer.size());
      position += buffer.size();
    }
  }

  ArenaBlock block_;
  std::vector<std::span<std::byte>> buffers_;
  Work work_;
  bool is_over_ = false;
  std::exception_ptr failure_;
};

std::uint32_t grouping_of(const std::vector<std::span<std::byte>>& buffers) {
  std::string sizes;
  for (const auto buffer : buffers) sizes += std::to_string(buffer.size()) + " ";
  return fnv1a_32(sizes) | 1U;
}

}  // namespace

Work all_reduce_grouped_bytes(const Group& group, const std::vector<std::span<std::byte>>& buffers,
                              const Reduction& each) {
  Reduction reduction = each;
  if (buffers.size() > 1) reduction.grouping = grouping_of(buffers);
  if (each.place.is_on_gpu()) return all_reduce_on_gpu_bytes(group, buffers, reduction);
  std::vector<Work> works;
  std::vector<std::span<std::byte>> small;
  std::size_t small_bytes = 0;
  for (const auto buffer : buffers) {
    if (buffer.size() > most_packed_bytes || group.size() == 1) {
      works.push_back(all_reduce_bytes(group, buffer, buffer, reduction));
    } else {
      small.push_back(buffer);
      small_bytes += buffer.size();
    }
  }
  if (small.size() == 1) {
    works.push_back(all_reduce_bytes(group, small[0], small[0], reduction));
  } else if (!small.empty()) {
    works.emplace_back(std::make_unique<Packed>(group, std::move(small), small_bytes, reduction));
  }
  return Work::all(std::move(works));
}

}  // namespace lockstep
