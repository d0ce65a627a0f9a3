#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the seeds of the fuzzers for arrays, weights, models, tensor programs, cost models and jobs into tests/fuzz/corpus.

usage: tests/fuzz/make-corpus.py     (Python 3, nothing else; the same bytes each time)
"""
import gzip
import json
import os
import re
import struct

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(folder, name, data):
    os.makedirs(os.path.join(ROOT, folder), exist_ok=True)
    with open(os.path.join(ROOT, folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def npy(descr, shape, data, version=1, extra=""):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, %s}" % (descr, shape, extra)
    size = 10 if version == 1 else 12
    head += " " * (-(size + len(head) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes([version, 0]) + length + head.encode() + data


def idx(code, dims, data):
    return bytes([0, 0, code, len(dims)]) + struct.pack(">%dI" % len(dims), *dims) + data


def safetensors(tensors, meta=None, pad=8):
    at, head, body = 0, {}, b""
    if meta is not None:
        head["__metadata__"] = meta
    for name, dtype, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
        body += data
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + body


f4 = struct.pack("<6f", 1, -2, 0.5, 3e38, 1e-40, 0)
put("npy", "matrix.npy", npy("<f4", "(2, 3)", f4))
put("npy", "labels.npy", npy("<i8", "(3,)", struct.pack("<3q", 0, 9, -1), version=2))
put("npy", "half.npy", npy("<f2", "(3, 1)", struct.pack("<3e", 1, -2, 65504), version=3))
put("npy", "big-endian.npy", npy(">f8", "()", struct.pack(">d", 2.5)))
put("npy", "empty.npy", npy("|b1", "(0, 4)", b""))
put("npy", "headless.npy", b"\x93NUMPY\1\0\0\0")
put("npy", "doubled.npy", npy("<u2", "(1,)", b"\1\2", extra="'shape': (1,), "))
put("idx", "images.idx", idx(8, [2, 2, 3], bytes(range(244, 256))))
put("idx", "labels.idx", idx(8, [2], b"\4\0"))
put("idx", "shorts.idx", idx(11, [2, 1], struct.pack(">2h", 258, -2)))
put("idx", "doubles.idx", idx(14, [1], struct.pack(">d", 2.5)))
put("idx", "huge.idx", idx(13, [4294967295, 4294967295], b"\0\0\0\0"))
put("csv", "words.csv", 'a,b,c\n1,2,x\n3,-4.5e3,"y ""z"""\n\n0,0,x\n')
put("csv", "numbers.csv", "\xef\xbb\xbfa,b\r\n1,7\r\n2,0\r\n".encode("latin-1"))
put("csv", "missing.csv", "a,b,b\n1,,2\n1\n")
put("csv", "large.csv", "a,b\n3.5e38,1e-46\n-3.4e38,3.4e38\n3.4e38,65536\n")
put("csv", "far.csv", "a,b\n-.5e38,1\n-3.4e38,2\n3.4e38,3\n")
put("csv", "zero.csv", "a,b\n1,x\n2,x\0y\n")
put("csv", "packed.csv.gz", gzip.compress(b"a,b\n1,2\n3,4\n", mtime=0))
put("tokens", "text.txt", "ein Satz, der lang genug ist\n")
put("tokens", "numbers.bin", struct.pack("<5H", 0, 7, 65535, 1, 1))
put("tokens", "array.npy", npy("<i8", "(3,)", struct.pack("<3q", 5, 0, 2147483646)))
put("tokens", "negative.npy", npy("|i1", "(2, 1)", b"\0\xff"))
put("tokens", "packed.gz", gzip.compress(b"abcabd", mtime=0))
put("safetensors", "plain.safetensors", safetensors(
    [("0.weight", "F32", [2, 3], f4), ("0.bias", "F32", [2], f4[:8])], {"format": "pt"}))
put("safetensors", "types.safetensors", safetensors(
    [("a", "F64", [1], struct.pack("<d", 1)), ("b", "BF16", [2], b"\x80\x3f\0\xc0"),
     ("c", "F16", [], struct.pack("<e", 1)), ("d", "U8", [0, 7], b""), ("e", "BOOL", [1], b"\1"),
     ("f", "I64", [1, 1], struct.pack("<q", -5))]))
put("safetensors", "names.safetensors", safetensors(
    [("caf\u00e9", "U8", [1], b"x"), ('quote"\\', "I8", [1], b"y")], {"a": "\n", "": ""}, pad=1))
put("safetensors", "overlap.safetensors", safetensors(
    [("a", "U8", [2], b"xy"), ("b", "U8", [1], b"z")]).replace(b"[2,3]", b"[1,2]"))
