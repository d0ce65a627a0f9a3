#!/usr/bin/env python3
"""Golden files of small networks, computed by PyTorch: tests/golden/net/NAME.bin.

usage: python3 tests/gen/net_golden.py [FOLDER]        (needs PyTorch; the tests do not)

Parameters and inputs are float32, everything is computed from them in float64, so what differs from
the files is the error of what is tested. A file is a series of entries, each a line "NAME TYPE COUNT"
and COUNT little-endian numbers behind it (f32, f64, i32) or letters (txt):

    model   the statements, as in paceline-model(5)       optim   the optimiser's options
    x ids   the batch                                     y target  what belongs to it
    p:NAME  a parameter                                   g:NAME  its gradient
    out     what goes into the loss                       loss    its value
    losses  of ten steps on the same batch                eval    the loss in evaluation mode, after them
    s:NAME  state (running means), after them
    half:out half:loss half:g:NAME half:losses  the same with operands of products in bfloat16
    autocast  how far its gradients are off under torch.autocast: the greatest ||g - g64|| / ||g64||

bfloat16 as paceline-model(5) has it: both operands of each product, and in the backward pass the gradient
that comes in, are rounded to it before they are multiplied; all else, sums included, is float64 here.
"""
import copy
import math
import os
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

from torch.overrides import TorchFunctionMode

STEPS = 10


def entry(f, name, values, kind="f32"):
    if kind == "txt":
        f.write(b"%s txt %d\n" % (name.encode(), len(values)) + values.encode())
        return
    v = values.detach().reshape(-1).tolist() if torch.is_tensor(values) else list(values)
    f.write(b"%s %s %d\n" % (name.encode(), kind.encode(), len(v)))
    f.write(struct.pack("<%d%s" % (len(v), {"f32": "f", "f64": "d", "i32": "i"}[kind]), *v))


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        parts = [p.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                 for p in self.c_attn(x).split(c, dim=2)]
        y = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width),
                                  "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        h = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](h)


class GPT(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width)})

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"](torch.arange(ids.shape[1]))
        for block in t["h"]:
            x = block(x)
        return t["ln_f"](x) @ t["wte"].weight.T


def gpt_text(layers, heads, width, context, vocab):
    lines = [f"input {context}", f"embedding {vocab} {width} name=transformer.wte",
             "position name=transformer.wpe"]
    for i in range(layers):
        h = f"transformer.h.{i}"
        lines += [f"residual name={h}.r1", f"layernorm name={h}.ln_1",
                  f"attention {heads} name={h}.attn", "end",
                  f"residual name={h}.r2", f"layernorm name={h}.ln_2",
                  f"dense {4 * width} name={h}.mlp.c_fc", "gelu",
                  f"dense {width} name={h}.mlp.c_proj", "end"]
    lines += ["layernorm name=transformer.ln_f",
              f"dense {vocab} bias=0 tie=transformer.wte name=lm_head",
              "loss softmax-cross-entropy"]
    return "\n".join(lines) + "\n"


