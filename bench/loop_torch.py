#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators of PyTorch on this machine's processors, for bench/loop.

usage: loop_torch.py measure NETWORKS SEED THREADS   operators of random networks
       loop_torch.py list NAME                       those of a network, unmeasured
       loop_torch.py step NAME THREADS               seconds of its step, one a line
       loop_torch.py names                           the networks

Rows are CSV, which torch.schema describes.  An operator is what reaches PyTorch's
dispatcher below autograd: of the forward pass, the backward pass and the update.
It is timed inside a training step, so it finds in the caches what it finds there
in a job.  "list" runs nothing: its tensors have sizes, but no memory.
"""

import csv
import random
import statistics
import sys
import time

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

COLUMNS = ("op network device batch m n k rows columns in out size kernel stride "
           "padding time_ns").split()
WARM = 3        # steps before those that count


# ---- networks -------------------------------------------------------------------

class Attention(nn.Module):
    """Causal attention with its two projections."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, words, width = x.shape
        q, k, v = (y.view(batch, words, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, words, width))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width),
                                 nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class Words(nn.Module):
    """Embeddings of words and of their places."""

    def __init__(self, vocabulary, words, width):
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.place = nn.Parameter(torch.zeros(words, width))

    def forward(self, x):
        return self.word(x) + self.place


