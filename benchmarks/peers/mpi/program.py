"""The measuring program of every MPI, compiled by the peer's own wrapper."""
import subprocess

from peers import Failure
from peers import folder as peers_folder

benchmarks = peers_folder.parent
sources = [peers_folder / "mpi" / "collectives.cpp", *sorted((benchmarks / "collectives").glob("*.h"))]


def build(compiler, folder, environment=None):
    """As peers.build; `compiler` is the wrapper."""
    program = folder / "collectives"
    newest = max(file.stat().st_mtime for file in [*sources, compiler])
    if program.exists() and program.stat().st_mtime > newest:
        return [str(program)]
    folder.mkdir(parents=True, exist_ok=True)
    # -march=native: what a user who measures would give it; Lockstep's kernels choose their vectors at run time.
    command = [compiler, "-std=c++20", "-O3", "-march=native", f"-I{benchmarks}", sources[0], "-o", program]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise Failure(f"{compiler} could not compile {sources[0].relative_to(benchmarks.parent)}:\n{result.stderr}")
    return [str(program)]
