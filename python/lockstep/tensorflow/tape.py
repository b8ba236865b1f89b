"""tf.GradientTape whose gradients are those of all ranks."""
import tensorflow as tf

from lockstep.common.process_sets import global_process_set
from lockstep.tensorflow import mpi_ops
from lockstep.tensorflow.compression import Compression
from lockstep.tensorflow.gradients import Reducer


class _DistributedGradientTape(tf.GradientTape):
    def __init__(self, tape, reducer):
        self.__dict__.update(tape.__dict__)  # it is that tape, which may be recording
        self._reducer = reducer

    def register_local_source(self, source):
        """The gradient of this variable stays this rank's own."""
        self._reducer.leave_out(source)

    def gradient(self, target, sources, output_gradients=None, use_process_set=None, **named):
        gradients = super().gradient(target, sources, output_gradients, **named)
        flat, flat_sources = tf.nest.flatten(gradients), tf.nest.flatten(sources)
        return tf.nest.pack_sequence_as(sources, self._reducer(flat, flat_sources))


def DistributedGradientTape(gradtape, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
                            op=mpi_ops.Average, gradient_predivide_factor=1.0, num_groups=0, groups=None,
                            process_set=global_process_set, scale_local_gradients=True):
    """The tape, whose gradient() gives the average over all ranks (op: Average, Sum)."""
    reducer = Reducer("tape", device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
                      process_set, scale_local_gradients)
    return _DistributedGradientTape(gradtape, reducer)


def PartialDistributedGradientTape(gradtape, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False,
                                   op=mpi_ops.Average, gradient_predivide_factor=1.0, num_groups=0, groups=None,
                                   process_set=global_process_set, local_layers=None, scale_local_gradients=True):
    """The same, but for the variables of `local_layers`, which each rank has for itself."""
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
                                   num_groups, groups, process_set, scale_local_gradients)
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers] if local_layers is not None else []
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
