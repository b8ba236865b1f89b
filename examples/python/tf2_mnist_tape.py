"""MNIST with TensorFlow 2's gradient tape: the tape is wrapped, and rank 0's variables are broadcast after the first batch, when
the model and its optimizer have theirs.

  lockstep run -np 2 python3 examples/python/tf2_mnist_tape.py --synthetic
"""
import argparse

import images
import tensorflow as tf

import lockstep.tensorflow as hvd  # import horovod.tensorflow as hvd


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="of one process; several share them [%(default)s]")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.001, help="of one process [%(default)s]")
    parser.add_argument("--checkpoints", metavar="DIR", help="where rank 0 saves at the end")
    images.add_flags(parser, "data/mnist")
    return parser.parse_args()


def main():
    options = parse()
    hvd.init()
    for number, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        tf.config.experimental.set_memory_growth(gpu, True)
        if number == hvd.local_rank():
            tf.config.set_visible_devices(gpu, "GPU")
    tf.keras.utils.set_random_seed(hvd.rank())

    (x, y), _ = images.mnist(options)
    dataset = tf.data.Dataset.from_tensor_slices((x[..., None], y))
    dataset = dataset.repeat().shuffle(10_000, seed=hvd.rank()).batch(options.batch_size)

    model = tf.keras.Sequential([
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10),
    ])
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(options.lr * hvd.size())

    @tf.function
    def train_step(batch, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(batch, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    steps = max(options.steps // hvd.size(), 1)
    for step, (batch, labels) in enumerate(dataset.take(steps)):
        loss = train_step(batch, labels)
        if step == 0:
            hvd.broadcast_variables(model.variables, root_rank=0)
            of_optimizer = optimizer.variables  # a method up to Keras 2.10
            hvd.broadcast_variables(of_optimizer() if callable(of_optimizer) else of_optimizer, root_rank=0)
        if (step + 1) % 10 == 0:
            mean = hvd.allreduce(loss, op=hvd.Average, name="loss")
            if hvd.rank() == 0:
                print(f"step {step + 1}: loss {mean:.4f}", flush=True)

    if options.checkpoints and hvd.rank() == 0:
        print("saved", tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{options.checkpoints}/ckpt"))


if __name__ == "__main__":
    main()
