# SPDX-License-Identifier: Apache-2.0
"""How fast PyTorch trains one of the networks of bench/run: DistributedDataParallel over gloo,
one thread a rank; with one rank without it.

usage: train_ddp.py MODEL RANKS BATCH STEPS      (MODEL: mlp, cnn; batch of a rank)

Prints the samples a second of all ranks, over STEPS steps after some that warm up.  The samples
lie in memory and a step takes its rows from there, as in run(1).
"""

import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

MODELS = {
    "mlp": (
        (20000, 784),
        lambda: (
            *(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
            nn.Linear(512, 10),
        ),
    ),
    "cnn": (
        (2000, 3, 32, 32),
        lambda: (
            *(nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
            *(nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
            *(nn.Flatten(), nn.Linear(4096, 384), nn.ReLU()),
            *(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)),
        ),
    ),
}


def work(rank, name, ranks, batch, steps, port):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape, layers = MODELS[name]
    model = nn.Sequential(*layers())
    if ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=ranks,
                                init_method=f"tcp://127.0.0.1:{port}")
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(shape), torch.randint(0, 10, shape[:1])
    order = torch.randint(0, shape[0], (64, batch))

    def train(n):
        for i in range(n):
            rows = order[i % len(order)]
            sgd.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            sgd.step()
        if ranks > 1:
            dist.barrier()

    train(5 + steps // 10)
    begin = time.perf_counter()
    train(steps)
    if rank == 0:
        print(f"{ranks * batch * steps / (time.perf_counter() - begin):.1f}", flush=True)


def main():
    name, (ranks, batch, steps) = sys.argv[1], (int(a) for a in sys.argv[2:5])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (name, ranks, batch, steps, port), nprocs=ranks)


if __name__ == "__main__":
    main()
