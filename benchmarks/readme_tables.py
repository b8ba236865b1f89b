#!/usr/bin/env python3
"""Writes README's tables of figures, each between <!-- figures: NAME --> and <!-- end of figures -->, from
benchmarks/results/*.json, which `script/bench NAME --publish` writes. With --check it changes nothing, and fails where text
and figures differ: a table without figures, figures without a table, or other figures. The tables have what is slower than
a peer, too. What stands in <!-- figures: NAME, written by hand --> may stay until there are results that it is made from.

usage: readme_tables.py [--check] [REPOSITORY]"""
import json
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here / "collectives"), str(here)]

from report import size_text, time_text  # noqa: E402

MARKED = re.compile(r"<!-- figures: (?P<name>[\w-]+)(?P<by_hand>, written by hand)? -->\n.*?<!-- end of figures -->", re.DOTALL)
OPERATIONS = ("reduce_scatter", "broadcast", "all_gather", "all_to_all", "reduce")
LARGE = 1 << 20  # from here on memory decides, and not waiting
WIDTH = 124


class Differs(Exception):
    """What README's tables and the figures disagree about."""


def rounded(value):
    """Two digits, as far as a figure is good for; 10.4 is 10."""
    text = f"{float(f'{value:.2g}'):.10g}"
    return text if "." in text or len(text.lstrip("-")) > 1 else text + ".0"


def time(us):
    return time_text(None if us is None else float(f"{us:.2g}")).replace("us", "µs")


def table(head, lines):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines]) + "\n"


def wrapped(text):
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines) + "\n"


def measured_on(made):
    machine = made["machine"]
    return (f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {made['date']}, commit "
            f"{made['commit'][:10]}")


def best_rows(made, ranks, op):
    """{(buffer, bytes): the row of the best peer} of f32; of the first peer where none finished."""
    found = {}
    for row in made["rows"]:
        if (row["ranks"], row["op"], row["dtype"]) == (ranks, op, "f32"):
            key = (row["buffer"], row["bytes"])
            if row["best"] or key not in found:
                found[key] = row
    return found


def ratio(row):
    return "-" if row["ratio"] is None else rounded(row["ratio"])


def all_reduce_lines(made, ranks):
    found = best_rows(made, ranks, "all_reduce")
    sizes = sorted({size for _, size in found})
    yield ["", *map(size_text, sizes)]
    for buffer, name in (("private", "buffers of the program's own"), ("registered", "the same, registered"),
                         ("arena", "buffers in the arena")):
        if all((buffer, size) not in found for size in sizes):
            continue
        rows = [found[buffer, size] for size in sizes]
        yield [f"Lockstep, {name}", *(time(row["lockstep_us"]) for row in rows)]
        yield ["times as fast as the best of the others", *map(ratio, rows)]
        yield ["of a triad over as many bytes",
               *(rounded(row["of_triad"]) if row["bytes"] >= LARGE else "" for row in rows)]


def collectives_text(made, ranks):
    cma = "may" if made["machine"]["process_vm_readv"] else "may not"
    intro = (f"An all_reduce of f32 by {ranks} ranks of one host, beside the fastest of {', '.join(made['peers'].values())} "
             f"in the same run ({measured_on(made)}; medians of {made['settings']['pairs']} pairs, each call after a barrier "
             f"and into a freshly written buffer, processes {cma} read each other's memory; `script/bench collectives`):")
    head, *lines = all_reduce_lines(made, ranks)
    return "\n".join([wrapped(intro), table(head, lines), other_operations(made, ranks), messages(made, ranks)]).rstrip() + "\n"


def other_operations(made, ranks):
    found = {op: best_rows(made, ranks, op) for op in OPERATIONS}
    sizes = [64 << 10, 1 << 20, 25 << 20]
    lines = []
    for op, rows in found.items():
        of_size = {nearest(sizes, size): row for (buffer, size), row in rows.items() if buffer == "private"}
        if of_size:
            lines.append([op, *(f"{time(of_size[size]['lockstep_us'])}, {ratio(of_size[size])} times" if size in of_size
                                else "" for size in sizes)])
    if not lines:
        return ""
    return ("The other collectives, buffers of the program's own: time, and times as fast as the best of the others.\n\n" +
            table(["", *map(size_text, sizes)], lines))


