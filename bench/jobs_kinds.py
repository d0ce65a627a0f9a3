#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kinds of PyTorch job that bench/jobs measures (jobs_train.py runs them).

Each job has changes.  A change is really made in the job: half the batch, no
communication, fewer layers ...; the lines of --what-if beside it are what a user
would ask of replay(1).  A change without lines has no what-if yet: it is
measured, and predicted later.
"""

import os
import subprocess
import threading
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ddp_train import Block, mlp

SEED = 20261123
WIDTH, DEPTH, BATCH = 512, 6, 192
HALF = {"half-batch": ["batch by 0.5"]}


def scaled(by, *more, rank=None):
    """What makes all passes, and operations that `more` selects, take `by`
    times as long, on all ranks or on some."""
    where = "" if rank is None else f"rank={rank},"
    return [f"scale {where}{what} by {by}"
            for what in ("phase=forward", "phase=backward", *more)]


# what takes longer with more layers, beside the passes: the optimizer, and the
# time of the interpreter between operations
PER_LAYER = ("phase=weight-gradient", "phase=optimizer", "kind=gap")


def layers(halved, doubled, *more):
    """Half and twice as many layers: `halved` and `doubled` times as many
    parameters."""
    return {name: scaled(by, *PER_LAYER, *more) for name, by in
            (("layers-halved", halved), ("layers-doubled", doubled))}


# that rank takes in half as many samples more
SLOW = {"slow-rank": ["batch by {slow} rank={last}"]}
NO_COMM = {"no-comm": ["remove kind=comm"]}
# 6 layers have 0.9524 of the parameters of mlp(WIDTH, DEPTH), which are copied
# and sent in the phase of communication
LAYERS = layers(0.524, 1.952, "phase=communication")
LINK = {"link-300mbit": ["bandwidth by 0.3"], "link-3000mbit": ["bandwidth by 3"]}


class Job:
    """A training job.  A subclass says what differs; `change` is the name of
    one of its changes, or None for the job itself."""

    changes = HALF
    more = {}           # changes that only the first number of `ranks` has
    ranks = (2,)
    hows = ("shapes",)  # ways of recording
    warm = 1            # steps of a turn that do not count
    link = None         # Mbit/s of a link that is made for the job
    framework = None    # whose settings of a plan the job can carry out
    settings = None     # the file that they are in

    def __init__(self, rank, ranks, change):
        self.rank, self.ranks, self.change = rank, ranks, change
        self.n = 0
        self.batch = BATCH // 2 if change == "half-batch" else BATCH
        if change == "slow-rank" and rank == ranks - 1:
            self.batch = BATCH * 3 // 2
        self.depth = {"layers-halved": DEPTH // 2,
                      "layers-doubled": DEPTH * 2}.get(change, DEPTH)
        if change and change.startswith("link-"):
            self.link = int(change[5:-4])
        torch.manual_seed(SEED)
        self.group = self.make_group()
        self.net = self.wrap(self.network())
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = self.make_optimizer()
        gen = torch.Generator().manual_seed(SEED + rank)
        self.x = torch.randn(self.batch, WIDTH, generator=gen)
        self.y = torch.randint(100, (self.batch,), generator=gen)

    def make_group(self):
        """Without communication: a backend whose operations end at once."""
        if self.change == "no-comm":
            return dist.new_group(backend="fake")
        return None

    def network(self):
        return mlp(WIDTH, self.depth)

    def wrap(self, net):
        return net

    def make_optimizer(self):
        return torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)

    def data(self):
        return self.x, self.y

    def backward(self, x, y):
        self.loss(self.net(x), y).backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self):
        x, y = self.data()
        self.backward(x, y)
        self.update()
        self.n += 1

    def read_settings(self):
        """The settings that plan(1) wrote."""
        with open(self.settings, encoding="utf-8") as f:
            return f.read()

    def carry_out(self, **names):
        """Run the settings that plan(1) wrote, as a user would. Returns the
        names that they changed or made."""
        exec(self.read_settings(), names)
        return names

    def close(self):
        """Another job has its turn, or the job ends."""

    def shape_link(self):
        """What this rank sends travels at the rate of the job's link.  The
        burst is the same at all rates, because a packet that waits while it
        becomes smaller than the packet waits for ever."""
        if self.link:
            burst = max(10000, type(self).link * 37)
            subprocess.run(
                ["tc", "qdisc", "replace", "dev", "link0", "root", "tbf",
                 "rate", f"{self.link}mbit", "burst", str(burst),
                 "latency", "200ms"], check=True)

    @classmethod
    def slow(cls, ranks):
        """How many times the samples a slow rank takes in, or how much longer
        a slow stage computes."""
        return 1.5


class Alone(Job):
    """One rank, no communication."""
    changes = HALF | layers(0.524, 1.952)
    ranks = (1,)


class Done(dist._Work):
    """What has ended."""

    def __init__(self, tensors):
        super().__init__()
        self.future = torch.futures.Future()
        self.future.set_result(tensors)

    def wait(self, _=None):
        return True

    def get_future(self):
        return self.future


class Silent(dist.ProcessGroup):
    """A group that does nothing. With a hook in its place, DDP would not
    divide the gradients either."""

    def allreduce(self, tensors, _=None):
        return Done(tensors)

    broadcast = allreduce


class DDP(Job):
    """DistributedDataParallel with an option or none."""
    changes = HALF | NO_COMM | SLOW
    options = {}
    framework = "ddp"

    def make_group(self):
        return None

    def wrap(self, net):
        if self.change == "plan":
            return self.carry_out(model=net, dataset=[0])["model"]
        options = self.options
        if self.change and self.change.startswith("buckets-"):
            options = {"bucket_cap_mb": int(self.change[8:-2])}
        if self.change == "no-comm":
            group = Silent(self.rank, self.ranks)
            options = options | {"process_group": group, "init_sync": False}
        return nn.parallel.DistributedDataParallel(net, **options)


class Plain(DDP):
    """DDP as it is."""
    more = LAYERS | {"buckets-4mb": ["bucket-mb 4"],
                     "buckets-100mb": ["bucket-mb 100"]}
    ranks = (2, 4)
    hows = ("shapes", "plain", "stack", "memory", "et", "steps3", "steps10")


class DDPLink(DDP):
    """DDP over a shaped link."""
    changes = LINK | NO_COMM
    link = 1000


class Static(DDP):
    """DDP with a static graph."""
    options = {"static_graph": True}
    framework = None


class Unused(DDP):
    """DDP that looks for unused parameters."""
    options = {"find_unused_parameters": True}
    framework = None
    changes = HALF | SLOW   # it always sends which parameters were used


class Accumulate(DDP):
    """DDP that synchronises every second backward pass."""

    def backward(self, x, y):
        half = len(x) // 2
        with self.net.no_sync():
            super().backward(x[:half], y[:half])
        super().backward(x[half:], y[half:])


class Passes(DDP):
    """DDP that synchronises in each of two backward passes, as people write
    it who do not know no_sync."""
    changes = HALF | SLOW | {"sync-last": ["no-sync 2"],
                             "buckets-4mb": ["bucket-mb 4"],
                             "buckets-100mb": ["bucket-mb 100"]}

    def backward(self, x, y):
        half = len(x) // 2
        if self.change == "sync-last":
            with self.net.no_sync():
                super().backward(x[:half], y[:half])
        else:
            super().backward(x[:half], y[:half])
        super().backward(x[half:], y[half:])


class Clip(DDP):
    """DDP with clipping by the global norm, which reads a number."""

    def update(self):
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.norm = norm.item()
        super().update()


class Starved(DDP):
    """DDP whose samples come from a loader without workers."""
    changes = HALF | {"loader-twice-as-fast": ["scale phase=input by 0.5"],
                      "workers-2": ["workers 2"]}
    hows = Plain.hows
    workers = 0
    delay = 0.08

    def __init__(self, rank, ranks, change):
        super().__init__(rank, ranks, change)
        if change in ("loader-twice-as-fast", "half-batch"):
            self.delay /= 2
        elif change == "workers-2":
            self.workers = 2
        elif change == "plan":
            made = self.carry_out(model=nn.Linear(1, 1), dataset=[0])
            if "loader" in made:
                self.workers = made["loader"].num_workers
        # while others had their turn, each worker read two batches ahead
        self.warm = 1 + 2 * self.workers
        self.batches = self.loader()

    def loader(self):
        return iter(torch.utils.data.DataLoader(
            Samples(self), batch_size=None, num_workers=self.workers))

    def data(self):
        return next(self.batches)


class Samples(torch.utils.data.IterableDataset):
    """Endless batches, each of which takes a while to read."""

    def __init__(self, job):
        super().__init__()
        self.x, self.y, self.delay = job.x, job.y, job.delay

    def __iter__(self):
        while True:
            time.sleep(self.delay)
            yield self.x, self.y


class StarvedWorkers(Starved):
    """The same with one worker, which reads while the job computes."""
    changes = Starved.changes | {"workers-2": ["workers 2 was=1"]}
    hows = ("shapes",)
    workers = 1
    delay = 0.25


class Generator(Starved):
    """The same with a loader that is a generator of the user's."""
    changes = HALF | {"loader-twice-as-fast": ["scale phase=input by 0.5"]}
    hows = ("shapes",)

    def loader(self):
        return super().loader() if self.workers else iter(Samples(self))


