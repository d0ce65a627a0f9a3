#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/ddp prints of a case.

usage: ddp_table.py PREDICTED COMPARED   rows of words
       ddp_table.py --share <REPORT      communication's shares of the step

PREDICTED has lines "NAME MS", one a recording, the default's the recorded
step; COMPARED lines "NAME TURN SECONDS", one a step.  A row: name, measured ms, predicted ms, step
as a share of the default's, error of the prediction in %, and that of the
prediction as it stands, without the default's measured step as its unit.

What is predicted is the mean of the recorded steps, so the mean of the measured
ones stands against it.  The settings took turns, as did the recordings.
"""

import json
import statistics
import sys


def share():
    ranks = json.load(sys.stdin)["ranks"]
    whole = sum(r["span_ns"] for r in ranks)
    alone = sum(r["comm_exposed_ns"] for r in ranks)
    beside = sum(r["comm_overlapped_ns"] for r in ranks)
    print(f"{100 * (alone + beside) / whole:.0f} {100 * alone / whole:.0f}")


def table(predicted, compared):
    with open(predicted, encoding="utf-8") as f:
        lines = {}
        for name, ms in map(str.split, f):
            lines.setdefault(name, []).append(float(ms))
    model = {name: statistics.fmean(v) for name, v in lines.items()}
    turns = {}
    with open(compared, encoding="utf-8") as f:
        for name, turn, seconds in map(str.split, f):
            turns.setdefault(name, {}).setdefault(turn, []).append(
                float(seconds) * 1e3)
    mean = {name: statistics.fmean(t for v in by.values() for t in v)
            for name, by in turns.items()}
    for name, ms in model.items():
        measured = mean[name]
        ratio = measured / mean["default"]
        scaled = mean["default"] * ms / model["default"]
        print(f"{name} {measured:.1f} {scaled:.1f} {ratio:.3f} "
              f"{100 * (scaled / measured - 1):+.1f} "
              f"{100 * (ms / measured - 1):+.1f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--share"]:
        share()
    else:
        table(*sys.argv[1:])
