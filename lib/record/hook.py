"""Records some steps of a PyTorch job: trace -- COMMAND, paceline-trace(1).

Python loads this file by itself as sitecustomize, from a folder that PYTHONPATH
names first.  Nothing happens until torch is imported.  Then the steps are
counted, and some of them are recorded with torch.profiler.  What happened is
said in a file of the process beside this one, which the program trace reads.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
DIR = os.environ.get("PACELINE_RECORD_DIR", "")
STEPS = int(os.environ.get("PACELINE_RECORD_STEPS", "3"))
LIGHT = os.environ.get("PACELINE_RECORD_MODE") == "light"
SKIP = int(os.environ.get("PACELINE_RECORD_SKIP", "5"))
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
         "SLURM_PROCID")    # as lib/record/entry/process.c
SHORT = 1000000     # ns: pauses below are not noted
MOST_PAUSES = 10000
PATIENCE = 32   # batches without a step of an optimizer, where gradients are on
BY = os.environ.get("PACELINE_RECORD_BY", "auto")
BEST = ("optimizer", "loader", "profiler")  # what tells steps, best first
if BY != "auto":
    BEST = (BY,)


def process():
    """Its number; also that of its host, where several share the folder."""
    return "%d.%s" % (os.getpid(), os.uname().nodename.replace("/", "_"))


def say(*words):
    """One line for trace, which may be killed or gone."""
    line = " ".join(map(str, words)).replace("\n", " ") + "\n"
    try:
        fd = os.open(os.path.join(FOLDER, process()),
                     os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(fd, line.encode("utf-8", "replace"))
        finally:
            os.close(fd)
    except OSError:
        pass


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else 0


kept = []   # profilers that cannot be stopped


def spread(values):
    """Half of them are so far apart."""
    values = sorted(values)
    return values[3 * len(values) // 4] - values[len(values) // 4]


class Cycle:
    """Which of several optimizers, or loaders, ends a step: the one that comes
    most seldom; of those that come equally often, the last one.  What came long
    ago is forgotten, whole cycles at a time: in a part of a cycle some would
    seem to come more seldom than the others."""

    def __init__(self):
        self.order, self.count = [], {}     # what is not forgotten
        self.total, self.at = {}, {}    # of all: how often, and when last
        self.n = 0

    def add(self, key):
        self.n += 1
        self.at[key] = self.n
        self.order.append(key)
        self.count[key] = self.count.get(key, 0) + 1
        self.total[key] = self.total.get(key, 0) + 1
        keep = min(max(256, 4 * len(self.count)), 4096)
        if len(self.order) > 2 * keep:
            self.forget(keep)

    def forget(self, keep):
        old, last = self.order[:-keep], self.last()
        cut = len(old)
        while cut and old[cut - 1] != last:
            cut -= 1
        del self.order[:cut or len(old)]
        self.count = {}
        for key in self.order:
            self.count[key] = self.count.get(key, 0) + 1

    def last(self):
        again = {k: n for k, n in self.count.items()
                 if n > 1 and not self.is_gone(k)} or self.count
        least = min(again.values())
        return [k for k, n in again.items() if n == least][-1]

    def is_gone(self, key):
        """Has it not come for long?"""
        n = self.count.get(key)
        return not n or self.n - self.at[key] > 4 + 4 * len(self.order) / n


class Recorder:
    """Counts the steps of this process and records some."""

    def __init__(self, torch):
        from threading import get_native_id
        from time import time_ns
        self.clock, self.native = time_ns, get_native_id
        self.torch = torch
        self.graph_task = getattr(torch._C, "_current_graph_task_id",
                                  lambda: -1)
        self.undo = []
        self.begin()

    def begin(self):
        """Also in the child of a fork."""
        self.pid = os.getpid()
        self.phase = "wait"     # then record, after, done
        self.cycle = {name: Cycle() for name in BEST}
        self.source = self.key = self.thread = None
        self.threads = {}   # of the last events, by source and key
        self.updated = False    # an optimizer has made a step in a backward pass
        self.n = self.first = self.recorded = 0
        self.profile = self.mark = self.rank = None
        self.owes = False   # the word of what became of a recording
        self.prepared = self.mine = False
        self.light = None   # from the step before the first that it records
        self.pauses = []    # of recorded steps: (name, begin, end, thread)
        self.collecting = {}    # begins of collections, by thread
        self.last = 0
        self.plain, self.during = [], []

    # ---- steps

    def event(self, source, key):
        """An optimizer has made its step, a loader is asked for a batch, the
        script has said so, or the model is called: perhaps the end of a step."""
        if self.phase == "done" or source not in BEST:
            return
        if source == "optimizer" and self.graph_task() != -1:
            self.updated = True
            return
        self.end_of_pass()
        import threading
        import time
        now = time.perf_counter_ns()
        here = threading.get_ident()
        if self.phase == "wait":
            self.thread = here
            recent = self.threads.setdefault((source, key), [])
            recent.append(here)
            del recent[:-3]
        if here != self.thread:
            return
        self.cycle[source].add(key)
        if self.phase != "wait":
            cycle = self.cycle[self.source]
            if cycle.is_gone(self.key):
                self.key = cycle.last()
        else:
            self.source = next(s for s in BEST if self.cycle[s].order)
            self.key = self.cycle[self.source].last()
        if (source, key) != (self.source, self.key):
            return
        try:
            self.end_of_step(now)
        except Exception as e:  # never the script's problem
            self.abandon("why recording failed: %s: %s" % (type(e).__name__, e))

    def end_of_pass(self):
        """Outside of a backward pass. Optimizers that hooks call inside it, one
        for each parameter, are one: the profiler can neither begin nor end
        inside of a node."""
        if self.updated:
            self.updated = False
            self.event("optimizer", 0)

    def end_of_step(self, now):
        import time
        if self.phase == "wait":
            self.n = self.cycle[self.source].total[self.key]
        else:
            self.n += 1
        if self.n > 2 and self.last:
            (self.during if self.phase == "record" else self.plain).append(
                now - self.last)
        if self.phase == "wait":
            wait = SKIP
            if self.source == "loader" and BY == "auto" and \
                    self.torch.is_grad_enabled():
                wait += PATIENCE    # an optimizer may come yet
            if self.n >= wait - 1:
                self.prepare()
            if self.n >= wait and self.phase == "wait":
                self.start()
        elif self.phase == "record":
            self.end_mark()
            self.recorded += 1
            if self.recorded >= STEPS:
                self.stop()
                self.after = 0
            else:
                self.begin_mark()
        elif self.phase == "after":
            self.after += 1
            if self.after == 1:     # not the one after the file was written
                self.plain.pop()
            if self.after > STEPS:
                self.say_cost()
                self.close()
        self.last = time.perf_counter_ns()

    # ---- the profiler

    def prepare(self):
        if self.prepared:
            return
        profiler = self.torch.profiler
        kinds = [profiler.ProfilerActivity.CPU]
        if not LIGHT and self.torch.cuda.is_available():
            kinds.append(profiler.ProfilerActivity.CUDA)
        self.rank = self.find_rank()
        self.name = self.reserve()
        if not self.name:
            self.give_up("why another process has recorded rank %d"
                         % (self.rank or 0))
            return
        self.profile = profiler.profile(activities=kinds, record_shapes=True)
        self.mine = True
        try:
            self.profile.prepare_trace()
        finally:
            self.mine = False
        self.prepared = True
        if LIGHT:   # a step early: its first one is longer
            self.light = load_light().Light(self.torch)
            self.light.start()
            if BY == "calls":   # a step begins before the light mode sees a call
                self.arm_calls()

    def find_rank(self):
        dist = sys.modules.get("torch.distributed")
        try:
            if dist and dist.is_available() and dist.is_initialized():
                return dist.get_rank()
        except Exception:
            pass
        rpc = sys.modules.get("torch.distributed.rpc")
        try:
            if rpc:
                return rpc.get_worker_info().id
        except Exception:   # it was not begun
            pass
        for name in RANKS:
            if os.environ.get(name, "").isdigit():
                return int(os.environ[name])
        return None

    def reserve(self):
        """The name of the file, which no other process has."""
        names = ["rank%d" % (self.rank or 0)]
        if self.rank is None:
            names.append("pid%d" % self.pid)
        for name in names:
            try:
                os.close(os.open(os.path.join(FOLDER, name),
                                 os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                return name + ".pt.trace.json"
            except FileExistsError:
                pass
        return None

    def start(self):
        if len(set(self.threads[self.source, self.key])) > 1:
            self.give_up("why several threads make the steps in turn, and the "
                         "profiler of PyTorch records one of them")
            return
        self.mine = True
        try:
            if LIGHT:
                self.light.only_scopes(self.profile.start_trace)
                self.light.forget()
            else:
                self.profile.start_trace()
        finally:
            self.mine = False
        self.phase = "record"
        self.watch_garbage(True)
        self.first = self.n
        say("began", self.n)
        self.owes = True
        self.guard_exit()
        self.begin_mark()

    def begin_mark(self):
        self.mark = self.torch.autograd.profiler.record_function(
            "ProfilerStep#%d" % (self.first + self.recorded))
        self.mark.__enter__()

    def end_mark(self):
        if self.mark:
            self.mark.__exit__(None, None, None)
        self.mark = None

    def stop(self, keep=True):
        """Ends the recording and writes the file, if it is kept."""
        import threading
        self.phase = "after"
        self.watch_garbage(False)
        self.end_mark()     # of a step that has not ended, see write()
        self.unguard_exit()
        light = self.light
        self.stop_light()
        if threading.get_ident() != self.thread:    # PyTorch crashes
            kept.append(self.profile)
            self.profile = None
            self.drop()
            say("why the recording could not be ended: the profiler of PyTorch "
                "must be stopped by the thread whose steps it records, and that "
                "one had made", self.recorded, "of", STEPS,
                "steps when another thread ended the script or began a profiler")
            return
        self.profile.stop_trace()
        if keep:
            self.write(light)
        else:
            self.drop()
        self.profile = None

    def stop_light(self):
        """What was put last into a place is taken away first."""
        light, self.light = self.light, None
        if light:
            if BY == "calls":
                self.undo.pop()()
            light.stop()

    def write(self, light):
        path = os.path.join(FOLDER, self.name)
        self.profile.export_chrome_trace(path)
        if light:
            for name, begin, end, thread in self.pauses:
                light.events.append(("user_annotation", name, begin, end,
                                     thread, None))
            light.put_into(path)
            for part in light.missing:
                say("why the light mode lacks a part here:", part)
            if light.lost:
                say("why", light.lost, "events found no room: record fewer "
                    "steps")
        elif self.pauses:
            put_first(path, self.pauses)
        if self.recorded < STEPS:   # the last step has not ended
            with open(path, encoding="utf-8", errors="surrogateescape") as f:
                text = f.read()
            with open(path, "w", encoding="utf-8",
                      errors="surrogateescape") as f:
                f.write(text.replace("ProfilerStep#%d\""
                                     % (self.first + self.recorded),
                                     "unfinished step\""))
        os.rename(path, os.path.join(DIR, self.name))
        say("file", self.name, self.first, self.recorded)
        self.owes = False

    def say_cost(self):
        if self.plain and self.during:
            say("cost", median(self.plain), median(self.during),
                spread(self.plain) + spread(self.during))

    # ---- ends

    def other_profiler(self):
        """The script starts a profiler of its own; there can be only one."""
        if self.mine or self.phase in ("done", "after"):
            return
        try:
            self.mine = True
            if self.phase == "record" and self.recorded:
                self.finish()
            elif self.phase == "record":    # no step has ended
                self.stop(keep=False)
            elif self.prepared:
                self.profile.start_trace()
                self.profile.stop_trace()
        except Exception as e:  # never the script's problem
            say("why the recording could not be ended: %s: %s"
                % (type(e).__name__, e))
        finally:
            self.mine = False
        self.give_up("why the script uses a profiler of its own (torch.profiler)"
                     ", and there can be only one at a time: give its files to "
                     "replay, or leave it out")

    def finish(self):
        """The process ends: what was recorded is kept."""
        if os.getpid() != self.pid or self.phase == "done":
            return
        if self.phase == "record":
            try:
                self.stop()
            except Exception as e:
                say("why recording failed: %s: %s" % (type(e).__name__, e))
            if self.recorded < STEPS:
                say("why the script ended, or its profiler began, after %d of %d"
                    " steps" % (self.recorded, STEPS))
        if self.phase == "after":
            self.say_cost()
        elif self.phase == "wait":
            say("none", self.n)
        self.close()

    def give_up(self, *words):
        say(*words)
        self.close()

    def drop(self):
        if self.owes:
            say("dropped")
        self.owes = False

    def abandon(self, *words):
        """Recording failed in the middle: the profiler must not go on."""
        self.stop_light()
        profile, self.profile = self.profile, None
        if self.phase == "record" and profile:
            self.mine = True
            try:
                profile.stop_trace()
            except Exception:   # it may be what failed
                pass
            finally:
                self.mine = False
        self.give_up(*words)

    def close(self):
        self.drop()
        self.phase = "done"
        self.watch_garbage(False)
        self.unguard_exit()
        self.stop_light()
        self.profile = self.mark = None
        while self.undo:
            self.undo.pop()()

    def guard_exit(self):
        """Exits that Python's own handlers do not see."""
        import signal
        import threading
        leave = os._exit

        def _exit(status):
            try:
                self.finish()
            finally:
                leave(status)

        def terminated(number, frame):
            try:
                self.finish()
            finally:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        os._exit = _exit
        self.restore = [lambda: setattr(os, "_exit", leave)]
        if threading.current_thread() is threading.main_thread() and \
                signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminated)
            self.restore.append(lambda: signal.getsignal(signal.SIGTERM)
                                is terminated and
                                signal.signal(signal.SIGTERM, signal.SIG_DFL))

    def unguard_exit(self):
        restore, self.restore = getattr(self, "restore", []), []
        for function in restore:
            function()

    # ---- where PyTorch tells

    def patch(self, owner, name, make):
        """Put make(function) in the place of a function, until close()."""
        import functools
        old = owner.__dict__[name]
        new = functools.wraps(old)(make(old))
        setattr(owner, name, new)

        def undo():
            if owner.__dict__.get(name) is new:
                setattr(owner, name, old)
        self.undo.append(undo)

    def arm(self):
        torch = self.torch
        from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                           register_optimizer_step_pre_hook)
        from torch.utils.data import dataloader

        compiling = getattr(getattr(torch, "compiler", None), "is_compiling",
                            bool)

        # these stay: PyTorch goes through its list of them while they run
        def steps(optimizer, args, kwargs):
            if self.light and not compiling():
                self.light.optimizer_begins(optimizer)

        def stepped(optimizer, args, kwargs):
            if self.phase == "done" or compiling():
                return      # compiled: part of a program that goes on
            if self.light:
                self.light.optimizer_ends(optimizer)
            self.event("optimizer", id(optimizer))
        register_optimizer_step_pre_hook(steps)
        register_optimizer_step_post_hook(stepped)

        def passes_back(old):
            def backward(*args, **kwargs):
                result = old(*args, **kwargs)
                if self.graph_task() == -1:
                    self.end_of_pass()
                return result
            return backward
        self.patch(torch.autograd, "backward", passes_back)

        def next_batch(old):
            def __next__(loader):
                self.event("loader", id(getattr(loader, "_dataset", None)))
                return old(loader)
            return __next__
        self.patch(dataloader._BaseDataLoaderIter, "__next__", next_batch)

        def said_step(old):
            def step(profile):
                self.event("profiler", 0)
                return old(profile)
            return step
        self.patch(torch.profiler.profile, "step", said_step)

        def starts(old):
            def start(profile):
                self.other_profiler()
                return old(profile)
            return start
        for name in ("_prepare_trace", "_start_trace"):
            self.patch(torch.autograd.profiler.profile, name, starts)
        self.arm_scaler()
        self.arm_save()
        if BY == "calls":
            import threading
            self.here = threading.local()
            self.compiling = compiling
            self.arm_calls()

    def arm_calls(self):
        """A module is called, and not by another one: a step begins."""
        here = self.here

        def outermost(old):
            def __call__(module, *args, **kwargs):
                if self.phase == "done" or self.compiling() or \
                        getattr(here, "inside", False) or \
                        getattr(module, "_is_replica", False):  # DataParallel's
                    return old(module, *args, **kwargs)
                self.event("calls", id(module))
                here.inside = True
                try:
                    return old(module, *args, **kwargs)
                finally:
                    here.inside = False
            return __call__
        self.patch(self.torch.nn.Module, "__call__", outermost)

    # ---- what stops the script without an operator that the profiler sees

    def note(self, name, begin):
        end = self.clock()
        if self.phase == "record" and end - begin >= SHORT and \
                len(self.pauses) < MOST_PAUSES:
            self.pauses.append((name, begin, end, self.native()))

    def collects(self, phase, info):
        """Garbage.  Python drops an exception that a handler of a signal raises
        in here, so this is called during recorded steps only."""
        if phase == "start":
            self.collecting[self.native()] = self.clock()
        else:
            begin = self.collecting.pop(self.native(), None)
            if begin:
                self.note("garbage collection", begin)

    def watch_garbage(self, on):
        import gc
        if on:
            gc.callbacks.append(self.collects)
        elif self.collects in gc.callbacks:
            gc.callbacks.remove(self.collects)

    def arm_save(self):
        """Checkpoints.  It stays, because scripts keep the function that they
        import, and is found by its name where it is pickled."""
        import functools
        old = self.torch.__dict__.get("save")
        if not old:
            return

        @functools.wraps(old)
        def save(*args, **kwargs):
            begin = self.clock()
            try:
                return old(*args, **kwargs)
            finally:
                self.note("torch.save", begin)
        save.__module__ = "torch"
        self.torch.save = save

    def arm_scaler(self):
        """A scaler may leave out the step of an optimizer; its time counts."""
        try:
            from torch.amp import GradScaler
        except ImportError:
            from torch.cuda.amp import GradScaler

        def scaled(old):
            def step(scaler, optimizer, *args, **kwargs):
                total = self.cycle["optimizer"].total
                before = total.get(id(optimizer), 0)
                result = old(scaler, optimizer, *args, **kwargs)
                if total.get(id(optimizer), 0) == before:
                    self.event("optimizer", id(optimizer))
                return result
            return step
        if "step" in GradScaler.__dict__ and "optimizer" in BEST:
            self.patch(GradScaler, "step", scaled)


