"""Real runs, and the pages that they leave for a browser to look at. usage: runs.py (makes them anew)"""
import os
import pathlib
import shutil
import signal
import subprocess

SOURCE = pathlib.Path(os.environ["LOCKSTEP_SOURCE_DIR"])
BUILT = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"])
RUNS = BUILT / "browser" / "runs"

TRAINING = RUNS / "training"
ODD_NAMES = RUNS / '<i>odd & "names"'  # of a folder, which the title names
FAILURE = RUNS / "failure"
OPERATORS = RUNS / "operators"
TIMELINE = RUNS / "timeline.json"
BOTH_FORMATS = RUNS / "both"  # of one run: timeline.json and timeline.pftrace
COMPARISON = RUNS / "comparison.html"


def lockstep(*words, code=0, **variables):
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run([BUILT / "bin/lockstep", *map(str, words)], env=variables,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=RUNS)
    assert done.returncode == code, f"lockstep {words}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def run(ranks, folder, program, *words, **more):
    said = lockstep("run", "-np", ranks, "--report", folder, "--", BUILT / "bin" / program, *words, **more)
    for file in ("report.html", "timeline.json"):
        assert (folder / file).is_file(), f"{folder} has no {file}\n{said}"


def main():
    shutil.rmtree(RUNS, ignore_errors=True)
    RUNS.mkdir(parents=True)
    subprocess.run([SOURCE / "script/make-digits", RUNS / "digits"], check=True)
    run(2, TRAINING, "digits", "--data", RUNS / "digits", "--epochs", 3)
    run(4, RUNS / "before", "digits", "--data", RUNS / "digits", "--epochs", 3)
    lockstep("report", RUNS / "before", TRAINING, "-o", COMPARISON)
    run(2, OPERATORS, "digits", "--data", RUNS / "digits", "--epochs", 1, LOCKSTEP_TIMELINE_OPERATORS="1")
    run(5, ODD_NAMES, "traced_program")
    lockstep("report", ODD_NAMES)  # makes the page again
    lockstep("run", "-np", 3, "--timeline", TIMELINE, "--", BUILT / "bin/traced_program")
    lockstep("run", "-np", 3, "--report", BOTH_FORMATS, "--timeline", RUNS / "timeline.pftrace",
             "--", BUILT / "bin/traced_program")
    (RUNS / "timeline.pftrace").rename(BOTH_FORMATS / "timeline.pftrace")
    run(3, FAILURE, "traced_program", "die", code=128 + signal.SIGKILL)


if __name__ == "__main__":
    main()
