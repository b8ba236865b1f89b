"""Programs for lockstep.tensorflow and lockstep.keras, as the first word says; what rank R finds right it says: `probe R right`.

    lockstep run -np 2 python tensorflow_programs.py ACTION FOLDER
"""
import functools
import os
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
tempfile.tempdir = sys.argv[2]  # for what TensorFlow writes, and a rank that is killed leaves

import numpy as np
import tensorflow as tf

import lockstep.tensorflow as hvd
from probe import ACTIONS, action, tell

TYPES = [tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64]


say = functools.partial(tell, os.environ["RANK"])


def same(made, expected, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(made, np.float64), np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance)


def both_ways(function):
    """Eagerly, and in a graph."""
    yield function
    yield tf.function(function)


@action
def collectives():
    """Every operation, of every type and some shapes, eagerly and in a function."""
    rank, size = hvd.rank(), hvd.size()
    for call in both_ways(lambda tensor, op: hvd.allreduce(tensor, op=op)):
        for dtype in TYPES:
            for shape in ([], [1], [17], [3, 5], [0, 4]):
                mine = tf.cast(tf.fill(shape, rank + 1), dtype)
                same(tf.cast(call(mine, hvd.Sum), tf.float64), np.full(shape, sum(range(1, size + 1))), 1e-2)
                same(tf.cast(call(mine, hvd.Max), tf.float64), np.full(shape, size), 1e-2)
                same(tf.cast(call(mine, hvd.Product), tf.float64), np.full(shape, np.prod(range(1, size + 1))), 1e-2)
                if dtype.is_floating:
                    same(tf.cast(call(mine, hvd.Average), tf.float64), np.full(shape, (size + 1) / 2), 1e-2)
    for gather in both_ways(hvd.allgather):
        same(gather(tf.fill([rank + 1, 2], float(rank))), np.concatenate([np.full([r + 1, 2], r) for r in range(size)]))
        same(gather(tf.constant(rank)), range(size))
    for call in both_ways(lambda tensor: hvd.broadcast(tensor, size - 1)):
        same(call(tf.fill([2, 3], rank)), np.full([2, 3], size - 1))
    for call in both_ways(hvd.alltoall):
        same(call(tf.range(size) + 10 * rank), [10 * r + rank for r in range(size)])
        made, received = call(tf.fill([size * (rank + 1)], rank), [rank + 1] * size)
        same(made, np.concatenate([np.full([r + 1], r) for r in range(size)]))
        same(received, [r + 1 for r in range(size)])
    for call in both_ways(lambda tensor: hvd.reducescatter(tensor, op=hvd.Sum)):
        same(call(tf.fill([size * 2, 3], float(rank + 1))), np.full([2, 3], sum(range(1, size + 1))))
    for call in both_ways(lambda tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum)):
        made = call([tf.fill([4], float(rank)), tf.fill([2, 2], rank), tf.fill([3], float(2 * rank))])
        for index, expected in enumerate((np.full([4], sum(range(size))), np.full([2, 2], sum(range(size))),
                                          np.full([3], 2 * sum(range(size))))):
            same(made[index], expected)
    for prescale in (0.5, tf.constant(0.5)):
        scaled = hvd.allreduce(tf.ones([2]), op=hvd.Sum, prescale_factor=prescale, postscale_factor=3.0, name="scaled")
        same(scaled, np.full([2], 1.5 * size))
    assert [hvd.rank_op().numpy(), hvd.size_op().numpy(), hvd.local_rank_op().numpy()] == [rank, size, hvd.local_rank()]
    assert hvd.allgather_object({"rank": rank}) == [{"rank": r} for r in range(size)]
    assert hvd.broadcast_object(["rank", rank], root_rank=0) == ["rank", 0]
    assert hvd.broadcast_object_fn(root_rank=0)(rank) == 0
    say("right")