def put_first(path, pauses):
    """Adds ranges to a file of the profiler, which may be large: as text, before
    its first event."""
    import json
    import re
    import shutil
    before = b'"traceEvents": ['
    with open(path, "rb") as old:
        old.seek(max(0, os.path.getsize(path) - (1 << 16)))
        tail = old.read()
        old.seek(0)
        head = old.read(1 << 20)
        at = head.find(before)
        if at < 0:
            say("why pauses of the script are missing: no events at the begin of",
                path)
            return
        at += len(before)
        base = re.search(rb'"baseTimeNanoseconds": (\d+)', head[:at] + tail)
        text = ""
        for name, begin, end, thread in pauses:
            if base:
                begin = (begin - int(base.group(1))) / 1000
                end = (end - int(base.group(1))) / 1000
            else:   # files without a base have whole microseconds
                begin, end = begin // 1000, end // 1000
            text += "\n" + json.dumps(
                {"ph": "X", "cat": "user_annotation", "name": name,
                 "pid": os.getpid(), "tid": thread, "ts": begin,
                 "dur": round(end - begin, 3), "args": {}}) + ","
        old.seek(at)
        with open(path + ".new", "wb") as new:
            new.write(head[:at] + text.encode())
            shutil.copyfileobj(old, new)
    os.rename(path + ".new", path)