put("model", "blocks.model", """paceline-model 1
input 16
embedding 65 32 std=0.02 name=transformer.wte
position std=0.02
residual name=r1   # a block
layernorm eps=1e-5
attention 4 std=0.02 std_out=0.01 conv1d
end
dense 65 bias=0 tie=transformer.wte "name=lm head"
loss softmax-cross-entropy
""")
put("model", "conv.model", "input 3 32 32\nconv 64 5 pad=same\nrelu\nmaxpool 3 stride=2 pad=1\n"
    "batchnorm momentum=0.1\ndropout 0.5\nflatten\ndense 1\nloss kind=squared\n")
put("model", "mlp", "mlp:784-512-10\n")
put("model", "cnn", "cnn:1x28x28,classes=10\n")
put("model", "gpt", "gpt:layers=2,heads=4,width=128,context=64,vocab=65\n")
put("tprog", "tiled.tprog", """paceline-tprog 1
program tiled model=none op=dense
buffer A float32 4 6
buffer B float32 6 8
buffer C float32 4 8
for i 4 parallel
  for j.0 2
    alloc acc float32 4 shared
      for k 6 reduce unroll   # summed up
        for j.1 4 vectorize
          acc[j.1] += A[i, k] * B[k, j.0 * 4 + j.1]
        end
      end
      for j.1 4
        C[i, j.0 * 4 + j.1] = max(acc[j.1], 0.0)
      end
    end
  end
end
measured this 1200 least=1100 runs=5
""")
put("tprog", "gpu.tprog", """paceline-tprog 1
program a
buffer X float32 64
buffer Y float32 64
for b 4 block.x
for t 16 thread.x
Y[b * 16 + t] = select(3 < t & t % 2 == 0, exp(X[(b * 16 + t) / 2]) - 1.5e-3, 2.0 - (1.0 - 3.0))
end
end
program b op=c
buffer X float32 2 2
X[0, min(1, 1)] max= sqrt(tanh(erf(log(X[1, 0] / 2.0))))
""")
# loops and indices at the borders of what is allowed
put("tprog_set", "far.tprog", """paceline-tprog 1
program far op=copy
buffer X float32 8
for i 2147483648 parallel
X[i * 9007199254740991 * 9007199254740991 / 3 % 8] = X[max(i - 9, 0) / 0] / 0.0
end
measured box 1e14
program near model=m op=copy
buffer X float32 8 3
buffer Y float32 8 3
for i 8
Y[i, 0] = X[i, 2]
for j 3 reduce
alloc t float32 2 shared
t[j / 2] = 1
Y[i, j] += t[j % 2] * (X[7 - i, j] - 1e299 * 1e299)
end
end
end
measured box 12 least=11 runs=2
measured bin 7
""")
put("tprog_set", "cell.tprog", """paceline-tprog 1
program a.b op=pool
buffer X float32 4 6
buffer Y float32 2 3
for i 2 parallel
for j 3 unroll
for k 4 reduce vectorize
Y[i, j] max= select((i == 1) & (j < 2), X[i * 2 + k / 2, j * 2 + k % 2], -1e30)
end
end
end
measured box 20
""")


def varint(n):
    data = b""
    while n >= 128:
        data += bytes([n & 127 | 128])
        n >>= 7
    return data + bytes([n])


def string(s):
    return varint(len(s)) + s.encode()


# an item of the lists that fuzz_tprog_model.c makes blocks of
def block(name, data, zeros=0):
    return name.encode() + struct.pack("<H", len(data) | (zeros > 0) << 15) + (struct.pack("<I", zeros) if zeros else b"") + data


def head(learner, errors):
    data = bytes([learner]) + string("box") + varint(24) + varint(COLUMNS)
    data += b"".join(struct.pack("<2d", -1, 60) for i in range(COLUMNS)) + varint(len(errors) - 1)
    return block("PHED", data + b"".join(string(e[0]) + varint(e[1]) + struct.pack("<4d", *e[2:]) for e in errors))


def trees():
    data = varint(COLUMNS) + varint(2) + varint(4) + struct.pack("<d", -1.5) + varint(0) + varint(3)
    for left, feature, value, mean in ((1, 322, 2.0, 0.0), (0, 0, -0.25, -0.25), (0, 1, 0.5, 0.5), (0, 0, 0.125, 0.125)):
        data += varint(left) + varint(feature) + struct.pack("<2f", value, mean)
    return data + b"".join(struct.pack("<d", i == 161) for i in range(COLUMNS))


def defined(name, path):
    with open(os.path.join(ROOT, "../../..", path)) as f:
        return re.search(r"%s\s+(.*)" % name, f.read()).group(1)


