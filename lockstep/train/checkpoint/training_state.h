// A model and its optimizer are not all that a run needs in order to go on as if it had never stopped: which
// samples come next, which random numbers, and where the learning rate's schedule is. This is the rest of it,
// for CheckpointInfo::training.
//
//   save_checkpoint(path, world, ddp, sgd, {.epoch = epoch, .training = TrainingState{
//       .step = step, .schedule_step = step, .sampler = sampler.position(), .random = random_state()}});
//
//   const auto info = load_checkpoint(path, world, ddp, sgd);
//   sampler.resume(info.training->sampler.value());
//   set_random_state(info.training->random);
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "lockstep/data/sampling.h"
#include "lockstep/group/group.h"
#include "lockstep/train/checkpoint/training_record.h"

namespace lockstep {

/// Of what is alike on all ranks rank 0's is saved.
///
/// With all of it, and what a checkpoint holds anyway, a run that goes on on as many ranks takes the same
/// steps, bit for bit, as the one that was not interrupted, if it would take the same ones twice: random
/// numbers come from libtorch's default generator on the CPU, and buffers are rank 0's at each forward or
/// nobody's business. On another number of ranks the samples are the same, as long as the ranks' batches
/// together are; sums are rounded otherwise, and random numbers are others.
struct TrainingState {
  std::uint64_t step = 0;           ///< of the run, or whatever the program counts
  std::uint64_t schedule_step = 0;  ///< of the learning rate's schedule
  std::optional<SamplerPosition> sampler{};
  /// This rank's, from random_state(); on all ranks or on none. Loaded: that of the rank of the same number;
  /// on ranks beyond those that there were, of a generator whose seed follows from rank 0's state and the
  /// rank. Undefined if none was saved.
  torch::Tensor random{};
};

/// The state of libtorch's default generator on the CPU: bytes. One for all threads of a process.
torch::Tensor random_state();
/// Throws Error: invalid_argument for an undefined tensor; corrupt_data for what is no such state.
void set_random_state(const torch::Tensor& state);

/// Brings a scheduler that was made anew to where one is that was stepped so often, since libtorch's own
/// cannot be saved. Learning rates stay as they are: those that load_checkpoint() has put back.
void advance_schedule(torch::optim::LRScheduler& schedule, torch::optim::Optimizer& optimizer,
                      std::uint64_t steps);

/// Collective. What is saved; on rank 0 with the random states of all ranks. Throws Error: mismatch, if the
/// ranks do not save the same parts; invalid_argument, if a random state is none.
std::optional<TrainingRecord> gather_record(const Group& group, const std::optional<TrainingState>& state);

/// What rank `rank` goes on with.
TrainingState state_of_rank(const TrainingRecord& record, int rank);

}  // namespace lockstep
