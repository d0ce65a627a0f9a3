# SPDX-License-Identifier: Apache-2.0
"""How long PyTorch's own work takes for a layer of a transformer: sizes so small that computing takes next to nothing.

usage: host.py STYLE ROUNDS    (STYLE: plain, modules, functions)

plain      functions that do much at once: attention is one operator, nothing is dropped
modules    as most programs are written: a module for each operation, a mask, dropout
functions  as programs with tensor parallelism are written: products, activations, softmax and the borders between
           ranks are autograd functions in Python

Prints the us of the forward and of the backward pass of a layer: the difference of 4 and 12 layers, the lowest quarter
of ROUNDS measurements by turns, of the processor's time of this thread, which other programs disturb least.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LENGTH, VOCABULARY = 16, 2, 8, 32
P = 0.1


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.matmul(x, weight.t()) + bias

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        rows = dy.reshape(-1, dy.shape[-1])
        return dy.matmul(weight), rows.t().matmul(x.reshape(-1, x.shape[-1])), rows.sum(0)


class Border(torch.autograd.Function):
    """Where ranks would add up results, or gradients: nothing is sent."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        return dy.contiguous()


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, scale):
        y = torch.softmax((x * scale).masked_fill(mask, -1e4), -1)
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return torch._softmax_backward_data(dy, y, -1, y.dtype) * ctx.scale, None, None


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(dy, x)


class Linear(nn.Linear):
    def forward(self, x):
        return Product.apply(x, self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, style):
        super().__init__()
        linear = Linear if style == "functions" else nn.Linear
        self.style = style
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.fc, self.out = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)
        self.act, self.drop = nn.GELU(), nn.Dropout(P)

    def shares(self, q, k, mask):
        scores = q @ k.transpose(-2, -1)
        if self.style == "functions":
            return Softmax.apply(scores, mask, 0.35)
        return F.softmax((scores * 0.35).masked_fill(mask, float("-inf")), -1)

    def attend(self, x, mask):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(x).split(c, 2))
        if self.style == "plain":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = self.drop(self.shares(q, k, mask)) @ v
        return self.proj(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x, mask):
        if self.style == "plain":
            x = x + self.attend(self.ln_1(x), mask)
            return x + self.out(F.gelu(self.fc(self.ln_2(x))))
        if self.style == "modules":
            x = x + self.drop(self.attend(self.ln_1(x), mask))
            return x + self.drop(self.out(self.act(self.fc(self.ln_2(x)))))
        x = x + self.drop(Border.apply(self.attend(Border.apply(self.ln_1(x)), mask)))
        return x + self.drop(Border.apply(self.out(Gelu.apply(self.fc(Border.apply(self.ln_2(x)))))))


class Model(nn.Module):
    def __init__(self, style, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(style) for _ in range(layers))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1))

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x, self.mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def main():
    style, rounds = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    models = [Model(style, layers) for layers in (4, 12)]
    ids = torch.randint(0, VOCABULARY, (1, LENGTH))
    times = [[[], []], [[], []]]
    for n in range(rounds + 5):
        for model, into in zip(models, times):
            at = [time.thread_time_ns()]
            loss = model(ids)
            at.append(time.thread_time_ns())
            loss.backward()
            at.append(time.thread_time_ns())
            for k in range(2):
                into[k].append(at[k + 1] - at[k])
            model.zero_grad(set_to_none=False)
    low = [[sorted(t[5:])[rounds // 4] for t in of] for of in times]
    print("%.1f %.1f" % tuple((low[1][k] - low[0][k]) / 8e3 for k in range(2)))


main()
