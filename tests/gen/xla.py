#!/usr/bin/env python3
"""Record the profiles in tests/golden/xla: a small job of JAX on CPUs, cut to a few kilobytes.

    tests/gen/xla.py DEVICES OUT    # needs jax; writes OUT.trace.json.gz and OUT.xplane.pb.gz
    tests/gen/xla.py DEVICES OUT PROCESS ADDRESS:PORT   # of a job of two processes: 0 or 1

The job loads a batch, computes gradients on DEVICES devices, adds them over the devices, and
waits for the loss, three times. Both files are cut alike: without the functions of Python, the
bookkeeping of thread pools, and the descriptions of programs without a collective.
"""
import glob
import gzip
import json
import os
import sys
import tempfile
import time

DEVICES, OUT = int(sys.argv[1]), sys.argv[2]
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=%d" % DEVICES
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

if len(sys.argv) > 3:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[4], 2, int(sys.argv[3]))
    DEVICES *= 2

def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def local(w, x):
    value, grad = jax.value_and_grad(loss)(w, x)
    if DEVICES > 1:
        grad = jax.lax.pmean(grad, "d")
        value = jax.lax.pmean(value, "d")
        parts = jax.lax.psum_scatter(grad, "d", tiled=True)
        grad = jax.lax.all_gather(parts, "d", tiled=True) / DEVICES
    return w - 0.1 * grad, value


def record(folder):
    mesh = Mesh(np.array(jax.devices()), ("d",))
    step = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P(), P("d")), out_specs=(P(), P()),
                                 check_vma=False))
    w = jax.device_put(np.full((256, 256), 0.01, np.float32), NamedSharding(mesh, P()))
    rng = np.random.default_rng(0)

    def batch():
        time.sleep(0.002)
        return jax.make_array_from_process_local_data(
            NamedSharding(mesh, P("d")),
            rng.normal(size=(128 * jax.local_device_count(), 256)).astype(np.float32))

    for _ in range(3):
        w, value = step(w, batch())
    value.block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        for i in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=i + 7):
                with jax.profiler.TraceAnnotation("load_batch"):
                    x = batch()
                w, value = step(w, x)
                value.block_until_ready()


def unwanted(name):
    return name.startswith(("ThreadpoolListener", "end: ", "$", "Wait for donation",
                            "Wait for usage", "Handle input"))


# ---- the wire format of protobuf ---------------------------------------------------------------

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def put_varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    """Number, type, value (an int or bytes) and raw bytes of each field."""
    at = 0
    while at < len(data):
        start = at
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        else:
            n = 8 if kind == 1 else 4
            value, at = data[at:at + n], at + n
        yield key >> 3, kind, value, data[start:at]


def nested(number, data):
    return put_varint(number << 3 | 2) + put_varint(len(data)) + data


def get(data, number, default=None):
    for n, _, value, _ in fields(data):
        if n == number:
            return value
    return default


def cut_plane(plane):
    names = {}
    out = b""
    for number, _, value, _ in fields(plane):
        if number == 4:
            meta = get(value, 2, b"")
            names[get(value, 1, 0)] = get(meta, 2, b"").decode()
    for number, _, value, raw in fields(plane):
        if number == 4:
            if unwanted(names[get(value, 1, 0)]) or (
                    len(raw) > 500 and b"all-reduce" not in raw and b"all-gather" not in raw):
                continue
        if number == 3:
            line = b""
            for n, _, v, r in fields(value):
                if n != 4 or not unwanted(names[get(v, 1, 0)]):
                    line += r
            raw = nested(3, line)
        out += raw
    return out


def main():
    with tempfile.TemporaryDirectory() as folder:
        record(folder)
        found = glob.glob(folder + "/plugins/profile/*/*")
        doc = json.load(gzip.open([f for f in found if f.endswith(".json.gz")][0]))
        space = open([f for f in found if f.endswith(".xplane.pb")][0], "rb").read()
    doc["traceEvents"] = [e for e in doc["traceEvents"] if not unwanted(e.get("name", ""))]
    cut = b"".join(nested(1, cut_plane(v)) if n == 1 else r for n, _, v, r in fields(space))
    for name, data in ((".trace.json.gz", json.dumps(doc, separators=(",", ":")).encode()),
                       (".xplane.pb.gz", cut)):
        with open(OUT + name, "wb") as f:
            f.write(gzip.compress(data, mtime=0))


main()
