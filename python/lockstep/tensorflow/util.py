"""Small helpers that programs for Horovod find under this name."""
import tensorflow as tf


def _executing_eagerly():
    return tf.executing_eagerly()


def _has_eager():
    return True


def _make_subgraph(function):
    return tf.function(function)


def vars_to_refs(variables):
    """Of variables, in lists of lists: what can be the key of a dictionary."""
    if isinstance(variables, list):
        return tuple(vars_to_refs(each) for each in variables)
    return variables.ref()


def refs_to_vars(references):
    if isinstance(references, tuple):
        return [refs_to_vars(each) for each in references]
    return references.deref()
