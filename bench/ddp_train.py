#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process of a small DistributedDataParallel job over gloo on the CPU
that compares settings of the buckets.

It holds one copy of the network per setting and trains them by turns, a few
steps each, so that what else the machine does hits all alike; in some turns
the first one is trained under the profiler, too.  bench/ddp starts the
processes and reads what they print.

The settings are lines "NAME CAP" or "NAME CAP,CAP,..." of a file: a name and
bucket_cap_mb or bucket_cap_mb_list, or "default" for what DDP does unasked.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

SEED = 20240229
WARM = 4                # steps before anything counts: buckets are laid out
                        # anew after the first


class Block(nn.Module):
    """x + down(gelu(up(norm(x)))), as in a transformer."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, as in a residual network."""

    def __init__(self, given, made, stride):
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(8, made)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(8, made)
        self.short = nn.Conv2d(given, made, 1, stride, bias=False)

    def forward(self, x):
        y = nn.functional.relu(self.norm1(self.first(x)))
        return nn.functional.relu(self.norm2(self.second(y)) + self.short(x))


def mlp(width, depth, classes=100):
    return nn.Sequential(nn.Linear(width, width),
                         *[Block(width) for _ in range(depth)],
                         nn.LayerNorm(width), nn.Linear(width, classes))


def convnet(classes=100):
    widths = [64, 64, 128, 256, 512]
    return nn.Sequential(
        nn.Conv2d(3, widths[0], 3, 2, 1, bias=False),
        nn.GroupNorm(8, widths[0]), nn.ReLU(),
        *[Residual(a, b, 1 if a == b else 2)
          for a, b in zip(widths, widths[1:])],
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))


# name: network, shape of a sample, samples per rank and step
MODELS = {
    "mlp": (lambda: mlp(512, 6), (512,), 256),
    "mlp-1024": (lambda: mlp(512, 6), (512,), 1024),
    "conv": (convnet, (3, 32, 32), 24),
}


class Trainee:
    """A network with its optimizer and a batch of its own."""

    def __init__(self, model, caps, rank):
        make, shape, batch = MODELS[model]
        torch.manual_seed(SEED)
        options = {}
        if caps != "default":
            sizes = [float(c) for c in caps.split(",") if c]
            if "," in caps:
                options["bucket_cap_mb_list"] = sizes
            else:
                options["bucket_cap_mb"] = sizes[0]
        self.net = DistributedDataParallel(make(), **options)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.001,
                                         momentum=0.9)
        gen = torch.Generator().manual_seed(SEED + 1 + rank)
        self.x = torch.randn(batch, *shape, generator=gen)
        self.y = torch.randint(100, (batch,), generator=gen)

    def step(self):
        with record_function("forward"):
            loss = self.criterion(self.net(self.x), self.y)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()


def timed(trainee, steps):
    """Durations of steps in s; the first of them, which finds cold caches and
    processes that do not stand at the same line, is left out."""
    times = []
    dist.barrier()
    for _ in range(steps + 1):
        begin = time.perf_counter()
        trainee.step()
        times.append(time.perf_counter() - begin)
    return times[1:]


def record(args, trainee, turn):
    """Trace args.steps steps as turn."""
    path = os.path.join(args.out, f"turn{turn}-rank{args.rank}.json")
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=0, warmup=2, active=args.steps,
                                   repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(path)
                 ) as prof:
        for _ in range(2 + args.steps):
            trainee.step()
            prof.step()


def read_settings(path):
    with open(path, encoding="utf-8") as f:
        return [line.split() for line in f if line.strip()]


def compare(args):
    """Time all settings by turns, each beside the first, one line a step;
    args.record of the turns trace the first setting, too."""
    settings = read_settings(args.settings)
    trainees = [(name, Trainee(args.model, caps, args.rank))
                for name, caps in settings]
    for name, trainee in trainees:
        for _ in range(WARM):
            trainee.step()
    recorded = 0
    for turn in range(args.repeat):
        others = trainees[1:] if turn % 2 == 0 else trainees[:0:-1]
        for pair in ([trainees[0], other] for other in others or [()]):
            for name, trainee in filter(None, pair):
                for t in timed(trainee, args.steps):
                    print(f"{name} {turn} {t:.9f}")
        if recorded * args.repeat <= turn * args.record and \
                recorded < args.record:
            record(args, trainees[0][1], recorded)
            recorded += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--meet", required=True, help="address:port")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--settings", required=True, help="file")
    parser.add_argument("--steps", type=int, default=5, help="in a turn")
    parser.add_argument("--repeat", type=int, default=5, help="turns")
    parser.add_argument("--record", type=int, default=0,
                        help="turns that trace the first setting, too")
    parser.add_argument("--out", help="folder for traces")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{args.meet}",
                            rank=args.rank, world_size=args.ranks)
    compare(args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
