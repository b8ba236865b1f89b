#!/usr/bin/env python3
"""What docs/from_horovod.md, from_ddp.md, from_mpi.md and from_tensorflow.md say stands here for a name of theirs, is there.

Code in the second column of their tables (where it says "the same", in the first) names functions, types, members and
options of the public headers, environment variables of docs/environment.md, and options of `lockstep`. So do C++ examples,
after `lockstep::`. Arguments are the reader's own, and what follows torch::, std:: or -> is not ours.
usage: guides_name_what_exists.py REPOSITORY"""
import pathlib
import re
import sys

GUIDES = ("docs/from_horovod.md", "docs/from_ddp.md", "docs/from_mpi.md", "docs/from_tensorflow.md")
LISTS = "cmake/PublicHeaders.cmake"
COMMAND = ("tools/lockstep", "lockstep/launch", "lockstep/view")
TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|[(){}.]")
FOREIGN = {"torch", "std"}


class Known:
    """The names of a repository."""

    def __init__(self, repository):
        root = pathlib.Path(repository)
        headers = re.findall(r"lockstep/\S+\.h", (root / LISTS).read_text())
        text = "\n".join((root / name).read_text() for name in headers)
        text = re.sub(r"//.*|\"[^\"\n]*\"|#include.*", "", text)
        self.names = set(re.findall(r"[A-Za-z_]\w*", text))
        self.variables = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", (root / "docs/environment.md").read_text()))
        sources = [path.read_text() for folder in COMMAND for path in sorted((root / folder).rglob("*.cpp"))]
        self.options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "\n".join(sources)))

    def unknown(self, code, objects):
        """The first name in a piece of code that is nowhere; None: all are there. `objects`: those of the reader."""
        if code.startswith(("lockstep ", "-")):
            ours = code.split(" -- ")[0]
            return next((word for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", ours) if word not in self.options), None)
        if re.fullmatch(r"[A-Z][A-Z0-9_]+", code):
            return None if code in self.variables else code
        return next((name for name in names_in(code) if name not in self.names and name not in objects), None)


def names_in(code):
    """Those that are the library's, if it is true."""
    tokens = TOKEN.findall(re.sub(r"\"[^\"]*\"", "", code))
    found, depth = [], 0
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        depth += (token == "(") - (token == ")")
        if not re.match(r"\w", token) or token[0].isdigit():
            continue
        if before == "->" or after == "->" or is_foreign(tokens, place):
            continue
        is_called = after in ("(", "::") or (after == "" and before == "::")
        if depth == 0 or before == "." or before == "::" or is_called:
            found.append(token)
    return found


def objects_of(text):
    """What the examples of a page, and its tables, declare."""
    blocks = re.findall(r"^```cpp$(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    declared = re.findall(r"^(?:const )?[\w:<>]+ (\w+)\s*[(=]", "\n".join(blocks), re.MULTILINE)
    return set(declared) | set(re.findall(r"`(?:\w+ )+(\w+)\(\w+\);`", text)) | set(re.findall(r"`auto (\w+) =", text)) | {"auto"}


def is_foreign(tokens, place):
    while place >= 2 and tokens[place - 1] == "::":
        place -= 2
    return tokens[place] in FOREIGN


def claims_of(text):
    """(line, code) of a page."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_code = not is_code and "cpp" in line
        elif is_code:
            for name in re.findall(r"lockstep::((?:\w+(?:::)?)+)", line.split("//")[0]):
                yield number, name
        elif line.startswith("|") and not line.startswith("| ---"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            cell = cells[0] if cells[1] == "the same" else cells[1]
            if not cell.startswith("no such"):
                for code in re.findall(r"`([^`]+)`", cell):
                    yield number, code


def check(repository):
    """A line for each problem."""
    known, problems = Known(repository), []
    for page in GUIDES:
        text = (pathlib.Path(repository) / page).read_text()
        claims, objects = list(claims_of(text)), objects_of(text)
        if not claims:
            problems.append(f"{page}: there is nothing to check")
        for number, code in claims:
            if name := known.unknown(code, objects):
                problems.append(f"{page}:{number}: `{code}`: there is no {name}")
    return problems


if __name__ == "__main__":
    found_problems = check(sys.argv[1])
    print("\n".join(found_problems))
    sys.exit(1 if found_problems else 0)
