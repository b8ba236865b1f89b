"""Distributed training for Python: what Horovod's modules do, on Lockstep's core.

    import lockstep.torch as hvd          # in place of horovod.torch

`lockstep.common` is what all frameworks share; `lockstep.core` the calls of liblockstep_c.so (lockstep_c.h) themselves.
"""

__version__ = "0.1.0"
