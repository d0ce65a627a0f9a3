# SPDX-License-Identifier: Apache-2.0
"""What the frameworks make of the settings that plan writes for them.

settings.py FRAMEWORK PLAN SETTINGS [SOURCE]

PLAN is a plan as text, SETTINGS what plan wrote of it for the framework, SOURCE the unpacked sources
of Horovod or BytePS. A model with the tensors of the plan is built in torch; the settings are then
carried out, or where the framework cannot run here, held against its own classes and sources:

ddp       two processes over gloo: buckets after the first step, by DDP's own log
fsdp      two processes over gloo: parameters of each group, and a step
deepspeed its configuration (a member that nothing reads is a fault), and its ZeRO optimizer: the
          tensors that it reduces together
megatron  options against the classes that its parser is made of, and buckets as its buffer cuts them
xla       a program under these flags
horovod   its optimizer from SOURCE, with communication that only notes what goes together; names and
          units of the environment in SOURCE
byteps    names and units of the environment in SOURCE

Prints "CHECKED FAULTS", faults on standard error, and exits with 1 if there are any.
"""

import ast
import itertools
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import types

EXACT = "not exactly"


# ---- the plan


class Plan:
    """The sets that a plan makes, by a second reading of paceline-plan(5)."""

    def __init__(self, path):
        self.bytes, self.rewrites = {}, []
        with open(path) as f:
            for line in f:
                words = shlex.split(line, comments=True)
                if words[:1] == ["tensor"]:
                    self.bytes[words[1]] = int(words[2])
                elif words:  # what a rewrite saves is no argument of it
                    self.rewrites.append([w for w in words if not re.match(r"(alone|in-plan)=-?\d+$", w)])
        self.names = list(self.bytes)  # as gradients become ready
        at = {name: i for i, name in enumerate(self.names)}
        sets = [[name] for name in self.names]
        for op, *args in self.rewrites:
            if op == "fuse-tensors":
                sets = [[n for n in s if n not in args] for s in sets]
                sets = [s for s in sets if s] + [sorted(args, key=at.get)]
        self.sets = sorted(sets, key=lambda s: at[s[-1]])
        for op, *args in self.rewrites:
            if op == "order":
                moved = [next(s for s in self.sets if n in s) for n in args]
                places = sorted(self.sets.index(s) for s in moved)
                for place, s in zip(places, moved):
                    self.sets[place] = s
        ends = sorted({at[s[-1]] for s in self.sets} | {len(self.names) - 1})
        self.runs = [self.names[a + 1 : b + 1] for a, b in zip([-1] + ends, ends)]

    def value(self, op):
        """The arguments of the last rewrite of that sort."""
        return next((r[1:] for r in reversed(self.rewrites) if r[0] == op), None)

    def recomputed(self):
        return [name for r in self.rewrites if r[0] == "recompute" for name in r[1:]]

    def accumulate(self):
        k = 1
        for r in self.rewrites:
            k *= int(r[1]) if r[0] == "accumulate" else 1
        return k

    def parameters(self, named):
        """Names of the model's parameters, by tensor of the plan."""
        of = {}
        for name in self.names:
            short = name.removeprefix("grad ")
            if self.numbered():
                short = "layer" + short.split()[0]
            of[name] = [n for n in named if n == short or n.startswith(short + ".")]
            assert of[name], name
        return of

    def numbered(self):
        return all(re.match(r"grad \d+( |$)", name) for name in self.names)


def closed(sizes, limit, before):
    """Where buckets of one size end, by either rule: lists of indices."""
    buckets, have = [[]], 0
    for i, size in enumerate(sizes):
        if before and buckets[-1] and have + size > limit:
            buckets.append([])
            have = 0
        buckets[-1].append(i)
        have += size
        if not before and have >= limit and i + 1 < len(sizes):
            buckets.append([])
            have = 0
    return buckets


def ends(buckets):
    n, out = 0, set()
    for b in buckets:
        n += len(b)
        out.add(n)
    return out


def running(sizes):
    """The sums so far."""
    return set(itertools.accumulate(sizes))


