"""What Lockstep is measured against: one module per peer, found by its file name. A peer has

    label                            what people call it
    package                          the name that script/bootstrap --peers knows, where it is not the file's name
    version(home)                    of what is installed in the folder `home`; raises OSError if that is broken
    build(home, folder)              compiles its measuring program into `folder` where that is not up to date, and
                                     returns what to start on each rank: a list of words. Raises Failure
    launcher(home, ranks, cores)     (words before the program, environment variables) to start it on `ranks` ranks

Its program takes the flags of collectives/options.h, knows the operations of collectives/operation.h and prints the
lines of collectives/measure.h.
"""
import importlib
import os
import pathlib
import shutil
import subprocess

folder = pathlib.Path(__file__).resolve().parent
benchmarks = folder.parent


class Failure(Exception):
    """What went wrong and what to do, for people."""


def known():
    return sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")


def load(name):
    return importlib.import_module(f"peers.{name}")


def tried(name):
    """How the peer is run and what else was tried, in words: what its file opens with."""
    return load(name).__doc__.strip()


def package_of(name):
    return getattr(load(name), "package", name)


def home_of(name):
    return home_of_package(package_of(name))


def home_of_package(package):
    """Where script/bootstrap --peers puts it; None if it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    deps = os.environ.get("LOCKSTEP_DEPS") or os.path.join(cache, "lockstep")
    home = pathlib.Path(deps) / "peers" / package
    return home if home.is_dir() else None


def compiled(compiler, source, target, environment=None):
    """`target`, compiled anew if something that it is made of is newer, or if it was compiled in another way.
    `compiler`: its words. All measuring programs are compiled alike."""
    # -march=native: what a user who measures would give it; Lockstep's kernels choose their vectors at run time.
    words = [*compiler, "-std=c++20", "-O3", "-march=native", f"-I{benchmarks}", source, "-o", target]
    command = " ".join(map(str, words)) + "\n"
    record = target.with_suffix(".command")
    made_of = [source, *(benchmarks / "collectives").glob("*.h")]
    if tool := shutil.which(compiler[0]):
        made_of.append(pathlib.Path(tool))
    newest = max(file.stat().st_mtime for file in made_of)
    if target.exists() and target.stat().st_mtime > newest and record.exists() and record.read_text() == command:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    try:
        result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    except OSError as error:
        raise Failure(f"{words[0]} could not be started: {error}") from None
    if result.returncode:
        raise Failure(f"{words[0]} could not compile {source.relative_to(benchmarks.parent)}:\n{result.stderr}")
    record.write_text(command)
    return target
