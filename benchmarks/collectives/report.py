"""From the times of pairs to rows, and from rows to what people read."""
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
    return {(made["dtype"], made["elements"], made["buffer"]): made["us"] for made in reports}


def row(op, dtype, ranks, elements, buffer, ours, peer, theirs):
    """`ours` and `theirs`: times() of each pair; `theirs` is None where there is no peer."""
    our_times = [pair[dtype, elements, buffer] for pair in ours]
    limits = [pair[dtype, elements, "limit"] for pair in ours]
    made = {
        "op": op,
        "dtype": dtype,
        "ranks": ranks,
        "bytes": elements * ELEMENT_BYTES[dtype],
        "buffer": buffer,
        "lockstep_us": rounded(statistics.median(our_times)),
        "peer": peer,
        "peer_us": None,
        "ratio": None,
        "ratio_low": None,
        "ratio_high": None,
        "limit_us": rounded(statistics.median(limits)),
        "of_limit": rounded(statistics.median(limit / time for limit, time in zip(limits, our_times))),
        "pairs": len(our_times),
    }
    if theirs is not None:
        peer_times = [pair[dtype, elements, "private"] for pair in theirs]
        low, middle, high = quartiles([other / time for other, time in zip(peer_times, our_times)])
        made.update(
            peer_us=rounded(statistics.median(peer_times)),
            ratio=rounded(middle),
            ratio_low=rounded(low),
            ratio_high=rounded(high),
        )
    return made


def size_text(size):
    for unit, bytes_ in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_:
            return f"{size / bytes_:g} {unit}"
    return f"{size} B"


def time_text(us):
    if us is None:
        return "-"
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.3g} us"


def ratio_text(made):
    if made["ratio"] is None:
        return "-"
    return f"{made['ratio']:.2f} ({made['ratio_low']:.2f} to {made['ratio_high']:.2f})"


def table(rows, labels):
    """`labels`: {peer: name for people}."""
    cells = [("dtype", "size", "buffer", "Lockstep", "peer", "its time", "ratio (quartiles)", "limit", "of limit")]
    for made in rows:
        cells.append((
            made["dtype"], size_text(made["bytes"]), made["buffer"], time_text(made["lockstep_us"]),
            labels.get(made["peer"], "-"), time_text(made["peer_us"]), ratio_text(made),
            time_text(made["limit_us"]), f"{made['of_limit']:.2f}",
        ))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    left = (0, 2, 4)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in cells
    )
