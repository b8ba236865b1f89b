"""What tests of benchmarks' drivers have in common."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import tempfile


def beside(test):
    """The script `run` in the folder of this file, as a module."""
    folder = pathlib.Path(test).resolve().parent
    loader = importlib.machinery.SourceFileLoader(f"{folder.name}_run", str(folder / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def measured(test, words):
    """What the script `run` in the folder of this file finds with these words, as its --json has it."""
    with tempfile.TemporaryDirectory() as place:
        out = pathlib.Path(place) / "out.json"
        subprocess.run([pathlib.Path(test).resolve().parent / "run", "--build", os.environ["LOCKSTEP_BINARY_DIR"], *words, "--json", out],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def require_hosts(case, link):
    """Skips the test where two hosts cannot be made. REQUIRES: beside() of a benchmark between hosts."""
    import hosts
    try:
        hosts.Hosts(2, link).close()
    except (hosts.NotPossible, OSError) as error:
        case.skipTest(str(error))
