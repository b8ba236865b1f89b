"""The measuring program of every MPI, compiled by the peer's own wrapper."""
import pathlib

from peers import compiled

folder = pathlib.Path(__file__).resolve().parent


def build(compiler, target_folder, environment=None, words=()):
    """As peers.build; `compiler` is the wrapper, `words` are more of its arguments."""
    return [str(compiled([compiler, *words], folder / "collectives.cpp", target_folder / "collectives", environment))]
