"""Which variables of an environment other hosts get."""
from __future__ import annotations

import os
import re

LOG_LEVEL_STR = ("FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE")
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD"}
KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"


def is_exportable(name: str) -> bool:
    """Whether other hosts get the variable of this name."""
    return not any(re.match(pattern, name) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """Of this process, as its launcher has them: (0, 1) without one."""
    for rank, size in (("HOROVOD_RANK", "HOROVOD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                       ("RANK", "WORLD_SIZE")):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1