LEAF = int(defined("#define PL_TPROG_CDMPP", "lib/tprog/tprog.h")) + int(defined("#define PL_TPROG_OWN", "lib/tprog/tprog.h").split()[0])
COLUMNS = LEAF + int(defined("#define PL_TPROG_SUMS", "lib/tprog/cost.h"))


def dense(inputs, outputs):
    return [inputs * outputs, outputs]


def norm(width):
    return [width, width]


# a network of a few parameters, which are zeros: its layers, and its settings
def network(layers=1, heads=2, width=4, latent=3, batch=2):
    leaves = int(defined("#define LEAVES", "lib/tprog/network.c").split()[0])
    text = "input %d %d\ndense %d\n" % (leaves, LEAF + 1, width)
    text += "residual\nlayernorm\nattention %d\nend\nresidual\nlayernorm\ndense %d\ngelu\ndense %d\nend\n" % (heads, 3 * width, width) * layers
    text += "layernorm\nflatten\ndense %d\nrelu\ndense %d\nrelu\ndense 1\nloss squared\n" % (2 * latent, latent)
    tensors = dense(LEAF + 1, width) + (norm(width) + dense(width, 3 * width) + dense(width, width) + norm(width) + dense(width, 3 * width) + dense(3 * width, width)) * layers
    tensors += norm(width) + dense(leaves * width, 2 * latent) + dense(2 * latent, latent) + dense(latent, 1)
    params = sum(n + -n % 16 for n in tensors)  # each begins at a multiple of 16
    data = string(text) + b"".join(varint(v) for v in (layers, heads, width, latent, batch))
    data += struct.pack("<5d", 0.002, 1, 0.25, -1, 2) + struct.pack("<2f", -1, 40) * LEAF
    return data + struct.pack("<d", 0.5) * MOMENTS * latent + varint(params), 4 * params


MOMENTS = int(defined("#define PL_MOMENTS", "lib/learn/moments.h").split()[0])
left = block("PLFT", varint(100) + struct.pack("<2d", -0.75, 0.5))
ops = [("dense", 120, 0.1, -0.25, 0.5, 0.0), ("", 240, 0.0, -0.5, 0.75, 0.125)]
net, bytes_of_net = network()
put("tprog_model", "trees.blocks", head(0, ops) + block("PROV", b"by hand\n") + block("PTRE", trees()) + block("PADA", trees()) + left +
    block("PEND", b"") + b"    ")