class Evaluate(DDP):
    """DDP with an evaluation after every second step."""

    def step(self):
        super().step()
        if self.n % 2 == 0:
            with torch.no_grad():
                self.net(self.x)


class Checkpoint(DDP):
    """DDP that writes a checkpoint after every second step in a thread."""
    writer = None

    def step(self):
        super().step()
        if self.n % 2 == 0:
            self.close()
            state = {k: v.clone() for k, v in self.net.state_dict().items()}
            self.writer = threading.Thread(
                target=torch.save, args=(state, os.devnull))
            self.writer.start()

    def close(self):
        if self.writer:
            self.writer.join()


class Compiled(DDP):
    """DDP with torch.compile."""

    def wrap(self, net):
        return torch.compile(super().wrap(net))


class Zero1(DDP):
    """DDP with an optimizer whose state is sharded."""
    changes = HALF | SLOW

    def make_optimizer(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(
            self.net.parameters(), torch.optim.SGD, lr=1e-3, momentum=0.9)


class FSDP2(Job):
    """fully_shard, some layers groups of their own."""
    changes = HALF | NO_COMM | SLOW
    framework = "fsdp"
    by_block = True

    def wrap(self, net):
        blocks = [m for m in net if isinstance(m, Block)]
        plan = self.change == "plan"
        if plan and "\nfully_shard(" in self.read_settings():
            return self.carry_out(model=net, layers=blocks)["model"]
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard
        group = self.group or dist.group.WORLD
        mesh = DeviceMesh.from_group(group, "cpu")
        keep = {"reshard_after_forward": False} if self.change == "no-reshard" else {}
        if self.by_block != (self.change in ("wrap-whole", "wrap-blocks")):
            for m in blocks:
                fully_shard(m, mesh=mesh, **keep)
        net = fully_shard(net, mesh=mesh)
        if plan:
            self.carry_out(model=net, layers=blocks)
        if self.change in PREFETCH:
            self.prefetch(net, int(self.change[-1]))
            net._set_unshard_async_op(True)
        return net

    @staticmethod
    def prefetch(net, n):
        """Each group gathers the parameters of the next n."""
        blocks = [m for m in net if isinstance(m, Block)]
        for i, block in enumerate(blocks):
            block.set_modules_to_forward_prefetch(blocks[i + 1:i + 1 + n])
            block.set_modules_to_backward_prefetch(blocks[:i][::-1][:n])
        net.set_modules_to_forward_prefetch(blocks[:n])
        net.set_modules_to_backward_prefetch(blocks[::-1][:n])


PREFETCH = {"prefetch-1": ["prefetch 1"], "prefetch-2": ["prefetch 2"]}


class FSDP2Blocks(FSDP2):
    """fully_shard, each block a group of its own."""
    more = LAYERS | {"wrap-whole": ["wrap layers=all"], "no-reshard": ["no-reshard"]} | PREFETCH
    ranks = (2, 4)
    hows = Plain.hows


class FSDP2Whole(FSDP2):
    """fully_shard, all parameters as one group."""
    changes = FSDP2.changes | {"wrap-blocks": ["wrap layers=1"]}
    by_block = False


class FSDP2Prefetch(FSDP2):
    """fully_shard, each group gathers the parameters of the next two, while
    the thread waits for each of them."""

    def wrap(self, net):
        net = super().wrap(net)
        if self.change != "plan":
            self.prefetch(net, 2)
        return net


class FSDP2Link(FSDP2):
    """fully_shard over a shaped link."""
    changes = LINK | PREFETCH
    link = 1000


class Mean(nn.Module):
    """The mean over the tokens of a sample."""

    def forward(self, x):
        return x.mean(1)


class Tokens(Job):
    """A transformer that tells classes of samples; the samples times the tokens of a rank are as many as the
    width, so sizes alone do not tell samples from parameters."""
    heads, width, samples, tokens = 4, 256, 16, 16

    def __init__(self, rank, ranks, change):
        super().__init__(rank, ranks, change)
        gen = torch.Generator().manual_seed(SEED + rank)
        n = self.samples // 2 if change == "half-batch" else self.samples
        self.x = torch.randint(1000, (n, self.tokens), generator=gen)
        self.y = torch.randint(100, (n,), generator=gen)

    def network(self):
        layer = nn.TransformerEncoderLayer(
            self.width, self.heads, 4 * self.width, 0, "gelu",
            batch_first=True, norm_first=True)
        return nn.Sequential(
            nn.Embedding(1000, self.width),
            nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
            Mean(), nn.Linear(self.width, 100))


class DDPTokens(Tokens):
    """DDP of a transformer."""

    def wrap(self, net):
        return nn.parallel.DistributedDataParallel(net)


class FSDP2Tokens(Tokens):
    """fully_shard of a transformer by its layers."""

    def wrap(self, net):
        from torch.distributed.fsdp import fully_shard
        for layer in net[1].layers:
            fully_shard(layer)
        return fully_shard(net)


class FSDP2Accumulate(FSDP2):
    """fully_shard with four backward passes, of which the last reduces the
    gradients; parameters are gathered for each pass."""
    changes = HALF | NO_COMM | {"no-reshard": ["no-reshard"]}

    def backward(self, x, y):
        parts = list(zip(x.chunk(4), y.chunk(4)))
        for i, (part, target) in enumerate(parts):
            self.net.set_requires_gradient_sync(i + 1 == len(parts))
            super().backward(part, target)


class HybridShards(FSDP2):
    """fully_shard over pairs of ranks, whose gradients are summed over the
    pairs: two groups, and a third one that nothing uses."""
    changes = HALF
    ranks = (4,)
    framework = None

    def wrap(self, net):
        from torch.distributed.fsdp import fully_shard
        mesh = dist.init_device_mesh("cpu", (self.ranks // 2, 2),
                                     mesh_dim_names=("copies", "shards"))
        for m in net:
            if isinstance(m, Block):
                fully_shard(m, mesh=mesh)
        return fully_shard(net, mesh=mesh)


class Zero2(Job):
    """Gradients reduced and parameters gathered by hand: each rank updates a
    part of them."""
    changes = HALF | NO_COMM | SLOW

    def wrap(self, net):
        self.all = list(net.parameters())
        n = sum(p.numel() for p in self.all)
        self.flat = torch.zeros(n + -n % self.ranks)
        at = 0
        for p in self.all:
            part = self.flat[at:at + p.numel()]
            part.copy_(p.data.flatten())
            p.data = part.view_as(p.data)
            at += p.numel()
        self.rest = torch.zeros(-n % self.ranks)
        self.part = self.flat.chunk(self.ranks)[self.rank].clone().requires_grad_()
        return net

    def make_optimizer(self):
        return torch.optim.SGD([self.part], lr=1e-3, momentum=0.9)

    def update(self):
        grads = torch.cat([p.grad.flatten() for p in self.all] + [self.rest])
        mine = torch.empty_like(self.part)
        dist.reduce_scatter_tensor(mine, grads, group=self.group)
        self.part.grad = mine / self.ranks
        self.optimizer.step()
        dist.all_gather_into_tensor(self.flat, self.part.detach(), group=self.group)
        for p in self.all:
            p.grad = None


class Recurrent(Tokens):
    """DDP of a recurrent network."""
    changes = HALF | SLOW
    tokens = 64

    def network(self):
        return nn.Sequential(nn.Embedding(1000, self.width),
                             Recurrence(self.width), Mean(),
                             nn.Linear(self.width, 100))

    def wrap(self, net):
        return nn.parallel.DistributedDataParallel(net)

    def __init__(self, rank, ranks, change):
        self.samples = 24 if change == "slow-rank" and rank == ranks - 1 else 16
        super().__init__(rank, ranks, change)


class Recurrence(nn.LSTM):
    """The outputs alone."""

    def __init__(self, width):
        super().__init__(width, width, 2, batch_first=True)

    def forward(self, x):
        return super().forward(x)[0]


class Played(DDP):
    """DDP of a small network that plays: between its passes the program
    computes in Python."""
    changes = {"game-twice-as-fast": ["scale phase=other,kind=gap by 0.5"]}
    framework = None

    def network(self):
        return mlp(WIDTH, 1)

    def data(self):
        moves = 200000 if self.change == "game-twice-as-fast" else 400000
        with torch.no_grad():
            self.net(self.x[:1])
        state = 0
        for k in range(moves):
            state = (state * 7 + k) % 1013
        return self.x[:32], self.y[:32]


class Remade(nn.Module):
    """A block whose activations the backward pass makes again."""

    def __init__(self, block, reentrant):
        super().__init__()
        self.block, self.reentrant = block, reentrant

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=self.reentrant)


class Recomputed(DDP):
    """Activation checkpointing of all blocks under DDP."""
    changes = {"keep-activations": ["remove phase=recomputation"]}
    reentrant = False
    framework = None

    def network(self):
        net = super().network()
        if self.change == "keep-activations":
            return net
        return nn.Sequential(*[Remade(m, self.reentrant)
                               if isinstance(m, Block) else m for m in net])


class RecomputedReentrant(Recomputed):
    """The older way, a backward pass within the backward pass."""
    reentrant = True
    options = {"static_graph": True}


class Taught(DDP):
    """DDP of a network that learns from a larger one."""
    changes = HALF | SLOW
    framework = None

    def wrap(self, net):
        self.teacher = mlp(WIDTH, 2 * DEPTH)
        return super().wrap(net)

    def backward(self, x, y):
        with torch.no_grad():
            target = self.teacher(x).softmax(-1)
        self.loss(self.net(x), target).backward()


class UpdateInBackward(Job):
    """One rank, whose backward pass updates each parameter as soon as it has
    its gradient."""
    changes = HALF | layers(0.524, 1.952)
    ranks = (1,)

    def make_optimizer(self):
        def update(param):
            optimizers[param].step()
            optimizers[param].zero_grad()

        optimizers = {p: torch.optim.Adam([p], 1e-4)
                      for p in self.net.parameters()}
        for p in optimizers:
            p.register_post_accumulate_grad_hook(update)

    def update(self):
        """Nothing is left to do."""


class Convolutions(DDP):
    """DDP of a network of convolutions."""
    changes = HALF | NO_COMM | SLOW
    framework = None

    def network(self):
        def block(a, b):
            return (nn.Conv2d(a, b, 3, padding=1, bias=False),
                    nn.BatchNorm2d(b), nn.ReLU())

        return nn.Sequential(
            nn.Unflatten(1, (2, 16, 16)), *block(2, 32), *block(32, 32),
            nn.MaxPool2d(2), *block(32, 64), *block(64, 128),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128 * 16, 100))