class Faults(list):
    """What was checked, and what of it is wrong."""

    checked = 0

    def check(self, ok, what):
        self.checked += 1
        if not ok:
            self.append(what)

    def one_size(self, plan, buckets, text, limit, before):
        """Are buckets those of one size, and does the comment tell how far off the plan they are?"""
        sizes = [plan.bytes[n] // 4 for n in plan.names]
        want = closed(sizes, limit, before)
        self.check([len(b) for b in buckets] == [len(b) for b in want], f"buckets are {buckets}, not {want}")
        differ = len(ends(buckets) ^ ends(plan.runs))
        said = re.search(r"ends of buckets that differ: (\d+)", text)
        self.check(int(said[1] if said else 0) == differ, f"{differ} ends differ")


# ---- a model with the plan's tensors


def build(plan):
    """Modules nested as the names say, run in the reverse order of readiness."""
    import torch

    class Node(torch.nn.Module):
        def forward(self, x):
            for p in self.parameters(recurse=False):
                x = x * 0.5 + p.mean()
            for child in self.children():
                x = child(x)
            return x

    def node(path):
        at = model
        for part in path.split(".") if path else []:
            if not hasattr(at, part):
                at.add_module(part, Node())
            at = getattr(at, part)
        return at

    model = Node()
    for i, name in reversed(list(enumerate(plan.names))):
        count = plan.bytes[name] // 4
        name = f"layer{i}" if plan.numbered() else name.removeprefix("grad ")
        path, _, last = name.rpartition(".")
        if last in ("weight", "bias"):
            node(path).register_parameter(last, torch.nn.Parameter(torch.ones(count)))
            continue
        m = node(name)
        bias = 0 if plan.numbered() else count // 10
        m.weight = torch.nn.Parameter(torch.ones(count - bias))
        if bias:
            m.bias = torch.nn.Parameter(torch.ones(bias))
    return model


def run_fragment(text, model, **more):
    scope = dict(model=model, **more)
    exec(compile(text, "settings", "exec"), scope)
    return scope


# ---- torch


def two_processes(framework, argv):
    """This script again, as two ranks; what rank 0 says."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2", OMP_NUM_THREADS="1")
    env["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, framework, *argv],
            env=dict(env, RANK=str(r), LOCAL_RANK=str(r)),
            stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL,
            stderr=None if r == 0 else subprocess.DEVNULL,
            text=True,
        )
        for r in range(2)
    ]
    try:
        out = ranks[0].communicate(timeout=300)[0].split()
        if ranks[0].returncode == 0 and ranks[1].wait(timeout=60) == 0:
            return int(out[-2]), 0
        return (int(out[-2]), int(out[-1]) or 1) if out else (1, 1)
    finally:
        for r in ranks:
            r.kill()


def wrapped(model, names):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

    return [n for n in names if isinstance(model.get_submodule(n), CheckpointWrapper)]


def check_torch_rest(plan, faults, scope, model):
    """Microbatches, precision and recomputation, for torch whatever wraps the model."""
    import torch

    faults.check(wrapped(model, plan.recomputed()) == plan.recomputed(), "layers that are not recomputed")
    if plan.accumulate() > 1 and "optimizer" not in scope:
        faults.check(scope.get("accumulate") == plan.accumulate(), "microbatches")
    word = (plan.value("precision") or [None])[0]
    if word in ("bf16", "fp16") and "autocast" in scope:
        dtype = torch.bfloat16 if word == "bf16" else torch.float16
        faults.check(scope["autocast"].fast_dtype == dtype, "precision")
    if word in ("tf32", "fp32"):
        want = "high" if word == "tf32" else "highest"
        faults.check(torch.get_float32_matmul_precision() == want, "precision of products")


def step(model, scope, last, held):
    """One step of all microbatches; last and held: what surrounds the last, and those before."""
    import torch

    k = scope.get("accumulate", 1)
    for i in range(k):
        with last() if i == k - 1 else held():
            model(torch.ones(4)).sum().backward()
    model.zero_grad()


def check_ddp(plan, text, faults, source):
    import contextlib

    import torch.distributed as dist

    dist.init_process_group("gloo")
    bare = build(plan)
    scope = run_fragment(text, bare)
    model = scope["model"]
    for _ in range(3):
        step(model, scope, contextlib.nullcontext, model.no_sync)
    log = model._get_ddp_logging_data()
    sizes = [int(n) for n in log["rebuilt_bucket_sizes"].split(",")]
    claim = EXACT not in text
    faults.check(claim == (plan.runs == plan.sets), "whether these are the plan's sets")
    want = [sum(plan.bytes[n] for n in s) for s in plan.runs]
    faults.check(sizes == want, f"buckets of {sizes} bytes, not {want}")
    check_torch_rest(plan, faults, scope, bare)
    # what releases without the list get
    cap = float(re.search(r"bucket_cap_mb=([0-9.e-]+)", text)[1])
    differ = re.search(r"(\d+) ends of buckets differ", text)
    one = closed([plan.bytes[n] for n in plan.names], round(cap * 2**20), False)
    faults.check(len(ends(one) ^ ends(plan.runs)) == int(differ[1] if differ else 0), "ends under one cap")
    import torch

    model = torch.nn.parallel.DistributedDataParallel(build(plan), bucket_cap_mb=cap)
    for _ in range(3):
        model(torch.ones(4)).sum().backward()
    sizes = [int(n) for n in model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")]
    have = running(sizes)
    every = running(plan.bytes[n] for n in plan.names)
    want = running(sum(plan.bytes[plan.names[i]] for i in b) for b in one)
    # a layer of several parameters may be cut between them
    faults.check(have & every == want, f"buckets of {sizes} bytes under one cap, not {want}")
    faults.check("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES" not in text or
                 hasattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES"), "no such name for the first bucket")
    dist.destroy_process_group()


def check_fsdp(plan, text, faults, source):
    import contextlib

    import torch.distributed as dist
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives

    dist.init_process_group("gloo")
    model = build(plan)
    model_size = {n: p.numel() for n, p in model.named_parameters()}
    of = plan.parameters(list(model_size))
    scope = run_fragment(text, model)
    groups = []
    for module in model.modules():
        state = getattr(module, "_get_fsdp_state", lambda: None)()
        for g in getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]:
            if g is not None and all(g is not h for h in groups):
                groups.append(g)
    clean = {id(p): n.replace("_checkpoint_wrapped_module.", "") for n, p in model.named_parameters()}
    have = sorted(sorted(clean[id(p.sharded_param)] for p in g.fsdp_params) for g in groups)
    # modules whose parameters are in several sets
    owners = {}
    for i, members in enumerate(plan.sets):
        for p in (p for n in members for p in of[n]):
            owners.setdefault(p.rpartition(".")[0], set()).add(i)
    torn = sum(len(o) > 1 for o in owners.values())
    said = re.search(r"parameters: (\d+) modules", text)
    of_parameters = any(n.endswith((".weight", ".bias")) for n in plan.names)
    if of_parameters:
        faults.check(int(said[1] if said else 0) == torn, f"{torn} modules are in several sets")
    want = sorted(sorted(p for n in members for p in of[n]) for members in plan.sets)
    faults.check((have == want) == (torn == 0), f"groups {have}, not {want}, {torn} modules torn")

    @contextlib.contextmanager
    def sync(on):
        model.set_requires_gradient_sync(on)
        yield

    reduced = []

    class Noted(collectives.DefaultReduceScatter):
        def __call__(self, output_tensor, input_tensor, *args, **kwargs):
            reduced.append(input_tensor.numel() * input_tensor.element_size())
            return super().__call__(output_tensor, input_tensor, *args, **kwargs)

    for module in model.modules():
        if hasattr(module, "set_custom_reduce_scatter"):
            module.set_custom_reduce_scatter(Noted())
    for _ in range(2):
        step(model, scope, lambda: sync(True), lambda: sync(False))
    # a parameter of odd length is padded to the number of ranks
    sizes = sorted(sum((model_size[p] + 1) // 2 * 8 for p in g) for g in have)
    faults.check(sorted(reduced) == sorted(2 * sizes), f"reductions of {reduced} bytes in two steps, not {sizes} each")
    word = (plan.value("precision") or [None])[0]
    if word in ("bf16", "fp16"):
        policy = groups[0].fsdp_params[0].mp_policy
        faults.check(str(policy.param_dtype) == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[word]
                     and str(policy.reduce_dtype) == "torch.float32", "precision")
    check_torch_rest(plan, faults, scope, model)
    dist.destroy_process_group()


# ---- DeepSpeed


class Noted(dict):
    """A dictionary that knows which of its members were read."""

    def __init__(self, d, path=""):
        super().__init__({k: Noted(v, f"{path}{k}.") if isinstance(v, dict) else v for k, v in d.items()})
        self.read, self.path = set(), path

    def __getitem__(self, k):
        self.read.add(k)
        return super().__getitem__(k)

    def get(self, k, default=None):
        self.read.add(k)
        return super().get(k, default)

    def unread(self):
        out = [self.path + k for k in self if k not in self.read]
        return out + [n for v in self.values() if isinstance(v, Noted) and v.read for n in v.unread()]


def check_deepspeed(plan, text, faults, source):
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=os.environ.get("MASTER_PORT", "29533"), DS_SKIP_CUDA_CHECK="1")
    import deepspeed
    import hjson
    import torch
    from deepspeed.runtime.config import DeepSpeedConfig

    json.loads("\n".join(line for line in text.splitlines() if not line.startswith("#")))
    members = hjson.loads(text)
    # what belongs to the user's file
    mine = dict(members, train_micro_batch_size_per_gpu=1, zero_allow_untested_optimizer=True)
    noted = Noted(mine)
    config = DeepSpeedConfig(noted)
    faults.check(not noted.unread(), f"members that nothing reads: {noted.unread()}")
    faults.check(config.gradient_accumulation_steps == plan.accumulate(), "microbatches")
    word = (plan.value("precision") or [None])[0]
    faults.check(config.bfloat16_config.enabled == (word == "bf16"), "bf16")
    faults.check(config.float16_config.enabled == (word == "fp16"), "fp16")
    limit = members.get("zero_optimization", {}).get("reduce_bucket_size")
    if not limit:
        return
    faults.check(config.zero_config.stage >= 1 and config.zero_config.reduce_bucket_size == limit, "ZeRO")
    torch.distributed.init_process_group("gloo")
    model = build(plan)
    of = plan.parameters([n for n, _ in model.named_parameters()])
    engine, optimizer, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), config=mine, dist_init_required=False)
    number = {id(p): i for i, n in enumerate(plan.names) for q in of[n] for p in [model.get_parameter(q)]}
    buckets = []
    original = optimizer.reduce_ipg_grads

    def note(*args, **kwargs):
        held = [e for b in optimizer.ipg_buckets.values() for e in b.params]
        if held:
            buckets.append([number[id(optimizer.bit16_groups[i][k])] for i, k, _ in held])
        return original(*args, **kwargs)

    optimizer.reduce_ipg_grads = note
    for _ in range(plan.accumulate()):
        x = torch.ones(4, dtype=next(model.parameters()).dtype)
        engine.backward(engine(x).sum())
        engine.step()
    # parameters of one tensor may fall into two buckets; a tensor counts where its last one does
    last = {}
    for b, members_of in enumerate(buckets):
        for i in members_of:
            last[i] = b
    tensors = [[i for i in last if last[i] == b] for b in range(len(buckets))]
    faults.one_size(plan, [t for t in tensors if t], text, limit, True)
    torch.distributed.destroy_process_group()


# ---- Megatron


def check_megatron(plan, text, faults, source):
    import dataclasses

    import torch
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.distributed import param_and_grad_buffer as buffers
    from megatron.core.transformer import TransformerConfig

    taken = {}
    for cls, prefix in ((TransformerConfig, ""), (DistributedDataParallelConfig, "ddp_")):
        for f in dataclasses.fields(cls):
            meta = f.metadata.get("argparse_meta", {})
            names = meta.get("arg_names", ["--" + f.name.replace("_", "-")])
            for name in names:
                taken.setdefault(name, (cls, f))
            if prefix:
                taken.setdefault("--" + (prefix + f.name).replace("_", "-"), (cls, f))
    given = {TransformerConfig: {}, DistributedDataParallelConfig: {}}
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    for option, *value in lines:
        if option not in taken:
            faults.check(False, f"unknown option {option}")
            continue
        cls, f = taken[option]
        faults.check(bool(value) == ("bool" not in str(f.type)), f"{option} with its value")
        v = value[0] if value else True
        given[cls][f.name] = int(v) if value and "int" in str(f.type) else v
    config = TransformerConfig(num_layers=64, hidden_size=64, num_attention_heads=4, **given[TransformerConfig])
    ddp = DistributedDataParallelConfig(**given[DistributedDataParallelConfig])
    word = (plan.value("precision") or [None])[0]
    faults.check(config.bf16 == (word in ("bf16", "fp8")) and config.fp16 == (word == "fp16"), "precision")
    faults.check(bool(config.fp8) == (word == "fp8"), "fp8")
    numbers = {re.search(r"(?:^|\.)(\d+)(?:\.|$)", n)[1] for n in plan.recomputed() if re.search(r"\d", n)}
    faults.check((config.recompute_num_layers or 0) == len(numbers), "layers to recompute")
    faults.check(ddp.overlap_grad_reduce, "buckets count only where reduction overlaps")

    # the buffer, in the memory of the host
    torch.cuda.current_device = lambda: "cpu"
    torch.distributed.init_process_group("gloo", rank=0, world_size=1,
                                         store=torch.distributed.HashStore())
    model = build(plan)
    names = {p: n for n, p in model.named_parameters()}
    of = plan.parameters(list(names.values()))
    params = list(model.parameters())
    world = torch.distributed.group.WORLD
    more = dict(ddp_config=ddp, param_dtype=torch.float32, grad_dtype=torch.float32,
                params=params, data_parallel_group=world, bucket_size=ddp.bucket_size,
                param_to_name=names, gradient_scaling_factor=1.0, param_indices=list(range(len(params))),
                nccl_ub=False, pg_collection=types.SimpleNamespace(tp=world, dp_cp=world))
    import inspect

    known = inspect.signature(buffers._ParamAndGradBuffer.__init__).parameters
    buffer = buffers._ParamAndGradBuffer(**{k: v for k, v in more.items() if k in known})
    tensor = {model.get_parameter(q): i for i, n in enumerate(plan.names) for q in of[n]}
    last = {}
    for b, bucket in enumerate(buffer.buckets):
        for p in bucket.params:
            last[tensor[p]] = b
    out = [sorted(i for i in last if last[i] == b) for b in range(len(buffer.buckets))]
    faults.one_size(plan, [t for t in out if t], text, ddp.bucket_size, False)
    torch.distributed.destroy_process_group()


# ---- XLA


def check_xla(plan, text, faults, source):
    script = text + "\nexec \"$0\" -c 'import jax; assert jax.jit(lambda x: x + 1)(1) == 2'\n"
    done = subprocess.run(["sh", "-c", script, sys.executable], env=dict(os.environ, JAX_PLATFORMS="cpu"),
                          capture_output=True, text=True)
    faults.check(done.returncode == 0, done.stderr.strip().splitlines()[-1] if done.stderr else "no program")
    limit = int(re.search(r"combine_threshold_bytes=(\d+)", text)[1])
    sizes = [plan.bytes[n] for n in plan.names]
    buckets = closed(sizes, limit, True)
    said = re.search(r"ends of buckets that differ: (\d+)", text)
    differ = len(ends(buckets) ^ ends(plan.runs))
    faults.check(int(said[1] if said else 0) == differ, f"{differ} ends differ")


# ---- Horovod and BytePS


def sources(root, suffixes):
    for folder, _, files in os.walk(root):
        for f in files:
            if f.endswith(suffixes) and "third_party" not in folder:
                with open(os.path.join(folder, f), errors="replace") as handle:
                    yield handle.read()


def check_env(env, text, faults, known):
    """Each variable is read, in a way that a pattern states: its unit and its form."""
    for name, value in env.items():
        if name == "NCCL_ALGO":
            faults.check(value in ("ring", "allreduce:tree"), f"NCCL_ALGO={value}")
            continue
        faults.check(name in known and re.search(known[name][0], text, re.S), f"{name} is not read so")
        faults.check(name in known and known[name][1](int(value)), f"{name}={value}")


def check_horovod(plan, text, faults, source):
    import importlib

    import torch

    code = "\n".join(sources(os.path.join(source, "horovod", "common"), (".cc", ".h")))
    largest = max(sum(plan.bytes[n] for n in s) for s in plan.sets)

    # its optimizer, with communication that notes what goes together
    calls = []
    ops = types.ModuleType("horovod.torch.mpi_ops")

    def note(tensors, *args, **kwargs):
        calls.append(list(tensors) if isinstance(tensors, (list, tuple)) else [tensors])
        return len(calls)

    for name in ("allreduce_async_", "grouped_allreduce_async_", "sparse_allreduce_async"):
        setattr(ops, name, note)
    ops.synchronize = lambda handle: None
    ops.size, ops.rank = (lambda: 2), (lambda: 0)
    ops.Average, ops.Sum, ops.Adasum = "average", "sum", "adasum"
    ops.rocm_built = lambda: False
    ops.global_process_set = types.SimpleNamespace(included=lambda: True)
    for name in ("horovod", "horovod.torch", "horovod.common", "horovod.common.util"):
        m = sys.modules[name] = types.ModuleType(name)
        m.__path__ = [os.path.join(source, *name.split("."))]
    sys.modules["horovod"].torch = sys.modules["horovod.torch"]
    sys.modules["horovod.torch.mpi_ops"] = ops
    process_sets = types.ModuleType("horovod.torch.process_sets")
    process_sets.global_process_set = ops.global_process_set
    sys.modules["horovod.common.process_sets"] = sys.modules["horovod.torch.process_sets"] = process_sets
    sys.modules["horovod.common.util"].split_list = lambda items, n: [items[i::n] for i in range(n)]

    def missing(name):  # whatever else is wanted of its compiled part
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    ops.__getattr__ = missing
    objects = sys.modules["horovod.torch.functions"] = types.ModuleType("horovod.torch.functions")
    objects.__getattr__ = missing
    objects.broadcast_object = lambda value, *args, **kwargs: value
    optimizer = importlib.import_module("horovod.torch.optimizer")
    sys.modules["horovod.torch"].DistributedOptimizer = optimizer.DistributedOptimizer

    model = build(plan)
    of = plan.parameters([n for n, _ in model.named_parameters()])
    by_name = dict(model.named_parameters())
    scope = run_fragment(text, model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(plan.accumulate()):
        model(torch.ones(4)).sum().backward()
    faults.check(len(calls) == len(plan.sets), f"{len(calls)} groups for {len(plan.sets)} sets")
    of_grad = {id(p.grad): n for n, p in by_name.items()}
    have = sorted(sorted(of_grad.get(id(t), "?") for t in c) for c in calls)
    want = sorted(sorted(p for n in s for p in of[n]) for s in plan.sets)
    faults.check(have == want, f"groups {have}, not {want}")
    check_torch_rest(plan, faults, scope, model)

    env = dict(re.findall(r'^os\.environ\["(\w+)"\] = "([^"]*)"', text, re.M))
    check_env(env, code, faults, {
        # bytes
        "HOROVOD_FUSION_THRESHOLD": (r"getenv\(HOROVOD_FUSION_THRESHOLD\).{1,200}strtol.{1,100}"
                                     r"SetTensorFusionThresholdBytes", lambda v: v >= largest),
        "HOROVOD_CYCLE_TIME": (r"getenv\(HOROVOD_CYCLE_TIME\).{1,100}SetCycleTimeMs", lambda v: 0 < v < 100),
        "HOROVOD_DISABLE_GROUP_FUSION": (r"SetBoolFromEnv\(HOROVOD_DISABLE_GROUP_FUSION", lambda v: v == 1),
        "HOROVOD_HIERARCHICAL_ALLREDUCE": (r"getenv\(HOROVOD_HIERARCHICAL_ALLREDUCE\).{1,400}"
                                           r"SetHierarchicalAllreduce\(value", lambda v: v == 1),
    })


def check_byteps(plan, text, faults, source):
    code = "\n".join(sources(source, (".cc", ".h")))
    shell = subprocess.run(["sh", "-c", text + "\nenv"], env={}, capture_output=True, text=True, check=True)
    env = dict(line.split("=", 1) for line in shell.stdout.splitlines() if line.startswith(("BYTEPS", "DMLC")))
    asked = plan.value("order") is not None
    check_env(env, code, faults, {
        # bytes, rounded up to pages
        "BYTEPS_PARTITION_BYTES": (r"_partition_bytes = atoi\(getenv\(\"BYTEPS_PARTITION_BYTES\"\)\).{1,500}"
                                   r"RoundUp\(_partition_bytes, _local_size \* _pagesize\)",
                                   lambda v: v % 4096 == 0 and v < 2**31),
        # partitions; 0 is no priorities
        "BYTEPS_SCHEDULING_CREDIT": (r"getenv\(\"BYTEPS_SCHEDULING_CREDIT\"\).{1,200}if \(!credit_in_partition\)"
                                     r".{1,200}GetPartitionBound\(\) \* credit_in_partition",
                                     lambda v: (v > 0) == asked),
        "DMLC_NUM_SERVER": (r"num_server = atoi\(getenv\(\"DMLC_NUM_SERVER\"\)\)", lambda v: v >= 1),
    })
    bound = int(env["BYTEPS_PARTITION_BYTES"])
    parts = {a: int(b) for op, *r in plan.rewrites if op == "partition-tensor" for a, b in [r[:2]]}
    of_set = {n: next((parts[m] for m in s if m in parts), 1) for s in plan.sets for n in s}
    differ = sum(-(-plan.bytes[n] // bound) != of_set[n] for n in plan.names)
    said = re.search(r"chunks: (\d+) of", text)
    faults.check(int(said[1] if said else 0) == differ, f"{differ} tensors get other parts")
    said = re.search(r"byteps\.torch\.(\w+)\(\.\.\., (\w+)=(\d+)\)", text)
    faults.check(int(said[3] if said else 1) == plan.accumulate(), "microbatches")
    if said:
        tree = ast.parse(open(os.path.join(source, "byteps", "torch", "__init__.py")).read())
        takes = [a.arg for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == said[1] for a in n.args.args]
        faults.check(said[2] in takes, f"{said[1]} takes no {said[2]}")


CHECKS = {
    "ddp": check_ddp,
    "fsdp": check_fsdp,
    "deepspeed": check_deepspeed,
    "megatron": check_megatron,
    "xla": check_xla,
    "horovod": check_horovod,
    "byteps": check_byteps,
}


def main():
    framework, plan, settings, *source = sys.argv[1:]
    with open(settings) as f:
        text = f.read()
    if framework in ("ddp", "fsdp") and "RANK" not in os.environ:
        checked, wrong = two_processes(framework, sys.argv[2:])
        print(checked, wrong)
        return 1 if wrong else 0
    faults = Faults()
    try:
        CHECKS[framework](Plan(plan), text, faults, source[0] if source else None)
    except Exception as e:  # a setting that is refused is a fault
        if os.environ.get("TRACE"):
            raise
        faults.check(False, f"{type(e).__name__}: {e}")
    for f in faults:
        print(f"{framework}: {f}"[:600], file=sys.stderr)
    print(faults.checked, len(faults))
    sys.stdout.flush()
    if "WORLD_SIZE" in os.environ and os.environ["WORLD_SIZE"] != "1" and faults:
        os._exit(1)  # the other rank may be waiting
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
