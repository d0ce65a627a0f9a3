"""Attention beside PyTorch's scaled_dot_product_attention, in one run.

usage: gpu_attn.py HELPER    (build/gpu/gpu_attn; needs a GPU and PyTorch with CUDA)

Both compute causal attention of bfloat16 on the shapes of gpu_attn.cu, one after the other for each
shape; times are medians of 20, by events of the device. PyTorch may take whichever of its own
implementations it prefers, and gets q, k and v as views of one tensor, as ours does. Ends with 1 if
ours is below DEMAND of PyTorch's rate for some shape.
"""
import statistics
import subprocess
import sys

DEMAND = 0.6
TOKENS, CHANNELS, REPEATS = 16384, 2048, 20


def median_us(torch, run):
    times = []
    for r in range(-3, REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if r >= 0:
            times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def peer(torch, t, size):
    b, heads = TOKENS // t, CHANNELS // size
    qkv = torch.rand(b, t, 3, heads, size, device="cuda").mul_(4).sub_(2).bfloat16()
    qkv.requires_grad_()
    dy = torch.randn(b, t, heads, size, device="cuda").bfloat16().transpose(1, 2)

    def forward():
        q, k, v = (x.squeeze(2).transpose(1, 2) for x in qkv.split(1, dim=2))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        qkv.grad = None
        forward().backward(dy)

    with torch.no_grad():
        once = median_us(torch, forward)
    return once, median_us(torch, both)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        import torch
    except ImportError:
        sys.exit("gpu_attn.py: no PyTorch; the helper alone prints its own table")
    if not torch.cuda.is_available():
        sys.exit("gpu_attn.py: PyTorch sees no GPU")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds")
    print(f"{'T':>6} {'size':>5} {'forward':>8} {'torch':>8} {'ratio':>6}"
          f" {'+ back':>8} {'torch':>8} {'ratio':>6}")
    missed = False
    for size in (64, 128):
        for t in (1024, 2048, 4096, 8192):
            ours = subprocess.run([sys.argv[1], str(t), str(size)], check=True,
                                  stdout=subprocess.PIPE, text=True).stdout.split()
            once, both = float(ours[0]), float(ours[1])
            torch_once, torch_both = peer(torch, t, size)
            missed = missed or min(torch_once / once, torch_both / both) < DEMAND
            print(f"{t:6} {size:5} {once:8.0f} {torch_once:8.0f} {torch_once / once:6.2f}"
                  f" {both:8.0f} {torch_both:8.0f} {torch_both / both:6.2f}", flush=True)
    if missed:
        sys.exit(f"gpu_attn.py: below {DEMAND} of PyTorch's rate")


if __name__ == "__main__":
    main()