@action
def gradients():
    """Of the operations themselves."""
    rank, size = hvd.rank(), hvd.size()

    def gradient_of(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(function(x) * tf.cast(rank + 1, x.dtype))
        return tape.gradient(y, x)

    total = sum(range(1, size + 1))
    x = tf.ones([size, 3])
    for derive in both_ways(gradient_of):
        same(derive(lambda t: hvd.allreduce(t, op=hvd.Sum, name="a"), x), np.full([size, 3], total))
        same(derive(lambda t: hvd.allreduce(t, op=hvd.Average, name="b"), x), np.full([size, 3], total / size))
        same(derive(lambda t: hvd.broadcast(t, 0, name="c"), x), np.full([size, 3], total / size if rank == 0 else 0))
        same(derive(lambda t: hvd.allgather(t, name="d"), x), np.full([size, 3], total / size))
        same(derive(lambda t: hvd.alltoall(t, name="e"), x), [[r + 1] * 3 for r in range(size)])
        same(derive(lambda t: hvd.reducescatter(t, op=hvd.Sum, name="f"), x), [[(r + 1) * size] * 3 for r in range(size)])
        same(derive(lambda t: sum(hvd.grouped_allreduce([t, 2 * t], op=hvd.Sum, name="g")), x), np.full([size, 3], 3 * total))
    say("right")


def data(samples=64):
    """Of all ranks: what each of them takes its part of."""
    numbers = np.random.default_rng(7)
    x = numbers.standard_normal((samples, 8)).astype(np.float32)
    return x, (x @ np.arange(1, 9, dtype=np.float32))[:, None]


def part(array):
    return array[hvd.rank()::hvd.size()]


def model():
    tf.keras.utils.set_random_seed(hvd.rank())
    net = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="tanh"), tf.keras.layers.Dense(1)])
    net.build((None, 8))
    return net


def trained_alone(steps, optimizer):
    """Rank 0's beginning, trained by one process with all samples."""
    net = model()
    hvd.broadcast_variables(net.variables, root_rank=0)
    x, y = data()
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    return net


def expect_equal(net, expected, tolerance=1e-4):
    for mine, theirs in zip(net.trainable_variables, expected.trainable_variables):
        same(mine, theirs, tolerance)
        gathered = hvd.allgather(tf.expand_dims(tf.convert_to_tensor(mine), 0))
        assert tf.reduce_all(gathered == gathered[:1]).numpy(), "ranks differ"


@action
def tape():
    """The documents' train_step: a tape in a function, with a broadcast after the first batch."""
    expected = trained_alone(5, tf.keras.optimizers.SGD(0.05))
    net, optimizer = model(), tf.keras.optimizers.SGD(0.05)
    x, y = part(data()[0]), part(data()[1])

    @tf.function
    def train_step(x, y, first_batch):
        with tf.GradientTape() as recorded:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        recorded = hvd.DistributedGradientTape(recorded)
        found = recorded.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(found, net.trainable_variables))
        return loss

    hvd.broadcast_variables(net.variables, root_rank=0)
    for batch in range(5):
        train_step(x, y, batch == 0)
        if batch == 0:
            hvd.broadcast_variables(net.variables, root_rank=0)
            variables = optimizer.variables
            hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
    expect_equal(net, expected)

    layer = net.layers[0]
    with tf.GradientTape() as recorded:
        loss = tf.reduce_mean(net(tf.ones([1, 8]) * (hvd.rank() + 1)))
    found = hvd.PartialDistributedGradientTape(recorded, local_layers=layer, scale_local_gradients=False).gradient(
        loss, net.trainable_variables)
    gathered = [hvd.allgather(tf.expand_dims(one, 0)) for one in found]
    assert not tf.reduce_all(gathered[0] == gathered[0][:1]).numpy(), "local gradients are each rank's own"
    assert tf.reduce_all(gathered[2] == gathered[2][:1]).numpy()
    say("right")


@action
def sparse():
    """Gradients of an embedding are IndexedSlices."""
    table = tf.Variable(tf.ones([6, 2]))
    for sparse_as_dense in (False, True):
        with tf.GradientTape() as recorded:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), 5]))
        found = hvd.DistributedGradientTape(recorded, sparse_as_dense=sparse_as_dense).gradient(loss, table)
        assert isinstance(found, tf.IndexedSlices) != sparse_as_dense
        expected = np.zeros([6, 2])
        expected[:hvd.size()] = 1 / hvd.size()
        expected[5] = 1
        same(tf.convert_to_tensor(found), expected)
    say("right")


