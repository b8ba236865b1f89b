"""Compares answers of torch_cases.py with a recording of the real Horovod's, and prints the cases that differ.

    compare_answers.py RECORDING ANSWERS RANKS       # ANSWERS.RANK: what the cases have written
    compare_answers.py --record RECORDING ANSWERS RANKS

What Horovod refuses and has one meaning is done here; such cases have to be on the list below.
"""
import gzip
import json
import re
import sys

from cases import LEFT_OUT

TAKEN_BESIDES = {
    "uint8": "reductions of small integers",
    "int8": "reductions of small integers",
    "gradient of grouped allreduce": "tensors whose elements do not lie one after another",
    "gradient of alltoall": "splits of 64 bits",
    "alltoall with splits$": "splits of 64 bits",
    "allgather of scalars": "tensors without dimensions",
    "what is no tensor": "lists of numbers",
    "grouped allreduce of two types": "groups of several types",
    "broadcast_object_fn": "TensorFlow 2",
}
TOLERANCE = {"float16": 1e-3, "float32": 1e-5, "float64": 1e-12}
# Halves are added up in f32 and rounded once here, and with each addition there.
ROUNDED_ONCE = {"training with fp16": 1e-3}


def is_error(answer):
    return isinstance(answer, dict) and "error" in answer


def agree(theirs, ours, tolerance):
    if is_error(theirs) or is_error(ours):
        return is_error(theirs) and is_error(ours) and theirs["error"] == ours["error"]
    if isinstance(theirs, dict) and "dtype" in theirs:
        if not isinstance(ours, dict) or (theirs["dtype"], theirs["shape"]) != (ours.get("dtype"), ours.get("shape")):
            return False
        bound = max(tolerance, TOLERANCE.get(theirs["dtype"], 0))
        return all(a == b or abs(a - b) <= bound * max(1, abs(a)) for a, b in zip(theirs["values"], ours["values"]))
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(theirs) == len(ours) and all(agree(a, b, tolerance) for a, b in zip(theirs, ours))
    return theirs == ours


def is_taken_besides(case, theirs, ours):
    return is_error(theirs) and not is_error(ours) and any(re.search(part, case) for part in TAKEN_BESIDES)


def answers_of(place, ranks):
    return [[json.loads(line) for line in open(f"{place}.{rank}")] for rank in range(ranks)]


def main(arguments):
    is_recording = arguments[0] == "--record"
    recording, place, ranks = arguments[is_recording], arguments[1 + is_recording], int(arguments[2 + is_recording])
    ours = answers_of(place, ranks)
    if is_recording:
        with gzip.GzipFile(recording, "wb", mtime=0) as file:
            file.write(json.dumps(ours).encode())
        return 0
    with gzip.open(recording) as file:
        theirs = json.load(file)
    different, left_out = 0, set()
    for rank, (of_theirs, of_ours) in enumerate(zip(theirs, ours, strict=True)):
        for one, other in zip(of_theirs, of_ours, strict=True):
            case = one["case"]
            if case != other["case"]:
                raise SystemExit(f"other cases were recorded: {case} and {other['case']}; script/soak python records anew")
            if other["answer"] == LEFT_OUT:
                left_out.add(case)
                continue
            if is_taken_besides(case, one["answer"], other["answer"]):
                continue
            if not agree(one["answer"], other["answer"], ROUNDED_ONCE.get(case, 0)):
                different += 1
                print(f"rank {rank}, {case}:\n  Horovod {one['answer']}\n  here    {other['answer']}"[:2000])
    print(f"{len(ours[0])} cases, {different} differ" + (f", {len(left_out)} left out" if left_out else ""))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