def mlp(sizes, act=nn.ReLU):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def cnn(channels, size, widths, kernel, hidden, classes, norm=False):
    layers = []
    for width in widths:
        layers.append(nn.Conv2d(channels, width, kernel, padding=kernel // 2))
        if norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU())
        if size >= 8:
            layers.append(nn.MaxPool2d(2))
            size //= 2
        channels = width
    return nn.Sequential(*layers, nn.Flatten(),
                         nn.Linear(channels * size * size, hidden), nn.ReLU(),
                         nn.Linear(hidden, classes))


def gpt(vocabulary, words, width, heads, layers):
    return nn.Sequential(Words(vocabulary, words, width),
                         *(Block(width, heads) for _ in range(layers)),
                         nn.LayerNorm(width), nn.Linear(width, vocabulary))


# name: network, shape of a sample (or words and their number), classes, batch
NETWORKS = {
    "mlp-small": (lambda: mlp([64, 128, 128, 10]), (64,), 10, 32),
    "mlp-wide": (lambda: mlp([784, 1024, 1024, 10]), (784,), 10, 64),
    "mlp-deep": (lambda: mlp([256] + 5 * [300] + [20]), (256,), 20, 128),
    "mlp-one": (lambda: mlp([2000, 500, 100], nn.GELU), (2000,), 100, 16),
    "cnn-digits": (lambda: cnn(1, 28, [32, 64], 5, 128, 10), (1, 28, 28), 10, 32),
    "cnn-norm": (lambda: cnn(3, 32, [32, 64, 64], 3, 96, 10, True), (3, 32, 32), 10, 16),
    "cnn-small": (lambda: cnn(3, 16, [16, 16], 3, 64, 10), (3, 16, 16), 10, 16),
    "gpt-tiny": (lambda: gpt(64, 32, 64, 2, 2), 32, 64, 8),
    "gpt-narrow": (lambda: gpt(256, 64, 96, 4, 4), 64, 256, 4),
    "gpt-wide": (lambda: gpt(1000, 64, 256, 4, 2), 64, 1000, 4),
    "gpt-long": (lambda: gpt(500, 256, 128, 4, 2), 256, 500, 2),
    "gpt-deep": (lambda: gpt(128, 64, 64, 2, 8), 64, 128, 2),
}


def between(draw, low, high, reach):
    """A number of the range, small ones as often as large ones."""
    n = round(low * (high / low) ** (reach * draw.random()))
    kind = draw.randrange(3)
    if kind == 1 and n >= 16:
        n = n // 16 * 16
    elif kind == 2:
        n = 1 << (n.bit_length() - 1)
    return max(n, 1)


def random_network(draw, number):
    """As bench/loop's other networks: perceptrons, convolutions and transformers by turns."""
    reach = draw.random()

    def size(low, high):
        return between(draw, low, high, reach)

    if number % 3 == 0:
        sizes = [size(8, 3072) for _ in range(draw.randint(2, 6))]
        classes = size(2, 1000)
        act = draw.choice([nn.ReLU, nn.GELU, nn.Tanh])
        return (lambda: mlp(sizes + [classes], act)), (sizes[0],), classes, size(1, 512)
    if number % 3 == 1:
        image, channels = 4 * draw.randint(2, 12), draw.choice([1, 3, size(1, 32)])
        widths = [size(4, 128) for _ in range(draw.randint(1, 3))]
        kernel, hidden, classes = draw.choice([1, 3, 5]), size(16, 512), size(2, 200)
        norm = draw.random() < 0.4
        return ((lambda: cnn(channels, image, widths, kernel, hidden, classes, norm)),
                (channels, image, image), classes, size(1, 64))
    heads = size(1, 12)
    width, words, vocabulary = 8 * heads * size(1, 6), size(8, 256), size(32, 4096)
    layers = draw.randint(1, 3)
    return (lambda: gpt(vocabulary, words, width, heads, layers)), words, vocabulary, size(1, 16)


class Job:
    """A network that trains on the same batch again and again."""

    def __init__(self, network):
        make, sample, classes, batch = network
        self.model = make()
        if isinstance(sample, int):
            self.x = torch.randint(classes, (batch, sample))
            self.y = torch.randint(classes, (batch * sample,))
        else:
            self.x = torch.randn(batch, *sample)
            self.y = torch.randint(classes, (batch,))
        self.classes = classes
        self.update = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def step(self):
        out = self.model(self.x).reshape(-1, self.classes)
        F.cross_entropy(out, self.y).backward()
        self.update.step()
        self.update.zero_grad()


# ---- operators ------------------------------------------------------------------

def turned(x):
    """How a matrix lies in memory: by rows or by columns."""
    return "t" if x.stride(-2) == 1 and x.stride(-1) != 1 else "n"


def product(a, b):
    batch = a.shape[0] if a.dim() == 3 else 1
    return dict(batch=batch, m=a.shape[-2], k=a.shape[-1], n=b.shape[-1])


def convolution(x, w, stride, padding):
    return dict(batch=x.shape[0], **{"in": x.shape[1]}, out=w.shape[0],
                size=round((x.shape[2] * x.shape[3]) ** 0.5), kernel=w.shape[2],
                stride=stride[0], padding=padding[0])


def rows_of(x, columns=None):
    columns = columns or (x.shape[-1] if x.dim() else 1)
    return dict(rows=x.numel() // columns, columns=columns)


def tensors(args):
    for a in args:
        if isinstance(a, torch.Tensor):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from tensors(a)


def describe(name, args, out):
    """The name and the sizes by which torch.schema knows an operator."""
    if name in ("addmm", "mm", "bmm"):
        a, b = args[-2:]
        return f"{name}_{turned(a)}{turned(b)}", product(a, b)
    if name == "convolution":
        return name, convolution(args[0], args[1], args[3], args[4])
    if name == "convolution_backward":
        ends = "" if args[10][0] else "_end"
        return name + ends, convolution(args[1], args[2], args[4], args[5])
    if name.startswith("_scaled_dot_product"):
        q = args[1] if name.endswith("backward") else args[0]
        return name, dict(batch=q.shape[0] * q.shape[1], m=q.shape[2], n=q.shape[2],
                          k=q.shape[3])
    if name.startswith("max_pool2d"):
        window = next(a for a in args if isinstance(a, (list, tuple)))
        return f"{name}_{window[0]}", rows_of(args[0])
    if name.startswith("native_batch_norm"):
        return name, rows_of(args[0])
    if name.startswith("_fused_adamw"):
        return name, dict(rows=1, columns=sum(t.numel() for t in args[0]))
    most = max(tensors([out, *args]), key=torch.Tensor.numel, default=None)
    return name, rows_of(most) if most is not None and most.numel() else dict(rows=1, columns=1)


class Operators(TorchDispatchMode):
    """Every operator of the steps inside, with its times."""

    def __init__(self):
        super().__init__()
        self.seen = {}      # by place in the step
        self.at = 0

    def begin(self):
        self.at = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "prim":    # questions, not operators
            return func(*args, **(kwargs or {}))
        begin = time.perf_counter_ns()
        out = func(*args, **(kwargs or {}))
        took = time.perf_counter_ns() - begin
        name = func._schema.name.split("::")[-1]
        if func.is_view or name in ("detach", "_reshape_alias"):
            name, sizes = "view", dict(rows=1, columns=1)
        else:
            name, sizes = describe(name, args, out)
        self.seen.setdefault(self.at, (name, sizes, []))[2].append(took)
        self.at += 1
        return out


def write(rows, number, writer):
    for name, sizes, times in rows:
        took = round(statistics.median(times[WARM:])) if len(times) > WARM else ""
        writer.writerow([name, number, "this"] +
                        [sizes.get(c, 0) for c in COLUMNS[3:-1]] + [took])


def measure(networks, seed, threads, writer):
    torch.set_num_threads(threads)
    draw = random.Random(seed)
    for number in range(networks):
        job, seen = Job(random_network(draw, number)), Operators()
        job.step()      # the first one makes the state of the optimiser
        for _ in range(WARM + 7):
            with seen:
                seen.begin()
                job.step()
        write(seen.seen.values(), number, writer)


def list_operators(name, writer):
    with FakeTensorMode():
        job, seen = Job(NETWORKS[name]), Operators()
        job.step()
        with seen:
            job.step()
    write(seen.seen.values(), 0, writer)


def steps(name, threads):
    torch.set_num_threads(threads)
    job = Job(NETWORKS[name])
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.5:
        job.step()
    for _ in range(30):
        begin = time.perf_counter()
        job.step()
        print(time.perf_counter() - begin)


def main():
    what, *args = sys.argv[1:]
    torch.manual_seed(1)
    if what == "names":
        print("\n".join(NETWORKS))
    elif what == "step":
        steps(args[0], int(args[1]))
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        if what == "measure":
            measure(int(args[0]), int(args[1]), int(args[2]), writer)
        else:
            list_operators(args[0], writer)


main()
