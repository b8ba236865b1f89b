// Collectives move bytes in main memory, or on a GPU where they can (gpu_place.h). The elements of a tensor that lies
// elsewhere, or with gaps, go through a copy in main memory: down before the collective, up again after it.
//
//   all_reduce   cuda:0  [ tensor ]                      [ tensor ]
//                          \ constructor                / put_back()
//                main memory [ copy ] -- all_reduce -- [ copy ]
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/memory_place.h"
#include "lockstep/execute/work.h"

namespace lockstep {

/// The elements of a tensor, one after the other and where a call takes them: its own, or a copy of them in main memory.
/// Cost: nothing for a contiguous tensor in main memory; otherwise as much memory again and a copy each way,
/// for which the device's current stream is waited for.
class HostArray {
 public:
  enum class Use {
    read,
    write,  ///< all of it: a copy begins with anything
    both,
  };
  /// Throws Error{unsupported} unless `tensor` is a plain array; the message begins with `what`. In main
  /// memory autograd is told that a tensor which is written to changes.
  HostArray(const torch::Tensor& tensor, const std::string& what, Use use);
  /// The same, but where `place` is a GPU it is the tensor's own memory there. Throws also Error{invalid_argument} for a tensor
  /// that is not on it.
  HostArray(const torch::Tensor& tensor, const std::string& what, Use use, const MemoryPlace& place);
  /// To be written, in `host`: as many elements of that type where the call takes them, part of a larger array.
  HostArray(const torch::Tensor& tensor, const std::string& what, torch::Tensor host);

  /// Valid as long as the tensor and any copy of this one. REQUIRES: not written to if that was not said.
  std::span<std::byte> bytes() const { return bytes_; }
  bool is_written() const { return use_ != Use::read; }
  bool is_copy() const { return is_copy_; }
  /// Calls take it where the tensor is.
  bool is_on_gpu() const { return !is_copy_ && tensor_.defined() && !tensor_.device().is_cpu(); }
  torch::Device device() const { return tensor_.device(); }
  /// What was written into a copy goes to the tensor.
  void put_back() const;

 private:
  HostArray() = default;

  torch::Tensor tensor_, host_;
  std::span<std::byte> bytes_;
  Use use_ = Use::read;
  bool is_copy_ = false;
};

/// `work`, which uses the arrays; when wait() or test() finds it over, and no failure, those that were
/// written to are put back. Keeps arrays that are copies until then, and not the tensors of others.
Work then_put_back(Work work, std::vector<HostArray> arrays);
/// The same, and keeps all of them.
Work then_put_back_and_keep(Work work, std::vector<HostArray> arrays);

}  // namespace lockstep
