#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/jobs prints.

usage: jobs_table.py KIND RANKS HOW FOLDER     a row for each change
       jobs_table.py --wide FOLDER             changes that need more rounds
       jobs_table.py --summary ROWS            the figures over all rows

FOLDER has out.0 with lines "CHANGE ROUND SECONDS CHANGED_SECONDS", the
recordings rank<R>.json, the number of processors that they were made on in
cores, and for each change the report CHANGE.json of replay(1) and its exit
status in CHANGE.status.  Steps are compared within a round, because what else
the machine does hits both alike.
"""

import glob
import json
import os
import statistics
import sys

from ddp_table import jackknife, middle

WIDE = 0.03     # greatest half of an interval that still says something
GREAT = 0.03    # a change is greater than noise: its sign must be right


def interval(shares):
    """(share, half of its 95 % interval), by the jackknife, of lists of shares,
    one a round; Student's factor for few rounds by its series."""
    n = len(shares) - 1
    factor = 1.96 + 2.37 / n + 2.82 / n ** 2 if n else float("inf")
    return middle([x for v in shares for x in v]), factor * jackknife(shares)


def measured(path):
    """{change: (share, half of its 95 % interval)}."""
    rounds = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            change, _, a, b = line.split()
            rounds.setdefault(change, []).append([float(b) / float(a)])
    return {change: interval(v) for change, v in rounds.items()}


def is_wide(share, half):
    return half > WIDE * share


def busy(paths):
    """Threads that compute at the same time, in the mean, by the recording:
    threads within operators that do not communicate."""
    computing = 0
    begin, end = float("inf"), 0
    for path in paths:
        with open(path, encoding="utf-8") as f:
            trace = json.load(f)
        zero = trace.get("baseTimeNanoseconds", 0) / 1e3
        edges = {}
        for e in trace["traceEvents"]:
            if e.get("cat") != "cpu_op":
                continue
            comm = e["name"].startswith(("c10d", "_c10d", "gloo:"))
            for time, by in ((e["ts"], 1), (e["ts"] + e["dur"], -1)):
                edges.setdefault((e["pid"], e["tid"]), []).append(
                    (zero + time, by, by * comm))
        for thread in edges.values():
            thread.sort()
            begin, end = min(begin, thread[0][0]), max(end, thread[-1][0])
            depth = waits = 0
            for (time, by, wait), (until, *_) in zip(thread, thread[1:]):
                depth, waits = depth + by, waits + wait
                if depth > 0 and waits == 0:
                    computing += until - time
    return computing / (end - begin)


def predicted(folder, change):
    """(share, least, most) over the steps of a report, and its trust; a word
    where nothing is predicted: the what-if is refused, or does not exist."""
    path = os.path.join(folder, change)
    try:
        with open(path + ".json", encoding="utf-8") as f:
            report = json.load(f)
    except (ValueError, OSError):
        return "refused" if os.path.exists(path + ".status") else "later", ""
    steps = report["steps"]
    whole = sum(s["replayed_ns"] for s in steps)

    def share(key):
        if any(key not in s for s in steps):
            return None
        return sum(s[key] for s in steps) / whole
    return tuple(map(share, ("predicted_ns", "predicted_lo_ns",
                             "predicted_hi_ns"))), report["trust"]["level"]


def rows(kind, ranks, how, folder):
    with open(os.path.join(folder, "cores"), encoding="utf-8") as f:
        cores = int(f.read())
    threads = busy(glob.glob(os.path.join(folder, "rank*.json")))
    crowd = "crowded" if threads > cores else ""
    for change, (share, half) in measured(
            os.path.join(folder, "out.0")).items():
        said, trust = predicted(folder, change)
        wide = "wide" if is_wide(share, half) else ""
        begin = f"{kind:16} {ranks:>5} {how:7} {f'{threads:.1f}/{cores}':>5} " \
                f"{change:20} "
        truth = f"{share:.3f} ± {half:.3f}"
        if isinstance(said, str):
            print(f"{begin}{said:>9} {truth:>15} {'':8} {'':15} {'':5} "
                  f"{trust:6} {wide} {crowd}".rstrip())
            continue
        p, lo, hi = said
        own = holds = ""
        if lo is not None and hi is not None:
            own = f"{lo:.3f}..{hi:.3f}"
            holds = "yes" if lo - half <= share <= hi + half else "no"
        print(f"{begin}{p:9.3f} {truth:>15} {100 * (p / share - 1):+7.1f}% "
              f"{own:>15} {holds:5} {trust:6} {wide} {crowd}".rstrip())


class Row:
    """A line of the table."""

    def __init__(self, line):
        w = line.split()
        self.kind, self.change, self.said = w[0], w[4], w[5]
        self.wide, self.crowded = "wide" in w, "crowded" in w
        if self.said in ("refused", "later"):
            return
        self.predicted, self.share = float(w[5]), float(w[6])
        self.error = float(w[9][:-1])
        self.held = self.half = None
        if ".." in w[10]:
            lo, hi = map(float, w[10].split(".."))
            self.half, self.held = (hi - lo) / 2, w[11] == "yes"

    def wrong_sign(self):
        return abs(self.share - 1) > GREAT and \
            (self.predicted - 1) * (self.share - 1) < 0


def figures(title, all_rows):
    """The demanded figures over the rows that count."""
    wide = sum(r.wide for r in all_rows)
    kept = [r for r in all_rows if not r.wide]
    for word in ("refused", "later"):
        kinds = [f"{r.kind} {r.change}" for r in kept if r.said == word]
        if kinds:
            print(f"{title}: {word}: {', '.join(kinds)}")
    kept = [r for r in kept if r.said not in ("refused", "later")]
    if not kept:
        print(f"{title}: no rows count ({wide} wide)")
        return
    good = sum(abs(r.error) <= 8 for r in kept)
    print(f"{title}: {len(kept)} rows ({wide} wide): mean |error| "
          f"{statistics.fmean(abs(r.error) for r in kept):.1f} % (<= 4), "
          f"within 8 %: {100 * good / len(kept):.0f} % (>= 90), wrong sign: "
          f"{sum(r.wrong_sign() for r in kept)}")
    stated = [r for r in kept if r.half is not None]
    if stated:
        print(f"{title}: own intervals hold "
              f"{100 * sum(r.held for r in stated) / len(stated):.0f} % "
              f"(>= 85), median half "
              f"{100 * statistics.median(r.half for r in stated):.1f} % "
              f"(<= 5)")


def summary(path):
    with open(path, encoding="utf-8") as f:
        table = [Row(line) for line in f]
    for kind in dict.fromkeys(r.kind for r in table):
        of_kind = [r.wide for r in table if r.kind == kind]
        if sum(of_kind) > 0.2 * len(of_kind):
            print(f"{kind}: {sum(of_kind)} of {len(of_kind)} rows are wide")
    figures("all but crowded", [r for r in table if not r.crowded])
    crowded = [r for r in table if r.crowded]
    if crowded:
        figures("more busy threads than processors", crowded)


if __name__ == "__main__":
    if sys.argv[1] == "--summary":
        summary(sys.argv[2])
    elif sys.argv[1] == "--wide":
        for name, mean in measured(os.path.join(sys.argv[2], "out.0")).items():
            if is_wide(*mean):
                print(name)
    else:
        rows(*sys.argv[1:])