class Adapter(nn.Module):
    """A layer whose parameters stay, and a small product beside it that
    learns."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, 8, bias=False)
        self.up = nn.Linear(8, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


class Adapters(DDP):
    """DDP of adapters of low rank: most parameters have no gradient."""
    changes = HALF | SLOW
    framework = None

    def network(self):
        net = super().network().requires_grad_(False)
        for block in net:
            if isinstance(block, Block):
                block.up = Adapter(block.up)
                block.down = Adapter(block.down)
        return net


class Averaged(DDP):
    """DDP that keeps a running mean of the parameters."""
    changes = HALF | NO_COMM | SLOW
    framework = None

    def make_optimizer(self):
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
        self.mean = AveragedModel(self.net.module,
                                  multi_avg_fn=get_ema_multi_avg_fn(0.999))
        return super().make_optimizer()

    def update(self):
        super().update()
        self.mean.update_parameters(self.net.module)


class Closure(DDP):
    """DDP with an optimizer that makes several passes in a step."""
    changes = HALF | NO_COMM | SLOW
    framework = None

    def make_optimizer(self):
        return torch.optim.LBFGS(self.net.parameters(), lr=1e-3, max_iter=4,
                                 history_size=4, tolerance_grad=0,
                                 tolerance_change=0)

    def step(self):
        def passes():
            self.optimizer.zero_grad()
            loss = self.loss(self.net(self.x), self.y)
            loss.backward()
            return loss

        self.optimizer.step(passes)
        self.n += 1


class Contrastive(DDP):
    """DDP whose loss compares the samples of all ranks."""
    changes = HALF | SLOW
    framework = None

    def backward(self, x, y):
        from torch.distributed.nn.functional import all_gather
        mine = F.normalize(self.net(x), dim=-1)
        all_ = torch.cat(all_gather(mine[:BATCH // 2].contiguous()))
        target = torch.arange(len(mine)) % len(all_)
        self.loss(mine @ all_.T * 10, target).backward()


class Lengths(DDPTokens):
    """DDP of a transformer whose steps have sequences of unlike length."""
    tokens = 32

    def data(self):
        n = (8, 32, 16, 24)[self.n % 4]
        return self.x[:, :n], self.y


class FSDP1(Job):
    """FullyShardedDataParallel, each block a group of its own."""
    changes = HALF | NO_COMM | SLOW
    by_block = True

    def wrap(self, net):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        return FullyShardedDataParallel(
            net, process_group=self.group, device_id=torch.device("cpu"),
            auto_wrap_policy=ModuleWrapPolicy({Block}) if self.by_block
            else None, use_orig_params=True)


class FSDP1Whole(FSDP1):
    """FullyShardedDataParallel, all parameters as one group."""
    by_block = False


class TensorParallel(Job):
    """Each block's two products split over the ranks (DTensor)."""
    changes = HALF | NO_COMM | LAYERS

    def wrap(self, net):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)
        # DTensor finds what it did before for an equal mesh, whatever its
        # group, so a mesh without communication has a name of its own
        mesh = DeviceMesh.from_group(self.group or dist.group.WORLD, "cpu",
                                     mesh_dim_names=(self.change or "tp",))
        for m in net:
            if isinstance(m, Block):
                parallelize_module(m, mesh, {"up": ColwiseParallel(),
                                             "down": RowwiseParallel()})
        return net

    def __init__(self, rank, ranks, change):
        super().__init__(rank, ranks, change)
        gen = torch.Generator().manual_seed(SEED)  # the same on all ranks
        self.x = torch.randn(self.batch, WIDTH, generator=gen)
        self.y = torch.randint(100, (self.batch,), generator=gen)


