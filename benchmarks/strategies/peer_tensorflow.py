#!/usr/bin/env python3
"""strategy_step.cpp's steps in TensorFlow:

  peer_tensorflow.py mirrored             MirroredStrategy on two logical CPUs of one process
  peer_tensorflow.py parameter_server     ParameterServerStrategy: this process is the coordinator, and starts a server and a
                                          worker as processes of their own
"""
import argparse
import json
import os
import socket
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
import tensorflow as tf  # noqa: E402

from stepping import add_options, median_of, say  # noqa: E402


def one_thread_for_each_operation(threads):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def mirrored(options):
    one_thread_for_each_operation(2)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batch = options.batch or 512
    with strategy.scope():
        net = tf.keras.Sequential([tf.keras.layers.Input((784,)), tf.keras.layers.Dense(1024, "relu"),
                                   tf.keras.layers.Dense(1024, "relu"), tf.keras.layers.Dense(10)])
        sgd = tf.keras.optimizers.SGD(0.01)
        loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    x, y = tf.random.normal([batch, 784]), tf.random.uniform([batch], 0, 10, tf.int32)
    parts = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors((x, y)).unbatch().batch(batch).cache().repeat())
    example = next(iter(parts))

    def replica(part):
        images, labels = part
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_of(labels, net(images, training=True))) / batch
        sgd.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
        return loss

    @tf.function
    def step(part):
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(part,)), axis=None)

    say(options, median_of(options, lambda: step(example).numpy()))


def serve(cluster, role):
    one_thread_for_each_operation(2)
    server = tf.distribute.Server(cluster, job_name=role, task_index=0, protocol="grpc")
    server.join()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def parameter_server(options):
    one_thread_for_each_operation(2)
    cluster = {role: [f"127.0.0.1:{free_port()}"] for role in ("ps", "worker", "chief")}
    others = [subprocess.Popen([sys.executable, __file__, "parameter_server", "--serve", role, "--cluster", json.dumps(cluster)],
                               stdout=subprocess.DEVNULL) for role in ("ps", "worker")]
    try:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            values = [tf.Variable(tf.zeros([1000, 1000])) for _ in range(10)]

        @tf.function
        def worker_step():
            read = [tf.identity(value) for value in values]  # the pull: onto the worker
            with tf.control_dependencies(read):
                gradient = tf.ones([1000, 1000])
                # What a worker sends depends on what it has read, so that nothing is left out.
                for value, one in zip(values, read):
                    value.assign_sub(0.01 * (gradient + 0.0 * one))
            return tf.reduce_sum(read[0][0, :1])

        def step():
            coordinator.schedule(worker_step).fetch()
            coordinator.join()

        say(options, median_of(options, step))
    finally:
        for one in others:
            one.kill()
            one.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["mirrored", "parameter_server"])
    add_options(parser)
    parser.add_argument("--serve")
    parser.add_argument("--cluster")
    options = parser.parse_args()
    if options.serve:
        serve(json.loads(options.cluster), options.serve)
    {"mirrored": mirrored, "parameter_server": parameter_server}[options.mode](options)


if __name__ == "__main__":
    main()
