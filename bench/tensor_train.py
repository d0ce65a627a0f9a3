# SPDX-License-Identifier: Apache-2.0
"""Training steps of PyTorch on one thread, by turns with those of the C backend.

Prints "MODEL OURS THEIRS RATIO GFLOPS" a line: milliseconds a step (the least of a
turn, medians of the turns), how many times as fast ours are, and our GFLOP/s. A
line "gemm M N K TA TB OURS THEIRS" is one product in GFLOP/s.

usage: tensor_train.py COMMAND TURNS SECONDS        (COMMAND: bench/tensor's helper)
"""

import statistics
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

PRODUCTS = [
    (64, 512, 784, 0, 1),
    (512, 784, 64, 1, 0),
    (64, 512, 512, 0, 0),
    (768, 512, 128, 0, 1),
    (768, 128, 512, 0, 0),
    (1024, 1024, 1024, 0, 0),
]


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            a.view(b, t, self.heads, -1).transpose(1, 2) for a in self.qkv(x).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, size, heads, wider=4):
        super().__init__()
        self.n1, self.att = nn.LayerNorm(size), Attention(size, heads)
        self.n2 = nn.LayerNorm(size)
        self.mlp = nn.Sequential(
            nn.Linear(size, wider * size),
            nn.GELU(approximate="tanh"),
            nn.Linear(wider * size, size),
        )

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.mlp(self.n2(x))


class Gpt(nn.Module):
    def __init__(self, words, length, size, heads, blocks):
        super().__init__()
        self.table, self.place = nn.Embedding(words, size), nn.Embedding(length, size)
        self.blocks = nn.Sequential(*(Block(size, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, words)
        self.register_buffer("at", torch.arange(length))

    def forward(self, ids):
        y = self.blocks(self.table(ids) + self.place(self.at))
        return self.head(self.norm(y)).flatten(0, 1)


def leaves():
    size, latent = 64, 96
    model = nn.Sequential(
        *(nn.Linear(211, size), Block(size, 4, 3), Block(size, 4, 3), nn.LayerNorm(size)),
        *(nn.Flatten(), nn.Linear(8 * size, 2 * latent), nn.ReLU()),
        *(nn.Linear(2 * latent, latent), nn.ReLU(), nn.Linear(latent, 1), nn.Flatten(0)),
    )
    adam = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.01, fused=True)
    return model, torch.randn(128, 8, 211), torch.randn(128), adam


def mlp():
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return model, torch.randn(64, 784), torch.randint(0, 10, (64,)), sgd(model)


def cnn():
    model = nn.Sequential(
        *(nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(nn.Flatten(), nn.Linear(4096, 384), nn.ReLU()),
        *(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)),
    )
    return model, torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,)), sgd(model)


def gpt():
    model = Gpt(65, 64, 128, 4, 4)
    adam = torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.95), weight_decay=0.1, fused=True)
    return model, torch.randint(0, 65, (12, 64)), torch.randint(0, 65, (768,)), adam


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def least(step, seconds):
    """The shortest of the runs of `step` that fit into the time, in seconds of CPU
    time: with one thread that is what an idle machine would take."""
    best, begin = float("inf"), time.process_time()
    while time.process_time() - begin < seconds:
        at = time.process_time()
        step()
        best = min(best, time.process_time() - at)
    return best


def ours(*words):
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(w) for w in out.split()]


def compare(command, name, turns, seconds):
    model, x, y, optimiser = globals()[name]()

    def step():
        optimiser.zero_grad()
        if name == "leaves":
            F.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            F.cross_entropy(model(x), y).backward()
        optimiser.step()

    step()
    here, there, rate = [], [], []
    for _ in range(turns):
        there.append(1e3 * least(step, seconds))
        ms, gflops, _ = ours(command, name, str(seconds))
        here.append(ms)
        rate.append(gflops)
    ratio = statistics.median(t / o for t, o in zip(there, here, strict=True))
    print(
        name,
        f"{statistics.median(here):.3f} {statistics.median(there):.3f}",
        f"{ratio:.2f} {statistics.median(rate):.0f}",
        flush=True,
    )


def products(command):
    for m, n, k, ta, tb in PRODUCTS:
        a = torch.randn(k, m).t() if ta else torch.randn(m, k)
        b = torch.randn(n, k).t() if tb else torch.randn(k, n)
        c = torch.empty(m, n)
        turns = 1 + int(2e8 / (2 * m * n * k))

        def some(a=a, b=b, c=c, turns=turns):
            for _ in range(turns):
                torch.mm(a, b, out=c)

        best = least(some, 0.2) / turns
        mine = ours(command, "gemm", *map(str, (m, n, k, ta, tb)))[0]
        print("gemm", m, n, k, ta, tb, f"{mine:.0f} {2e-9 * m * n * k / best:.0f}", flush=True)


def main():
    command, turns, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print("# torch", torch.__version__, flush=True)
    with torch.no_grad():
        products(command)
    for name in ("mlp", "cnn", "gpt", "leaves"):
        compare(command, name, turns, seconds)


if __name__ == "__main__":
    main()
