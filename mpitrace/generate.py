#!/usr/bin/env python3
"""Writes from routines.txt what is compiled: the list of routines, a function for each of MPI's names in C and Fortran, and,
for the test that holds the list against an mpi.h, what we take each declaration to be.

usage: generate.py ROUTINES FOLDER
"""
import copy
import pathlib
import re
import sys

# What a word of routines.txt is in C. A function that the program hands to MPI is passed on unseen.
HANDLES = {"type": "MPI_Datatype", "comm": "MPI_Comm", "group": "MPI_Group", "op": "MPI_Op", "win": "MPI_Win",
           "file": "MPI_File", "info": "MPI_Info", "request": "MPI_Request", "errhandler": "MPI_Errhandler",
           "message": "MPI_Message", "aint": "MPI_Aint", "offset": "MPI_Offset", "count": "MPI_Count"}
C_TYPES = {"in": "const void*", "out": "void*", "int": "int", "root": "int", "to": "int", "from": "int", "target": "int", "int*": "int*", "ints": "const int*",
           "str": "const char*", "char*": "char*", "argv": "char**", "argvs": "char***", "ranges": "int (*)[3]",
           "status": "const MPI_Status*", "status*": "MPI_Status*", "double": "double", "fint": "int",
           "fint*": "int*", "fints": "const int*"}
for word, name in HANDLES.items():
    C_TYPES[word] = name
    C_TYPES[word + "*"] = name + "*"
    C_TYPES[word + "s"] = f"const {name}*"
TEXTS = {"str", "char*", "argv", "argvs"}  # whose length Fortran passes behind all arguments
PROPERTIES = {"first", "second", "gather", "scatter", "one", "waits", "frees", "names", "begins", "ends", "variadic", "no_fortran", "removed",
              "large"}
SIZE_BINS = 64  # lockstep/base/size_bin.h; asserted in routines.h
LINE = re.compile(r"(\w+)(?: -> (\w+))?:([^;]*)(?:;(.*))?$")


class Routine:
    def __init__(self, line):
        parts = LINE.match(line)
        if not parts:
            sys.exit(f"routines.txt: cannot read: {line}")
        self.name = "MPI_" + parts[1]
        self.result = parts[2] or "int"
        self.words = parts[3].split()
        self.properties = set((parts[4] or "").split())
        forms = {word for word in self.properties if word.startswith("fortran=")}
        self.fortran_arguments = int(forms.pop()[8:]) if forms else \
            len(self.words) + 1 + sum(word in TEXTS for word in self.words)
        self.properties = {word for word in self.properties if not word.startswith("fortran=")}
        if unknown := self.properties - PROPERTIES:
            sys.exit(f"routines.txt: {self.name}: unknown {unknown}")
        for word in [*self.words, self.result]:
            if not word.startswith("fn:") and word not in C_TYPES:
                sys.exit(f"routines.txt: {self.name}: unknown word {word}")
        self.pairs = [place for place in range(len(self.words) - 1) if self.words[place:place + 2] == ["int", "type"]]

    def large(self):
        """The same with large counts, and places that large."""
        words = list(self.words)
        for place in range(len(words) - 1):
            if words[place:place + 2] == ["int", "type"]:
                words[place] = "count"
            elif words[place] == "ints":
                words[place] = "counts"
                words[place + 1] = "aints" if words[place + 1] == "ints" else words[place + 1]
        other = copy.copy(self)
        other.name, other.words = self.name + "_c", words
        return other

    def has_sizes(self):
        return bool(self.properties & {"first", "second", "gather", "scatter", "one"})

    def types(self, of_function):
        """Of its arguments; `of_function` says what a function's name becomes."""
        return [of_function(word[3:]) if word.startswith("fn:") else C_TYPES[word] for word in self.words]

    def buffers(self):
        return [place for place, word in enumerate(self.words) if word in ("in", "out")]

    def bytes(self, type_of, number, is_in_place):
        """The expression for the bytes that a call moves. The functions say how an argument is read."""
        def of_pair(which):
            place = self.pairs[which]
            return f"bytes_of({number(place)}, {type_of(place + 1)})"

        if "one" in self.properties:
            return f"bytes_of(1, {type_of(self.words.index('type'))})"
        if "second" in self.properties:
            text = of_pair(1)
        elif "first" in self.properties:
            text = of_pair(0)
        else:
            mine, other = (0, 1) if "gather" in self.properties else (1, 0)
            other_is_it = is_in_place(self.buffers()[mine])
            if "root" in self.words:
                other_is_it += f" || {number(self.words.index('root'))} == mpi_root"
            text = f"({other_is_it}) ? {of_pair(other)} : {of_pair(mine)}"
        if "root" in self.words:
            text = f"{number(self.words.index('root'))} == mpi_proc_null ? 0 : {text}"
        return text


