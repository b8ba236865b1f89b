"""What programs for Horovod ask of its TensorFlow and Keras modules, each as a case with one answer (cases.py).

    lockstep run -np 2 python tensorflow_cases.py lockstep.tensorflow OUT     # OUT.RANK: a line of JSON for each case
"""
import importlib
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf

from cases import ERRORS, add_cases_of_wrong_use, add_common_cases, answer_all, case, in_a_process_set, joined

FLOATS = [tf.float32, tf.float64, tf.float16]
TYPES = [tf.uint8, tf.int8, tf.int32, tf.int64, *FLOATS]
SHAPES = [(), (1,), (17,), (3, 4), (2, 0, 3)]


def numbers(shape, dtype, seed):
    """Small whole numbers, which have the same sums in all types."""
    return tf.cast(np.random.default_rng(seed).integers(0, 10, shape), dtype)


def both_ways(function, *tensors):
    """Eagerly, and in a graph."""
    return [function(*tensors), tf.function(function)(*tensors)]


# ---- collectives ----

for dtype in TYPES:
    for shape in SHAPES:
        for op in ("Sum", "Min", "Max", "Product"):
            if op != "Sum" and shape != (17,):
                continue
            @case(f"allreduce {op} {dtype.name} {list(shape)}")
            def _(hvd, dtype=dtype, shape=shape, op=op):
                return both_ways(lambda x: hvd.allreduce(x, name="x", op=getattr(hvd, op)), numbers(shape, dtype, hvd.rank()) % 4)
    @case(f"allreduce average {dtype.name}")
    def _(hvd, dtype=dtype):
        return both_ways(lambda x: hvd.allreduce(x, name="x"), numbers((9,), dtype, hvd.rank()))
    for prescale, postscale in ((0.5, 1.0), (1.0, 0.25), (3.0, 0.5)):
        @case(f"allreduce scaled {prescale} {postscale} {dtype.name}")
        def _(hvd, dtype=dtype, prescale=prescale, postscale=postscale):
            return hvd.allreduce(numbers((9,), dtype, hvd.rank()), op=hvd.Sum, name="x", prescale_factor=prescale,
                                 postscale_factor=postscale)
    @case(f"grouped allreduce {dtype.name}")
    def _(hvd, dtype=dtype):
        return both_ways(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum, name="x"),
                         *[numbers(shape, dtype, hvd.rank()) for shape in ((3,), (2, 2), (1,))])
    @case(f"allgather {dtype.name}")
    def _(hvd, dtype=dtype):
        return both_ways(lambda x: hvd.allgather(x, name="x"), numbers((hvd.rank() + 1, 3), dtype, hvd.rank()))
    @case(f"broadcast {dtype.name}")
    def _(hvd, dtype=dtype):
        return [both_ways(lambda x, root=root: hvd.broadcast(x, root, name=f"x{root}"), numbers((4, 2), dtype, hvd.rank()))
                for root in range(hvd.size())]
    @case(f"alltoall {dtype.name}")
    def _(hvd, dtype=dtype):
        return both_ways(lambda x: hvd.alltoall(x, name="x"), numbers((hvd.size() * 2, 3), dtype, hvd.rank()))
    @case(f"reducescatter {dtype.name}")
    def _(hvd, dtype=dtype):
        return both_ways(lambda x: hvd.reducescatter(x, op=hvd.Sum, name="x"), numbers((5, 2), dtype, hvd.rank()))


@case("allreduce average=False")
def _(hvd):
    return hvd.allreduce(tf.ones(3), average=False, name="x")


@case("allreduce average and op")
def _(hvd):
    return hvd.allreduce(tf.ones(3), average=False, op=hvd.Sum, name="x")


@case("allreduce of what is no tensor")
def _(hvd):
    return hvd.allreduce([1.0, 2.0, float(hvd.rank())], op=hvd.Sum, name="x")


for compression in ("none", "fp16"):
    @case(f"allreduce compression {compression}")
    def _(hvd, compression=compression):
        return both_ways(lambda x: hvd.allreduce(x, name="x", compression=getattr(hvd.Compression, compression)),
                         tf.range(5.0) + hvd.rank())


@case("compression fp16 of f64 and integers")
def _(hvd):
    found = []
    for x in (tf.ones(2, tf.float64), tf.ones(2, tf.int32)):
        small, context = hvd.Compression.fp16.compress(x)
        found += [small, hvd.Compression.fp16.decompress(small, context)]
    return found


@case("grouped allreduce of two types")
def _(hvd):
    return hvd.grouped_allreduce([tf.ones(3), tf.ones(3, tf.float64)], op=hvd.Sum, name="x")