@action
def keras_fit():
    """The documents' Keras program: a wrapped optimizer, callbacks, fit(); saved and loaded again."""
    import lockstep.keras as khvd
    expected = trained_alone(8, tf.keras.optimizers.SGD(0.05, momentum=0.9))
    net = model()
    hvd.broadcast_variables(net.variables, root_rank=0)
    optimizer = khvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05, momentum=0.9))
    assert type(optimizer).__name__ == "SGD"
    net.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
    x, y = part(data()[0]), part(data()[1])
    history = net.fit(x, y, batch_size=len(x), epochs=8, shuffle=False, verbose=0, callbacks=[
        khvd.callbacks.BroadcastGlobalVariablesCallback(0), khvd.callbacks.MetricAverageCallback()])
    expect_equal(net, expected, 1e-3)
    losses = hvd.allgather_object(history.history["loss"])
    assert losses[0] == losses[-1] and losses[0][0] > losses[0][-1], losses

    path = f"{sys.argv[2]}/model.{hvd.rank()}.keras"
    net.save(path)
    loaded = khvd.load_model(path)
    again = loaded.fit(x, y, batch_size=len(x), epochs=2, shuffle=False, verbose=0)
    assert again.history["loss"][0] <= losses[0][0]
    expect_equal(loaded, loaded)
    say("right")


@action
def keras_callbacks():
    """The learning rate's callbacks."""
    import lockstep.keras as khvd
    net = model()
    net.compile(optimizer=khvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.5)), loss="mse")
    x, y = part(data()[0]), part(data()[1])
    history = net.fit(x, y, batch_size=8, epochs=5, verbose=0, callbacks=[
        khvd.callbacks.BroadcastGlobalVariablesCallback(0),
        khvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2),
        khvd.callbacks.LearningRateScheduleCallback(initial_lr=0.1, multiplier=0.1, start_epoch=3)])
    same(history.history["lr"][1:], [0.1, 0.1, 0.1, 0.01])  # 0.1 to the power of the epochs since the third
    assert 0.1 / hvd.size() < history.history["lr"][0] < 0.1
    say("right")


@action
def sessions():
    """The documents' TensorFlow 1 program: a MonitoredTrainingSession, a hook that broadcasts, a wrapped AdagradOptimizer."""
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    x_all, y_all = data()
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, [None, 8]), v1.placeholder(tf.float32, [None, 1])
        weights = v1.get_variable("weights", [8, 1], initializer=v1.random_normal_initializer(seed=hvd.rank()))
        loss = tf.reduce_mean((tf.matmul(x, weights) - y) ** 2)
        optimizer = hvd.DistributedOptimizer(v1.train.AdagradOptimizer(0.5))
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, global_step=step)
        everywhere = hvd.allgather(tf.reshape(weights, [1, 8]), name="begin")
        with tf.control_dependencies([train]):
            trained = hvd.allgather(tf.reshape(weights.read_value(), [1, 8]), name="trained")
        hooks = [hvd.BroadcastGlobalVariablesHook(0), v1.train.StopAtStepHook(last_step=30)]
        losses = []
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            begin = session.run(everywhere)
            assert (begin == begin[:1]).all(), "all begin as the root"
            while not session.should_stop():
                found, gathered = session.run([loss, trained], {x: part(x_all), y: part(y_all)})
                losses.append(found)
        assert (gathered == gathered[:1]).all() and losses[-1] < losses[0], losses
    say("right")


@action
def wrong_use():
    """What cannot be done is said, and closes nothing."""
    for call, kind, text in (
            (lambda: hvd.allreduce(tf.constant("text")), (TypeError, ValueError, tf.errors.OpError), "string"),
            (lambda: hvd.allreduce(tf.ones([1]), average=True, op=hvd.Sum), ValueError, "supersedes average"),
            (lambda: hvd.broadcast(tf.ones([1]), 99), tf.errors.InvalidArgumentError, "rank 99"),
            (lambda: hvd.alltoall(tf.ones([4]), [1] * (hvd.size() + 1)), tf.errors.InvalidArgumentError, "splits, but there are"),
            (lambda: hvd.alltoall(tf.ones([hvd.size() + 1])), tf.errors.InvalidArgumentError, "split evenly"),
            (lambda: hvd.DistributedOptimizer(object()), ValueError, "neither an optimizer"),
            (lambda: hvd.broadcast_global_variables(0), RuntimeError, "eager")):
        try:
            call()
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"nothing was raised that says {text!r}")
    same(hvd.allreduce(tf.ones([2]), op=hvd.Sum), [hvd.size()] * 2)
    say("right")


