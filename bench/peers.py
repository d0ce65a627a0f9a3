# SPDX-License-Identifier: Apache-2.0
"""How long others take to load the profiler files of a job, imports excluded,
by turns with a shell command that does the work of paceline.

Prints "NAME WALL OURS RATIO CPU OURS RATIO" a line: wall seconds, then CPU
seconds of all processes; medians of the turns. What is not installed, or does
not load every file, is a line that begins with "#".

usage: peers.py COMMAND FILE...
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import time

TURNS = 7


def load_json(files):
    """Parse every file, keep what the parser makes of it."""
    ranks = []
    for name in files:
        with gzip.open(name, "rt", encoding="utf-8") as f:
            ranks.append(json.load(f))
    return len(ranks)


def pandas_loader():
    """Parse every file and put its events into one table: what people write."""
    import pandas

    def load(files):
        tables = []
        for rank, name in enumerate(files):
            with gzip.open(name, "rt", encoding="utf-8") as f:
                table = pandas.DataFrame(json.load(f)["traceEvents"])
            table["rank"] = rank
            tables.append(table)
        return pandas.concat(tables)["rank"].nunique()

    return load


def hta_loader():
    """The constructor of HolisticTraceAnalysis parses and aligns the traces."""
    import logging
    from importlib.metadata import version

    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    print("# version HolisticTraceAnalysis", version("HolisticTraceAnalysis"))

    def load(files):
        job = TraceAnalysis(trace_files=dict(enumerate(files)), trace_dir="")
        return len(job.t.get_all_traces())

    return load


def cost(work):
    """Wall seconds, and CPU seconds of this process and its children."""
    begin, used = time.perf_counter(), os.times()
    work()
    return time.perf_counter() - begin, sum(os.times()[:4]) - sum(used[:4])


def compared(theirs, ours):
    """Medians of both and of the ratio, as three words."""
    ratio = statistics.median(t / o for t, o in zip(theirs, ours))
    return f"{statistics.median(theirs):.2f} {statistics.median(ours):.3f} {ratio:.1f}"


def main():
    command, files = sys.argv[1], sys.argv[2:]
    peers = {"hta": hta_loader, "pandas": pandas_loader, "json": lambda: load_json}
    for name, loader in peers.items():
        try:
            load = loader()
        except ImportError as e:
            print(f"# {name}: {e}", flush=True)
            continue
        loaded = load(files)  # and what it does only once is done
        if loaded != len(files):
            print(f"# {name}: loaded {loaded} of {len(files)} files", flush=True)
            continue
        theirs, ours = [], []
        for _ in range(TURNS):
            theirs.append(cost(lambda: load(files)))
            ours.append(cost(lambda: subprocess.run(command, shell=True, check=True)))
        wall, cpu = zip(zip(*theirs, strict=True), zip(*ours, strict=True), strict=True)
        print(name, compared(*wall), compared(*cpu), flush=True)


if __name__ == "__main__":
    main()
