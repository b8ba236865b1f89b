"""Horovod's names on Lockstep: `import horovod.torch as hvd` is lockstep.torch, and each horovod.X is lockstep.X, the same module.

Where the real Horovod is installed in the same place, importing this is refused.
"""
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys

try:
    _real = importlib.metadata.version("horovod")
except importlib.metadata.PackageNotFoundError:
    pass
else:
    raise ImportError(f"lockstep-horovod takes the place of Horovod, and Horovod {_real} is installed, too: keep one of them "
                      "(pip uninstall horovod lockstep-horovod, then install that one)")

__version__ = "0.28.1"  # whose interface this is


class _LockstepsLoader(importlib.abc.Loader):
    def __init__(self, name):
        self._name = name

    def create_module(self, spec):
        module = importlib.import_module(self._name)
        self._own = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self._own  # it stays what it is


class _LockstepsFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("horovod."):
            return None
        ours = "lockstep." + name[len("horovod."):]
        try:
            found = importlib.util.find_spec(ours)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        return importlib.machinery.ModuleSpec(name, _LockstepsLoader(ours), is_package=found.submodule_search_locations is not None)


sys.meta_path.insert(0, _LockstepsFinder())


def __getattr__(name):
    if name == "run":  # when somebody asks: few programs do
        return importlib.import_module("horovod.runner").run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
