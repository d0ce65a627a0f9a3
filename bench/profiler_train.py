#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small training jobs of one rank, timed without the profiler and recorded
with it (bench/profiler runs this).

usage: profiler_train.py KIND:BATCH HOW OUT

HOW: letters s (shapes), k (stack), m (memory), or -.  Prints the step without
the profiler, before and after, and with it, in us; then, by turns without the
profiler, the steps with half and twice the batch as shares of the step.
Writes the recording to OUT.
"""

import gc
import statistics
import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS, ROUNDS, ACTIVE, WARM = 40, 12, 8, 3


def mlp(width):
    return nn.Sequential(*[m for _ in range(8)
                           for m in (nn.Linear(width, width), nn.ReLU())])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(32, 32, 2, batch_first=True)

    def forward(self, x):
        return self.net(x)[0]


def make(kind, samples):
    if kind.startswith("mlp"):
        width = int(kind[3:])
        return mlp(width), torch.randn(samples, width), torch.optim.Adam, {}
    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        return (nn.TransformerEncoder(layer, 4), torch.randn(samples, 16, 64),
                torch.optim.AdamW, {})
    if kind == "convolution":
        layers = [m for i in range(6) for m in
                  (nn.Conv2d(8 if i else 3, 8, 3, padding=1),
                   nn.BatchNorm2d(8), nn.ReLU())]
        return (nn.Sequential(*layers), torch.randn(samples, 3, 16, 16),
                torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "foreach": False})
    if kind == "lstm":
        return (Recurrent(), torch.randn(samples, 12, 32), torch.optim.SGD,
                {"lr": 0.01})
    if kind == "embedding":
        net = nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 512),
                            nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 128))
        return (net, torch.randint(0, 1000, (samples, 32)), torch.optim.AdamW,
                {})
    sys.exit(f"no such kind: {kind}")


def main():
    job, how, out = sys.argv[1:4]
    kind, batch = job.split(":")
    batch = int(batch)
    torch.set_num_threads(1)
    torch.manual_seed(40)
    net, data, optimizer, options = make(kind, 2 * batch)
    optimizer = optimizer(net.parameters(), **options)

    def step(samples=batch):
        optimizer.zero_grad()
        net(data[:samples]).square().mean().backward()
        optimizer.step()

    def timed(n, samples=batch):
        times = []
        for _ in range(n):
            start = time.perf_counter_ns()
            step(samples)
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times) / 1e3

    def share(samples):
        ratios = []
        for _ in range(ROUNDS):
            timed(1, samples)
            changed = timed(8, samples)
            timed(1)
            ratios.append(changed / timed(8))
        ratios.sort()
        return statistics.mean(ratios[ROUNDS // 4:-(ROUNDS // 4)])

    timed(20)
    shares = [share(batch // 2), share(2 * batch)]
    gc.collect()
    before = timed(STEPS)
    profiled = []
    with profile(activities=[ProfilerActivity.CPU],
                 schedule=schedule(wait=1, warmup=WARM - 1, active=ACTIVE),
                 record_shapes="s" in how, with_stack="k" in how,
                 profile_memory="m" in how,
                 on_trace_ready=lambda p: p.export_chrome_trace(out)) as prof:
        for _ in range(WARM + ACTIVE):
            profiled.append(timed(1))
            prof.step()
    gc.collect()
    print(before, timed(STEPS), statistics.median(profiled[WARM:]), *shares)


main()
