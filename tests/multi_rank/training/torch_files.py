"""Files of state dicts go from Python's torch to Lockstep and back, bit for bit: torch_files.py TRAINING_RANK"""
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections import OrderedDict

import torch

TYPES = ("uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 uint16 uint32 uint64")


def bits(tensor):
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).tolist())


def require_same(found, expected, what):
    assert list(found) == list(expected), f"{what}: {list(found)} instead of {list(expected)}"
    for name, tensor in expected.items():
        other = found[name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape), f"{what}: {name} is {other.dtype} {other.shape}"
        assert bits(other) == bits(tensor), f"{what}: {name} has other bits"


def require_aligned(path):
    """As torch's own writer has it, so that a file can be mapped."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for entry in archive.infolist():
            with open(path, "rb") as file:
                file.seek(entry.header_offset)
                header = file.read(30)
            begin = entry.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            assert begin % 64 == 0, f"{entry.filename} begins at byte {begin}"


def everything():
    """Random bits of all types (among them what is no number), and views of all kinds."""
    torch.manual_seed(0)
    tensors = OrderedDict()
    for name in TYPES.split():
        dtype = getattr(torch, name)
        tensors[name] = torch.randint(0, 256, (3, 5 * dtype.itemsize), dtype=torch.uint8).view(dtype)
        tensors[name + ".turned"] = tensors[name].t()
    tensors["bool"] = torch.rand(1000) < 0.5
    tensors["part"] = tensors["float32"][1:, ::2]
    tensors["repeated"] = torch.rand(4, 1).expand(4, 1000)
    tensors["parameter"] = torch.nn.Parameter(torch.rand(3))
    tensors["empty"] = torch.empty(0, 7)
    tensors["scalar"] = torch.tensor(2**40)
    tensors["ünïcode.名"] = torch.rand(2)
    tensors["large"] = torch.rand(300, 1000)
    tensors["tied"] = tensors["large"]
    return tensors


def model():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.LSTM(3, 4, 2),
                              torch.nn.LayerNorm(4), torch.nn.Embedding(5, 4), torch.nn.MultiheadAttention(4, 2))
    net[1](torch.rand(8, 2, 3, 3))  # its statistics move
    return net


def main():
    rank = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        there, back = pathlib.Path(folder) / "there.pth", pathlib.Path(folder) / "back.pth"

        def run(*words):
            back.unlink(missing_ok=True)
            subprocess.run([rank, *words], check=True)
            require_aligned(back)
            return torch.load(back, weights_only=True)

        tensors = everything()
        torch.save(tensors, there)
        found = run("rewrite", there, back)
        require_same(found, tensors, "all types")
        assert found["tied"].data_ptr() == found["large"].data_ptr()
        assert back.stat().st_size < 2 * tensors["large"].nbytes
        require_same(torch.load(back, weights_only=True, mmap=True), tensors, "mapped")

        torch.save({"epoch": 3, "model": tensors, "losses": [0.5, 0.25]}, there)
        require_same(run("rewrite", there, back, "model"), tensors, "a dict in a dict")

        torch.save(OrderedDict((str(i), torch.full((1,), i)) for i in range(3000)), there)
        require_same(run("rewrite", there, back), torch.load(there), "many")

        net = model()
        torch.save(net.state_dict(), there)
        found = run("adopt", there, back)
        require_same(found, net.state_dict(), "a model")
        other = model()
        other.load_state_dict(found, strict=True)

        torch.save(OrderedDict((f"module.{name}", tensor) for name, tensor in net.state_dict().items()), there)
        require_same(run("adopt", there, back), net.state_dict(), "a model in DistributedDataParallel")
    return 0


if __name__ == "__main__":
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        os.environ.pop(name, None)
    sys.exit(main())