@action
def mismatch():
    """Ranks whose shapes differ are told so."""
    try:
        hvd.allreduce(tf.ones([1 + hvd.rank()]), name="differs")
    except tf.errors.FailedPreconditionError as error:
        assert "allreduce.differs" in str(error) and "rank 1" in str(error), error
        say("right")


@action
def killed():
    """Rank 1 dies while rank 0 waits for it in a function."""
    function = tf.function(lambda x: hvd.allreduce(x, name="waits"))
    function(tf.ones([1]))
    if hvd.rank() == 1:
        os.kill(os.getpid(), 9)
    begin = time.monotonic()
    try:
        function(tf.ones([1]))
    except tf.errors.UnknownError as error:
        assert "rank 1" in str(error) and "allreduce.waits" in str(error), error
        say("right", round(time.monotonic() - begin))
        sys.exit(5)


@action
def crossed():
    """Operations that do not depend on each other, begun by ranks in different orders."""
    order = range(8) if hvd.rank() == 0 else reversed(range(8))
    made = {}

    @tf.function
    def all_of_them():
        return [hvd.allreduce(tf.fill([1000], float(index)), op=hvd.Sum, name=f"crossed.{index}") for index in order]

    for index, one in zip(order, all_of_them()):
        made[index] = one
    order = range(8) if hvd.rank() == 0 else list(reversed(range(8)))
    for index, one in zip(order, all_of_them()):
        same(one, np.full([1000], hvd.size() * index))
    say("right")


@action
def mixed_precision():
    """A rank whose gradients overflow makes all of them leave out the step, and the scale of the loss falls on all alike."""
    import lockstep.keras as khvd
    set_policy = getattr(tf.keras.mixed_precision, "set_global_policy", None) or tf.keras.mixed_precision.set_dtype_policy
    set_policy("mixed_float16")
    net = model()
    hvd.broadcast_variables(net.variables, root_rank=0)
    net.compile(optimizer=khvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss="mse")
    x, y = data()
    x, y = part(x).copy(), part(y)
    net.fit(x, y, batch_size=len(x), verbose=0)
    expect_equal(net, net)
    before, scale = net.get_weights(), float(tf.convert_to_tensor(net.optimizer.dynamic_scale
                                                                  if hasattr(net.optimizer, "dynamic_scale") else net.optimizer.loss_scale))
    if hvd.rank() == 1:
        x[:] = np.inf
    net.fit(x, y, batch_size=len(x), verbose=0)
    after = float(tf.convert_to_tensor(net.optimizer.dynamic_scale if hasattr(net.optimizer, "dynamic_scale") else net.optimizer.loss_scale))
    for old, new in zip(before, net.get_weights()):
        same(new, old)
    assert after == scale / 2, (scale, after)
    x[:] = part(data()[0])
    net.fit(x, y, batch_size=len(x), epochs=2, verbose=0)
    expect_equal(net, net)
    assert np.isfinite(net.get_weights()[0]).all()
    variable = tf.Variable([1.0])
    by_hand = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    by_hand.apply_gradients([(tf.constant([0.5]), variable)])
    same(variable, [0.5])  # a loop of the program's own, which has not scaled its loss
    say("right")


def optimizers_of_all_kinds():
    """Of Keras, and of its older kind: functions that make one."""
    yield lambda: tf.keras.optimizers.SGD(0.05)
    if not getattr(tf.keras, "__version__", "2").startswith("3"):
        yield lambda: tf.keras.optimizers.legacy.SGD(0.05)


