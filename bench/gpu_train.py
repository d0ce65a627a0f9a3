# SPDX-License-Identifier: Apache-2.0
"""Training rates of PyTorch on a GPU, with compile, for bench/gpu.

Prints samples a second, the median over the steps behind the warm-up. Batches come
from pinned memory of the host in each step, as ours do; the loss is compiled along.

usage: gpu_train.py gpt|mlp|cnn BATCH bf16|fp32 STEPS [eager]
"""

import statistics
import sys
import time

import torch
from tensor_train import Gpt, cnn, mlp
from torch import nn
from torch.nn import functional as F

WARM = 10


def gpt(batch):
    """GPT-2 of 124M, with the vocabulary rounded up, as the preset has it: the last
    layer has the weights of the first and no bias."""
    model = Gpt(50304, 1024, 768, 12, 12)
    model.head = nn.Linear(768, 50304, bias=False)
    model.head.weight = model.table.weight
    x = torch.randint(0, 50304, (batch, 1024))
    y = torch.randint(0, 50304, (batch * 1024,))
    adam = {"lr": 6e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    return model, x, y, lambda p: torch.optim.AdamW(p, fused=True, **adam)


def images(make, batch):
    model, x, y, _ = make()
    x = torch.randn(batch, *x.shape[1:])
    y = torch.randint(0, int(y.max()) + 1, (batch,))
    return model, x, y, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True)


def main():
    name, batch, precision, steps = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    model, x, y, optimiser = (
        gpt(batch) if name == "gpt" else images({"mlp": mlp, "cnn": cnn}[name], batch)
    )
    model, x, y = model.cuda(), x.pin_memory(), y.pin_memory()
    optimiser = optimiser(model.parameters())
    # plain float32, as ours is without a word
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def loss_of(x, y):
        return F.cross_entropy(model(x), y)

    if "eager" not in sys.argv[5:]:
        loss_of = torch.compile(loss_of)
    times = []
    for step in range(WARM + steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(x.cuda(non_blocking=True), y.cuda(non_blocking=True))
        loss.backward()
        optimiser.step()
        torch.cuda.synchronize()
        if step >= WARM:
            times.append(time.perf_counter() - begin)
    print(f"{batch / statistics.median(times):.2f}")


main()
