"""Horovod's interface for TensorFlow, on Lockstep: tapes, optimizers of Keras and of tf.compat.v1.train, sessions.

    import lockstep.tensorflow as hvd

    hvd.init()
    tape = hvd.DistributedGradientTape(tape)
    hvd.broadcast_variables(model.variables, root_rank=0)
"""
try:
    import tensorflow as _tf
except ImportError:
    raise ImportError("lockstep.tensorflow needs TensorFlow 2.15 or newer, which is not installed") from None
if tuple(map(int, _tf.__version__.split(".")[:2])) < (2, 15):
    raise ImportError(f"lockstep.tensorflow needs TensorFlow 2.15 or newer; this is {_tf.__version__}")

from lockstep.common.basics import (  # noqa: F401
    ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized,
    local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size,
    start_timeline, stop_timeline)
from lockstep.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401
from lockstep.common.process_sets import (  # noqa: F401
    ProcessSet, add_process_set, global_process_set, remove_process_set)
from lockstep.tensorflow import elastic, util  # noqa: F401
from lockstep.tensorflow.compression import Compression  # noqa: F401
from lockstep.tensorflow.functions import (  # noqa: F401
    allgather_object, broadcast_, broadcast_object, broadcast_object_fn, broadcast_variables)
from lockstep.tensorflow.gradients import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter  # noqa: F401
from lockstep.tensorflow.mpi_ops import (  # noqa: F401
    Adasum, Average, Max, Min, Product, Sum, allgather, alltoall, barrier, broadcast, grouped_allgather, join,
    local_rank_op, local_size_op, process_set_included_op, rank_op, size_op)
from lockstep.tensorflow.optimizers import DistributedOptimizer  # noqa: F401
from lockstep.tensorflow.sessions import BroadcastGlobalVariablesHook, broadcast_global_variables  # noqa: F401
from lockstep.tensorflow.sync_batch_norm import SyncBatchNormalization  # noqa: F401
from lockstep.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape  # noqa: F401