def read(path):
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return [Routine(line) for line in lines if line]


PEERS = {(): "none", ("root",): "root", ("to",): "to", ("from",): "from", ("to", "from"): "to_and_from",
         ("target",): "target"}


def peers(routine):
    """Of MpiPeers."""
    return PEERS[tuple(word for word in routine.words if word in ("root", "to", "from", "target"))]


def about(routine, comm, number):
    """The statement that tells a timeline of whom a call is, or nothing. The functions say how an argument is read."""
    fields = []
    if "comm" in routine.words:
        fields.append(f".communicator = number_of({comm(routine.words.index('comm'))})")
    for words, field in ((("root", "to", "target"), "peer"), (("from",), "source")):
        fields += [f".{field} = peer_of({number(place)})" for place, word in enumerate(routine.words) if word in words]
    return f"  if (call.draws()) call.is_about({{{', '.join(fields)}}});\n" if fields else ""


def arguments(types):
    return ", ".join(re.sub(r"\(\*\)", f"(*a{place})", kind) if "(*)" in kind else f"{kind} a{place}"
                     for place, kind in enumerate(types))


def names(count):
    return ", ".join(f"a{place}" for place in range(count))


def before_and_after(routine):
    before = "  type_was_freed();\n" if "frees" in routine.properties else ""
    if "names" in routine.properties:
        before += "  names_may_change();\n"
    if "ends" in routine.properties:
        before += "  if (call.is_outermost()) {\n    end_period();\n    call.is_none();\n  }\n"
    after = "  if (call.is_outermost()) begin_period();\n" if "begins" in routine.properties else ""
    return before, after


def body(routine, size, wait, shown, invoke):
    """Of a function that counts and hands on. `size`, `wait`, `invoke`: expressions; `shown`: a statement."""
    before, after = before_and_after(routine)
    text = shown
    if size:
        text += f"  if (call.counts()) call.moves({size});\n"
    if wait:
        text += f"  if (call.awaits_all(wait_slot)) call.await_all({wait});\n"
    text += before + "  call.start();\n"
    return text + (f"  const auto result = {invoke};\n{after}  return result;\n" if after else f"  return {invoke};\n")


def c_function(index, routine, form="c"):
    types = routine.types(lambda _: "AnyFunction")
    declared = arguments(types) + (", ..." if "variadic" in routine.properties else "")
    kind = f"{C_TYPES[routine.result]} (*)({', '.join(types)}{', ...' if 'variadic' in routine.properties else ''})"
    size = routine.bytes(lambda place: f"a{place}", lambda place: f"a{place}",
                         lambda place: f"is_in_place(a{place})") if routine.has_sizes() else None
    wait = f"a{routine.words.index('comm')}" if "waits" in routine.properties else None
    shown = about(routine, lambda place: f"a{place}", lambda place: f"a{place}")
    text = f"LOCKSTEP_MPI {C_TYPES[routine.result]} {routine.name}({declared}) {{\n"
    if wait:
        text += f"  constexpr auto wait_slot = routines[{index}].wait_slot;\n"
    text += f"  Call call({index}, __builtin_return_address(0));\n"
    real = f"reinterpret_cast<{kind}>(real(Form::{form}, {index}))({names(len(types))})"
    return text + body(routine, size, wait, shown, real) + "}\n"


