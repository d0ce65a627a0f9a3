#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with sharded parameters (FSDP2). The change: gathered parameters stay until the backward pass."""
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from turns import main


def job(changed):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(6)],
                        nn.Linear(1024, 10))
    for layer in net:
        fully_shard(layer, reshard_after_forward=not changed)
    fully_shard(net, reshard_after_forward=not changed)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    loss = nn.CrossEntropyLoss()
    x, y = torch.randn(128, 1024), torch.randint(10, (128,))

    def step():
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main(job)