@case("grouped allgather")
def _(hvd):
    return hvd.grouped_allgather([tf.ones([hvd.rank() + 1, 2]), tf.ones(2) * hvd.rank()], name="x")


@case("grouped reducescatter")
def _(hvd):
    return hvd.grouped_reducescatter([tf.ones([4, 2]) * hvd.rank(), tf.ones(5)], op=hvd.Sum)


@case("allreduce of slices")
def _(hvd):
    x = tf.IndexedSlices(tf.constant([[1.0, 2.0], [3.0, 4.0 + hvd.rank()]]), tf.constant([0, 2], tf.int64), tf.constant([4, 2], tf.int64))
    made = hvd.allreduce(x, name="x", op=hvd.Average)
    return [made.values, made.indices]


@case("allreduce of slices, Min")
def _(hvd):
    x = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
    return hvd.allreduce(x, name="x", op=hvd.Min)


@case("alltoall with splits")
def _(hvd):
    splits = tf.constant([(hvd.rank() + i) % 3 for i in range(hvd.size())])
    x = tf.range(float(tf.reduce_sum(splits))) + 10 * hvd.rank()
    return [list(one) for one in both_ways(lambda x: hvd.alltoall(x, splits, name="x"), x)]


@case("alltoall of rows that do not divide")
def _(hvd):
    return hvd.alltoall(tf.ones(hvd.size() * 2 + 1), name="x")


@case("alltoall with wrong splits")
def _(hvd):
    return hvd.alltoall(tf.ones(4), tf.constant([1] * hvd.size() + [1]), name="x")


@case("alltoall with splits of too many rows")
def _(hvd):
    return hvd.alltoall(tf.ones(2), tf.constant([2] * hvd.size()), name="x")


@case("alltoall with splits of too few rows")
def _(hvd):
    return hvd.alltoall(tf.range(4.0), tf.constant([1] * hvd.size()), name="x")[1]


@case("allgather of scalars")
def _(hvd):
    return hvd.allgather(tf.constant(float(hvd.rank())), name="x")


# ---- gradients ----

def gradient(hvd, function, x):
    def derive(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = function(x)
            ramp = tf.reshape(tf.range(1.0, tf.cast(tf.size(made), tf.float32) + 1), tf.shape(made))
            loss = tf.reduce_sum(made * ramp) * (hvd.rank() + 1)
        return tape.gradient(loss, x)
    return both_ways(derive, x)


for op in ("Sum", "Average"):
    @case(f"gradient of allreduce {op}")
    def _(hvd, op=op):
        return gradient(hvd, lambda x: hvd.allreduce(x, op=getattr(hvd, op), name="x"), tf.ones(3))
    @case(f"gradient of reducescatter {op}")
    def _(hvd, op=op):
        return gradient(hvd, lambda x: hvd.reducescatter(x, op=getattr(hvd, op), name="x"), tf.ones([4, 2]))


@case("gradient of grouped allreduce")
def _(hvd):
    return gradient(hvd, lambda x: tf.concat(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, name="x"), 0), tf.ones(3))


@case("gradient of allgather")
def _(hvd):
    return gradient(hvd, lambda x: hvd.allgather(x, name="x"), tf.ones([hvd.rank() + 1, 2]))


@case("gradient of broadcast")
def _(hvd):
    return gradient(hvd, lambda x: hvd.broadcast(x, 1, name="x"), tf.ones(3))


@case("gradient of alltoall")
def _(hvd):
    splits = tf.constant([i + 1 for i in range(hvd.size())])
    return gradient(hvd, lambda x: hvd.alltoall(x, splits, name="x")[0], tf.ones([int(tf.reduce_sum(splits)), 2]))


# ---- the rest ----

add_common_cases()


@case("broadcast_object_fn")
def _(hvd):
    return hvd.broadcast_object_fn(root_rank=1)(["rank", hvd.rank()])


@case("broadcast_variables")
def _(hvd):
    variables = [tf.Variable(tf.ones([2, 3]) * hvd.rank()), tf.Variable(hvd.rank())]
    hvd.broadcast_variables(variables, root_rank=1)
    return [variable.read_value() for variable in variables]


@case("broadcast_variables in place")
def _(hvd):
    variables = [tf.Variable(tf.ones([2, 3]) * hvd.rank(), name="a"), tf.Variable(tf.ones(2, tf.float64) * hvd.rank(), name="b")]
    hvd.broadcast_variables(variables, root_rank=1, inplace=True)
    return [variable.read_value() for variable in variables]