class Pipeline(Job):
    """torch.distributed.pipelining; the first layers on rank 0, and so on."""
    changes = HALF | {"slow-stage": scaled("{slow}", *PER_LAYER,
                                           rank="{last}")}
    schedule_name = "ScheduleGPipe"
    microbatches = 4
    stages_a_rank = 1

    def stage_of(self, number):
        """The layers of a stage; of the job's last rank half as slow again
        where it is to be slow."""
        stages = self.places * self.stages_a_rank
        a_stage = 2 * self.depth // stages
        if self.change == "slow-stage" and self.place == self.places - 1:
            a_stage = round(a_stage * self.slow(self.ranks))
        layers = [Block(WIDTH) for _ in range(a_stage)]
        if number == stages - 1:
            layers.append(nn.Linear(WIDTH, 100))
        return nn.Sequential(*layers)

    def network(self):
        from torch.distributed import pipelining
        stages = self.places * self.stages_a_rank
        numbers = self.numbers(stages)
        nets = nn.ModuleList([self.wrap_stage(self.stage_of(i))
                              for i in numbers])
        made = [pipelining.PipelineStage(net, i, stages, torch.device("cpu"),
                                         group=self.group)
                for i, net in zip(numbers, nets)]
        kind = getattr(pipelining, {"schedule-1f1b": "Schedule1F1B",
                                    "schedule-gpipe": "ScheduleGPipe"}.get(
                                        self.change, self.schedule_name))
        self.first, self.last = 0 in numbers, stages - 1 in numbers
        self.schedule = kind(made[0] if self.stages_a_rank == 1 else made,
                             self.microbatches, loss_fn=F.cross_entropy)
        return nets

    def wrap_stage(self, net):
        return net

    def numbers(self, stages):
        return list(range(self.place, stages, self.places))

    def backward(self, x, y):
        given = (x,) if self.first else ()
        extra = {"target": y, "losses": []} if self.last else {}
        self.schedule.step(*given, **extra)

    def __init__(self, rank, ranks, change):
        self.place, self.places = self.position(rank, ranks)
        if change == "microbatches-8":
            self.microbatches = 8
        super().__init__(rank, ranks, change)
        batch = BATCH // 2 if change == "half-batch" else BATCH
        gen = torch.Generator().manual_seed(SEED)
        self.x = torch.randn(batch, WIDTH, generator=gen)
        self.y = torch.randint(100, (batch,), generator=gen)

    @classmethod
    def position(cls, rank, ranks):
        """Place in the pipeline, and its length."""
        return rank, ranks

    @classmethod
    def slow(cls, ranks):
        """Half as many layers again, of those that a stage has."""
        stages = cls.position(0, ranks)[1] * cls.stages_a_rank
        a_stage = 2 * DEPTH // stages
        return a_stage * 3 // 2 / a_stage