def optimiser(net, text):
    kind, *pairs = text.split()
    o = {k: float(v) for k, v in (p.split("=") for p in pairs)}
    groups = [{"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": o["decay"]},
              {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    if kind == "sgd":
        opt = torch.optim.SGD(groups, lr=o["lr"], momentum=o["momentum"],
                              nesterov=bool(o.get("nesterov", 0)))
    else:
        make = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
        opt = make(groups, lr=o["lr"], betas=(o["b1"], o["b2"]), eps=o["eps"])

    def factor(step):
        warmup = int(o.get("warmup", 0))
        if step < warmup:
            return (step + 1) / warmup
        if "cosine" in o:
            return (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup))) / 2
        if "every" in o:
            return o["gamma"] ** ((step - warmup) // int(o["every"]))
        return 1.0

    return opt, torch.optim.lr_scheduler.LambdaLR(opt, factor), o.get("clip", 0)


def half(v):
    return v.float().bfloat16().double()


class Operand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return half(v)

    @staticmethod
    def backward(ctx, g):
        return g


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return v.clone()

    @staticmethod
    def backward(ctx, g):
        return half(g)


class CausalAttention(torch.autograd.Function):
    """With the sum dy y of each row in place of that of p dp, as blocks of keys need it."""

    @staticmethod
    def forward(ctx, q, k, v):
        scale = 1 / math.sqrt(q.shape[-1])
        s = half(q) @ half(k).transpose(-1, -2) * scale
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
        p = s.softmax(-1)
        y = half(p) @ half(v)
        ctx.save_for_backward(q, k, v, p, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        q, k, v, p, y = ctx.saved_tensors
        own = (dy * y).sum(-1, keepdim=True)
        ds = half(p * (half(dy) @ half(v).transpose(-1, -2) - own) / math.sqrt(q.shape[-1]))
        return ds @ half(k), ds.transpose(-1, -2) @ half(q), half(p).transpose(-1, -2) @ half(dy)


class Half(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (F.linear, F.conv2d, torch.conv2d):
            x, w, bias, *rest = args + (None,) * (3 - len(args))
            y = Product.apply(func(Operand.apply(x), Operand.apply(w), None, *rest, **kwargs))
            if bias is None:
                return y
            return y + (bias if func is F.linear else bias[:, None, None])
        if func in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            return Product.apply(Operand.apply(args[0]) @ Operand.apply(args[1]))
        if func is F.scaled_dot_product_attention:
            return CausalAttention.apply(*args)
        return func(*args, **kwargs)


def golden_half(f, net, x, y, loss_of, optim, exact):
    auto, name_of = copy.deepcopy(net).float(), [n for n, _ in net.named_parameters()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_of(auto(x), y).backward()
    far = max(((p.grad.double() - g).norm() / g.norm()).item()
              for p, g in zip(auto.parameters(), exact) if g.norm() > 0)
    opt, schedule, clip = optimiser(net, optim)
    losses = []
    for step in range(STEPS):
        with Half():
            out = net(x.double() if x.is_floating_point() else x)
        loss = loss_of(out, y.double() if y.is_floating_point() else y)
        opt.zero_grad()
        loss.backward()
        if step == 0:
            entry(f, "half:out", out)
            entry(f, "half:loss", [loss.item()], "f64")
            for n, p in zip(name_of, net.parameters()):
                entry(f, "half:g:" + n, p.grad)
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        schedule.step()
        losses.append(loss.item())
    entry(f, "half:losses", losses, "f64")
    entry(f, "autocast", [far], "f64")


def golden(folder, name, text, net, x, y, loss_of, optim):
    for p in net.parameters():
        p.data = p.data.float().double()
    net.double().train()
    again = copy.deepcopy(net)
    with open(os.path.join(folder, name + ".bin"), "wb") as f:
        entry(f, "model", text, "txt")
        entry(f, "optim", optim, "txt")
        entry(f, "x" if x.is_floating_point() else "ids", x, "f32" if x.is_floating_point() else "i32")
        entry(f, "target" if y.is_floating_point() else "y", y, "f32" if y.is_floating_point() else "i32")
        for n, p in net.named_parameters():
            entry(f, "p:" + n, p)
        opt, schedule, clip = optimiser(net, optim)
        losses = []
        for step in range(STEPS):
            out = net(x.double() if x.is_floating_point() else x)
            loss = loss_of(out, y.double() if y.is_floating_point() else y)
            opt.zero_grad()
            loss.backward()
            if step == 0:
                entry(f, "out", out)
                entry(f, "loss", [loss.item()], "f64")
                exact = [p.grad.clone() for p in net.parameters()]
                for n, p in net.named_parameters():
                    entry(f, "g:" + n, p.grad)
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            opt.step()
            schedule.step()
            losses.append(loss.item())
        entry(f, "losses", losses, "f64")
        net.eval()
        with torch.no_grad():
            out = net(x.double() if x.is_floating_point() else x)
            entry(f, "eval", [loss_of(out, y.double() if y.is_floating_point() else y).item()], "f64")
        for n, b in net.named_buffers():
            if b.is_floating_point():
                entry(f, "s:" + n, b)
        golden_half(f, again, x, y, loss_of, optim, exact)


def classes(out, y):
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "golden", "net")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(20)
    golden(folder, "mlp",
           "input 12\ndense 17\nrelu\ndense 16\nrelu\ndense 5\nloss softmax-cross-entropy\n",
           nn.Sequential(nn.Linear(12, 17), nn.ReLU(), nn.Linear(17, 16), nn.ReLU(), nn.Linear(16, 5)),
           torch.randn(6, 12), torch.randint(5, (6,)), classes,
           "sgd lr=0.1 momentum=0.9 nesterov=1 decay=0.01")
    golden(folder, "cnn",
           "input 2 9 8\nconv 5 3 pad=1 bias=0\nbatchnorm\nrelu\nmaxpool 3 stride=2 pad=1\n"
           "conv 6 3 stride=2 pad=same\nrelu\navgpool 2 stride=1\nconv 4 1 bias=0\ntanh\nflatten\n"
           "dense 8\nsigmoid\ndense 3\nloss softmax-cross-entropy\n",
           nn.Sequential(nn.Conv2d(2, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), nn.Conv2d(5, 6, 3, 2, 1), nn.ReLU(),
                         nn.AvgPool2d(2, 1), nn.Conv2d(6, 4, (1, 1), bias=False), nn.Tanh(),
                         nn.Flatten(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 3)),
           torch.randn(4, 2, 9, 8), torch.randint(3, (4,)), classes,
           "adam lr=0.02 b1=0.9 b2=0.99 eps=1e-8 decay=0.01 gamma=0.5 every=3")
    golden(folder, "gpt", gpt_text(2, 2, 16, 8, 11), GPT(2, 2, 16, 8, 11),
           torch.randint(11, (3, 8)), torch.randint(11, (3, 8)), classes,
           "adamw lr=0.01 b1=0.9 b2=0.95 eps=1e-8 decay=0.1 clip=1 cosine=1 warmup=2")
    golden(folder, "residual",
           "input 7\ndense 10\ngelu\nresidual\nlayernorm\ndense 20\ngelu\ndense 10\ntanh\nend\n"
           "batchnorm\nresidual\nresidual\ndense 10\nend\nsigmoid\nend\ndense 3\nloss squared\n",
           nn.Sequential(nn.Linear(7, 10), nn.GELU("tanh"),
                         Residual(nn.LayerNorm(10), nn.Linear(10, 20), nn.GELU("tanh"),
                                  nn.Linear(20, 10), nn.Tanh()),
                         nn.BatchNorm1d(10), Residual(Residual(nn.Linear(10, 10)), nn.Sigmoid()),
                         nn.Linear(10, 3)),
           torch.randn(5, 7), torch.randn(5, 3), F.mse_loss,
           "sgd lr=0.05 momentum=0.5 decay=0 clip=0.5 warmup=3")
    golden(folder, "hinge", "input 9\ndense 8\ntanh\ndense 4\nloss hinge\n",
           nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 4)),
           torch.randn(7, 9), torch.randint(4, (7,)), nn.MultiMarginLoss(),
           "sgd lr=0.2 momentum=0 decay=0")


main()
