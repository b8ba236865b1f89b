"""What tests of benchmarks' drivers have in common."""
import importlib.machinery
import importlib.util
import pathlib


def beside(test):
    """The script `run` in the folder of this file, as a module."""
    folder = pathlib.Path(test).resolve().parent
    loader = importlib.machinery.SourceFileLoader(f"{folder.name}_run", str(folder / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module
