"""Horovod's interface for Keras, 2 and 3, on Lockstep.

    import lockstep.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.tensorflow import (  # noqa: F401
    Adasum, Average, Compression, Max, Min, Product, ProcessSet, Sum, add_process_set, broadcast_global_variables, ccl_built, cross_rank,
    cross_size, cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized, local_rank,
    local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, remove_process_set, rocm_built, shutdown, size,
    start_timeline, stop_timeline)
from lockstep.keras import callbacks, elastic  # noqa: F401
from lockstep.keras.models import load_model  # noqa: F401
from lockstep.keras.values import allgather, allreduce, broadcast, reducescatter  # noqa: F401
from lockstep.tensorflow import SyncBatchNormalization  # noqa: F401
from lockstep.tensorflow import optimizers as _optimizers

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.keras.layers import Layer

    from lockstep.tensorflow.compression import Compressor


def DistributedOptimizer(optimizer: tf.keras.optimizers.Optimizer, name: str | None = None, device_dense: str = "", device_sparse: str = "",
                         compression: type[Compressor] = Compression.none, sparse_as_dense: bool = False,
                         gradient_predivide_factor: float = 1.0, op: int = Average, backward_passes_per_step: int = 1,
                         average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: int | list[list[tf.Variable]] | None = None, process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True) -> tf.keras.optimizers.Optimizer:
    """A Keras optimizer whose gradients are the averages over all ranks (op: Average, Sum)."""
    return _optimizers.DistributedOptimizer(optimizer, name, False, device_dense, device_sparse, compression, sparse_as_dense,
                                            backward_passes_per_step, op, gradient_predivide_factor, average_aggregated_gradients,
                                            num_groups, groups, process_set, scale_local_gradients)


def PartialDistributedOptimizer(optimizer: tf.keras.optimizers.Optimizer, name: str | None = None, device_dense: str = "",
                                device_sparse: str = "", compression: type[Compressor] = Compression.none,
                                sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: int = Average,
                                backward_passes_per_step: int = 1, average_aggregated_gradients: bool = False, num_groups: int = 0,
                                groups: int | list[list[tf.Variable]] | None = None, process_set: ProcessSet = global_process_set,
                                local_layers: Layer | list[Layer] | tuple[Layer, ...] | None = None,
                                scale_local_gradients: bool = True) -> tf.keras.optimizers.Optimizer:
    """The same, but for the variables of `local_layers`, which each rank has for itself."""
    made = DistributedOptimizer(optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
                                backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set,
                                scale_local_gradients)
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers] if local_layers is not None else []
    for layer in layers:
        for variable in layer.trainable_weights:
            made.register_local_var(variable)
    return made
