# SPDX-License-Identifier: Apache-2.0
"""Attention beside PyTorch's scaled_dot_product_attention, by turns in one run.

usage: gpu_attn.py HELPER [TURNS]    (build/gpu/gpu_attn; needs a GPU and PyTorch with CUDA)

Both compute causal attention of bfloat16 on the shapes of gpu_attn.cu, one after the other, TURNS
times (default 3) for each shape. A time is a median of 20, by events of the device; a run that does
not count goes before each, so that the device need not wait for the host. The ratio, their time by
ours, is the median of the turns. PyTorch may take whichever of its own implementations it
prefers, and gets q, k and v as models have them, (batch, tokens, heads, size) in memory, each of
its own: what would put their gradients together is not counted. The last two columns are the same
by its cuDNN, where it can. TFLOPS are ours; the share is that of a large product. Ends with 1
if ours is below DEMAND of PyTorch's rate for some shape.
"""

import os
import statistics
import subprocess
import sys

DEMAND = 0.6
TOKENS, CHANNELS, REPEATS = 16384, 2048, 20


def median_us(torch, run):
    times = []
    for r in range(-3, REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run()
        begin.record()
        run()
        end.record()
        end.synchronize()
        if r >= 0:
            times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def peer(torch, t, size):
    """Microseconds forward, and forward and back; the same by cuDNN, nan where it cannot."""
    b, heads = TOKENS // t, CHANNELS // size

    def some():
        x = torch.rand(b, t, heads, size, device="cuda").mul_(4).sub_(2)
        return x.bfloat16().transpose(1, 2)

    q, k, v = (some().requires_grad_() for _ in range(3))
    dy = some()

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        torch.autograd.grad(forward(), (q, k, v), dy)

    def times():
        with torch.no_grad():
            once = median_us(torch, forward)
        return once, median_us(torch, both)

    own = times()
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            return *own, *times()
    except RuntimeError as e:
        print(f"gpu_attn.py: by cuDNN: {str(e).splitlines()[0]}", file=sys.stderr)
        return *own, float("nan"), float("nan")


def ours(helper, t, size):
    env = dict(os.environ, LD_LIBRARY_PATH=os.environ.get("GPU_LIBS", ""))
    if not env["LD_LIBRARY_PATH"]:
        del env["LD_LIBRARY_PATH"]
    out = subprocess.run([helper, str(t), str(size)], check=True, stdout=subprocess.PIPE,
                         text=True, env=env)
    return [float(word) for word in out.stdout.split()]


def shape(torch, helper, t, size, turns):
    """Prints a line; the smaller ratio."""
    rows = []
    for _ in range(turns):
        once, both, limit = ours(helper, t, size)
        theirs = peer(torch, t, size)
        rows.append((once, both, *theirs[:2], theirs[0] / once, theirs[1] / both,
                     theirs[2] / once, theirs[3] / both, limit))
    once, both, torch_once, torch_both, by_once, by_both, cudnn_once, cudnn_both, limit = (
        statistics.median(column) for column in zip(*rows, strict=True)
    )
    flops = 2e-6 * t * TOKENS * CHANNELS
    print(f"{t:6} {size:5} {once:8.0f} {flops / once:7.0f} {100 * flops / once / limit:5.0f}%"
          f" {torch_once:8.0f} {by_once:6.2f} {both:8.0f} {3.5 * flops / both:7.0f}"
          f" {350 * flops / both / limit:5.0f}% {torch_both:8.0f} {by_both:6.2f}"
          f" {cudnn_once:6.2f} {cudnn_both:6.2f}", flush=True)
    return min(by_once, by_both)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        import torch
        import torch.nn.attention
    except ImportError:
        sys.exit("gpu_attn.py: no PyTorch; the helper alone prints its own table")
    if not torch.cuda.is_available():
        sys.exit("gpu_attn.py: PyTorch sees no GPU")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds")
    print(f"{'T':>6} {'size':>5} {'forward':>8} {'TFLOPS':>7} {'share':>6} {'torch':>8} {'ratio':>6}"
          f" {'+ back':>8} {'TFLOPS':>7} {'share':>6} {'torch':>8} {'ratio':>6}"
          f" {'cuDNN':>6} {'+ back':>6}", flush=True)
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    least = [shape(torch, sys.argv[1], t, size, turns)
             for size in (64, 128) for t in (1024, 2048, 4096, 8192)]
    if not all(ratio >= DEMAND for ratio in least):
        sys.exit(f"gpu_attn.py: below {DEMAND} of PyTorch's rate: {min(least):.2f}")


if __name__ == "__main__":
    main()
