#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of jobs_kinds.py, for bench/record: torchrun starts its ranks.

usage: record_train.py KIND STEPS TIMES [OWN FIRST N]

Writes the time of each step of rank 0, in ns, a line a step, to TIMES: from the
moment at which the optimizer begins its step to that of the next one.  Whatever
records from the end of one optimizer's step to the next starts and ends outside
of the steps between its first and its last one.  With OWN, the script records N
steps from step FIRST on with a profiler of its own, and writes
OWN/rank<R>.json.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.profiler import ProfilerActivity, profile, record_function

from jobs_kinds import KINDS


def complete_fsdp1():
    """PyTorch 2.1 cannot run FullyShardedDataParallel over gloo: its streams of
    processors take no priority, they have no events, and gloo does not have two
    collectives. Here is what is missing, made of what is there."""
    class Stream(torch.cpu.Stream):
        def __init__(self, priority=0):
            super().__init__()

        def wait_stream(self, stream):
            pass

    class Event:
        def record(self):
            pass

        synchronize = record

    def gather(whole, part, group=None, async_op=False):
        parts = list(whole.chunk(dist.get_world_size(group)))
        return dist.all_gather(parts, part, group, async_op)

    def scatter(part, whole, op=dist.ReduceOp.SUM, group=None):
        dist.all_reduce(whole, op, group)
        parts = whole.chunk(dist.get_world_size(group))
        part.copy_(parts[dist.get_rank(group)])

    torch.cpu.Stream, torch.cpu.Event = Stream, Event
    torch.cpu._default_cpu_stream = torch.cpu._current_stream = Stream()
    dist.all_gather_into_tensor = gather
    dist.reduce_scatter_tensor = scatter


def main():
    kind, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    own = sys.argv[4] if len(sys.argv) > 4 else None
    first, n = map(int, sys.argv[5:7]) if own else (-1, 0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if kind.startswith("fsdp1") and torch.__version__.startswith("2.1."):
        complete_fsdp1()
    job = KINDS[kind](rank, dist.get_world_size(), None)
    prof, at = None, []
    register_optimizer_step_pre_hook(
        lambda *_: at.append(time.perf_counter_ns()) if len(at) == i + 1
        else None)
    at.append(time.perf_counter_ns())
    for i in range(steps):
        if own and i == first:
            prof = profile(activities=[ProfilerActivity.CPU],
                           record_shapes=True)
            prof.prepare_trace()
            prof.start_trace()
        if prof:
            with record_function(f"ProfilerStep#{i}"):
                job.step()
        else:
            job.step()
        if own and i == first + n - 1:
            prof.stop_trace()
            prof.export_chrome_trace(os.path.join(own, f"rank{rank}.json"))
            prof = None
            dist.barrier()
    job.close()
    dist.barrier()
    if rank == 0:
        with open(times, "w", encoding="utf-8") as f:
            f.writelines(f"{b - a}\n" for a, b in zip(at, at[1:]))
    dist.destroy_process_group()


main()
