#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the parts of the light mode cost, for COST=1 bench/record.

usage: record_cost.py LIGHT

LIGHT is lib/record/light.py.  One process of one rank over gloo, with things so
small that the parts take longer than they do.  Each part is switched on and off
by turns, and the processor time of both is compared.
"""

import importlib.util
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

ROUNDS, TIMES = 15, 60


def load(path):
    spec = importlib.util.spec_from_file_location("light", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Light


def part(light, name):
    def on():
        one = light(torch)
        one.watching = True
        getattr(one, name)()
        return one.stop
    return on


def profiler(light):
    def on():
        prof = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
        prof.prepare_trace()
        light(torch).only_scopes(prof.start_trace)
        return prof.stop_trace
    return on


def once(thing):
    begin = time.process_time_ns()
    for _ in range(TIMES):
        thing()
    return (time.process_time_ns() - begin) / TIMES / 1e3


def cost(thing, on):
    """Microseconds of the thing without and with: the third best of each,
    since what else the machine does only adds to them."""
    without, with_ = [], []
    for _ in range(ROUNDS):
        without.append(once(thing))
        off = on()
        thing()
        with_.append(once(thing))
        off()
    return sorted(without)[2], sorted(with_)[2]


def main():
    light = load(sys.argv[1])
    torch.set_num_threads(1)
    folder = tempfile.TemporaryDirectory()
    dist.init_process_group("gloo", init_method=f"file://{folder.name}/store",
                            rank=0, world_size=1)
    x, t = torch.randn(2, 4), torch.ones(4)
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(19)])
    things = {
        "call of a module": (lambda: net(x), 20),
        "node of the backward pass": (lambda: net(x).sum().backward(), 78),
        "collective": (lambda: dist.all_reduce(t), 1),
    }
    rows = (("call of a module", part(light, "watch_modules")),
            ("node of the backward pass", profiler(light)),
            ("collective", part(light, "watch_issues")),
            ("collective", part(light, "watch_waits")),
            ("collective", profiler(light)))
    names = ("its call", "profiler", "who issues it", "who waits", "profiler")
    print(f"{'what':26} {'part':14} {'without':>9} {'cost':>8}")
    for (what, on), name in zip(rows, names):
        thing, n = things[what]
        without, with_ = cost(thing, on)
        print(f"{what:26} {name:14} {without / n:6.1f} us "
              f"{(with_ - without) / n:+5.1f} us", flush=True)
    dist.destroy_process_group()


main()