@case("join")
def _(hvd):
    return joined(hvd, tf.ones)


@case("process set")
def _(hvd):
    return in_a_process_set(hvd, tf.ones, lambda evens: [hvd.process_set_included_op(evens.process_set_id)])


@case("place by operations")
def _(hvd):
    return both_ways(lambda: [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()])


# ---- wrong use ----

add_cases_of_wrong_use(tf.ones, tf.float32, tf.float64)


@case("shapes that differ, in a graph")
def _(hvd):
    return tf.function(lambda: hvd.allreduce(tf.ones(3 + hvd.rank()), name="differs"))()


@case("a root that is not there")
def _(hvd):
    return hvd.broadcast(tf.ones(2), 99, name="root")


# ---- training ----

def model_of(seed):
    tf.keras.utils.set_random_seed(seed)
    net = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)])
    net.build((None, 6))
    return net


def samples(rank, step, rows=4):
    return np.random.default_rng([rank, step]).standard_normal((rows, 6)).astype(np.float32)


def trained_by_tape(hvd, make=None, optimizer=None, local=(), **options):
    net = model_of(hvd.rank())
    optimizer = optimizer() if optimizer else tf.keras.optimizers.SGD(0.1, momentum=0.9)

    def step(x, is_first):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x) ** 2)
        if make is None:
            tape = hvd.DistributedGradientTape(tape, **options)
        else:
            tape = make(tape, net)
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables))
        if is_first:
            hvd.broadcast_variables(net.variables, root_rank=0)
            variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
            hvd.broadcast_variables(variables, root_rank=0)

    graph = tf.function(lambda x: step(x, False))
    step(tf.constant(samples(hvd.rank(), 0)), True)
    for number in range(1, 4):
        graph(tf.constant(samples(hvd.rank(), number)))
    return [variable.numpy() for variable in net.trainable_variables]


@case("training by the tape")
def _(hvd):
    return trained_by_tape(hvd)


@case("training by the tape with Adam")
def _(hvd):
    return trained_by_tape(hvd, optimizer=lambda: tf.keras.optimizers.Adam(0.01))


@case("training by the tape with op Sum")
def _(hvd):
    return trained_by_tape(hvd, op=hvd.Sum)


@case("training with fp16")
def _(hvd):
    return trained_by_tape(hvd, compression=hvd.Compression.fp16)


@case("training by the tape with a predivide factor")
def _(hvd):
    return trained_by_tape(hvd, gradient_predivide_factor=2.0)


@case("training by the tape in two groups")
def _(hvd):
    return trained_by_tape(hvd, num_groups=2)


@case("training by the tape in lists")
def _(hvd):
    # The lists are of variables, which are there once the model is.
    return trained_by_tape(hvd, make=lambda tape, net: hvd.DistributedGradientTape(
        tape, groups=[net.layers[0].trainable_variables, net.layers[1].trainable_variables]))


@case("training by the tape with layers of each rank's own")
def _(hvd):
    return trained_by_tape(hvd, make=lambda tape, net: hvd.PartialDistributedGradientTape(tape, local_layers=[net.layers[1]]))[:2]


@case("a tape's gradient of an embedding")
def _(hvd):
    table = tf.Variable(tf.reshape(tf.range(12.0), [6, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 2]))
    made = hvd.DistributedGradientTape(tape).gradient(loss, [table])[0]
    return tf.convert_to_tensor(made)


@case("a tape's gradient of an embedding, made dense")
def _(hvd):
    table = tf.Variable(tf.reshape(tf.range(12.0), [6, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 2]))
    made = hvd.DistributedGradientTape(tape, sparse_as_dense=True).gradient(loss, [table])[0]
    return [isinstance(made, tf.IndexedSlices), made]


@case("a tape's gradient that there is none of")
def _(hvd):
    used, unused = tf.Variable(1.0), tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = used * (hvd.rank() + 1)
    return hvd.DistributedGradientTape(tape).gradient(loss, [used, unused])


def sessions(hvd, optimizer, **options):
    """As programs for TensorFlow 1 train: a graph, a hook and a session."""
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(hvd.rank())
        x = tf.compat.v1.placeholder(tf.float32, [None, 6])
        weights = tf.compat.v1.get_variable("weights", [6, 1], initializer=tf.compat.v1.random_normal_initializer(seed=hvd.rank()))
        loss = tf.reduce_mean((x @ weights) ** 2)
        step = tf.compat.v1.train.get_or_create_global_step()
        train = hvd.DistributedOptimizer(optimizer(), **options).minimize(loss, global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.compat.v1.train.StopAtStepHook(last_step=4)]
        found = None
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            number = 0
            while not session.should_stop():
                _, found = session.run([train, weights], {x: samples(hvd.rank(), number)})
                number += 1
    return [number, found]


