#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a small network with DistributedDataParallel over gloo on the CPU,
four processes on one machine, every one profiled, and write the profiler's
traces with everything that names a person or a machine taken out.

Run it through make-ddp-sample, which brings the right version of torch.
"""

import argparse
import getpass
import gzip
import json
import os
import re
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import (ExecutionTraceObserver, ProfilerActivity, profile,
                            record_function, schedule)
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

RANKS = 4
SEED = 20240229
FEATURES = 1024
WIDTH = 768
BLOCKS = 3
CLASSES = 100
BATCH = 128             # samples per rank and step
BUCKET_MB = 4           # less than the 4.5 MiB of one block's gradients
WAIT, WARMUP, ACTIVE = 2, 3, 3
STEPS = WAIT + WARMUP + ACTIVE


class Clusters(Dataset):
    """Labelled points scattered around one random centre per class.  The
    labels and the centres are the same on every rank; the scatter is drawn
    anew for every batch."""

    def __init__(self, n, rank):
        gen = torch.Generator().manual_seed(SEED)
        self.label = torch.randint(CLASSES, (n,), generator=gen)
        self.centre = torch.randn(CLASSES, FEATURES, generator=gen)
        self.gen = torch.Generator().manual_seed(SEED + 1 + rank)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        """The batch of the samples whose numbers are in the list index."""
        label = self.label[index]
        noise = torch.randn(len(index), FEATURES, generator=self.gen)
        return self.centre[label] + 0.5 * noise, label


class Block(nn.Module):
    """x + down(gelu(up(norm(x))))"""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def network():
    return nn.Sequential(nn.Linear(FEATURES, WIDTH),
                         *[Block(WIDTH) for _ in range(BLOCKS)],
                         nn.LayerNorm(WIDTH),
                         nn.Linear(WIDTH, CLASSES))


def train(rank, raw, meeting):
    """One process of the job; leaves its two traces in the folder raw."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}",
                            rank=rank, world_size=RANKS)

    data = Clusters(RANKS * BATCH * STEPS, rank)
    sampler = DistributedSampler(data, RANKS, rank, shuffle=True, seed=SEED)
    loader = DataLoader(data, batch_size=None, num_workers=0,
                        sampler=BatchSampler(sampler, BATCH, drop_last=True))
    model = DistributedDataParallel(network(), bucket_cap_mb=BUCKET_MB)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    observer = ExecutionTraceObserver()
    observer.register_callback(os.path.join(raw, f"et_rank{rank}.json"))
    with profile(activities=[ProfilerActivity.CPU],
                 schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE,
                                   repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(
                     os.path.join(raw, f"rank{rank}.json")),
                 record_shapes=True,
                 execution_trace_observer=observer) as prof:
        for x, y in loader:
            with record_function("forward"):
                loss = criterion(model(x), y)
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"loss {mean.item() / RANKS:.4f}")
            prof.step()
    dist.destroy_process_group()


def scrub(text):
    """A trace's text without host name, user name or absolute paths; of a
    path the last part stays.  All else is left as the profiler wrote it."""
    text = re.sub(r'("host_name":\s*)"[^"]*"', r'\1"sample-host"', text)
    text = re.sub(r'(?<![\w.])/(?:[\w.+~-]+/)+', '', text)
    for name, stand_in in ((socket.getfqdn(), "sample-host"),
                           (socket.gethostname(), "sample-host"),
                           (getpass.getuser(), "sample-user")):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", stand_in, text)
    return text


def publish(raw, out, name):
    """Scrub the trace name.json of raw into name.json.gz of out."""
    with open(os.path.join(raw, name + ".json"), encoding="utf-8") as f:
        text = f.read()
    before = json.loads(text)
    text = scrub(text)
    after = json.loads(text)
    for key in ("traceEvents", "nodes"):
        if before.get(key) != after.get(key):
            print(f"{name}: names taken out of {key}")
    path = os.path.join(out, name + ".json.gz")
    # No file name and no time in the header: the same trace packs the same.
    with open(path, "wb") as f, \
            gzip.GzipFile("", "wb", compresslevel=9, fileobj=f, mtime=0) as z:
        z.write(text.encode("utf-8"))
    return os.path.getsize(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="folder to write to")
    parser.add_argument("--raw", help="keep the traces as they were here")
    args = parser.parse_args()

    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        raw = args.raw or tmp
        os.makedirs(raw, exist_ok=True)
        mp.spawn(train, (raw, os.path.join(tmp, "meeting")), nprocs=RANKS)
        size = sum(publish(raw, args.out, f"{kind}rank{rank}")
                   for kind in ("", "et_") for rank in range(RANKS))
    print(f"{2 * RANKS} files, {size} bytes, in {args.out}")


if __name__ == "__main__":
    main()
