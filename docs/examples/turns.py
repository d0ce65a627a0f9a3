# SPDX-License-Identifier: Apache-2.0
"""What the examples share: record a job, or time the job and a changed one by turns."""
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.profiler import profile, schedule, tensorboard_trace_handler


def record(step, folder):
    """One file for each rank, with five steps of the job."""
    save = tensorboard_trace_handler(folder, f"rank{dist.get_rank()}", use_gzip=True)
    with profile(schedule=schedule(wait=2, warmup=1, active=5), on_trace_ready=save,
                 record_shapes=True) as p:
        for _ in range(8):
            step()
            p.step()


def seconds(step):
    """The time of a step, the longest over the ranks."""
    dist.barrier()
    begin = time.perf_counter()
    step()
    spent = torch.tensor(time.perf_counter() - begin)
    dist.all_reduce(spent, dist.ReduceOp.MAX)
    return spent.item()


def compare(step, changed, pairs=30):
    for _ in range(3):
        step(), changed()
    both = [(seconds(step), seconds(changed)) for _ in range(pairs)]
    if dist.get_rank() == 0:
        ratio = statistics.median(b / a for a, b in both)
        print(f"{1e3 * statistics.median(a for a, _ in both):.1f} ms a step, changed "
              f"{1e3 * statistics.median(b for _, b in both):.1f} ms: "
              f"{100 * (ratio - 1):+.1f} % (median of {pairs} pairs)")


def main(job):
    """usage: torchrun --nproc-per-node=2 SCRIPT [FOLDER]      FOLDER: record into it"""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    if len(sys.argv) > 1:
        record(job(False), sys.argv[1])
    else:
        compare(job(False), job(True))
    dist.destroy_process_group()
