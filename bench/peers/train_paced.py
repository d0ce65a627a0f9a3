#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training in PyTorch with workers of unequal speed, for bench/policies.

usage: train_paced.py data X.npy Y.npy          samples for both, run(1) and this
       train_paced.py RULE RATE TARGET SEED SPEED,SPEED... X.npy Y.npy

RULE is ddp, or local:N (post-local SGD: after 20 common steps, weights are
averaged every N).  One process a speed, over gloo; a step that ends early
sleeps to the end of its period, as in `run --speeds`.  A line is printed:
seconds to the third evaluation of held-out samples in a row below TARGET, without
the time of evaluations, and the samples until then; "inf" if it is never reached.
"""

import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState, post_localSGD_hook)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

BATCH = 16
EVALUATE = 4            # steps between two evaluations
IN_A_ROW = 3
LOCAL_FROM = 20
STEPS = 1200            # then it is never


def make(x, y):
    """Images of ten classes: two smooth patterns each, moved about, and noise."""
    rng = np.random.default_rng(1)
    waves = rng.normal(size=(10, 2, 3, 3))
    grid = np.arange(12) / 12 * 2 * np.pi
    basis = np.stack([np.ones(12), np.sin(grid), np.cos(grid)])
    pattern = np.einsum("ckij,ih,jw->ckhw", waves, basis, basis)
    label = rng.integers(0, 10, 4000)
    image = pattern[label, rng.integers(0, 2, 4000)]
    move = rng.integers(-2, 3, (4000, 2))
    image = np.stack([np.roll(i, m, (0, 1)) for i, m in zip(image, move)])
    image += rng.normal(size=image.shape)
    np.save(x, image[:, None].astype(np.float32))
    np.save(y, label.astype(np.int64))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 36, 10))


def samples(files):
    x, y = np.load(files[0]), np.load(files[1])
    cut = len(x) * 4 // 5
    x = (x - x[:cut].mean()) / x[:cut].std()
    return (torch.from_numpy(x[:cut]), torch.from_numpy(y[:cut]),
            torch.from_numpy(x[cut:]), torch.from_numpy(y[cut:]))


def work(rank, rule, rate, target, seed, speeds, files, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=len(speeds))
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, held_x, held_y = samples(files)
    net = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    if rule != "ddp":
        net.register_comm_hook(PostLocalSGDState(None, None, LOCAL_FROM, False),
                               post_localSGD_hook)
        optimizer = PostLocalSGDOptimizer(
            optimizer, PeriodicModelAverager(int(rule[6:]), warmup_steps=LOCAL_FROM))
    loss_of = nn.CrossEntropyLoss()
    draw = np.random.default_rng(seed)
    period, below, evaluated = 1 / speeds[rank], 0, 0.0
    dist.barrier()
    begin = time.monotonic()
    for step in range(1, STEPS + 1):
        due = time.monotonic() + period
        pick = draw.permutation(len(x))[:BATCH * len(speeds)][rank::len(speeds)]
        optimizer.zero_grad()
        loss_of(net(x[pick]), y[pick]).backward()
        time.sleep(max(0, due - time.monotonic()))
        optimizer.step()
        if step % EVALUATE:
            continue
        before = time.monotonic()
        with torch.no_grad():
            loss = loss_of(net.module(held_x), held_y)
        dist.broadcast(loss, 0)
        evaluated += time.monotonic() - before
        below = below + 1 if loss < target else 0
        if below == IN_A_ROW:
            break
    if rank == 0:
        seconds = time.monotonic() - begin - evaluated
        print(f"{seconds:.3f}" if below == IN_A_ROW else "inf",
              step * BATCH * len(speeds))
    dist.destroy_process_group()


def main():
    if sys.argv[1] == "data":
        make(*sys.argv[2:])
        return
    rule, rate, target, seed = sys.argv[1], *map(float, sys.argv[2:4]), int(sys.argv[4])
    speeds = [float(s) for s in sys.argv[5].split(",")]
    mp.spawn(work, (rule, rate, target, seed, speeds, sys.argv[6:8],
                    20000 + os.getpid() % 20000), len(speeds))


if __name__ == "__main__":
    main()
