"""tf.GradientTape whose gradients are those of all ranks."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lockstep.common.process_sets import ProcessSet, global_process_set
from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.compression import Compression, Compressor
from lockstep.tensorflow.gradients import Reducer

if TYPE_CHECKING:
    import keras
    from tensorflow.keras.layers import Layer


class _DistributedGradientTape(tf.GradientTape):
    def __init__(self, tape: tf.GradientTape, reducer: Reducer) -> None:
        self.__dict__.update(tape.__dict__)  # it is that tape, which may be recording
        self._reducer = reducer

    def register_local_source(self, source: tf.Variable | keras.Variable) -> None:
        """The gradient of this variable stays this rank's own."""
        self._reducer.leave_out(source)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, use_process_set: Any = None, **named: Any) -> Any:
        """tf.GradientTape's, of all ranks: nested as `sources` are. use_process_set is not looked at."""
        gradients = super().gradient(target, sources, output_gradients, **named)
        flat, flat_sources = tf.nest.flatten(gradients), tf.nest.flatten(sources)
        return tf.nest.pack_sequence_as(sources, self._reducer(flat, flat_sources))


def DistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                            compression: type[Compressor] = Compression.none, sparse_as_dense: bool = False, op: int = mpi_ops.Average,
                            gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                            groups: int | list[list[tf.Variable]] | None = None, process_set: ProcessSet = global_process_set,
                            scale_local_gradients: bool = True) -> _DistributedGradientTape:
    """The tape, whose gradient() gives the average over all ranks (op: Average, Sum)."""
    reducer = Reducer("tape", device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
                      process_set, scale_local_gradients)
    return _DistributedGradientTape(gradtape, reducer)


def PartialDistributedGradientTape(gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "",
                                   compression: type[Compressor] = Compression.none, sparse_as_dense: bool = False,
                                   op: int = mpi_ops.Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                                   groups: int | list[list[tf.Variable]] | None = None, process_set: ProcessSet = global_process_set,
                                   local_layers: Layer | list[Layer] | tuple[Layer, ...] | None = None,
                                   scale_local_gradients: bool = True) -> _DistributedGradientTape:
    """The same, but for the variables of `local_layers`, which each rank has for itself."""
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
                                   num_groups, groups, process_set, scale_local_gradients)
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers] if local_layers is not None else []
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
