"""Lockstep's operations in TensorFlow, timed on two ranks: `eager`, an all-reduce; `function`, one of a hundred in a function;
`fit`, a batch of Keras; `fit_alone`, the same without."""
import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("eager", "function", "fit", "fit_alone"))
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
    if options.mode in ("eager", "function"):
        import lockstep.tensorflow as hvd
    else:
        import lockstep.keras as hvd
    hvd.init()
    seconds = (operations if options.mode in ("eager", "function") else fit)(options, tf, hvd)
    if hvd.rank() == 0:
        print(json.dumps({"case": options.mode, "seconds": seconds}), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
