"""What programs with sessions begin with: the root's variables, on all ranks."""
from __future__ import annotations

import tensorflow as tf

from lockstep.tensorflow.functions import broadcast_variables


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """The operation that gives all ranks the root's global variables."""
    if tf.executing_eagerly():
        raise RuntimeError("hvd.broadcast_global_variables() does not support eager execution. Please use "
                           "`hvd.broadcast_variables(<model/optimizer variables>)` instead.")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Does that when a MonitoredTrainingSession has made its session: whatever was restored or drawn, all begin alike."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        self.root_rank, self.bcast_op, self.device = root_rank, None, device

    def begin(self) -> None:
        """Builds the operation, in the graph that is there now."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        """Runs it."""
        session.run(self.bcast_op)
