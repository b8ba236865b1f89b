"""Small helpers that programs for Horovod find under this name."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.python.util.object_identity import Reference


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()


def _has_eager() -> bool:
    return True


def _make_subgraph(function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(function)


def vars_to_refs(variables: tf.Variable | list[Any]) -> Reference | tuple[Any, ...]:
    """Of variables, in lists of lists: what can be the key of a dictionary."""
    if isinstance(variables, list):
        return tuple(vars_to_refs(each) for each in variables)
    return variables.ref()


def refs_to_vars(references: Reference | tuple[Any, ...]) -> tf.Variable | list[Any]:
    """Of what vars_to_refs() has made: the variables, in lists of lists."""
    if isinstance(references, tuple):
        return [refs_to_vars(each) for each in references]
    return references.deref()
