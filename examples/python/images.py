"""The images that these programs train on, as numpy arrays: MNIST's and CIFAR-10's files as `lockstep fetch mnist DIR` and
`lockstep fetch cifar10 DIR` leave them, or images that are made up, so that there is something to train on without either."""
import pathlib
import sys

import numpy as np

CLASSES = 10


def add_flags(parser, folder):
    parser.add_argument("--data-dir", default=folder, help="folder with the files [%(default)s]")
    parser.add_argument("--synthetic", action="store_true", help="train on images that are made up")
    parser.add_argument("--samples", type=int, default=10_000, help="of these, so many; a fifth as many to test [%(default)s]")


def mnist(options):
    """((images, labels), (images, labels)): to train and to test; f32 [N, 28, 28] from 0 to 1, i64 [N]."""
    if options.synthetic:
        return made_up(options.samples, (28, 28))
    folder = pathlib.Path(options.data_dir)
    return tuple((read_idx(folder, f"{part}-images", 3) / np.float32(255), read_idx(folder, f"{part}-labels", 1).astype(np.int64))
                 for part in ("train", "t10k"))


def cifar10(options):
    """As mnist(): f32 [N, 3, 32, 32]."""
    if options.synthetic:
        return made_up(options.samples, (3, 32, 32))
    folder = pathlib.Path(options.data_dir)
    files = [f"data_batch_{number}.bin" for number in range(1, 6)]
    return read_cifar10(folder, files), read_cifar10(folder, ["test_batch.bin"])


def read(folder, name):
    try:
        return np.fromfile(folder / name, dtype=np.uint8)
    except OSError as error:
        sys.exit(f"{folder / name}: {error.strerror}; `lockstep fetch` gets MNIST and CIFAR-10, or train with --synthetic")


def read_idx(folder, name, dimensions):
    raw = read(folder, f"{name}-idx{dimensions}-ubyte")
    header = 4 * (1 + dimensions)
    shape = raw[4:header].view(">u4").astype(np.int64) if len(raw) >= header else np.zeros(1)
    if len(raw) < header or raw[2] != 8 or raw[3] != dimensions or len(raw) != header + shape.prod():
        sys.exit(f"{folder / name}-idx{dimensions}-ubyte is no IDX file of bytes in {dimensions} dimensions, or not all of one")
    return raw[header:].reshape(shape)


def read_cifar10(folder, names):
    record = 1 + 3 * 32 * 32
    parts = [read(folder, name) for name in names]
    for name, part in zip(names, parts):
        if len(part) == 0 or len(part) % record != 0:
            sys.exit(f"{folder / name} has {len(part)} bytes, which are no records of {record}")
    records = np.concatenate(parts).reshape(-1, record)
    return records[:, 1:].reshape(-1, 3, 32, 32) / np.float32(255), records[:, 0].astype(np.int64)


def made_up(samples, shape):
    """Each class is a pattern of 4 x 4 patches, and each image its class's pattern in noise."""
    dice = np.random.default_rng(1)
    patches = dice.random((CLASSES, *shape[:-2], 4, 4), dtype=np.float32)
    patterns = np.kron(patches, np.ones((shape[-2] // 4, shape[-1] // 4), dtype=np.float32))

    def part(count):
        labels = dice.integers(0, CLASSES, count)
        return (patterns[labels] + dice.random((count, *shape), dtype=np.float32)) / 2, labels

    return part(samples), part(max(samples // 5, 1))