class GPipe(Pipeline):
    """All forward passes, then all backward passes."""
    more = {"microbatches-8": [], "schedule-1f1b": []} | layers(0.5, 2)
    ranks = (2, 4)
    hows = Plain.hows


class GPipeLink(Pipeline):
    """The same over a shaped link."""
    changes = {"link-30mbit": ["bandwidth by 0.3"],
               "link-300mbit": ["bandwidth by 3"]}
    link = 100


class OneFOneB(Pipeline):
    """The same with one forward, one backward by turns."""
    changes = Pipeline.changes | {"microbatches-8": [], "schedule-gpipe": []}
    schedule_name = "Schedule1F1B"


class Interleaved(Pipeline):
    """The same with two stages on each rank."""
    schedule_name = "ScheduleInterleaved1F1B"
    stages_a_rank = 2


class ZBV(Interleaved):
    """Two stages on each rank in the form of a V; zero bubble."""
    schedule_name = "ScheduleZBVZeroBubble"

    def numbers(self, stages):
        return [self.rank, stages - 1 - self.rank]


class DataPipelines(Pipeline):
    """Pipelines of two stages, whose stages are DDP over the pipelines."""
    changes = HALF | {"slow-stage": scaled("{slow}", *PER_LAYER, rank="1|3")}
    ranks = (4,)

    @classmethod
    def position(cls, rank, ranks):
        return rank % 2, 2

    def make_group(self):
        self.mesh = dist.init_device_mesh("cpu", (self.ranks // 2, 2),
                                          mesh_dim_names=("dp", "pp"))
        return self.mesh.get_group("pp")

    def wrap_stage(self, net):
        # else PyTorch 2.15 orders its buckets again after one step, and counts
        # the parameters of each microbatch
        return nn.parallel.DistributedDataParallel(
            net, process_group=self.mesh.get_group("dp"),
            find_unused_parameters=True)


class HandPipeline(Pipeline):
    """A pipeline written by hand: all forward passes, then all backward passes,
    with blocking send and recv."""
    batched = False

    def network(self):
        stages = self.ranks
        self.first, self.last = self.rank == 0, self.rank == stages - 1
        return self.stage_of(self.rank)

    def transfer(self, tensor, peer, sends):
        if not self.batched:
            (dist.send if sends else dist.recv)(tensor, peer)
            return
        op = dist.P2POp(dist.isend if sends else dist.irecv, tensor, peer)
        for work in dist.batch_isend_irecv([op]):
            work.wait()

    def backward(self, x, y):
        passes = []
        for part, target in zip(x.chunk(self.microbatches),
                                y.chunk(self.microbatches)):
            if not self.first:
                part = torch.empty_like(part)
                self.transfer(part, self.rank - 1, False)
                part.requires_grad_()
            out = self.net(part)
            if self.last:
                out = self.loss(out, target) / self.microbatches
            else:
                self.transfer(out.detach(), self.rank + 1, True)
            passes.append((part, out))
        for part, out in passes:
            if self.last:
                out.backward()
            else:
                grad = torch.empty_like(out)
                self.transfer(grad, self.rank + 1, False)
                out.backward(grad)
            if not self.first:
                self.transfer(part.grad, self.rank - 1, True)


class BatchedPipeline(HandPipeline):
    """The same with batch_isend_irecv."""
    batched = True


class ShardedTensors(Job):
    """Each block's products split over pairs of ranks, then sharded over the
    pairs."""
    changes = HALF | {"slow-rank": ["batch by 1.5 rank=2|3"]}
    ranks = (4,)

    def __init__(self, rank, ranks, change):
        super().__init__(rank, ranks, change)
        if change == "slow-rank" and rank // 2 == ranks // 2 - 1:
            self.batch = BATCH * 3 // 2
        gen = torch.Generator().manual_seed(SEED + rank // 2)
        self.x = torch.randn(self.batch, WIDTH, generator=gen)
        self.y = torch.randint(100, (self.batch,), generator=gen)

    def wrap(self, net):
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)
        mesh = dist.init_device_mesh("cpu", (self.ranks // 2, 2),
                                     mesh_dim_names=("dp", "tp"))
        for m in net:
            if isinstance(m, Block):
                parallelize_module(m, mesh["tp"], {"up": ColwiseParallel(),
                                                   "down": RowwiseParallel()})
                fully_shard(m, mesh=mesh["dp"])
        return fully_shard(net, mesh=mesh["dp"])


class Experts(Job):
    """Each rank has an expert; tokens travel there and back by all-to-all."""
    changes = HALF | NO_COMM

    def network(self):
        return nn.ModuleList([nn.Linear(WIDTH, WIDTH)] +
                             [Block(WIDTH) for _ in range(self.depth)] +
                             [nn.Linear(WIDTH, 100)])

    def wrap(self, net):
        for m in (net[0], net[-1]):
            for p in m.parameters():
                p.register_hook(self.average)
        return net

    def average(self, grad):
        dist.all_reduce(grad, group=self.group)
        return grad / self.ranks

    def backward(self, x, y):
        from torch.distributed.nn.functional import all_to_all_single
        group = self.group or dist.group.WORLD
        x = self.net[0](x)
        for expert in list(self.net)[1:-1]:
            there = all_to_all_single(torch.empty_like(x), x, group=group)
            out = expert(there)
            x = all_to_all_single(torch.empty_like(out), out, group=group)
        self.loss(self.net[-1](x), y).backward()


class RingAttention(Job):
    """Context parallelism: keys and values travel round a ring."""
    heads, length = 4, 128

    def __init__(self, rank, ranks, change):
        super().__init__(rank, ranks, change)
        gen = torch.Generator().manual_seed(SEED + rank)
        batch = 4 if change == "half-batch" else 8
        self.x = torch.randn(batch, self.length, 256, generator=gen)
        self.y = torch.randint(100, (batch * self.length,), generator=gen)

    def network(self):
        return nn.ModuleDict({
            "qkv": nn.ModuleList([nn.Linear(256, 768) for _ in range(3)]),
            "mlp": nn.ModuleList([Block(256) for _ in range(3)]),
            "out": nn.Linear(256, 100)})

    def wrap(self, net):
        return nn.parallel.DistributedDataParallel(Call(net, self.forward))

    def forward(self, net, x):
        for qkv, mlp in zip(net["qkv"], net["mlp"]):
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                       for t in qkv(x).chunk(3, -1))
            total = F.scaled_dot_product_attention(q, k, v)
            both = torch.stack([k, v]).detach()
            for _ in range(self.ranks - 1):
                both = self.turn(both)
                total = total + F.scaled_dot_product_attention(q, *both)
            x = mlp(x + total.transpose(1, 2).flatten(2))
        return net["out"](x).flatten(0, 1)

    def turn(self, mine):
        theirs = torch.empty_like(mine)
        for work in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, mine, (self.rank + 1) % self.ranks),
                dist.P2POp(dist.irecv, theirs, (self.rank - 1) % self.ranks)]):
            work.wait()
        return theirs


