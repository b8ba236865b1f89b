"""MNIST with TensorFlow 1's sessions, as Horovod's first users wrote it: a hook broadcasts the variables, an optimizer of
tf.train is wrapped, and a MonitoredTrainingSession counts the steps.

  lockstep run -np 2 python3 examples/python/tf1_mnist_sessions.py --synthetic
"""
import argparse

import images
import numpy as np
import tensorflow as tf

import lockstep.tensorflow as hvd  # import horovod.tensorflow as hvd

tf1 = tf.compat.v1


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="of one process; several share them [%(default)s]")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01, help="of one process [%(default)s]")
    parser.add_argument("--checkpoints", metavar="DIR", help="where rank 0 keeps its checkpoints")
    images.add_flags(parser, "data/mnist")
    return parser.parse_args()


def weights(name, shape):
    return tf1.get_variable(name, shape, initializer=tf1.initializers.glorot_uniform(seed=hvd.rank()))


def conv_model(image):
    x = tf.reshape(image, [-1, 28, 28, 1])
    for number, (inputs, outputs) in enumerate([(1, 16), (16, 32)]):
        x = tf.nn.conv2d(x, weights(f"conv{number}", [5, 5, inputs, outputs]), strides=1, padding="SAME")
        x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "SAME")
    x = tf.nn.relu(tf.matmul(tf.reshape(x, [-1, 7 * 7 * 32]), weights("hidden", [7 * 7 * 32, 128])))
    return tf.matmul(x, weights("logits", [128, 10]))


def batches(part, size):
    """Without an end: each process draws its own from all samples."""
    dice = np.random.default_rng(hvd.rank())
    while True:
        chosen = dice.integers(0, len(part[1]), size)
        yield part[0][chosen], part[1][chosen]


def main():
    options = parse()
    hvd.init()
    tf1.disable_eager_execution()
    tf1.logging.set_verbosity(tf1.logging.ERROR)
    train, _ = images.mnist(options)

    image = tf1.placeholder(tf.float32, [None, 28, 28], name="image")
    label = tf1.placeholder(tf.int64, [None], name="label")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=conv_model(image)))
    mean_loss = hvd.allreduce(loss, op=hvd.Average, name="loss")

    optimizer = tf1.train.AdagradOptimizer(options.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    global_step = tf1.train.get_or_create_global_step()
    train_op = optimizer.minimize(loss, global_step=global_step)
    with tf.control_dependencies([train_op]):
        step_now = tf.identity(global_step)

    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf1.train.StopAtStepHook(last_step=max(options.steps // hvd.size(), 1)),
    ]
    folder = options.checkpoints if hvd.rank() == 0 else None
    draw = batches(train, options.batch_size)
    with tf1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
        while not session.should_stop():
            x, y = next(draw)
            value, step = session.run([mean_loss, step_now], {image: x, label: y})
            if hvd.rank() == 0 and step % 10 == 0:
                print(f"step {step}: loss {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
