#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with DistributedDataParallel. The change: four times the samples a step."""
import torch
from torch import nn

from turns import main


def job(changed):
    batch = 256 if changed else 64
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.ReLU())],
                        nn.Linear(1024, 10))
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    loss = nn.CrossEntropyLoss()
    x, y = torch.randn(batch, 1024), torch.randint(10, (batch,))

    def step():
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(job)