@action
def aggregation():
    """backward_passes_per_step: parts of a batch, one after the other, are the whole batch; also with sparse gradients, and in fit()."""
    for make in optimizers_of_all_kinds():
        expected = trained_alone(4, make())
        net = model()
        hvd.broadcast_variables(net.variables, root_rank=0)
        optimizer = hvd.DistributedOptimizer(make(), backward_passes_per_step=2, average_aggregated_gradients=True)
        x, y = part(data()[0]), part(data()[1])

        @tf.function
        def train_step(x, y):
            with tf.GradientTape() as recorded:
                loss = tf.reduce_mean((net(x) - y) ** 2)
            found = recorded.gradient(loss, net.trainable_variables)
            optimizer.apply_gradients(zip(found, net.trainable_variables))

        half = len(x) // 2
        for number in range(8):
            before = [tf.identity(variable) for variable in net.trainable_variables]
            train_step(x[:half], y[:half]) if number % 2 == 0 else train_step(x[half:], y[half:])
            assert optimizer._agg_helper.counter.numpy() == (number + 1) % 2
            if number % 2 == 0:
                for variable, old in zip(net.trainable_variables, before):
                    same(variable, old, 0)  # nothing changes before the last pass
        expect_equal(net, expected)
        assert int(optimizer.iterations) == 8

    a, b = tf.Variable([1.0]), tf.Variable([1.0])
    optimizers = [hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0)) for _ in range(2)]

    @tf.function
    def two_optimizers():
        for optimizer, variable in zip(optimizers, (a, b)):
            optimizer.apply_gradients([(tf.constant([float(hvd.rank() + 1)]) * variable, variable)])

    two_optimizers()
    same(a, [1 - (hvd.size() + 1) / 2])
    same(b, a)

    for variable in (a, b):
        variable.assign([1.0])
    optimizers = [hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate), backward_passes_per_step=2) for rate in (1.0, 0.5)]

    @tf.function
    def two_optimizers_that_aggregate():
        for optimizer, variable in zip(optimizers, (a, b)):
            optimizer.apply_gradients([(tf.constant([float(hvd.rank() + 1)]), variable)])

    for _ in range(4):
        two_optimizers_that_aggregate()
    same(a, [1 - 2 * (hvd.size() + 1)])
    same(b, [1 - (hvd.size() + 1)])

    table = tf.Variable(tf.ones([4, 2]))
    for sparse_as_dense in (True, False):
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2, sparse_as_dense=sparse_as_dense)
        try:
            for _ in range(2):
                with tf.GradientTape() as recorded:
                    loss = tf.reduce_sum(tf.gather(table, [hvd.rank()]))
                optimizer.apply_gradients([(recorded.gradient(loss, table), table)])
        except ValueError as error:
            assert "IndexedSlices are not supported" in str(error) and not sparse_as_dense
        else:
            assert sparse_as_dense
            same(table, np.where(np.arange(4)[:, None] < hvd.size(), 1 - 2 / hvd.size(), 1) * np.ones([4, 2]))

    net = model()
    hvd.broadcast_variables(net.variables, root_rank=0)
    net.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01), backward_passes_per_step=3), loss="mse")
    net.fit(part(data()[0]), part(data()[1]), batch_size=4, epochs=2, verbose=0)
    expect_equal(net, net)
    try:
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=0)
    except ValueError as error:
        assert "backward_passes_per_step must be > 0" in str(error)
    else:
        raise SystemExit("0 passes were taken")
    say("right")


