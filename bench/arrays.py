# SPDX-License-Identifier: Apache-2.0
"""Files of arrays of numpy and safetensors against the library's (called by bench/arrays).

usage: arrays.py HELPER FOLDER     prints: WHAT CASES FAULTS
"""
import os
import random
import subprocess
import sys

import numpy as np
import safetensors
import safetensors.numpy

helper, folder = sys.argv[1:]
rng = np.random.default_rng(1)


def path(name):
    return os.path.join(folder, name)


def run(*args):
    p = subprocess.run([helper, *args], capture_output=True, text=True, errors="replace")
    if p.returncode not in (0, 3):
        sys.exit("arrays: status %d: %s" % (p.returncode, p.stderr))
    return p


def show(what, cases, faults):
    print(what, cases, len(faults))
    for f in faults[:10]:
        print("#", what, f)


def values(dtype, shape):
    if dtype == "?":
        return rng.integers(0, 2, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=np.dtype(dtype).newbyteorder("="),
                        endpoint=True).astype(dtype)


def npy():
    faults, cases = [], 0
    for dtype in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f4", ">i8"):
        for shape in ((), (0, 3), (7,), (2, 3), (2, 1, 3, 2)):
            for version in ((1, 0), (2, 0), (3, 0)):
                a = values(dtype, shape)
                with open(path("a.npy"), "wb") as f:
                    np.lib.format.write_array(f, np.asarray(a), version=version)
                lines = run("npy", path("a.npy")).stdout.split("\n")
                got = np.array([float.fromhex(v) for v in lines[1:-1]], dtype=np.float64)
                with np.errstate(over="ignore"):
                    want = np.asarray(a).astype(np.float32).astype(np.float64).reshape(-1)
                cases += 1
                if lines[0].split() != [str(d) for d in shape] or not np.array_equal(got, want):
                    faults.append((dtype, shape, version))
    with open(path("a.npy"), "wb") as f:
        np.save(f, np.asfortranarray(values("f4", (3, 2))))
    cases += 1
    if run("npy", path("a.npy")).returncode != 3:
        faults.append("Fortran order")
    show("npy", cases, faults)


def tensors():
    shapes = [(), (0, 2), (5,), (2, 3), (1, 2, 3, 1)]
    dtypes = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
    return {"%s.%s.%d \u00e9\"" % (d, s, i): values(d, s)
            for i, (d, s) in enumerate((d, s) for d in dtypes for s in shapes)}


def there_and_back():
    """What safetensors writes, read and written by the library, as safetensors reads it."""
    faults = []
    want = tensors()
    meta = {"format": "pt", "note": "line\nbreak \"quoted\" \u00e9"}
    safetensors.numpy.save_file(want, path("a.safetensors"), meta)
    p = run("weights", path("a.safetensors"), path("b.safetensors"))
    if p.returncode:
        faults.append(p.stderr)
    else:
        got = safetensors.numpy.load_file(path("b.safetensors"))
        faults += [n for n in want if n not in got or got[n].dtype != want[n].dtype or
                   got[n].shape != want[n].shape or got[n].tobytes() != want[n].tobytes()]
        if len(got) != len(want):
            faults.append("other names")
        with safetensors.safe_open(path("b.safetensors"), "np") as f:
            if f.metadata() != meta:
                faults.append("other metadata")
    head, data = b'{"bf":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}', b"\x80\x3f\x00\xc0"
    with open(path("c.safetensors"), "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + data)
    if run("weights", path("c.safetensors"), path("d.safetensors")).returncode:
        faults.append("bfloat16")
    else:
        with open(path("d.safetensors"), "rb") as f:
            ((name, t),) = safetensors.deserialize(f.read())
        if name != "bf" or t["dtype"] != "BF16" or bytes(t["data"]) != data:
            faults.append("bfloat16")
    show("safetensors", len(want) + 2, faults)


def damaged(n):
    """Files with bytes changed, cut or added: what safetensors refuses, the library refuses."""
    small = {"a": values("f4", (2, 3)), "b": values("u1", (4,)), "c": values("i8", (1,))}
    whole = safetensors.numpy.save(small, {"k": "v"})
    faults, refused, stricter, r = [], 0, 0, random.Random(1)
    for i in range(n):
        b = bytearray(whole)
        kind = r.randrange(4)
        if kind == 0:
            del b[r.randrange(len(b)):]
        elif kind == 1:
            b += bytes(r.randrange(1, 9))
        else:
            for _ in range(r.randrange(1, 4)):
                b[r.randrange(len(b) if kind == 2 else 200)] = r.randrange(256)
        try:
            safetensors.deserialize(bytes(b))
            theirs = True
        except Exception:
            theirs = False
        with open(path("e.safetensors"), "wb") as f:
            f.write(b)
        ours = run("weights", path("e.safetensors"), path("f.safetensors")).returncode == 0
        refused += not theirs
        stricter += theirs and not ours
        if ours and not theirs:
            faults.append((i, bytes(b[:300])))
    show("damaged", n, faults)
    print("# %d of them refused by safetensors, %d more by the library" % (refused, stricter))


npy()
there_and_back()
damaged(400)
