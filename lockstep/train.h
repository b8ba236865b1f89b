// Training with libtorch on the ranks of a group. The core, without libtorch, is <lockstep/lockstep.h>.
#pragma once

#include <lockstep/train/adasum.h>
#include <lockstep/train/broadcast_state.h>
#include <lockstep/train/checkpoint.h>
#include <lockstep/train/data_parallel.h>
#include <lockstep/train/dataset.h>
#include <lockstep/train/device.h>
#include <lockstep/train/distributed_optimizer.h>
#include <lockstep/train/fused_optimizer.h>
#include <lockstep/train/gradient_tape.h>
#include <lockstep/train/metrics.h>
#include <lockstep/train/mixed_precision.h>
#include <lockstep/train/named_tensors.h>
#include <lockstep/train/power_sgd.h>
#include <lockstep/train/sampler.h>
#include <lockstep/train/sharded_optimizer.h>
#include <lockstep/train/shared_heap.h>
#include <lockstep/train/stale_average.h>
#include <lockstep/train/sync_batch_norm.h>
#include <lockstep/train/tensor_collectives.h>
