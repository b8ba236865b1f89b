"""The state of a training with torch: models, optimizers, samplers, and values that can be copied."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from lockstep.common.elastic import ObjectState
from lockstep.torch import mpi_ops
from lockstep.torch.elastic.sampler import ElasticSampler
from lockstep.torch.functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters

if TYPE_CHECKING:
    from typing import Any


class TorchState(ObjectState):
    """`TorchState(model=net, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)`: whatever has a state_dict(), and values."""

    def __init__(self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **values: Any) -> None:
        values.update({name: value for name, value in (("model", model), ("optimizer", optimizer)) if value is not None})
        self._parts = {name: value for name, value in values.items()
                       if isinstance(value, (torch.nn.Module, torch.optim.Optimizer, ElasticSampler))}
        self._saved_parts: dict[str, dict[str, Any]] = {}
        for name, part in self._parts.items():
            setattr(self, name, part)
        super().__init__(broadcast_object, mpi_ops.rank, **{name: value for name, value in values.items() if name not in self._parts})
        self.save()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__.get("_parts", {}):
            self._parts[name] = value

    def save(self) -> None:
        """Keeps copies of the state_dict()s and of the values."""
        self._saved_parts = {name: copy.deepcopy(part.state_dict()) for name, part in self._parts.items()}
        super().save()

    def restore(self) -> None:
        """All as it was saved last."""
        for name, part in self._parts.items():
            part.load_state_dict(copy.deepcopy(self._saved_parts[name]))
        super().restore()

    def sync(self) -> None:
        """All ranks take rank 0's state, and what any sampler has recorded as done in its epoch; saves it."""
        for part in self._parts.values():
            if isinstance(part, torch.nn.Module):
                broadcast_parameters(part.state_dict(), root_rank=0)
            elif isinstance(part, torch.optim.Optimizer):
                broadcast_optimizer_state(part, root_rank=0)
            else:  # what any rank has seen of rank 0's epoch is done
                states = allgather_object(part.state_dict())
                epoch = states[0]["epoch"]
                done = set().union(*(state["processed_indices"] for state in states if state["epoch"] == epoch))
                part.load_state_dict({"epoch": epoch, "processed_indices": done})
        super().sync()
        self.save()

    def reset(self) -> None:
        """The samplers deal what is left to the ranks that there are."""
        for part in self._parts.values():
            if isinstance(part, ElasticSampler):
                part.reset()