class Call(nn.Module):
    """A network whose forward pass is a function."""

    def __init__(self, net, function):
        super().__init__()
        self.net, self.function = net, function

    def forward(self, x):
        return self.function(self.net, x)


KINDS = {
    "alone": Alone, "ddp": Plain, "ddp-link": DDPLink, "ddp-static": Static,
    "ddp-unused": Unused, "ddp-accumulate": Accumulate, "ddp-clip": Clip,
    "ddp-passes": Passes, "ddp-tokens": DDPTokens, "ddp-compile": Compiled,
    "ddp-evaluate": Evaluate, "ddp-checkpoint": Checkpoint, "ddp-pp": DataPipelines,
    "loader": Starved, "loader-workers": StarvedWorkers,
    "loader-generator": Generator, "zero1": Zero1, "fsdp2": FSDP2Blocks,
    "fsdp2-whole": FSDP2Whole, "fsdp2-prefetch": FSDP2Prefetch,
    "fsdp2-link": FSDP2Link, "fsdp2-tokens": FSDP2Tokens,
    "fsdp2-accumulate": FSDP2Accumulate, "hsdp": HybridShards, "zero2": Zero2,
    "recurrent": Recurrent, "game": Played, "taught": Taught,
    "recompute": Recomputed, "recompute-reentrant": RecomputedReentrant,
    "update-in-backward": UpdateInBackward, "convolutions": Convolutions,
    "adapters": Adapters, "averaged": Averaged, "closure": Closure,
    "contrastive": Contrastive, "lengths": Lengths,
    "fsdp1": FSDP1, "fsdp1-whole": FSDP1Whole,
    "fsdp-tp": ShardedTensors, "tp": TensorParallel,
    "gpipe": GPipe, "gpipe-link": GPipeLink, "1f1b": OneFOneB,
    "interleaved": Interleaved, "zbv": ZBV, "pp-hand": HandPipeline,
    "pp-batched": BatchedPipeline, "ep": Experts, "cp-ring": RingAttention,
}
