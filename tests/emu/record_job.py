"""A job of tests/cli/record.t: record_job.py HOW STEPS"""

import gc
import importlib.util
import os
import signal
import sys
import threading

how, steps = sys.argv[1], int(sys.argv[2])
if how == "asks":
    assert importlib.util.find_spec("torch")
import torch    # noqa: E402

one, two, three = (torch.optim.Optimizer() for _ in range(3))
net = torch.nn.Linear(torch.nn.Linear(torch.nn.ModuleList(torch.nn.Linear())))
scaler = torch.amp.GradScaler()
gc.disable()
objects = [[i] for i in range(200000 if how == "pauses" else 0)]


stop = torch.profiler.profile.stop_trace


def refuse(profile):
    stop(profile)
    raise RuntimeError("the profiler refuses")


def no_room(profile, path):
    raise OSError(28, "No space left on device")


def loop():
    for i in range(steps):
        last = i == steps - 1
        net(torch.Tensor())
        if how == "raise" and last:
            raise ValueError("the job fails")
        if how == "exit" and last:
            os._exit(3)
        if how in ("term", "kill") and last:
            os.kill(os.getpid(),
                    signal.SIGTERM if how == "term" else signal.SIGKILL)
        if how == "scaler":
            scaler.step(one, *["inf"] * (i % 2))
        elif how == "said":
            torch.profiler.profile([]).step()
        elif how == "early" and i == 3:
            torch.profiler.profile([]).start_trace()
        elif how in ("thread", "threads"):  # one for all steps, or two in turn
            mine, threading.get_ident = threading.get_ident, \
                lambda: i % (1 if how == "thread" else 2)
            one.step()
            threading.get_ident = mine
        elif how in ("loader", "infer", "early"):
            continue
        elif how == "hooks":
            torch.autograd.backward(one.step, two.step)
        else:
            one.step()
            if how in ("two", "three"):
                two.step()
            if how == "three":
                three.step()
            if how == "seldom" and i % 2:
                two.step()
        if how == "pauses" and i % 2:
            gc.collect()
            torch.save(objects, os.devnull)
        if how == "refuses" and i == 4:
            torch.profiler.profile.stop_trace = refuse
        if how == "full":
            torch.profiler.profile.export_chrome_trace = no_room
        if how == "own" and i == 2 or how in ("late", "refuses") and i == 4:
            mine = torch.profiler.profile([])
            mine.start_trace()


if how == "fork":
    child = os.fork()
    if not child:
        loop()
        sys.exit(0)
    os.waitpid(child, 0)
elif how == "loader":
    torch.grad = False
    for batch in torch.utils.data.dataloader._BaseDataLoaderIter(range(steps)):
        pass
else:
    loop()
if how in ("infer", "early"):
    print("as before" if torch.Module.__call__ is torch.original_call
          else "changed")
print("the job is done")
