"""Programs that take turns, each of which says {"seconds": ...}: ours, and others for its ratio."""
import statistics

import contest
import report

TIMEOUT_S = 300


def seconds_of(contestant):
    """Of what it times; None for a peer that did not come to its end."""
    try:
        return contestant.run_with([], timeout=TIMEOUT_S)[0]["seconds"]
    except contest.Unfinished as unfinished:
        if not contestant.may_fail:
            raise
        contest.say(str(unfinished))
        return None


def measure(pairs, mine, others):
    """{name: [seconds of each pair]}, "" is ours."""
    found = {name: [] for name in ("", *others)}
    everybody = [("", mine), *others.items()]
    for number in range(pairs):
        for name, contestant in everybody if number % 2 == 0 else reversed(everybody):
            found[name].append(seconds_of(contestant))
    return found


def ratios(found):
    """Of measure()'s: {peer: (our median, its median, {the ratio's columns})}; a pair that one of them did not finish counts for
    nothing."""
    made = {}
    for peer, theirs in found.items():
        pairs = [(one, other) for one, other in zip(found[""], theirs) if other is not None]
        if peer == "" or not pairs:
            continue
        low, middle, high = report.quartiles([other / one for one, other in pairs])
        made[peer] = (statistics.median(one for one, _ in pairs), statistics.median(other for _, other in pairs),
                      {"ratio": report.rounded(middle), "ratio_low": report.rounded(low), "ratio_high": report.rounded(high),
                       "pairs": len(pairs)})
    return made
