"""A sampler that knows which samples of its epoch are done, so that training goes on with the others."""
from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import torch

from lockstep.torch import mpi_ops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sized
    from typing import Any


class ElasticSampler(torch.utils.data.Sampler):
    """As DistributedSampler, over what is not recorded yet: record_batch() after each batch, set_epoch() after each epoch."""

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.processed_indices: set[int]
        self.epoch, self.processed_indices = 0, set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins this epoch: no sample of it is done."""
        self.epoch, self.processed_indices = epoch, set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """The samples of batch `batch_idx` of this rank are done."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Iterable[int]) -> None:
        """These samples, by their numbers in the dataset, are done."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """Which samples are in batch `batch_idx` of this rank."""
        begin = batch_idx * batch_size
        return self.indices[begin:min(begin + batch_size, len(self.indices))]

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and which samples are done."""
        return {"epoch": self.epoch, "processed_indices": self.processed_indices}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from what state_dict() has returned, or Horovod 0.28's."""
        self.epoch = state_dict["epoch"]
        if "processed_indices" in state_dict:
            self.processed_indices = set(state_dict["processed_indices"])
        else:  # so many of the first in the epoch's order
            self.processed_indices = set(self._in_order(range(len(self.dataset)))[:state_dict["processed_num"]])
        self.reset()

    def reset(self) -> None:
        """Deals what is left to the ranks that there are."""
        self.num_replicas, self.rank = mpi_ops.size(), mpi_ops.rank()
        left = [index for index in range(len(self.dataset)) if index not in self.processed_indices]
        self.remaining_indices = left
        self.num_samples = math.ceil(len(left) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self._deal()

    def _in_order(self, indices: Iterable[int]) -> list[int]:
        order = list(indices)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        return order

    def _deal(self) -> None:
        indices = self._in_order(self.remaining_indices)
        if indices:
            indices += (indices * math.ceil(self.total_size / len(indices)))[:self.total_size - len(indices)]
        self.indices = indices[self.rank:self.total_size:self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        self._deal()
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
