"""MNIST with Keras's fit(): the optimizer is wrapped, and callbacks broadcast the variables, average what is measured, and warm the
learning rate up.

  lockstep run -np 2 python3 examples/python/keras_mnist.py --synthetic
"""
import argparse
import math

import images
import tensorflow as tf

import lockstep.keras as hvd  # import horovod.keras as hvd


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="of one process; several share them [%(default)s]")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.001, help="of one process [%(default)s]")
    parser.add_argument("--warmup-epochs", type=int, default=3)
    parser.add_argument("--model", metavar="FILE", help="rank 0 writes the model there after each epoch, as x.keras")
    images.add_flags(parser, "data/mnist")
    return parser.parse_args()


def main():
    options = parse()
    hvd.init()
    tf.keras.utils.set_random_seed(hvd.rank())
    (x, y), (x_test, y_test) = images.mnist(options)
    x, x_test = x[..., None], x_test[..., None]

    model = tf.keras.Sequential([
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ])
    rate = options.lr * hvd.size()
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate))
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=options.warmup_epochs, verbose=0),
    ]
    if hvd.rank() == 0 and options.model:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(options.model))

    epochs = math.ceil(options.epochs / hvd.size())
    history = model.fit(x, y, batch_size=options.batch_size, epochs=epochs, callbacks=callbacks,
                        verbose=2 if hvd.rank() == 0 else 0)
    score = model.evaluate(x_test, y_test, verbose=0)
    if hvd.rank() == 0:
        print(f"{len(history.epoch)} epochs: test loss {score[0]:.4f}, accuracy {score[1]:.4f}")


if __name__ == "__main__":
    main()
