"""Models that were saved with their optimizer."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep.tensorflow.compression import Compression, Compressor
from lockstep.tensorflow.gradients import Reducer
from lockstep.tensorflow.optimizers import wrapped_class

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable


def load_model(filepath: str | os.PathLike[str], custom_optimizers: Iterable[type[tf.keras.optimizers.Optimizer]] | None = None,
               custom_objects: dict[str, Any] | None = None, compression: type[Compressor] = Compression.none,
               legacy_opts: bool = False) -> tf.keras.Model:
    """keras.models.load_model(), whose model trains with the optimizer that it was saved with, in its state, on all ranks. legacy_opts has
    no meaning here."""
    objects = {one.__name__: one for one in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = tf.keras.models.load_model(filepath, custom_objects=objects or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        optimizer.__class__ = wrapped_class(type(optimizer), Reducer(f"Distributed{type(optimizer).__name__}", compression=compression))
    return model
