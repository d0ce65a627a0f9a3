#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of jobs_kinds.py, for bench/record: torchrun starts its ranks.

usage: record_train.py KIND STEPS TIMES [OWN FIRST N]

Writes the time of each step, in ns, a line a step, to TIMES.rank0.  With OWN,
the script records N steps from step FIRST on with a profiler of its own, and
writes OWN/rank<R>.json.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from jobs_kinds import KINDS


def main():
    kind, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    own = sys.argv[4] if len(sys.argv) > 4 else None
    first, n = map(int, sys.argv[5:7]) if own else (-1, 0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    job = KINDS[kind](rank, dist.get_world_size(), None)
    prof, taken = None, []
    for i in range(steps):
        if own and i == first:
            prof = profile(activities=[ProfilerActivity.CPU],
                           record_shapes=True)
            prof.prepare_trace()
            prof.start_trace()
        begin = time.perf_counter_ns()
        if prof:
            with record_function(f"ProfilerStep#{i}"):
                job.step()
        else:
            job.step()
        taken.append(time.perf_counter_ns() - begin)
        if own and i == first + n - 1:
            prof.stop_trace()
            prof.export_chrome_trace(os.path.join(own, f"rank{rank}.json"))
            prof = None
            dist.barrier()
    job.close()
    dist.barrier()
    if rank == 0:
        with open(times, "w", encoding="utf-8") as f:
            f.writelines(f"{t}\n" for t in taken)
    dist.destroy_process_group()


main()
