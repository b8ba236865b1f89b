"""From what programs report to rows, and whether a report counts: ranks that did not train together make no row."""
import statistics

import programs
from peers import Failure
from report import quartiles

# Of one process's way. Rounding takes convnet 1e-6 of it astray and ResNet-18, whose batch norm amplifies it, 2 in 100
# after 50 steps; ranks that each train alone end 85 in 100 and more away.
MOST_ERROR = 0.1


def require_together(program, report):
    """Raises Failure unless the ranks of `program` trained together, where it is one that should."""
    if not program.averages:
        return
    difference, error = report["difference_between_ranks"], report.get("error_to_one_process", 0.0)
    if difference != 0:
        raise Failure(f"{program.name}: its ranks did not train together: in the end their parameters differ by up to "
                      f"{difference:.3g}. The row is refused")
    if not error <= MOST_ERROR:
        raise Failure(f"{program.name}: its ranks did not train as one process with the whole batch does: parameters are "
                      f"{error:.2g} of its way off, {MOST_ERROR} are allowed. The row is refused")


def spread(values, digits):
    low, middle, high = quartiles(values)
    return {"median": round(middle, digits), "low": round(low, digits), "high": round(high, digits)}


def shares(reports, others):
    return [ours["images_per_s"] / theirs["images_per_s"] for ours, theirs in zip(reports, others)]


def program_rows(case, made, settings, tried):
    """One for each program. `made`: {name: its report of each round}; `case`: columns that are alike."""
    for name, reports in made.items():
        program = programs.ALL[name]
        row = {**case, "program": name, "images_per_s": spread([report["images_per_s"] for report in reports], 1),
               "faults_per_step": statistics.median(report["faults_per_step"] for report in reports),
               "allocator": programs.allocator_of(settings[name], reports[0]), "torch": reports[0]["torch"],
               "settings": settings[name], "tried": tried[name], "alone": None, "of_alone": None,
               "exposed_us": statistics.median(report.get("exposed_us", 0) for report in reports)}
        if program.averages:
            row["error_to_one_process"] = max(report.get("error_to_one_process", 0.0) for report in reports)
        if program.alone in made:
            row.update(alone=program.alone, of_alone=spread(shares(reports, made[program.alone]), 3))
        yield row


def bound_rows(rate_bits, hosts, reports):
    """Of programs on hosts with a link of so many bits a second: how near a step is to the least that cores and link allow, the
    longer of computing and of sending the least bytes. `reports`: {name: its report of each round}."""
    parameter_bytes = reports["unconnected_heap"][0]["parameter_bytes"]
    for name, made in reports.items():
        program = programs.ALL[name]
        if not program.averages or program.package:
            continue
        crossing = parameter_bytes * 2 * (hosts - 1) / hosts / (2 if "LOCKSTEP_WIRE_DTYPE" in program.environment else 1)
        wire_us = crossing * 8e6 / rate_bits
        shares_ = [max(alone["step_us"], wire_us) / own["step_us"] for own, alone in zip(made, reports["unconnected_heap"])]
        yield {"program": name, "wire_us": round(wire_us), "of_bound": spread(shares_, 3)}


def ratio_rows(case, made, settings, ours):
    """One for each of our programs and each other: images a second over the other's, round by round."""
    for mode in ours:
        for other in made:
            if other == mode or (other in ours and mode != "distributed_optimizer") or other == "sharded":
                continue
            yield {**case, "mode": mode, **side("", mode, made, settings), "peer": other,
                   **side("peer_", other, made, settings), "ratio": spread(shares(made[mode], made[other]), 3)}


def side(prefix, name, made, settings):
    reports = made[name]
    return {prefix + "images_per_s": statistics.median(report["images_per_s"] for report in reports),
            prefix + "faults_per_step": statistics.median(report["faults_per_step"] for report in reports),
            prefix + "allocator": programs.allocator_of(settings[name], reports[0])}
