# SPDX-License-Identifier: Apache-2.0
"""Training rates of PyTorch on a GPU, with compile, by turns with ours, for bench/gpu.

Prints "OURS THEIRS HOW" a turn: samples a second; HOW is compile, or eager where that
failed (what it said goes to standard error). Batches come from pinned memory of the host in each
step, as ours do; the loss is compiled along. Theirs is the median over groups of steps, within
which the host need not wait for the device; ours waits in each step, as it logs the loss.

usage: gpu_train.py gpt|mlp|cnn|small BATCH bf16|fp32 STEPS TURNS COMMAND...

COMMAND prints ours; its LD_LIBRARY_PATH is GPU_LIBS, if that is set. small: gpt, to try the script.
With KEEP in the environment, the kernels of three of its steps go to standard error at the end.
"""

import os
import statistics
import subprocess
import sys
import time
import traceback

import torch
from tensor_train import Gpt, cnn, mlp
from torch import nn
from torch.nn import functional as F

WARM, GROUP = 10, 5


def gpt(batch, words, length, size, heads, blocks):
    """The last layer has the weights of the first and no bias."""
    model = Gpt(words, length, size, heads, blocks)
    model.head = nn.Linear(size, words, bias=False)
    model.head.weight = model.table.weight
    x = torch.randint(0, words, (batch, length))
    y = torch.randint(0, words, (batch * length,))
    adam = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    return model, x, y, lambda p: torch.optim.AdamW(p, fused=True, **adam)


def images(make, batch):
    model, x, y, _ = make()
    x = torch.randn(batch, *x.shape[1:])
    y = torch.randint(0, int(y.max()) + 1, (batch,))
    return model, x, y, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True)


MODELS = {
    # GPT-2 of 124M, with the vocabulary rounded up, as the preset has it
    "gpt": lambda batch: gpt(batch, 50304, 1024, 768, 12, 12),
    "small": lambda batch: gpt(batch, 50304, 64, 128, 2, 2),
    "mlp": lambda batch: images(mlp, batch),
    "cnn": lambda batch: images(cnn, batch),
}


class Training:
    def __init__(self, name, batch, precision):
        self.batch, self.half = batch, precision == "bf16"
        model, x, y, optimiser = MODELS[name](batch)
        self.model, self.x, self.y = model.cuda(), x.pin_memory(), y.pin_memory()
        self.optimiser = optimiser(self.model.parameters())
        self.loss_of, self.how = torch.compile(self.plain), "compile"

    def plain(self, x, y):
        return F.cross_entropy(self.model(x), y)

    def steps(self, n):
        for _ in range(n):
            self.optimiser.zero_grad(set_to_none=True)
            x, y = self.x.cuda(non_blocking=True), self.y.cuda(non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=self.half):
                loss = self.loss_of(x, y)
            loss.backward()
            self.optimiser.step()
        torch.cuda.synchronize()

    def warm(self):
        try:
            self.steps(WARM)
        except Exception:
            if self.how != "compile":
                raise
            traceback.print_exc()
            self.loss_of, self.how = self.plain, "eager"
            self.steps(WARM)

    def rate(self, steps):
        self.warm()
        times = []
        for _ in range(max(1, steps // GROUP)):
            begin = time.perf_counter()
            self.steps(GROUP)
            times.append(time.perf_counter() - begin)
        return self.batch * GROUP / statistics.median(times)


def kernels(training):
    """Those that took longest, by PyTorch's profiler."""
    activities = torch.profiler.ProfilerActivity
    try:
        with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profile:
            training.steps(3)
        table = profile.key_averages().table(
            sort_by="self_device_time_total", row_limit=40, max_name_column_width=90
        )
        print(table, file=sys.stderr, flush=True)
    except Exception:
        traceback.print_exc()


def ours(command):
    # what the peer has put by is given back meanwhile
    torch.cuda.empty_cache()
    env = dict(os.environ, LD_LIBRARY_PATH=os.environ.get("GPU_LIBS", ""))
    if not env["LD_LIBRARY_PATH"]:
        del env["LD_LIBRARY_PATH"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env)
    return float(out.stdout)


def main():
    name, batch, precision = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    steps, turns, command = int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]
    # plain float32, as ours is without a word
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    training = Training(name, batch, precision)
    begin = time.perf_counter()
    training.warm()
    print(f"{name}: {training.how}, {time.perf_counter() - begin:.0f} s to the first "
          f"{WARM} steps", file=sys.stderr, flush=True)
    for _ in range(turns):
        mine = ours(command)
        print(f"{mine:.2f} {training.rate(steps):.2f} {training.how}", flush=True)
    if os.environ.get("KEEP"):
        kernels(training)


main()