def large_function(index, routine):
    return c_function(index, routine.large(), "large") if "large" in routine.properties else ""


def fortran_functions(index, routine):
    count = routine.fortran_arguments
    result = {"int": "void*"}.get(routine.result, C_TYPES[routine.result])
    size = routine.bytes(lambda place: f"fortran_type(a{place})", lambda place: f"fortran_int(a{place})",
                         lambda place: f"is_in_place(form, a{place})") if routine.has_sizes() else None
    wait = f"fortran_comm(a{routine.words.index('comm')})" if "waits" in routine.properties else None
    shown = about(routine, lambda place: f"fortran_comm(a{place})", lambda place: f"fortran_int(a{place})")
    declared = arguments(["void*"] * count)
    more = ", " if count else ""
    lower = routine.name.lower()
    text = f"static {result} fortran_{routine.name}(Form form, void* site{more}{declared}) {{\n"
    if wait:
        text += f"  constexpr auto wait_slot = routines[{index}].wait_slot;\n"
    text += f"  Call call({index}, site);\n"
    kind = f"{result} (*)({', '.join(['void*'] * count)})"
    text += body(routine, size, wait, shown, f"reinterpret_cast<{kind}>(real(form, {index}))({names(count)})") + "}\n"
    for form, symbol in (("fortran", f"{lower}_"), ("f08", f"{lower}_f08_"), ("f08ts", f"{lower}_f08ts_")):
        text += (f"LOCKSTEP_MPI {result} {symbol}({declared}) {{\n  return fortran_{routine.name}(Form::{form}, "
                 f"__builtin_return_address(0){more}{names(count)});\n}}\n")
    for other in (lower, f"{lower}__", routine.name.upper()):
        text += f"LOCKSTEP_MPI {result} {other}({declared}) __attribute__((alias(\"{lower}_\")));\n"
    return text


def listing(routines):
    text, slot = "", 0
    for routine in routines:
        size = SIZE_BINS if routine.has_sizes() else 1
        wait = -1
        if "waits" in routine.properties:
            wait = slot + size
        text += f'    {{"{routine.name}", {slot}, {wait}, {"true" if routine.has_sizes() else "false"}, '
        text += f'view::MpiPeers::{peers(routine)}}},\n'
        slot += size + (wait >= 0)
    return f"""// Generated from routines.txt.
inline constexpr Routine routines[] = {{
{text}}};
inline constexpr int slot_count = {slot};
inline constexpr int generated_size_bins = {SIZE_BINS};
"""


def agreement(routines):
    lines = []
    for routine in [*routines, *(routine.large() for routine in routines if "large" in routine.properties)]:
        kinds = [C_TYPES[routine.result], *routine.types(lambda name: f"MPI_{name}*")]
        if not routine.properties & {"variadic", "removed"}:  # some are macros
            is_new = " && MPI_VERSION >= 4" if routine.name.endswith("_c") else ""
            conversion = " && !defined(LOCKSTEP_MPITRACE_ABI)" if "no_fortran" in routine.properties else ""
            lines.append(f"#if !defined({routine.name}){conversion}{is_new}\nAGREES({routine.name}, {', '.join(kinds)})\n#endif\n")
    return "".join(lines)


def main():
    routines = read(pathlib.Path(sys.argv[1]))
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    indexed = list(enumerate(routines))
    (folder / "routine_list.inc").write_text(listing(routines))
    (folder / "c_functions.inc").write_text("".join(c_function(*pair) + large_function(*pair) for pair in indexed))
    (folder / "fortran_functions.inc").write_text(
        "".join(fortran_functions(*pair) for pair in indexed if "no_fortran" not in pair[1].properties))
    (folder / "agreement.inc").write_text(agreement(routines))


if __name__ == "__main__":
    main()