def messages(made, ranks):
    found = [row for (buffer, _), row in sorted(best_rows(made, ranks, "send_recv").items()) if buffer == "private"]
    return wrapped("A message, one way: " + "; ".join(
        f"{size_text(row['bytes'])} {time(row['lockstep_us'])}, {ratio(row)} times as fast as the best of the others"
        for row in found) + ".") if found else ""


def nearest(sizes, size):
    """Sizes with parts for each rank are a little smaller."""
    return min(sizes, key=lambda other: abs(other - size))


def hosts_text(made):
    hosts = made["links"][0]["hosts"]
    intro = (f"An all_reduce of f32 between {hosts} hosts ({measured_on(made)}; network namespaces with a core and a rank each; medians of "
             f"{made['settings']['pairs']} pairs; `script/bench hosts`): its time, in brackets times as fast as the best of the others, "
             f"and, for links that are shaped, times as fast as sockets that exchange the same bytes and add up nothing. Last, Lockstep on "
             f"an MPI: times as fast as that MPI alone.")
    rows = [row for row in made["rows"] if (row["op"], row["buffer"]) == ("all_reduce", "private")]
    links = {link["link"]: LINKS.get(link["link"], link["link"]) for link in made["links"]}
    of = {(row["link"], row["bytes"]): row for row in rows}
    sizes = sorted({row["bytes"] for row in rows})
    lines = []
    for link, name in links.items():
        lines.append([f"Lockstep, {name}", *(link_cell(of.get((link, size))) for size in sizes)])
    for mpi in rows[0]["by_mpi"]:
        for link, name in links.items():
            lines.append([f"on {MPIS.get(mpi, mpi)}, {name}", *(mpi_cell(of.get((link, size)), mpi) for size in sizes)])
    return wrapped(intro) + "\n" + table(["", *map(size_text, sizes)], lines)


MPIS = {"impi": "Intel MPI", "mpich": "MPICH", "openmpi": "Open MPI"}
LINKS = {"1g": "1 Gbit/s", "10g": "10 Gbit/s", "100m": "100 Mbit/s", "veth": "not shaped"}


def link_cell(row):
    if row is None:
        return ""
    ratios = [peer["ratio"] for peer in row["peers"].values() if peer["ratio"] is not None]
    best = f" ({rounded(min(ratios))})" if ratios else ""
    shaped = row["link"] != "veth" and row["bytes"] >= LARGE and row["of_exchange"] is not None
    return time(row["lockstep_us"]) + best + (f", {rounded(row['of_exchange'])}" if shaped else "")


def mpi_cell(row, mpi):
    found = row["by_mpi"].get(mpi) if row else None
    return rounded(found["of_mpi"]) if found and found["of_mpi"] is not None else ""


def training_text(models):
    """`models`: what was kept of each, in the order of their names."""
    settings = models[0]["settings"]
    intro = (f"Training, {settings['ranks']} ranks, images a second ({training_measured_on(models)}; one thread for each "
             f"rank, peers at the best of the settings that were tried, all ranks' parameters compared in the end; "
             f"`script/bench training`). Of its own: of what the same program makes unconnected, with the same allocator and "
             f"optimizer.")
    lines = []
    for row in (row for made in models for row in made["programs"]):
        own = row["of_alone"]
        lines.append([row["model"], row["optimizer"], f"`{row['program']}`{settings_text(row)}", rounded(row["images_per_s"]["median"]),
                      rounded(own["median"]) if own else "", row["allocator"], f"{row['faults_per_step']:.0f}"])
    head = ["model", "optimizer", "program", "images/s", "of its own", "allocator", "page faults/step"]
    return wrapped(intro) + "\n" + table(head, lines) + "\n" + training_ratios(models)


