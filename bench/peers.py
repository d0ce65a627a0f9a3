# SPDX-License-Identifier: Apache-2.0
"""How long others take to load the profiler files of a job, imports excluded,
by turns with a shell command that does the work of paceline.

Prints "NAME SECONDS OURS RATIO" a line: the medians of five turns, and the
median of their ratios. What is not installed, or does not load every file, is a
line that begins with "#".

usage: peers.py COMMAND FILE...
"""

import gzip
import json
import statistics
import subprocess
import sys
import time

TURNS = 5


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


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    command, files = sys.argv[1], sys.argv[2:]
    for name, loader in (("hta", hta_loader), ("pandas", pandas_loader), ("json", lambda: load_json)):
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
            theirs.append(seconds(lambda: load(files)))
            ours.append(seconds(lambda: subprocess.run(command, shell=True, check=True)))
        ratio = statistics.median(t / o for t, o in zip(theirs, ours))
        print(f"{name} {statistics.median(theirs):.2f} {statistics.median(ours):.3f} {ratio:.1f}", flush=True)


if __name__ == "__main__":
    main()
