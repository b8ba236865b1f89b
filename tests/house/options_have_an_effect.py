#!/usr/bin/env python3
"""Every option of CMakeLists.txt changes what is built: configures once with each flipped, and compares the builds.

usage: options_have_an_effect.py REPOSITORY CMAKE
"""
import pathlib
import re
import subprocess
import sys
import tempfile

OPTION = re.compile(r'^option\((\w+) "[^"]*" (\S+)\)', re.MULTILINE)
TEXT_SETTING = {"LOCKSTEP_SANITIZE": "thread"}


def build_of(repository, cmake, settings):
    """What configuring with these settings makes of the tree: the build's rules, without the names of its folder."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [cmake, "-G", "Ninja", "-S", repository, "-B", folder, *(f"-D{name}={value}" for name, value in settings.items())],
            capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            sys.exit(f"cmake failed with {settings}:\n{done.stdout}{done.stderr}")
        return (pathlib.Path(folder) / "build.ninja").read_text().replace(folder, "BUILD")


def main(repository, cmake):
    options = OPTION.findall((pathlib.Path(repository) / "CMakeLists.txt").read_text())
    if not options:
        sys.exit("CMakeLists.txt has no option")
    # Quick to configure; each option is flipped against this.
    base = {"LOCKSTEP_TRAIN": "OFF", "LOCKSTEP_TESTS": "OFF", "LOCKSTEP_EXAMPLES": "OFF"}
    plain = build_of(repository, cmake, base)
    idle = []
    for name, default in options:
        now = base.get(name, default)
        flipped = "OFF" if now == "ON" else "ON"
        extra = {"CMAKE_CXX_COMPILER": "clang++-14"} if name == "LOCKSTEP_FUZZ" else {}
        before = build_of(repository, cmake, {**base, **extra}) if extra else plain
        if build_of(repository, cmake, {**base, **extra, name: flipped}) == before:
            idle.append(f"{name}={flipped} changes nothing")
    for name, value in TEXT_SETTING.items():
        if build_of(repository, cmake, {**base, name: value}) == plain:
            idle.append(f"{name}={value} changes nothing")
    print("\n".join(idle) if idle else f"{len(options) + len(TEXT_SETTING)} options, each with an effect")
    return 1 if idle else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
