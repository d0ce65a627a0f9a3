# SPDX-License-Identifier: Apache-2.0
"""How fast gloo's all-reduce is over TCP loopback, as torch.distributed has it.

usage: allreduce_gloo.py RANKS FROM TO      (bytes; times 4 from one to the next)

Prints "BYTES MEDIAN-US BUSBW" a line: bus bandwidth in GB/s as nccl-tests
define it.  Every element is written before and checked after each operation,
outside the time that is taken.
"""

import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def measure(size, turns, ranks):
    x = torch.empty(size // 4)
    took = []
    for i in range(-1 - turns // 5, turns):
        value = 1.0 + i % 3
        x.fill_(value)
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(x)
        spent = time.perf_counter() - begin
        assert bool((x == ranks * value).all())
        if i >= 0:
            took.append(spent)
    slowest = torch.tensor(took, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return statistics.median(slowest.tolist())


def work(rank, ranks, port, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks,
                            init_method=f"tcp://127.0.0.1:{port}")
    for size in sizes:
        turns = (5 if size > 16 << 20 else 10 if size > 1 << 20
                 else 50 if size > 64 << 10 else 500)
        t = measure(size, turns, ranks)
        if rank == 0:
            bus = size / t / 1e9 * 2 * (ranks - 1) / ranks
            print(size, f"{t * 1e6:.1f} {bus:.2f}", flush=True)


def main():
    ranks, size, last = (int(a) for a in sys.argv[1:4])
    sizes = []
    while size <= last:
        sizes.append(size)
        size *= 4
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (ranks, port, sizes), nprocs=ranks)


if __name__ == "__main__":
    main()
