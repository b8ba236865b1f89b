"""Where tests have their tensors: on the CPU, unless LOCKSTEP_FAKE_GPU (fake_gpu.py) or LOCKSTEP_TEST_DEVICE (docs/gpu.md) says where."""
import os

import torch

IS_FAKE = "LOCKSTEP_FAKE_GPU" in os.environ


def device():
    if IS_FAKE:
        import fake_gpu

        return fake_gpu.DEVICE
    named = os.environ.get("LOCKSTEP_TEST_DEVICE", "cpu")
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if named == "cuda" else torch.device(named)


def take():
    """What torch makes from now on is there."""
    if device().type != "cpu":
        torch.set_default_device(device())


def tell_calls(tell=print):
    """How many calls there were on the made-up GPU."""
    if IS_FAKE:
        import fake_gpu

        tell(f"{fake_gpu.calls()} calls on a GPU")
