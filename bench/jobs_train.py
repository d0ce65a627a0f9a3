#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a real PyTorch job of many kinds (jobs_kinds.py), for bench/jobs.

usage: jobs_train.py list                     kinds, numbers of ranks, ways of
                                              recording, links, changes, lines
       jobs_train.py KIND --rank R --ranks N --meet ADDRESS:PORT [--out PREFIX]

The process first trains the job under the profiler, as people record it, and
writes PREFIX-HOW/rank<R>.json for each way of recording.  Then it holds the job
and some changed jobs at the same time, and times them by turns of a few steps
without the profiler.  What else the machine does makes steps longer for seconds
at a time, so a changed job is compared with the job's own turns just before and
after it.  Rank 0 prints lines

    CHANGE ROUND SECONDS CHANGED_SECONDS

with the time of a step of both, the longest over the ranks.  A change that is
measured well enough has no more turns.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.profiler import (ExecutionTraceObserver, ProfilerActivity, profile,
                            schedule)

from jobs_kinds import KINDS
from jobs_table import interval

LEAST = 8       # rounds of each change
ENOUGH = 0.025  # half of the interval of a change that needs no more rounds


def record(job, rank, how, folder, active):
    """Trace some steps as a user would."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"rank{rank}.json")
    active = int(how.removeprefix("steps")) if "steps" in how else active
    observer = None
    if how == "et":
        observer = ExecutionTraceObserver()
        observer.register_callback(os.path.join(folder, f"et{rank}.json"))
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU],
                 record_shapes=how != "plain", with_stack=how == "stack",
                 profile_memory=how == "memory",
                 execution_trace_observer=observer,
                 schedule=schedule(wait=1, warmup=2, active=active, repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(path)
                 ) as prof:
        for _ in range(3 + active):
            job.step()
            prof.step()


def timed(job, steps):
    """Mean time of a step; the first ones, before which all ranks wait for each
    other, do not count."""
    job.shape_link()
    dist.barrier()
    for _ in range(job.warm):
        job.step()
    begin = time.perf_counter()
    for _ in range(steps):
        job.step()
    seconds = torch.tensor((time.perf_counter() - begin) / steps)
    job.close()
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def check(name, job):
    """A job without communication must have none."""
    if name != "no-comm":
        return
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        job.step()
    left = [e.name for e in prof.events() if e.name.startswith("gloo:")]
    if left:
        raise RuntimeError(f"{name}: there is still {left[0]}")


def measured_well(shares):
    if len(shares) < LEAST:
        return False
    share, half = interval(shares)
    return half <= ENOUGH * share


def compare(args, kind, job, names):
    """Rounds until all changes are measured well or the time is over, as rank 0
    has it."""
    changed = [kind(args.rank, args.ranks, name) for name in names]
    for name, other in zip(names, changed):
        other.shape_link()
        for _ in range(3):
            other.step()
        check(name, other)
    shares = [[] for _ in names]
    end = time.monotonic() + args.seconds
    turn = 0
    active = torch.ones(len(names))
    before = timed(job, args.steps)
    while active.any():
        order = [i for i in range(len(names)) if active[i]]
        if turn % 2:
            order.reverse()
        times = [timed(changed[i], args.steps) for i in order]
        after = timed(job, args.steps)
        for place, (i, seconds) in enumerate(zip(order, times), 1):
            part = place / (len(order) + 1)
            base = before * (1 - part) + after * part
            shares[i].append([seconds / base])
            if args.rank == 0:
                print(names[i], turn, f"{base:.9f} {seconds:.9f}", flush=True)
        before = after
        turn += 1
        goes_on = turn < 3 or time.monotonic() < end
        active = torch.tensor([float(goes_on and not measured_well(v))
                               for v in shares])
        dist.broadcast(active, 0)


def listed():
    for name, kind in KINDS.items():
        for ranks in kind.ranks:
            first = ranks == kind.ranks[0]
            changes = kind.changes | (kind.more if first else {})
            hows = kind.hows if first else kind.hows[:1]
            for change, lines in changes.items():
                lines = ";".join(lines).format(last=ranks - 1,
                                               slow=f"{kind.slow(ranks):.5g}")
                print(name, ranks, ",".join(hows), int(kind.link is not None),
                      change, lines, sep="\t")
            if kind.framework and first:
                print(name, ranks, ",".join(hows), int(kind.link is not None),
                      "plan", kind.framework, sep="\t")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["list", *KINDS])
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--meet", help="address:port")
    parser.add_argument("--out", help="folders of the recordings, up to -HOW")
    parser.add_argument("--hows", default="", help="ways of recording")
    parser.add_argument("--active", type=int, default=5, help="recorded steps")
    parser.add_argument("--changes", default="", help="to be measured")
    parser.add_argument("--settings", help="the change \"plan\": a file that "
                        "plan wrote")
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--seconds", type=float, default=50, help="of turns")
    args = parser.parse_args()
    if args.kind == "list":
        listed()
        return
    kind = KINDS[args.kind]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{args.meet}",
                            rank=args.rank, world_size=args.ranks)
    kind.settings = args.settings
    job = kind(args.rank, args.ranks, None)
    job.shape_link()
    for _ in range(3):
        job.step()
    for how in filter(None, args.hows.split(",")):
        record(job, args.rank, how, f"{args.out}-{how}", args.active)
    names = [name for name in args.changes.split(",") if name]
    if names:
        compare(args, kind, job, names)
    job.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