@case("training in a session")
def _(hvd):
    return sessions(hvd, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1))


@case("training in a session with Adagrad")
def _(hvd):
    return sessions(hvd, lambda: tf.compat.v1.train.AdagradOptimizer(0.1))


@case("training in a session with op Sum")
def _(hvd):
    return sessions(hvd, lambda: tf.compat.v1.train.MomentumOptimizer(0.05, 0.9), op=hvd.Sum)


@case("training in a session with several backwards")
def _(hvd):
    return sessions(hvd, lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=2)


def fitted(hvd, optimizer, callbacks=(), epochs=2, **options):
    keras = importlib.import_module(f"{hvd.__name__}.keras")
    net = model_of(hvd.rank())
    net.compile(keras.DistributedOptimizer(optimizer(), **options), "mse", run_eagerly=False)
    x = np.concatenate([samples(hvd.rank(), number) for number in range(4)])
    made = net.fit(x, x[:, :1], batch_size=4, epochs=epochs, shuffle=False, verbose=0,
                   callbacks=[keras.callbacks.BroadcastGlobalVariablesCallback(0), *(one(keras) for one in callbacks)])
    return [[variable.numpy() for variable in net.trainable_variables], made.history]


def older_sgd(rate):
    """Of Keras before 2.11, which Keras 2 has besides; else the one that there is."""
    try:
        return tf.keras.optimizers.legacy.SGD(rate)
    except (AttributeError, ImportError):
        return tf.keras.optimizers.SGD(rate)


def rates_in(history):
    return tf.constant(history["lr"] if "lr" in history else history["learning_rate"], tf.float32)


@case("Keras fit")
def _(hvd):
    return fitted(hvd, lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9))[0]


@case("Keras fit with Adam")
def _(hvd):
    return fitted(hvd, lambda: tf.keras.optimizers.Adam(0.01))[0]


@case("Keras fit with the legacy optimizers")
def _(hvd):
    return fitted(hvd, lambda: older_sgd(0.1))[0]


@case("Keras fit with several backwards")
def _(hvd):
    return fitted(hvd, lambda: older_sgd(0.1), backward_passes_per_step=2, average_aggregated_gradients=True)[0]


@case("Keras fit with metrics averaged")
def _(hvd):
    weights, history = fitted(hvd, lambda: tf.keras.optimizers.SGD(0.05), [lambda keras: keras.callbacks.MetricAverageCallback()])
    return [weights, tf.constant(history["loss"], tf.float32)]


@case("Keras fit with warm-up")
def _(hvd):
    weights, history = fitted(hvd, lambda: older_sgd(0.02), [
        lambda keras: keras.callbacks.LearningRateWarmupCallback(initial_lr=0.02, warmup_epochs=3, steps_per_epoch=4, verbose=0)], 4)
    return [weights, rates_in(history)]


@case("Keras fit with a schedule")
def _(hvd):
    weights, history = fitted(hvd, lambda: older_sgd(0.1), [
        lambda keras: keras.callbacks.LearningRateScheduleCallback(initial_lr=0.1, multiplier=lambda epoch: 0.5**epoch)], 3)
    return [weights, rates_in(history)]


@case("the class of the optimizer")
def _(hvd):
    keras = importlib.import_module(f"{hvd.__name__}.keras")
    optimizer = keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    return [isinstance(optimizer, tf.keras.optimizers.SGD), type(optimizer).__name__, float(optimizer.get_config()["learning_rate"])]


@case("a predivide factor with op Sum")
def _(hvd):
    return trained_by_tape(hvd, op=hvd.Sum, gradient_predivide_factor=2.0)


# ---- answers ----

def plain_tensor(value):
    if isinstance(value, (tf.Tensor, tf.Variable, np.ndarray)):
        array = np.asarray(value)
        return {"dtype": array.dtype.name, "shape": list(array.shape), "values": array.astype(np.float64).flatten().tolist()}
    return float(value) if isinstance(value, np.floating) else int(value) if isinstance(value, np.integer) else None


if __name__ == "__main__":
    answer_all(plain_tensor, lambda hvd: hvd.allreduce(tf.zeros(1), name="before the case"), ("FailedPreconditionError", "InvalidArgumentError", "UnknownError", "NotFoundError", "InternalError", *ERRORS))
