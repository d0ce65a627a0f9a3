#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records a few steps of a small network on the CPU with every allocation.

The batch passes in --parts microbatches, and the first --again blocks are
checkpointed.  bench/memory compares what a plan predicts of these changes
with the recordings of jobs that really have them.
"""

import argparse

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """A block of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                  nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


def perceptron():
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(),
                         nn.Linear(1024, 512), nn.Tanh())


def convolution(from_, to):
    return nn.Sequential(nn.Conv2d(from_, to, 3, padding=1),
                         nn.BatchNorm2d(to), nn.ReLU(), nn.MaxPool2d(2))


class Net(nn.Module):
    """First, then the blocks, then last."""

    def __init__(self, first, blocks, last, again):
        super().__init__()
        self.first = first
        self.blocks = nn.ModuleList(blocks)
        self.last = last
        self.again = again

    def forward(self, x):
        x = self.first(x)
        for i, block in enumerate(self.blocks):
            with record_function(f"block{i}"):
                if i < self.again:
                    x = checkpoint(block, x, use_reentrant=False)
                else:
                    x = block(x)
        return self.last(x)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


def make(model, again):
    if model == "mlp":
        return (Net(nn.Identity(), [perceptron() for _ in range(6)],
                    nn.Linear(512, 10), again), torch.randn(2048, 512))
    if model == "conv":
        width = [3, 32, 64, 64]
        blocks = [convolution(a, b) for a, b in zip(width, width[1:])]
        last = nn.Sequential(nn.Flatten(), nn.Linear(64 * 8 * 8, 10))
        return (Net(nn.Identity(), blocks, last, again),
                torch.randn(64, 3, 64, 64))
    last = nn.Sequential(Mean(), nn.Linear(128, 1000))
    return (Net(nn.Embedding(1000, 128), [Attention(128, 4) for _ in range(4)],
                last, again), torch.randint(0, 1000, (64, 64)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=("mlp", "conv", "transformer"))
    parser.add_argument("--out", required=True)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--again", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)
    net, x = make(args.model, args.again)
    y = torch.randint(0, 10, (len(x),))
    optimizer = torch.optim.Adam(net.parameters())
    loss = nn.CrossEntropyLoss()

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 profile_memory=True,
                 schedule=schedule(wait=1, warmup=1, active=2)) as profiler:
        for _ in range(4):
            for part in range(args.parts):
                of = slice(part * len(x) // args.parts,
                           (part + 1) * len(x) // args.parts)
                (loss(net(x[of]), y[of]) / args.parts).backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(args.out)


main()
