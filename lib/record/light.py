"""The light mode of hook.py: what a step is made of, without its operators.

PyTorch's profiler gets only the events of two scopes: ranges that somebody named
(among them each communication of any backend, with its thread, and the steps of
loaders) and the nodes of the backward pass.  It then has nothing to do for an
operator.  Functions put in their places for the time of the recording add the
rest: calls of modules, steps of optimizers, who issues a communication (the
kernels of the operators in c10d, which C++ callers use as well) and who waits
for one.
"""

import bisect
import itertools
import json
import os
import sys
import threading
import time

clock = time.time_ns
WAIT = "c10d::wait"
MOST = 2000000      # events of a process
PRODUCTS = ("mm", "Linear", "Convolution")  # in names of nodes that multiply


def class_of(module):
    """fully_shard() makes a class FSDPName of the class Name."""
    name = type(module).__name__
    if name.startswith("FSDP") and name[4:] in (c.__name__ for c in
                                                type(module).__mro__):
        return name[4:]
    return name


class Light:
    """Records between start() and stop(); put_into() adds it to the file that
    the profiler wrote."""

    def __init__(self, torch):
        self.torch = torch
        self.libraries = []
        self.nodes = []     # of modules with a weight: of their nodes
        self.events = []    # (category, name, begin, end, thread, arguments)
        self.calls = []     # of modules: (key, begin, end, thread, first and
        #                     next number of a node, shape, type, gradient)
        self.names = {}     # of a module, by id: its name in its parent
        self.weights = {}   # shapes of the parameter "weight", likewise
        self.types = {}     # names of the types of elements
        self.kinds = {}     # of a module, by id: of its class
        self.threads = {}   # their numbers in the system, by Python's
        self.watching = False
        self.begun = {}
        self.undo = []
        self.missing = []   # parts that this version of PyTorch does not have
        self.lost = 0

    # ---- the profiler

    def only_scopes(self, start):
        """Call start(), which starts the profiler, so that it has some scopes
        only."""
        from torch._C._profiler import RecordScope
        from torch.autograd import profiler
        scopes = {RecordScope.USER_SCOPE, RecordScope.BACKWARD_FUNCTION}
        enable = profiler._enable_profiler

        def enable_some(config, activities, *rest):
            return enable(config, activities, scopes)
        profiler._enable_profiler = enable_some
        try:
            start()
        finally:
            profiler._enable_profiler = enable

    def start(self):
        self.watching = True
        for part in (self.watch_modules, self.watch_issues, self.watch_waits):
            try:
                part()
            except Exception as e:
                self.missing.append("%s: %s: %s" % (part.__name__,
                                                    type(e).__name__, e))

    def forget(self):
        """What came before the first step that is recorded."""
        del self.events[:], self.calls[:]
        self.lost = 0

    def stop(self):
        self.watching = False
        while self.undo:
            self.undo.pop()()

    def add(self, category, name, begin, end, arguments=None):
        if len(self.events) < MOST:
            self.events.append((category, name, begin, end,
                                threading.get_native_id(), arguments))
        else:
            self.lost += 1

    # ---- modules and optimizers

    def learn(self, module):
        """The names of a module that nothing else called, and of its parts."""
        self.names[id(module)] = self.kinds[id(module)] = class_of(module)
        for part in module.modules():
            self.kinds[id(part)] = class_of(part)
            weight = part._parameters.get("weight")
            if weight is not None:
                self.weights[id(part)] = tuple(weight.shape)
            # a list of modules is not called, so its name goes before theirs
            within = self.names[id(part)] + "." \
                if part is not module and self.is_list(part) else ""
            for name, child in part.named_children():
                self.names.setdefault(id(child), within + name)

    def is_list(self, module):
        return getattr(type(module), "forward", None) is \
            self.torch.nn.Module.forward

    def try_to_learn(self, module):
        try:
            self.learn(module)
        except Exception:   # of a module that says something else of its parts
            self.kinds.setdefault(id(module), class_of(module))

    def watch_modules(self):
        """PyTorch has hooks for the calls of all modules, too. With one of them
        each call takes a longer way, which costs more than twice as much as this,
        and programs that were compiled without them are compiled again."""
        torch = self.torch
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling",
                            bool)
        number = torch._C._autograd._get_sequence_nr
        tensor, ident = torch.Tensor, threading.get_ident
        kinds, threads, calls = self.kinds, self.threads, self.calls
        owner = torch.nn.Module
        old = owner.__call__

        # few lines, because each call of each module goes through them
        def __call__(module, *args, **kwargs):
            if compiling() or not self.watching:
                return old(module, *args, **kwargs)
            if id(module) not in kinds:
                self.try_to_learn(module)
            first, begin = number(), clock()
            result = old(module, *args, **kwargs)
            end = clock()
            try:
                thread = ident()
                if thread not in threads:
                    threads[thread] = threading.get_native_id()
                x = args[0] if args else None
                if len(calls) >= MOST:
                    self.lost += 1
                elif isinstance(x, tensor):
                    calls.append((id(module), begin, end, thread, first,
                                  number(), x.shape, x.dtype, x.requires_grad))
                else:
                    calls.append((id(module), begin, end, thread, first,
                                  number(), self.look_at(x), None, True))
            except Exception:   # a tensor of another kind, without a shape
                self.lost += 1
            return result

        def undo():
            if owner.__call__ is __call__:
                owner.__call__ = old
        owner.__call__ = __call__
        self.undo.append(undo)

    def optimizer_begins(self, optimizer):
        self.begun[id(optimizer)] = clock()

    def optimizer_ends(self, optimizer):
        begin = self.begun.pop(id(optimizer), None)
        if begin:
            self.add("cpu_op", type(optimizer).__name__ + ".step", begin,
                     clock())

    # ---- communication

    def watch_issues(self):
        """Kernels of the operators that issue communication, which call those
        that were there. They lie where gradients of the operators would be
        recorded, if they had any, so that nothing is replaced."""
        torch = self.torch
        if not torch.distributed.is_available():
            return
        after = getattr(torch._C, "_after_autograd_keyset", None)
        below = torch._C._AutoDispatchBelowAutograd
        all_names = torch._C._dispatch_get_all_op_names()
        for space in ("c10d", "_c10d_functional"):
            library = torch.library.Library(space, "IMPL")
            self.undo.append(getattr(library, "_destroy", bool))
            for name in all_names:
                if not name.startswith(space + "::") or "." in name or \
                        "check" in name or \
                        (space[0] == "_" and "wait" not in name) or \
                        torch._C._dispatch_has_kernel_for_dispatch_key(
                            name, "AutogradCPU"):
                    continue
                name = name.split("::")[1]
                op = getattr(getattr(torch.ops, space), name).default
                if after is not None:
                    library.impl(name, self.kernel(space, name, op, after),
                                 "Autograd", with_keyset=True)
                else:   # an old version, where this takes longer
                    library.impl(name, self.old_kernel(space, name, op, below),
                                 "Autograd")
            self.libraries.append(library)
        self.undo.append(self.libraries.clear)

    def look_at(self, value):
        """What is kept of an argument: shape and type of a tensor, the same of
        those in a list of lists, a number."""
        if isinstance(value, self.torch.Tensor):
            return value.shape, value.dtype
        if isinstance(value, (list, tuple)):
            return [self.look_at(v) for v in value]
        return value if isinstance(value, int) else None

    def kernel(self, space, name, op, after):
        note = self.note_of(space, name)
        redispatch = op.redispatch

        def call(keys, *args, **kwargs):
            begin = clock()
            result = redispatch(keys & after, *args, **kwargs)
            note(begin, clock(), args)
            return result
        return call

    def old_kernel(self, space, name, op, below):
        note = self.note_of(space, name)

        def call(*args, **kwargs):
            begin = clock()
            with below():
                result = op(*args, **kwargs)
            note(begin, clock(), args)
            return result
        return call

    def note_of(self, space, name):
        if "wait" in name:
            return lambda begin, end, args: self.add("cpu_op", WAIT, begin, end)
        full = space + "::" + name
        look_at = self.look_at
        return lambda begin, end, args: self.add(
            "issue", full, begin, end, [look_at(a) for a in args])

    def watch_waits(self):
        dist = sys.modules.get("torch.distributed")
        work = getattr(dist, "Work", None)
        if work is None:
            return
        old = work.wait

        def wait(work, *args, **kwargs):
            begin = clock()
            try:
                return old(work, *args, **kwargs)
            finally:
                self.add("cpu_op", WAIT, begin, clock())
        work.wait = wait
        self.undo.append(lambda: setattr(work, "wait", old))

    # ---- the file

    def type_of(self, kind):
        if kind not in self.types:
            self.types[kind] = str(kind).split(".")[-1]
        return self.types[kind]

    def in_words(self, kept):
        """Dimensions and type of an argument of look_at()."""
        if isinstance(kept, tuple):
            return list(kept[0]), self.type_of(kept[1])
        if isinstance(kept, list):
            inner = [self.in_words(k) for k in kept]
            return [d for d, _ in inner], inner[0][1] if inner else ""
        return (), ""

    def other_events(self):
        for category, name, begin, end, thread, arguments in self.events:
            if category == "issue":
                category = "cpu_op"
                words = [self.in_words(a) for a in arguments]
                arguments = {"Input Dims": [d for d, _ in words],
                             "Input type": [k for _, k in words],
                             "Concrete Inputs": [str(a) if isinstance(a, int)
                                                 else "" for a in arguments]}
            yield category, name, begin, end, thread, arguments

    def module_events(self):
        """Of each call, after those around it."""
        around = []     # (thread, end, key)
        for key, begin, end, thread, first, last, shape, kind, back in \
                sorted(self.calls, key=lambda c: (c[3], c[1], -c[2])):
            while around and (around[-1][0] != thread or
                              around[-1][1] <= begin):
                around.pop()
            around.append((thread, end, key))
            thread = self.threads[thread]
            yield ("python_function", "nn.Module: " + self.names.get(key, "?"),
                   begin, end, thread, None)
            arguments = None
            shape, kind = self.in_words((shape, kind) if kind else shape)
            if kind:
                weight = self.weights.get(key)
                arguments = {"Input Dims": [shape], "Input type": [kind]}
                if weight:
                    arguments["Input Dims"].append(weight)
                    arguments["Input type"].append(kind)
                    path = [self.names.get(k, "?") for _, _, k in around]
                    self.nodes.append((first, last, ".".join(path), weight,
                                       back))
            yield ("cpu_op", self.kinds.get(key, "?") + ".forward", begin, end,
                   thread, arguments)

    def put_product(self, args, weight, back):
        """What a node of the backward pass multiplies. That of a layer of
        matrices makes the gradient of its parameters and, unless nobody needs
        it, that of its input."""
        dims, types = args["Input Dims"], args["Input type"]
        rows = dims[0][0] if len(dims[0]) == 2 else 0
        if rows and len(weight) == 2 and dims[0][1] == weight[0]:
            args["flops"] = (4 if back else 2) * rows * weight[0] * weight[1]
            dims.append([rows, weight[1]])
            types.append(types[0])
            weight = weight[::-1]
        if back or len(dims) == 1:
            dims.append(weight)
            types.append(types[0])

    def complete(self, events):
        """Which module a node of the backward pass belongs to, by the numbers
        that were given to nodes during its call; what a product multiplies."""
        self.nodes.sort()
        for event in list(events):
            args = event.get("args") or {}
            number = args.get("Sequence number", -1)
            at = bisect.bisect(self.nodes, (number + 1,)) - 1
            if event.get("cat") != "cpu_op" or number < 0 or at < 0:
                continue
            first, last, path, weight, back = self.nodes[at]
            if not first <= number < last or "Backward" not in event["name"]:
                continue
            if any(p in event["name"] for p in PRODUCTS) and \
                    len(args.get("Input Dims", ())) == 1:
                self.put_product(args, weight, back)
            events.append(dict(event, cat="python_function",
                               name="nn.Module: " + path, args={}))

    def put_into(self, path):
        """In order of time, as the profiler would have written them: readers
        find the operator that posted a message just before the message."""
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            trace = json.load(f)
        base = trace.get("baseTimeNanoseconds", 0)
        events = trace["traceEvents"]
        for category, name, begin, end, thread, arguments in \
                itertools.chain(self.module_events(), self.other_events()):
            if base:
                begin, end = (begin - base) / 1000, (end - base) / 1000
            else:   # files without a base have whole microseconds
                begin, end = begin // 1000, end // 1000
            events.append({"ph": "X", "cat": category, "name": name,
                           "pid": os.getpid(), "tid": thread, "ts": begin,
                           "dur": round(end - begin, 3),
                           "args": arguments or {}})
        self.complete(events)
        events.sort(key=lambda e: e["ts"] if e.get("ph") == "X" else 0)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as f:
            json.dump(trace, f, default=str)    # sizes without numbers
