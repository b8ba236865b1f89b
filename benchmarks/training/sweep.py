"""A peer is measured at its best: what can be set about it is tried first, one setting after the other, and what is
fastest stays for those that follow."""
import statistics

WORTH = 1.01  # a setting is taken where it gains more than repetitions differ


def best_settings(knobs, rate):
    """(the fastest settings found, what was tried: {"settings", "images_per_s"} in order). `knobs`: {setting: values, the
    default first}; `rate(settings)`: images a second of several runs."""
    chosen = {setting: values[0] for setting, values in knobs.items()}
    tried = []

    def median_of(settings):
        found = statistics.median(rate(settings))
        tried.append({"settings": settings, "images_per_s": found})
        return found

    if not knobs:
        return chosen, tried
    best = median_of(chosen)
    for setting, values in knobs.items():
        for value in values[1:]:
            settings = {**chosen, setting: value}
            found = median_of(settings)
            if found > best * WORTH:
                best, chosen = found, settings
    return chosen, tried
