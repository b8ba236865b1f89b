"""Horovod's interface for Keras, 2 and 3, on Lockstep.

    import lockstep.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size())), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
"""
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


def DistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
                         gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, average_aggregated_gradients=False,
                         num_groups=0, groups=None, process_set=global_process_set, scale_local_gradients=True):
    """A Keras optimizer whose gradients are the averages over all ranks (op: Average, Sum)."""
    return _optimizers.DistributedOptimizer(optimizer, name, False, device_dense, device_sparse, compression, sparse_as_dense,
                                            backward_passes_per_step, op, gradient_predivide_factor, average_aggregated_gradients,
                                            num_groups, groups, process_set, scale_local_gradients)


def PartialDistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="", compression=Compression.none,
                                sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1,
                                average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global_process_set,
                                local_layers=None, scale_local_gradients=True):
    """The same, but for the variables of `local_layers`, which each rank has for itself."""
    made = DistributedOptimizer(optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, gradient_predivide_factor, op,
                                backward_passes_per_step, average_aggregated_gradients, num_groups, groups, process_set,
                                scale_local_gradients)
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers] if local_layers is not None else []
    for layer in layers:
        for variable in layer.trainable_weights:
            made.register_local_var(variable)
    return made
