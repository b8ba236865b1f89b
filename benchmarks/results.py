"""Where figures are kept: benchmarks/results/NAME.json (training_MODEL.json for each model), written by `script/bench NAME
--publish`, from which readme_tables.py writes README's tables. A published figure has its commit, its date and its machine."""
import datetime
import json
import os
import pathlib
import subprocess
import sys

from peers import Failure

folder = pathlib.Path(__file__).resolve().parent / "results"
root = folder.parents[1]
MOST_FOREIGN_CORES = 0.1


def add_arguments(parser, name, files=None):
    """`files`: what --publish writes, if it is not NAME.json."""
    parser.set_defaults(benchmark=name)
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write the rows there, too")
    parser.add_argument("--publish", action="store_true",
                        help=f"write them to benchmarks/results/{files or name}.json and into README's tables; wants a machine that "
                             f"does nothing else, and a tree without changes")


def require_arguments(parser, arguments):
    if arguments.json and not os.access(arguments.json.absolute().parent, os.W_OK):
        parser.error(f"cannot write {arguments.json}: its folder does not exist or is not ours to write to")


def git(*words):
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()


def commit_to_publish(arguments):
    """What is measured: {"commit", "date"}, to be asked before measuring. Raises Failure if figures cannot be published
    because no commit has what they are measured on."""
    try:
        commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        commit, changes = None, "no repository"
    if arguments.publish and changes:
        raise Failure("--publish: the tree has changes that no commit has, so that figures could not name theirs: commit them")
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    return {"commit": commit if not changes else None, "date": date}


def write_json(path, content):
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(path)


def keep(arguments, commit, content):
    """Writes what was measured to where the arguments say. Raises Failure for figures that are not to be published."""
    content = {"benchmark": content["benchmark"], **commit, **content}
    if arguments.json:
        write_json(arguments.json, content)
    if arguments.publish:
        publish(arguments.benchmark, content)


def publish(name, content):
    """Writes benchmarks/results/NAME.json and README's tables. Raises Failure for figures that are not to be published."""
    foreign = content["machine"]["foreign_cores"]
    if foreign > MOST_FOREIGN_CORES:
        raise Failure(f"not published: other processes used {foreign:.2f} cores meanwhile, {MOST_FOREIGN_CORES} are "
                      f"allowed; measure again on a quiet machine")
    folder.mkdir(exist_ok=True)
    write_json(folder / f"{name}.json", content)
    if subprocess.run([sys.executable, folder.parent / "readme_tables.py"]).returncode:
        raise Failure(f"{folder / name}.json is written, but not README's tables; the line above says why")
