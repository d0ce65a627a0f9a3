"""Stands in for PyTorch in tests/cli/record.t: only what lib/record/hook.py
touches.  Its profiler knows named ranges and the steps of optimizers."""

import collections
import json
import os
import sys
import threading
import time
import types

__version__ = "0.stub"
grad = True


def is_grad_enabled():
    return grad


def module(name, **members):
    made = types.ModuleType("torch." + name)
    made.__dict__.update(members)
    sys.modules["torch." + name] = made
    outer, _, last = name.rpartition(".")
    setattr(sys.modules["torch" + (outer and "." + outer)], last, made)
    return made


class Handle:
    def __init__(self, hooks, key):
        self.hooks, self.key = hooks, key

    def remove(self):
        self.hooks.pop(self.key, None)


before, after = collections.OrderedDict(), collections.OrderedDict()


def register(hooks):
    def put(hook):
        hooks[len(hooks)] = hook
        return Handle(hooks, len(hooks) - 1)
    return put


class Optimizer:
    def step(self):
        for hook in before.values():
            hook(self, (), {})
        with record_function(type(self).__name__ + ".step", "cpu_op"):
            time.sleep(0.0005)
        for hook in after.values():
            hook(self, (), {})


class Tensor:
    shape, dtype, requires_grad = (4, 8), "torch.float32", False


class Module:
    _parameters = {}

    def forward(self, x):
        raise NotImplementedError

    def __call__(self, x):
        return self.forward(x)


original_call = Module.__call__


class ModuleList(Module):
    """Of one module, which others call for it."""

    def __init__(self, only):
        self.only = only

    def named_children(self):
        return [("0", self.only)]

    def modules(self):
        return [self] + self.only.modules()

    def __call__(self, x):
        return self.only(x)


class Linear(Module):
    """A module inside another, if it is given one."""

    def __init__(self, inner=None):
        self.inner, self._parameters = inner, {"weight": Tensor()}

    def forward(self, x):
        return self.inner(x) if self.inner else x

    def named_children(self):
        return [("inner", self.inner)] if self.inner else []

    def modules(self):
        return [self] + (self.inner.modules() if self.inner else [])


class GradScaler:
    def step(self, optimizer, *args, **kwargs):
        if not args:    # an argument: the gradients have no numbers
            optimizer.step()


class _BaseDataLoaderIter:
    def __init__(self, dataset):
        self._dataset, self.left = dataset, list(dataset)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop()


events = None   # of the profiler that runs


class record_function:
    def __init__(self, name, category="user_annotation"):
        self.name, self.category = name, category

    def __enter__(self):
        self.begin = time.time_ns()
        return self

    def __exit__(self, *_):
        if events is not None:
            events.append((self.category, self.name, self.begin, time.time_ns()))


passes = []     # backward passes that run


def backward(*hooks):
    """Its nodes call hooks."""
    passes.append(0)
    for hook in hooks:
        hook()
    passes.pop()


def _enable_profiler(config, activities, scopes=None):
    global events
    if events is not None:
        raise RuntimeError("there is a profiler already")
    if passes:
        raise RuntimeError("inside of a node, where PyTorch crashes")
    events = []


class AutogradProfile:
    def _prepare_trace(self):
        pass

    def _start_trace(self):
        sys.modules["torch.autograd.profiler"]._enable_profiler(None, None)


class Profile:
    """torch.profiler.profile"""

    def __init__(self, activities, record_shapes=False):
        self.profiler = AutogradProfile()

    def prepare_trace(self):
        self.profiler._prepare_trace()

    def start_trace(self):
        self.profiler._start_trace()

    def stop_trace(self):
        global events
        self.events, events = events, None

    def step(self):
        pass

    def export_chrome_trace(self, path):
        base = 1500000000000000000
        with open(path, "w", encoding="utf-8") as f:
            json.dump({
                "schemaVersion": 1,
                "traceEvents": [
                    {"ph": "X", "cat": c, "name": n, "pid": os.getpid(),
                     "tid": threading.get_native_id(),
                     "ts": (b - base) / 1000, "dur": (e - b) / 1000, "args": {}}
                    for c, n, b, e in self.events],
                "baseTimeNanoseconds": base}, f)


def save(obj, path):
    time.sleep(0.003)


class ProfilerActivity:
    CPU, CUDA = "cpu", "cuda"


module("optim", Optimizer=Optimizer)
module("optim.optimizer",
       register_optimizer_step_pre_hook=register(before),
       register_optimizer_step_post_hook=register(after))
module("nn", Linear=Linear, Module=Module, ModuleList=ModuleList)
module("utils")
module("utils.data")
module("utils.data.dataloader", _BaseDataLoaderIter=_BaseDataLoaderIter)
module("cuda", is_available=lambda: False)
module("amp", GradScaler=GradScaler)
module("autograd", backward=backward)
module("autograd.profiler", profile=AutogradProfile,
       record_function=record_function, _enable_profiler=_enable_profiler)
module("profiler", profile=Profile, ProfilerActivity=ProfilerActivity)
module("_C", _current_graph_task_id=lambda: len(passes) - 1)
module("_C._autograd", _get_sequence_nr=lambda: 0)
module("_C._profiler", RecordScope=types.SimpleNamespace(
    USER_SCOPE=1, BACKWARD_FUNCTION=2))