put("tprog_model", "both.blocks", head(2, ops) + block("PTRE", trees()) + block("PNET", net, bytes_of_net) +
    block("PADA", trees()) + block("PNAD", varint(bytes_of_net // 4), bytes_of_net) + left + block("PEND", b"") + b"    ")
put("tprog_model", "none.blocks", head(0, ops[1:]) + block("PEND", b"") + b"    ")
put("tprog_model", "order.blocks", block("PTRE", trees()) + head(2, ops))
# cost models of operations: the byte of their layout, and the lists that fuzz_costmodel.c makes blocks of
NAN, INF = float("nan"), float("inf")
FEATURES = int(defined("#define PL_FEATURES", "lib/kernel/feature.h").split()[0])
TILE_FEATURES = int(defined("#define FEATURES", "lib/kernel/tiles.c"))
GENERATIONS = int(defined("#define PL_GENERATIONS", "lib/kernel/feature.h").split()[0])
LAYOUT = bytes([int(defined("#define BLOCK_VERSION", "lib/kernel/model_file.c"))])


def words(list):
    with open(os.path.join(ROOT, "../../../lib/kernel/kernel.h")) as f:
        return re.findall(r'X\(\w+, "([^"]+)"', re.search(r"#define PL_KERNEL_%s\(X\)(.*?)\n#define" % list, f.read(), re.S).group(1))


FAMILIES, TYPES = words("FAMILIES"), words("TYPES")


def counted(name, data, count=1):
    return name.encode() + bytes([count]) + struct.pack("<H", len(data)) + data


def reals(*v):
    return struct.pack("<%dd" % len(v), *v)


def quantiles(n, low=-0.25, high=0.5):
    return varint(n) + reals(low, high)


def spread(n):
    return quantiles(n) * 3 + quantiles(3 * n)


def growth(n):
    return (varint(n) + reals(0.125, 0.25, 0.5)) * 2


def costhead(learner):
    schema = "paceline-schema 1\nlatency t unit=us\noperation op\ndevice column=d\nop * family=elementwise elements=n\n"
    data = string(learner) + string("s") + string(schema) + reals(INF, *[0.0] * GENERATIONS) + b"\1" + spread(40) + spread(20) + growth(60)
    return counted("HEAD", data)


def sheet(name, cpu, adapted):
    numbers = 16e9, 300, 40, 64, 1.5, 8000, 64000, 4e6, 70, 7.5, cpu, 6000, 5000, 9000
    return string(name) + string(name + " title") + reals(*numbers) + quantiles(adapted)


def boost(features, used=1, base=0.125):
    data = varint(features) + varint(2) + varint(4) + reals(base) + varint(0) + varint(3)
    for left, feature, value, mean in ((1, 2 * used + 1, 9.0, 0.0), (0, 0, -0.25, -0.25), (0, 0, 0.5, 0.5), (0, 0, 0.125, 0.125)):
        data += varint(left) + varint(feature) + struct.pack("<2f", value, mean)
    return data + reals(*[float(i == used) for i in range(features)])


def nearest():
    return varint(2) + reals(*[1.0] * FEATURES) + (reals(0.25) + reals(*[2.0] * FEATURES)) * 2


def tiles():
    return varint(1) + varint(14) + varint(2) + b"".join(varint(a) + varint(64) + b"\0" + boost(TILE_FEATURES) for a in (64, 128))


def part(op, family, learned, type="float32", tile=varint(0), floors=((5e3, 0.0), (NAN, 0.0))):
    data = varint(op + 1) + bytes([FAMILIES.index(family), TYPES.index(type)]) + varint(80) + reals(4e3, 0.125, 2.0)
    data += b"".join(reals(*f) for f in floors) + reals(1.0, 4096.0) * 8 + reals(0.5, 90.0) + reals(8.0, 1e9) + reals(300.0, 900.0) + reals(8e3, 3e4)
    return counted("PART", data + spread(40) + spread(0) + growth(50) + tile + learned)


def costs(learner, learned, trained=True):
    devices = counted("DEVS", sheet("alpha", 0.0, 24) + sheet("beta", 1.0, 0), 2)
    names = ["mm", "conv", "add", "rare", "norm", "reduce", "any"]
    ops = counted("OPER", varint(0) + b"".join(string(s) for s in names), len(names))
    few = counted("FEWS", varint(3) + bytes([FAMILIES.index("elementwise"), TYPES.index("float32")]) + reals(0.75))
    parts = [part(0, "gemm", learned, tile=tiles()), part(0, "gemm", learned, "float16"), part(1, "conv", learned, tile=tiles()),
             part(2, "elementwise", learned), part(-1, "elementwise", learned, floors=((NAN, 0.0), (6e3, -0.5))),
             part(4, "norm", learned), part(5, "allreduce", learned), part(6, "other", learned)]
    before = counted("TRND", reals(NAN, 0.0, 7e3, 0.25) * len(parts), len(parts)) if trained else b""
    return (LAYOUT + costhead(learner) + counted("PROV", b"by hand\n") + devices + ops + few + b"".join(parts) + before +
            counted("TOTL", varint(len(parts))) + b"    ")


put("costmodel", "boost.blocks", costs("boost", boost(FEATURES)))
put("costmodel", "raw.blocks", costs("raw", boost(FEATURES), False))
put("costmodel", "nearest.blocks", costs("nearest", nearest()))
put("costmodel", "roofline.blocks", costs("roofline", b"", False))
put("costmodel", "order.blocks", LAYOUT + costhead("roofline") + part(0, "gemm", b"") + counted("TOTL", varint(1)))
put("job", "all.job", """paceline-job 1
name "a job"
model cnn:1x28x28
data idx:images.gz,labels.gz
split 0.8
batch 64
accumulate 2
steps 500
target-loss 0.1
patience 5 delta=0.01
monitor accuracy
warmup 10
seed 7
ranks 4
hosts 2
transport tcp
algorithm halving-doubling
meet tcp:127.0.0.1:4000
timeout 1.5s
bucket-mb 1.5
checkpoint "my run"
checkpoint-every 100
checkpoint-keep 3
checkpoint-best best.st
eval-every 50
optimizer sgd lr=0.1 momentum=0.9 nesterov clip=1 decay-all no-decay=wte.*|wpe.*
schedule cosine steps=400
link rate=1Gbit,latency=200us
link rate=100Mbit from=0 to=3
pace 1:5
pace any ms=0.5 factor=1.5
""")
put("job", "options", "batch=128\noptimizer=adamw lr=1e-3 b1=0.8\nschedule step every=3\n"
    "link=latency=1ms,from=1\npace=*:1\nsteps=0\neval-data=npy:a,b\nbatch=0\nmodel \"\"\n")
