// Models come from Python and go back there: as files that Python's torch.save(model.state_dict(), path)
// writes and torch.load(path, weights_only=True) reads, here without Python. What is in such a file, and what
// of it is read, is in docs/pth_files.md. To go on training from a file take a checkpoint (checkpoint.h): it
// also has the optimizer.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/checkpoint.h"

namespace lockstep {

/// Tensors by name, in an order: what named_parameters() returns, too.
using StateDict = torch::OrderedDict<std::string, torch::Tensor>;

/// The tensors in a .pth file, in main memory, in the file's order; nothing in the file is run. As with
/// torch.load, tensors that shared memory share it, and have the strides they had. With a `key`, of the dict
/// that is under it: read_pth("last.pth", "model") for what torch.save({"model": ..., "epoch": 3},
/// "last.pth") wrote.
///
/// Not collective. Everything is checked before anything is returned; memory: at most the file's size.
/// Throws Error: system (no such file); corrupt_data (truncated, damaged, or lying about its sizes);
/// invalid_argument (no dict of tensors: what there is, and which key would do); unsupported (something that
/// is no tensor of a type that collectives know, by its name; a file of before torch 1.6; a TorchScript
/// archive).
StateDict read_pth(const std::filesystem::path& path, const std::string& key = "");

/// Writes `tensors`, wherever they are, whole or not at all. Each is written contiguous; those that are the
/// same view of the same memory share it when they are read. The same tensors make the same bytes.
///
/// Not collective. Cost: each tensor is read twice (checksums) and written once; what is not contiguous in
/// main memory is copied, one at a time. Throws Error: system (no folder, no permission, disk full), and the
/// file that was there before stays; unsupported (no plain array of a type that collectives know);
/// invalid_argument (undefined).
void write_pth(const std::filesystem::path& path, const StateDict& tensors);

// What the templates below call.
StateDict state_dict(const torch::nn::Module& module);
void save_state_dict(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module);
void load_state_dict(const std::filesystem::path& path, const Group& group, const torch::nn::Module& module,
                     const std::string& key);

/// Not collective. Parameters and buffers, the model's own and no copies, under the names and in the order
/// that Python's state_dict() has for such modules. Of a DistributedDataParallel those of the module, without
/// "module." before their names.
template <class Model>
StateDict state_dict(const Model& model) {
  return state_dict(module_of(model));
}

/// Collective. Rank 0 writes state_dict(model), as write_pth() does; everybody returns when the file is in
/// place. If rank 0 fails, every rank throws the same Error: see write_pth().
template <class Model>
void save_state_dict(const std::filesystem::path& path, const Group& group, const Model& model) {
  save_state_dict(path, group, module_of(model));
}

/// Collective. Rank 0 reads all of the file, checks it and compares it with the model before any tensor
/// changes; then its tensors are everybody's. They are found by name; there have to be as many as here, of
/// the same shapes and types. Where all names in the file begin with "module.", as those of Python's
/// DistributedDataParallel do, and none here does, that is left out. `key`: as in read_pth(). Cost: memory
/// for the file's tensors on rank 0, and one broadcast.
///
/// Every rank throws the same Error, and no model has changed: see read_pth(); invalid_argument (another
/// model: which tensors are missing, unexpected or different, up to three of each, and how many); mismatch
/// (the ranks' own models differ).
template <class Model>
void load_state_dict(const std::filesystem::path& path, const Group& group, Model& model,
                     const std::string& key = "") {
  load_state_dict(path, group, module_of(model), key);
}

}  // namespace lockstep
