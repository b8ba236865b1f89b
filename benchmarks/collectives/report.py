"""From the times of pairs to rows, and from rows to what people read."""
import operator
import statistics

ELEMENT_BYTES = {"f32": 4, "bf16": 2}


def quartiles(values):
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def rounded(value, digits=4):
    return None if value is None else float(f"{value:.{digits}g}")


def times(reports):
    """{(dtype, elements, buffer): microseconds} of what a program reported."""
    return {(made["dtype"], made["elements"], made["buffer"]): made["us"] for made in reports if "us" in made}


def huge_pages(reports):
    """{buffer: the share of its memory that lies in huge pages}, as a program of ours reports it; else {}."""
    return {buffer: share for made in reports for buffer, share in made.get("huge_pages", {}).items()}


def triad_us(pair, dtype, elements):
    """The faster of its two forms."""
    forms = [pair.get((dtype, elements, buffer)) for buffer in ("triad", "streamed_triad")]
    return min(us for us in forms if us is not None)


class Peer:
    """What one peer made of an operation. `pairs`: times() of each; `unfinished`: how it ended, if it did not finish
    all that it was asked for."""

    def __init__(self, name, pairs, unfinished=None):
        self.name = name
        self._pairs = pairs
        self._unfinished = unfinished

    def times_of(self, key):
        """Of each pair; None unless it finished this in all of them."""
        return [pair[key] for pair in self._pairs] if all(key in pair for pair in self._pairs) else None

    def outcome(self, key):
        if self.times_of(key):
            return "finished"
        return "did not finish" if self._unfinished and self._unfinished.hung else "failed"


def rows(op, dtype, ranks, elements, buffer, ours, peers):
    """One for each peer, the fastest of them marked as the best; one without a peer if there is none. `ours`: times()
    of each pair, without the buffer where Lockstep cannot do the operation. Beside Lockstep's times stand those of its
    kernel alone, without any waiting, and of a triad that moves as many bytes."""
    our_times = [pair.get((dtype, elements, buffer)) for pair in ours]
    beside = {"kernel": [pair[dtype, elements, "kernel"] for pair in ours],
              "triad": [triad_us(pair, dtype, elements) for pair in ours]}
    able = None not in our_times
    common = {
        "op": op,
        "dtype": dtype,
        "ranks": ranks,
        "bytes": elements * ELEMENT_BYTES[dtype],
        "buffer": buffer,
        "lockstep_us": rounded(statistics.median(our_times)) if able else None,
        "peer": None,
        "peer_us": None,
        "ratio": None,
        "ratio_low": None,
        "ratio_high": None,
        **{f"{name}_us": rounded(statistics.median(times)) for name, times in beside.items()},
        **{f"of_{name}": rounded(statistics.median(map(operator.truediv, times, our_times))) if able else None
           for name, times in beside.items()},
        "pairs": len(ours),
        "outcome": None,
        "best": False,
    }
    made = []
    for peer in peers:
        peer_times = peer.times_of((dtype, elements, "private"))
        row = {**common, "peer": peer.name, "outcome": peer.outcome((dtype, elements, "private"))}
        if peer_times:
            row["peer_us"] = rounded(statistics.median(peer_times))
        if peer_times and able:
            low, middle, high = quartiles(list(map(operator.truediv, peer_times, our_times)))
            row.update(ratio=rounded(middle), ratio_low=rounded(low), ratio_high=rounded(high))
        made.append(row)
    finished = [row for row in made if row["peer_us"] is not None]
    if finished:
        min(finished, key=lambda row: row["peer_us"])["best"] = True
    return made or [common]


def best_of_each(made):
    """Of the rows that differ only in their peer, the best peer's; the first if none finished."""
    shown = {}
    for row in made:
        case = tuple(row[key] for key in ("op", "dtype", "ranks", "bytes", "buffer"))
        if row["best"] or case not in shown:
            shown[case] = row
    return list(shown.values())


def size_text(size):
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_:
            return f"{size / bytes_:.4g} {unit}"
    return f"{size} B"


def time_text(us):
    if us is None:
        return "-"
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def ratio_text(row):
    if row["ratio"] is None:
        return "-"
    return f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"


def table(made, labels):
    """Of the best peers, and below it what peers did not finish. `labels`: {peer: name for people}."""
    cells = [("dtype", "size", "buffer", "Lockstep", "best peer", "its time", "ratio (quartiles)", "kernel alone", "triad",
              "of triad")]
    for row in best_of_each(made):
        cells.append((
            row["dtype"], size_text(row["bytes"]), row["buffer"], time_text(row["lockstep_us"]),
            labels[row["peer"]] if row["best"] else "-", time_text(row["peer_us"]), ratio_text(row),
            time_text(row["kernel_us"]), time_text(row["triad_us"]),
            "-" if row["of_triad"] is None else f"{row['of_triad']:.2f}",
        ))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    left = (0, 2, 4)
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in cells
    ]
    return "\n".join(lines + unfinished(made, labels))


def unfinished(made, labels):
    """A line for each peer and each way in which it did not finish something."""
    cases = {}
    for row in made:
        if row["outcome"] not in (None, "finished"):
            sizes = cases.setdefault((row["peer"], row["outcome"]), [])
            sizes.append(f"{row['dtype']} {size_text(row['bytes'])}")
    return [f"{labels[peer]} {outcome}: {', '.join(dict.fromkeys(sizes))}" for (peer, outcome), sizes in cases.items()]
