#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training that waits for its samples. The change: a worker of the loader reads them meanwhile."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from turns import main


class Samples(IterableDataset):
    """Batches that take 60 ms to read."""

    def __iter__(self):
        while True:
            time.sleep(0.06)
            yield torch.randn(128, 1024), torch.randint(10, (128,))


def job(changed):
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.ReLU())],
                        nn.Linear(1024, 10))
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    loss = nn.CrossEntropyLoss()
    batches = iter(DataLoader(Samples(), batch_size=None, num_workers=1 if changed else 0))

    def step():
        x, y = next(batches)
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(job)
