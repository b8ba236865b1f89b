// Training with libtorch on the ranks of a group. The core, without libtorch, is <lockstep/lockstep.h>.
#pragma once

#include <lockstep/train/checkpoint.h>
#include <lockstep/train/curve.h>
#include <lockstep/train/data_parallel.h>
#include <lockstep/train/dataset.h>
#include <lockstep/train/device.h>
#include <lockstep/train/early_stop.h>
#include <lockstep/train/event_file.h>
#include <lockstep/train/fused_optimizer.h>
#include <lockstep/train/gradient_noise.h>
#include <lockstep/train/learning_rate.h>
#include <lockstep/train/metrics.h>
#include <lockstep/train/mixed_precision.h>
#include <lockstep/train/model_average.h>
#include <lockstep/train/power_sgd.h>
#include <lockstep/train/sampler.h>
#include <lockstep/train/sharded_optimizer.h>
#include <lockstep/train/shared_heap.h>
#include <lockstep/train/stale_average.h>
#include <lockstep/train/sync_batch_norm.h>
#include <lockstep/train/tensor_collectives.h>
#include <lockstep/train/trainer.h>
