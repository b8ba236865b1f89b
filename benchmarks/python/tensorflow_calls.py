"""Operations in TensorFlow, timed on two ranks: `eager`, an all-reduce; `function`, one of a hundred in a function; `fit`, a batch of
Keras; `fit_alone`, the same without. By Lockstep, or with --horovod by the real one. With --ranks N it is Horovod's launcher, as its
programs need it."""
import argparse
import importlib
import json
import os
import pathlib
import statistics
import sys
import time

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent / "training")]

import horovod_step  # noqa: E402
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("eager", "function", "fit", "fit_alone"))
    parser.add_argument("--horovod", action="store_true")
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--calls", type=int, default=200, help="in each of 5 turns")
    return parser.parse_args()


def median_of(turns, calls, call):
    call()
    seconds = []
    for _ in range(turns):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        seconds.append((time.perf_counter() - begin) / calls)
    return statistics.median(seconds)


def operations(options, tf, hvd):
    tensors = [tf.zeros([options.bytes // 4]) for _ in range(100)]
    if options.mode == "eager":
        return median_of(5, options.calls, lambda: hvd.allreduce(tensors[0], op=hvd.Sum, name="x"))

    @tf.function
    def hundred():
        return [hvd.allreduce(tensor, op=hvd.Sum, name=f"x{number}") for number, tensor in enumerate(tensors)]

    return median_of(5, max(options.calls // 100, 1), hundred) / 100


def fit(options, tf, hvd):
    tf.keras.utils.set_random_seed(1)
    images, labels = tf.random.normal([32 * 64, 784]), tf.random.uniform([32 * 64], 0, 10, tf.int32)
    model = tf.keras.Sequential([tf.keras.layers.Input([784]), tf.keras.layers.Dense(512, activation="relu"),
                                 tf.keras.layers.Dense(512, activation="relu"), tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.SGD(0.01)
    if options.mode == "fit":
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    begun = []
    ticks = tf.keras.callbacks.LambdaCallback(on_batch_begin=lambda batch, logs: begun.append(time.perf_counter()))
    model.fit(images, labels, batch_size=64, epochs=6, shuffle=False, verbose=0, callbacks=[ticks])
    return statistics.median(after - before for before, after in zip(begun[32:], begun[33:]))  # without what begins an epoch


def main():
    options = parse_arguments()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    is_fit = options.mode in ("fit", "fit_alone")
    by = "horovod" if options.horovod else "lockstep"
    hvd = importlib.import_module(by + (".tensorflow.keras" if is_fit else ".tensorflow"))
    hvd.init()
    seconds = (fit if is_fit else operations)(options, tf, hvd)
    if hvd.rank() == 0:
        print(json.dumps({"case": options.mode, "seconds": seconds}), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    horovod_step.be_launcher_or_pinned(__file__)
    main()
    sys.stdout.flush()
