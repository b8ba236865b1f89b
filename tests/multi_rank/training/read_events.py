#!/usr/bin/env python3
"""Prints what TensorBoard finds in a run's folder: a line "tag step value" for each figure.
usage: read_events.py FOLDER, with the python of `script/bootstrap --peers tensorboard`"""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for figure in events.Scalars(tag):
        print(tag, figure.step, figure.value)