def training_measured_on(models):
    """Once where all were measured alike."""
    said = {}
    for made in models:
        text = f"{measured_on(made)}; medians of {made['settings']['rounds']} rounds"
        said.setdefault(text, []).append(made["programs"][0]["model"])
    if len(said) == 1:
        return next(iter(said))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in said.items())


def settings_text(row):
    """What a peer was given beyond its defaults, as far as another column does not say it."""
    given = [name if value is True else f"{name} {value}" for name, value in row["settings"].items()
             if value is not False and name != "malloc" and (not row["tried"] or value != row["tried"][0]["settings"][name])]
    return f" ({', '.join(given)})" if given else ""


def training_ratios(models):
    """Lockstep's images a second over each other's."""
    rows = [row for made in models for row in made["rows"]]
    others = list(dict.fromkeys(row["peer"] for row in rows))
    cells = {}
    for row in rows:
        cells.setdefault((row["model"], row["optimizer"], row["mode"]), {})[row["peer"]] = rounded(row["ratio"]["median"])
    lines = [[model, optimizer, f"`{mode}`", *(found.get(other, "") for other in others)]
             for (model, optimizer, mode), found in cells.items()]
    return ("Times as many images a second as:\n\n" +
            table(["model", "optimizer", "", *(f"`{other}`" for other in others)], lines))


def engine_text(made):
    intro = (f"A named all-reduce beside Horovod's, at each length of its cycle ({measured_on(made)}; "
             f"{made['settings']['ranks']} ranks, medians of {made['settings']['pairs']} pairs; `script/bench engine`):")
    cycles = sorted({row["cycle_ms"] for row in made["rows"] if row["peer"]}, reverse=True)
    cells = {}
    for row in made["rows"]:
        line = cells.setdefault((row["case"], row["bytes"]), {None: row["lockstep"]})
        if row["peer"]:
            line[row["cycle_ms"]] = row["peer_value"]
    lines = []
    for (case, size), found in cells.items():
        shown = time if size else rounded_share
        lines.append([case, size_text(size) if size else "", *(shown(found[cycle]) if cycle in found else ""
                                                             for cycle in (None, *cycles))])
    head = ["", "", "Lockstep", *(f"Horovod, {cycle:g} ms" for cycle in cycles)]
    return wrapped(intro) + "\n" + table(head, lines)


def strategies_text(made):
    intro = (f"Steps of other strategies on two cores ({measured_on(made)}; medians of {made['settings']['pairs']} pairs; `script/bench "
             f"strategies`, whose `--help` says what the rows are; a ratio is the other's time over ours, above 1 Lockstep is ahead):")
    lines = grouped((((row["strategy"].replace("_", " "), row["model"]), time(1e6 * row["lockstep"])),
                     (row["peer"].replace("_", " "), time(1e6 * row["peer_value"]), rounded(row["ratio"]))) for row in made["rows"])
    return wrapped(intro) + "\n" + table(["strategy", "of", "Lockstep", "beside", "its time", "ratio"], lines)


def grouped(rows):
    """Lines of ((what it is about, our figure), what a peer has): what it is about stands once for all its peers."""
    seen = None
    for (about, ours), theirs in rows:
        yield [*(about if about != seen else [""] * len(about)), ours if about != seen else "", *theirs]
        seen = about


def python_text(made):
    intro = (f"Python's programs on two ranks ({measured_on(made)}; medians of {made['settings']['pairs']} pairs; `script/bench python`, whose "
             f"`--help` says what the rows are; a ratio is the other's time over ours, above 1 Lockstep is ahead; `nothing` sends nothing, "
             f"`unconnected` is the same program by itself, `limit` is what we allow ourselves):")
    lines = grouped((((row["op"], row["framework"], " ".join(filter(None, (row["model"], size_text(row["bytes"]) if row["bytes"] else "")))),
                      time(row["lockstep_us"])),
                     (row["peer"].replace("_", " "), time(row["peer_us"]), rounded(row["ratio"]))) for row in made["rows"])
    return wrapped(intro) + "\n" + table(["what", "by", "of", "Lockstep", "beside", "its time", "ratio"], lines)


