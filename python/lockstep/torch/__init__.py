"""Horovod's interface for torch, on Lockstep.

    import lockstep.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
"""
try:
    import torch as _torch
except ImportError:
    raise ImportError("lockstep.torch needs torch 2.0 or newer, which is not installed") from None
if int(_torch.__version__.split(".")[0]) < 2:
    raise ImportError(f"lockstep.torch needs torch 2.0 or newer; this is {_torch.__version__}")

from lockstep.common.basics import (  # noqa: F401
    ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built, gloo_enabled, init, is_homogeneous, is_initialized,
    local_rank, local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size,
    start_timeline, stop_timeline)
from lockstep.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401
from lockstep.common.process_sets import (  # noqa: F401
    ProcessSet, add_process_set, global_process_set, remove_process_set)
from lockstep.torch import elastic  # noqa: F401
from lockstep.torch.compression import Compression  # noqa: F401
from lockstep.torch.functions import (  # noqa: F401
    allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters)
from lockstep.torch.memory import RegisteredMemory, register_memory  # noqa: F401
from lockstep.torch.mpi_ops import (  # noqa: F401
    Adasum, Average, Max, Min, Product, Sum, allgather, allgather_async, allreduce, allreduce_, allreduce_async, allreduce_async_,
    alltoall, alltoall_async, barrier, broadcast, broadcast_, broadcast_async, broadcast_async_, grouped_allgather,
    grouped_allgather_async, grouped_allreduce, grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_,
    grouped_reducescatter, grouped_reducescatter_async, join, poll, reducescatter, reducescatter_async, sparse_allreduce_async,
    synchronize)
from lockstep.torch.optimizer import DistributedOptimizer  # noqa: F401
from lockstep.torch.sync_batch_norm import SyncBatchNorm  # noqa: F401