@action
def state_of_a_session():
    """An elastic state of all variables of a session, in TensorFlow 1's way."""
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    try:
        hvd.elastic.TensorFlowState()
    except ValueError as error:
        assert "outside of eager execution it takes a session" in str(error)
    else:
        raise SystemExit("a state without a session was made")
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("weight", [3], initializer=v1.constant_initializer(float(hvd.rank())))
        session.run(v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState(session=session, batch=hvd.rank())
        state.sync()
        same(session.run(weight), [0.0] * 3)
        assert state.batch == 0
        weight.load([5.0] * 3, session)
        state.restore()
        same(session.run(weight), [0.0] * 3)
    say("right")


@action
def horovods_arguments():
    """broadcast_() into variables; compression of reducescatter."""
    variable = tf.Variable([float(hvd.rank())])
    for broadcast in both_ways(lambda _: hvd.broadcast_([variable], root_rank=0)[0]):
        variable.assign([float(hvd.rank())])
        same(broadcast(tf.constant(0.0)), [0.0])
        same(variable, [0.0])
    x = tf.Variable(tf.ones([6, 2]))
    with tf.GradientTape() as recorded:
        received, _ = hvd.alltoall(x, splits=[1] * hvd.size())
        loss = tf.reduce_sum(received)
    same(recorded.gradient(loss, x), np.where(np.arange(6)[:, None] < hvd.size(), 1.0, 0.0) * np.ones([6, 2]))
    rows = tf.ones([2 * hvd.size()])
    same(hvd.reducescatter(rows, compression=hvd.Compression.fp16, op=hvd.Sum), [float(hvd.size())] * 2)
    for one in hvd.grouped_reducescatter([rows, 2 * rows], compression=hvd.Compression.fp16):
        assert len(one) == 2
    say("right")


@action
def aggregation_in_sessions():
    """The same in TensorFlow 1's way."""
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("weight", [3], initializer=v1.zeros_initializer())
        loss = tf.reduce_sum(weight * (hvd.rank() + 1))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=3)
        train = optimizer.minimize(loss)
        session.run(v1.global_variables_initializer())
        for number in range(1, 7):
            session.run(train)
            same(session.run(weight), [-(number // 3) * 3 * (hvd.size() + 1) / 2] * 3)
    say("right")


@action
def local_variables():
    """Variables that are each rank's own: their gradients are divided by the ranks, unless scale_local_gradients is off."""
    import lockstep.keras as khvd
    for scales in (True, False):
        mine, common = tf.Variable([1.0]), tf.Variable([1.0])
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), scale_local_gradients=scales)
        optimizer.register_local_var(mine)
        gradient = tf.constant([float(hvd.rank() + 1)])
        optimizer.apply_gradients([(gradient, mine), (gradient, common)])
        same(mine, [1 - (hvd.rank() + 1) / (hvd.size() if scales else 1)])
        same(common, [1 - (hvd.size() + 1) / 2])
    net = model()
    net.compile(optimizer=khvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.0)), loss="mse")
    before = [tf.identity(variable) for variable in net.variables]
    net.fit(data()[0], data()[1], batch_size=64, verbose=0, callbacks=[
        khvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=net.layers[0].variables)])
    same(net.variables[0], before[0])
    everywhere = hvd.allgather(tf.expand_dims(tf.convert_to_tensor(net.variables[2]), 0))
    same(everywhere, np.repeat(everywhere[:1], hvd.size(), 0))
    say("right")


@action
def adasum():
    """What is alike stays what it is, what is orthogonal is added; of types that have it."""
    rank, size = hvd.rank(), hvd.size()
    for call in both_ways(lambda tensor: hvd.allreduce(tensor, op=hvd.Adasum)):
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
            same(tf.cast(call(tf.cast([3, 4], dtype)), tf.float64), [3, 4], 1e-2)
            same(tf.cast(call(tf.one_hot(rank, size, dtype=dtype)), tf.float64), np.ones(size), 1e-2)
    net = model()
    hvd.broadcast_variables(net.variables, root_rank=0)
    net.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.05), op=hvd.Adasum), loss="mse")
    losses = net.fit(part(data()[0]), part(data()[1]), batch_size=16, epochs=4, verbose=0).history["loss"]
    expect_equal(net, net)
    assert losses[-1] < losses[0]
    say("right")


