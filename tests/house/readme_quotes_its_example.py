#!/usr/bin/env python3
"""The README's program is the one that the tests build. usage: readme_quotes_its_example.py REPOSITORY"""
import pathlib
import re
import sys

repository = pathlib.Path(sys.argv[1])
example = (repository / "examples/readme/main.cpp").read_text()
quoted = re.search(r"// \[readme\]\n(.*?)// \[readme\]", example, re.DOTALL).group(1)
readme = (repository / "README.md").read_text()
if f"```cpp\n{quoted}```" not in readme:
    sys.exit("README.md's program differs from examples/readme/main.cpp between its [readme] marks")