def load_light():
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location("_paceline_light",
                                   os.path.join(FOLDER, "light.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def watch(torch):
    """torch was imported."""
    import atexit
    say("torch", getattr(torch, "__version__", "?"))
    try:
        recorder = Recorder(torch)
        recorder.arm()
    except Exception as e:
        say("why this version of PyTorch cannot be recorded: %s: %s"
            % (type(e).__name__, e))
        return
    atexit.register(recorder.finish)
    if hasattr(os, "register_at_fork"):
        def child():
            recorder.unguard_exit()
            recorder.watch_garbage(False)
            recorder.stop_light()
            if recorder.phase != "done":
                recorder.begin()
        os.register_at_fork(after_in_child=child)


class Loader:
    """The loader of torch, and what comes after it."""

    def __init__(self, loader, finder):
        self.loader, self.finder = loader, finder

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
            watch(module)


class Finder:
    """Waits for the import of torch.  It stays when somebody only asks whether
    there is torch, and when an import fails."""

    asking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.asking:
            return None
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")
        self.asking = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = Loader(spec.loader, self)
                    return spec
        finally:
            self.asking = False
        return None


def run_hidden():
    """The sitecustomize in whose place this file was loaded."""
    from importlib.machinery import PathFinder
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec
    module = module_from_spec(spec)
    sys.modules["_paceline_hook"] = sys.modules["sitecustomize"]
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.path[:] = [p for p in sys.path
               if os.path.abspath(p or os.curdir) != FOLDER]
if DIR and os.path.isdir(DIR):
    say("python")
    sys.meta_path.insert(0, Finder())
run_hidden()