MEMORY = {"ddp": "Lockstep's `DistributedDataParallel`", "unconnected_heap": "its shared heap alone", "torch_ddp": "torch's `DistributedDataParallel`",
          "horovod": "Horovod"}


def memory_text(made):
    intro = (f"What ranks that train have resident together at the most, what they share counted once ({measured_on(made)}; medians of "
             f"{made['settings']['rounds']} rounds; `script/bench memory`), and how much of it is beyond the same program unconnected: as a share "
             f"of what the model itself needs (parameters, gradients and momentum of all ranks). The same program has the same allocator, and "
             f"the shared heap alone is beside malloc.")
    names = [name for name in MEMORY if any(row["program"] == name for row in made["rows"])]
    cells = {}
    for row in made["rows"]:
        line = cells.setdefault((row["model"], row["ranks"]), {"own": row["own_mib"]})
        line[row["program"]] = f"{row['resident_mib']:.0f} MiB, {row['beyond_alone_mib']:+.0f} ({100 * row['overhead']:+.0f} %)"
    lines = [[model, str(ranks), f"{found['own']:.0f} MiB", *(found.get(name, "") for name in names)]
             for (model, ranks), found in cells.items()]
    return wrapped(intro) + "\n" + table(["model", "ranks", "the model itself", *(MEMORY[name] for name in names)], lines)


def rounded_share(value):
    return f"{value:.2g}"


# {table: (which results, its text)}
TABLES = {
    "collectives-2": ("collectives", lambda made: collectives_text(made, 2)),
    "collectives-4": ("collectives", lambda made: collectives_text(made, 4)),
    "hosts": ("hosts", hosts_text),
    "training": ("training", training_text),
    "memory": ("memory", memory_text),
    "engine": ("engine", engine_text),
    "strategies": ("strategies", strategies_text),
    "python": ("python", python_text),
}


def load_results(repository):
    """{benchmark: what was measured; of training a list, each model's}"""
    found = {}
    for file in sorted((repository / "benchmarks/results").glob("*.json")):
        made = json.loads(file.read_text())
        if file.stem.startswith("training_"):
            found.setdefault("training", []).append(made)
        else:
            found[file.stem] = made
    return found


def written(readme, results):
    """The README with its tables as the results have them. Raises Differs if one of them lacks the other."""
    blocks = list(MARKED.finditer(readme))
    names = [block["name"] for block in blocks]
    if readme.count("<!-- figures: ") != len(blocks):
        raise Differs("a mark <!-- figures: NAME --> is misspelt, or has no <!-- end of figures --> after it")
    for block in blocks:
        name = block["name"]
        if name not in TABLES:
            raise Differs(f"README has a table '{name}', which nobody writes; known are {', '.join(TABLES)}")
        if names.count(name) > 1:
            raise Differs(f"README has the table '{name}' twice")
        if TABLES[name][0] not in results and not block["by_hand"]:
            raise Differs(f"README has the table '{name}', but benchmarks/results has no figures of {TABLES[name][0]}")
    for name, (source, _) in TABLES.items():
        if source in results and name not in names:
            raise Differs(f"benchmarks/results has figures of {source}, but README has no <!-- figures: {name} -->")
    return MARKED.sub(lambda block: block_of(block, results), readme)


def block_of(block, results):
    source, text_of = TABLES[block["name"]]
    if source not in results:
        return block[0]
    return f"<!-- figures: {block['name']} -->\n\n{text_of(results[source])}\n<!-- end of figures -->"


def main(words):
    check = "--check" in words
    paths = [word for word in words if word != "--check"]
    repository = pathlib.Path(paths[0] if paths else here.parent)
    file = repository / "README.md"
    readme = file.read_text()
    try:
        right = written(readme, load_results(repository))
    except Differs as difference:
        return f"readme_tables: {difference}"
    if not check:
        file.write_text(right)
    elif readme != right:
        return "readme_tables: README.md's figures are not those of benchmarks/results; benchmarks/readme_tables.py writes them"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
