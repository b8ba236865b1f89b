"""What each rank of lockstep.runner.run() runs: python -m lockstep.runner.call FOLDER."""
from __future__ import annotations

import os
import pathlib
import pickle
import sys

try:
    import cloudpickle
except ImportError:
    cloudpickle = pickle


def main(folder: str) -> None:
    """Calls the function that lies in `folder`, and puts what it returns there."""
    place = pathlib.Path(folder)
    function, arguments, named = pickle.loads((place / "call").read_bytes())
    result = function(*arguments, **named)
    # Whole or not at all.
    part = place / f"part.{os.environ['RANK']}"
    part.write_bytes(cloudpickle.dumps(result))
    part.rename(place / f"result.{os.environ['RANK']}")


if __name__ == "__main__":
    main(sys.argv[1])