@action
def sync_batch_norm():
    """Mean, variance and gradients are those of one process with all ranks' rows, which differ in number."""
    rank, size = hvd.rank(), hvd.size()
    rows = np.random.default_rng(3).standard_normal((sum(range(2, size + 2)), 5)).astype(np.float32) * 3 + 1
    begin = sum(range(2, rank + 2))
    mine = rows[begin:begin + rank + 2]
    alone, layer = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    with tf.GradientTape() as recorded:
        x = tf.constant(rows)
        recorded.watch(x)
        whole = alone(x, training=True)
        loss = tf.reduce_sum(whole ** 3)
    expected = recorded.gradient(loss, x)
    with tf.GradientTape() as recorded:
        x = tf.constant(mine)
        recorded.watch(x)
        out = layer(x, training=True)
        loss = tf.reduce_sum(out ** 3)
    same(out, whole[begin:begin + rank + 2], 1e-3)
    same(recorded.gradient(loss, x), expected[begin:begin + rank + 2], 1e-2)
    same(layer.moving_mean, alone.moving_mean, 1e-4)
    same(layer.moving_variance, alone.moving_variance, 1e-3)
    @tf.function
    def twice(first, second):
        """A layer that is used twice, and another one of its name."""
        other = hvd.SyncBatchNormalization()
        with tf.GradientTape() as recorded:
            found = layer(first, training=True), layer(second, training=True)
            loss = sum(tf.reduce_sum(one ** 3) for one in found)
        return (*found, recorded.gradient(loss, layer.trainable_variables)) if other else None

    first, second, _ = twice(tf.constant(mine), tf.constant(mine * 2 + 5))
    same(first, whole[begin:begin + rank + 2], 1e-2)
    same(second, whole[begin:begin + rank + 2], 1e-2)
    nothing = hvd.SyncBatchNormalization(name="nothing")
    out = nothing(tf.constant(rows if rank == 0 else rows[:0]), training=True)
    if rank == 0:
        same(out, whole, 1e-3)
    assert np.isfinite(np.asarray(nothing.moving_mean)).all()
    images = hvd.SyncBatchNormalization(name="images")(tf.random.normal([2, 4, 4, 3]), training=True)
    assert images.shape == [2, 4, 4, 3]
    try:
        hvd.SyncBatchNormalization(fused=True)
    except ValueError as error:
        assert "does not support fused=True" in str(error)
    else:
        raise SystemExit("fused=True was taken")
    say("right")


@action
def keras_elastic():
    """A state of a Keras model, and the callbacks that keep it in fit()."""
    import lockstep.keras as khvd
    net = model()
    net.compile(optimizer=khvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss="mse")
    state = khvd.elastic.KerasState(net, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    state.sync()
    assert (state.batch, state.epoch) == (20, 10)
    expect_equal(net, net)
    weights = net.get_weights()
    net.set_weights([weight + 1 for weight in weights])
    state.batch = 21
    state.restore()
    assert state.batch == 20
    same(net.get_weights()[0], weights[0])
    state.batch = state.epoch = 0

    @khvd.elastic.run
    def train(state):
        callbacks = [khvd.elastic.UpdateEpochStateCallback(state), khvd.elastic.UpdateBatchStateCallback(state),
                     khvd.elastic.CommitStateCallback(state, batches_per_commit=2)]
        net.fit(part(data()[0]), part(data()[1]), batch_size=8, epochs=3 - state.epoch, verbose=0, callbacks=callbacks)

    train(state)
    assert (state.batch, state.epoch) == (0, 3)
    expect_equal(net, net)
    say("right")


@action
def worlds():
    """init() again, with functions that were traced before."""
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="again"))
    for _ in range(3):
        same(function(tf.ones([3])), [hvd.size()] * 3)
        hvd.shutdown()
        hvd.init()
    same(function(tf.ones([3])), [hvd.size()] * 3)
    say("right")


@action
def elastic():
    """Rank 1 dies in its first life in the middle of training, which goes on without it, and then with its next life."""
    import signal
    net, optimizer = model(), tf.keras.optimizers.SGD(0.01, momentum=0.9)
    state = hvd.elastic.TensorFlowKerasState(net, optimizer, batch=0)
    is_second_life = os.environ["LOCKSTEP_INCARNATION"] != "0"
    x, y = data()
    sizes = []

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as recorded:
            loss = tf.reduce_mean((net(x) - y) ** 2)
        found = hvd.DistributedGradientTape(recorded).gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(found, net.trainable_variables))

    @hvd.elastic.run
    def train(state):
        sizes.append(hvd.size())
        while state.batch < 600 and not (state.batch >= 20 and sizes[-1] == 3 and (len(sizes) > 1 or is_second_life)):
            if state.batch == 5 and os.environ["RANK"] == "1" and not is_second_life:
                os.kill(os.getpid(), signal.SIGKILL)
            train_step(part(x), part(y))
            state.batch += 1
            state.commit()
            time.sleep(0.02)
        return state.batch

    batches = train(state)
    expect_equal(net, net)
    assert hvd.size() == 3 and 20 <= batches < 600, (sizes, batches)
    say("right")


if __name__ == "__main__":
    hvd.init()
    ACTIONS[sys.argv[1]]()
    hvd.shutdown()
