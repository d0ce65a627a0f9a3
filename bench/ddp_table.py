#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/ddp prints of a case.

usage: ddp_table.py PREDICTED COMPARED   rows of words
       ddp_table.py --share <REPORT      communication's shares of the step

PREDICTED has lines "NAME MS", one a recording and in the same order for each
name, the default's the recorded step; COMPARED lines "NAME TURN SECONDS", one a
step, in the order in which they ran.  A row: name, measured ms, predicted ms,
step as a share of the default's, its standard error, error of the prediction in
%, and that of the prediction as it stands, without the default's measured step
as its unit.

What else the machine does makes steps longer for seconds at a time, so steps are
compared with those next to them alone: each run of a few steps of a setting is a
share of the runs of the default just before and after it, a step is the median
of its run,
and what counts is the mean of the middle half of these shares (the interquartile
mean: as robust as a median where a quarter is wrong, and nearly as sharp as a
mean).  Predictions are shares of the recording that they are made from, put
together in the same way.  The standard error is the jackknife's over turns.
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


def middle(values):
    """Mean of the middle half; values at its edges count in part."""
    v = sorted(values)
    cut = len(v) / 4
    weights = [max(0.0, min(i + 1, len(v) - cut) - max(i, cut))
               for i in range(len(v))]
    return sum(w * x for w, x in zip(weights, v)) / sum(weights)


def jackknife(by_turn):
    """Standard error of middle() of lists of values, one a turn."""
    if len(by_turn) < 2:
        return 0.0
    left = [middle([x for k, v in enumerate(by_turn) if k != out for x in v])
            for out in range(len(by_turn))]
    n = len(left)
    return (statistics.pvariance(left) * (n - 1)) ** 0.5


def runs(path):
    """Runs of steps as they followed one another: (name, turn, median ms)."""
    done = []
    with open(path, encoding="utf-8") as f:
        for name, turn, seconds in map(str.split, f):
            if not done or done[-1][:2] != (name, turn):
                done.append((name, turn, []))
            done[-1][2].append(float(seconds) * 1e3)
    return [(name, turn, statistics.median(v)) for name, turn, v in done]


def table(predicted, compared):
    lines = {}
    with open(predicted, encoding="utf-8") as f:
        for name, ms in map(str.split, f):
            lines.setdefault(name, []).append(float(ms))
    ran = runs(compared)
    default = middle([ms for name, _, ms in ran if name == "default"])
    shares = {"default": {"0": [1.0]}}
    for i, (name, turn, ms) in enumerate(ran):
        base = [m for n, t, m in ran[max(i - 1, 0):i + 2]
                if n == "default" and t == turn]
        if name != "default" and base:
            shares.setdefault(name, {}).setdefault(turn, []).append(
                ms / statistics.fmean(base))
    for name, ms in lines.items():
        by_turn = list(shares[name].values())
        share = middle([x for v in by_turn for x in v])
        model = middle([a / b for a, b in zip(ms, lines["default"])])
        print(f"{name} {default * share:.1f} {default * model:.1f} "
              f"{share:.3f} {jackknife(by_turn):.3f} "
              f"{100 * (model / share - 1):+.1f} "
              f"{100 * (middle(ms) / (default * share) - 1):+.1f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--share"]:
        share()
    else:
        table(*sys.argv[1:])
