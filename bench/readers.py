#!/usr/bin/env python3
"""Write a file of a profiler, as large as wanted, to measure how fast its reader is.

    bench/readers.py FORMAT MB OUT    # nsys xplane horovod ncclprof dpro inspector flight rocprof optable
    bench/readers.py --list

The events are those of a training job with 32 tensors: names, columns and members as the profilers write
them, with times that ascend. What they mean is of no importance here; tests hold the readers to that.
"""
import json
import os
import random
import sqlite3
import struct
import sys

TENSORS = ["module.layers.%d.%s.weight" % (i // 4, ("attention.qkv", "attention.out", "mlp.up", "mlp.down")[i % 4])
           for i in range(32)]
START_US = 1795917515000000


def text(out, size, head, step, tail):
    """step(number): the text of one step."""
    with open(out, "w") as f:
        f.write(head)
        i = 0
        while f.tell() < size:
            f.write(step(i))
            i += 1
        f.write(tail)


# ---- arrays and lines of JSON --------------------------------------------------------------------

def horovod(out, size):
    def name(pid, name):
        return ('{"name": "process_name", "ph": "M", "pid": %d, "args": {"name": "%s"}},\n'
                '{"name": "process_sort_index", "ph": "M", "pid": %d, "args": {"sort_index": %d}},\n'
                % (pid, name, pid, pid))

    def begin(pid, what, ts):
        return '{"ph": "B", "name": "%s", "ts": %d, "pid": %d},\n' % (what, ts, pid)

    def end(pid, ts):
        return '{"ph": "E", "ts": %d, "pid": %d},\n' % (ts, pid)

    def step(i):
        t, lines = 100000 * i, []
        for pid in range(1, 33):
            lines.append(begin(pid, "NEGOTIATE_ALLREDUCE", t + pid))
            for rank in range(4):
                lines.append('{"ph": "X", "name": "%d", "ts": %d, "pid": %d, "dur": 0},\n'
                             % (rank, t + pid + 2 * rank, pid))
            lines.append(end(pid, t + pid + 10))
        for first in range(1, 33, 8):  # eight tensors are fused
            t += 5000
            pids = range(first, first + 8)
            lines += [begin(pid, "ALLREDUCE", t + pid) for pid in pids]
            for what in "WAIT_FOR_DATA", "MEMCPY_IN_FUSION_BUFFER", "NCCL_ALLREDUCE", "MEMCPY_OUT_FUSION_BUFFER":
                t += 50
                lines += [begin(pid, what, t + pid) for pid in pids]
                t += 900
                lines += [end(pid, t + pid) for pid in pids]
            lines += ['{"ph": "E", "ts": %d, "pid": %d, "args": {"dtype": "float32", "shape": "[1024, 1024]"}},\n'
                      % (t + 50 + pid, pid) for pid in pids]
        return "".join(lines)

    head = ('[\n{"name": "process_name", "ph": "M", "pid": 0, "args": '
            '{"start_time_since_epoch_in_micros":%d}},\n' % START_US)
    text(out, size, head + "".join(name(i + 1, "allreduce." + t) for i, t in enumerate(TENSORS)), step, "")


def ncclprof(out, size):
    def line(what, cat, ph, number, ts, args=""):
        return ('{"name": "%s", "cat": "%s", "ph": "%s", "id": %d, "pid": 1006509, "tid": 1, "ts": %f%s},\n'
                % (what, cat, ph, number, ts, args and ', "args": {%s}' % args))

    def step(i):
        t, lines = 1000.0 * i, []
        lines.append(line("Group", "GROUP", "b", i, t, '"groupId": %d' % i))
        lines.append(line("AllReduce", "COLL", "b", i, t + 1, '"SeqNum": %d, "CommHash": 10644631396088996035, '
                          '"Rank": 0, "Count": 262144, "Datatype": "ncclFloat32", "Algorithm": "RING", '
                          '"Protocol": "LL", "nChannels": 2' % i))
        for channel in range(2):
            for way in "Recv", "Send":
                args = '"Channel": %d, "Peer": 1, "Steps": 4, "ChunkSize": 262144, "transSize": 1048576' % channel
                lines.append(line("Schedule" + way, "PROXY", "b", channel, t + 2, args))
                lines.append(line("Schedule" + way, "PROXY", "e", channel, t + 4))
                lines.append(line("Progress" + way, "PROXY", "b", channel, t + 4, args))
                for k in range(4):
                    for what in (("SendGpuWait", "SendWait") if way == "Send"
                                 else ("RecvWait", "RecvFlushWait", "RecvGpuWait")):
                        lines.append(line(what, "NET", "b", k, t + 10 + 20 * k, '"Step": %d' % k))
                        lines.append(line(what, "NET", "e", k, t + 28 + 20 * k))
                lines.append(line("Progress" + way, "PROXY", "e", channel, t + 100))
            lines.append(line("KernelCh", "GPU", "b", channel, t + 5, '"Channel": %d, "StartGpuClk": %d, '
                              '"StopGpuClk": %d' % (channel, 1000000 * i + 5000, 1000000 * i + 115000)))
            lines.append(line("KernelCh", "GPU", "e", channel, t + 115))
        lines.append(line("AllReduce", "COLL", "e", i, t + 6))
        lines.append(line("Group", "GROUP", "e", i, t + 7))
        return "".join(lines)

    text(out, size, "[\n", step, "{}]\n")


def dpro(out, size):
    def event(name, cat, ts, dur, tid, i):
        return json.dumps({"name": name, "ts": ts, "dur": dur, "pid": "host0.rank0", "tid": tid, "ph": "X",
                           "cat": cat, "args": {"name": name, "cnt": i, "step": i}}) + ", "

    def step(i):
        t, events = START_US + 100000.5 * i, [event("I/O_iterator", "I/O_iterator", START_US + 100000 * i, 120, "I/O", i)]
        for way in "FW", "BW":
            for tensor in TENSORS:
                t += 300
                events.append(event("%s.%s" % (way, tensor), way, t, 280.25, "op", i))
        for k in range(32):
            for part in "Sync", "QUEUE", "MEMCPY_IN_FUSION_BUFFER", "NCCL_ALLREDUCE", "MEMCPY_OUT_FUSION_BUFFER":
                t += 100
                events.append(event("Comm.%d.%s" % (k, part), "Comm", t, 90, "comm", i))
        return "".join(events)

    text(out, size, "[", step, event("I/O_iterator", "I/O_iterator", START_US * 2, 120, "I/O", 0)[:-2] + "]\n")


def inspector(out, size):
    def step(i):
        t = START_US + 1000 * i
        kernels = [{"channel_id": k, "kernel_start_sn": 3 + k, "kernel_stop_sn": 48 + k, "kernel_record_sn": 47}
                   for k in range(4)]
        times = [{"channel_id": k, "kernel_start_ts": t + 100 + k, "kernel_stop_ts": t + 212 + k,
                  "kernel_record_ts": t + 212 + k} for k in range(4)]
        return json.dumps({
            "header": {"id": "0x7f8c496ae9f661", "rank": 0, "n_ranks": 2, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "9019a1912-dirty",
                         "rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": t, "hostname": "node0",
                         "pid": 438776},
            "coll_perf": {"coll": "AllReduce", "coll_sn": i, "coll_msg_size_bytes": 65536, "coll_exec_time_us": 110,
                          "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 418.439467,
                          "coll_busbw_gbs": 366.134533,
                          "event_trace_sn": {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": kernels},
                          "event_trace_ts": {"coll_start_ts": t, "coll_stop_ts": t + 5, "kernel_events": times}}},
            separators=(",", ":")) + "\n"

    text(out, size, "", step, "")


def flight(out, size):
    def step(i):
        t = START_US * 1000 + 1000000 * i
        frames = [{"name": "forward", "filename": "train.py", "line": 12},
                  {"name": "main", "filename": "train.py", "line": 40}]
        entry = {"record_id": i, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": i + 1,
                 "p2p_seq_id": 0, "op_id": i + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": t,
                 "duration_ms": 0.75, "input_sizes": [[1024, 1024]], "input_dtypes": ["Float"],
                 "output_sizes": [[1024, 1024]], "output_dtypes": ["Float"], "state": "completed",
                 "time_discovered_started_ns": t + 1000, "time_discovered_completed_ns": t + 900000, "retired": True,
                 "timeout_ms": 600000, "is_p2p": False, "frames": frames}
        return (", " if i else "") + json.dumps(entry)

    text(out, size, '{"version": "2.9", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, '
         '"entries": [', step, "]}\n")


def rocprof(out, size):
    names = ["NONE", "hipLaunchKernel", "hipMemcpyAsync"]
    head = {"metadata": {"node": {"id": 1, "hostname": "mi0"}, "pid": 4242, "init_time": 1, "fini_time": 10 ** 15,
                         "command": ["./train"]},
            "agents": [{"id": {"handle": 900}, "type": 2, "node_id": 1, "name": "gfx942"}],
            "strings": {"callback_records": [], "buffer_records": [
                {"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API_EXT", "operations": names},
                {"kind": "KERNEL_DISPATCH", "operations": ["NONE", "KERNEL_DISPATCH_COMPLETE"]}], "marker_api": []},
            "kernel_symbols": [{"kernel_id": 40 + k, "formatted_kernel_name": "gemm_%d(float*)" % k}
                               for k in range(32)]}

    def call(i):
        t = 5000000000000 + 10000 * i
        return {"size": 72, "kind": 1, "operation": 1 + i % 2, "correlation_id": {"internal": i, "external": 0},
                "start_timestamp": t, "end_timestamp": t + 8000, "thread_id": 4242}

    def kernel(i):
        t = 5000000000000 + 10000 * i
        return {"size": 160, "kind": 2, "operation": 1, "thread_id": 4242,
                "correlation_id": {"internal": i, "external": 0}, "start_timestamp": t + 9000,
                "end_timestamp": t + 18000, "dispatch_info": {
                    "size": 64, "agent_id": {"handle": 900}, "queue_id": {"handle": 2}, "kernel_id": 40 + i % 32,
                    "dispatch_id": i, "private_segment_size": 0, "group_segment_size": 8192,
                    "workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 65536, "y": 1, "z": 1}}}

    with open(out, "w") as f:
        f.write('{"rocprofiler-sdk-tool": [' + json.dumps(head)[:-1] + ', "buffer_records": {"hip_api": [')
        for records, make, limit in (("hip_api", call, size // 3), ("kernel_dispatch", kernel, size)):
            f.write("" if records == "hip_api" else '], "%s": [' % records)
            i = 0
            while f.tell() < limit:
                f.write((", " if i else "") + ", ".join(json.dumps(make(k)) for k in range(i, i + 100)))
                i += 100
        f.write("]}}]}\n")


def optable(out, size):
    def step(i):
        rows, t = [], i * 1.0
        for layer in range(32):
            for micro in range(8):
                for what in "forward-compute", "backward-compute", "forward-send", "backward-recv":
                    t += 0.001
                    rows.append("0,%d,0,%d,%s,%.6f,%.6f,%d,%d,%d,-1\n" % (layer % 4, i, what, t, 0.00075, layer, layer, micro))
        return "".join(rows)

    text(out, size, "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc\n", step, "")


# ---- XPlane --------------------------------------------------------------------------------------

def varint(value):
    value &= (1 << 64) - 1
    buf = bytearray()
    while value > 0x7F:
        buf.append(value & 0x7F | 0x80)
        value >>= 7
    buf.append(value)
    return bytes(buf)


def number(field, value):
    return varint(field << 3) + varint(value)


def nested(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def plane(name, event_names, stat_names, lines):
    body = nested(2, name.encode()) + b"".join(lines)
    for field, table in (4, event_names), (5, stat_names):
        for i, word in enumerate(table):
            meta = number(1, i + 1) + nested(2, word.encode())
            body += nested(field, number(1, i + 1) + nested(2, meta))
    return nested(1, body)


def xplane(out, size):
    stats = ["hlo_op", "hlo_module", "run_id", "device_ordinal", "program_id", "correlation_id", "flops", "bytes_accessed"]
    ops = ["fusion.%d" % i for i in range(200)] + ["dot.%d" % i for i in range(50)] + ["all-reduce.%d" % i for i in range(6)]
    stat_names = stats + ops + ["jit_step"]
    module = len(stat_names)

    def device(share):
        heads = [number(1, i + 1) for i in range(len(ops))]
        tails = [nested(4, number(1, 1) + number(7, len(stats) + 1 + i)) + nested(4, number(1, 2) + number(7, module)) +
                 nested(4, number(1, 7) + number(3, 123456789)) + nested(4, number(1, 8) + number(3, 7654321))
                 for i in range(len(ops))]
        events, n, step, at = [], 0, 0, 0
        while n < share:
            execution = nested(4, number(1, 3) + number(4, step))
            for i in range(len(ops)):
                event = (heads[i] + number(2, at) + number(3, 9000000) + tails[i] + execution +
                         nested(4, number(1, 6) + number(4, step * 300 + i)))
                events.append(nested(4, event))
                n += len(events[-1])
                at += 10000000
            step += 1
        return nested(3, number(1, 1) + nested(2, b"XLA Ops") + number(3, 1000) + b"".join(events))

    def host(share):
        events, n, at, i = [], 0, 0, 0
        while n < share:
            events.append(nested(4, number(1, i % 4 + 1) + number(2, at) + number(3, 900000) +
                                 nested(4, number(1, 3) + number(4, i))))
            n += len(events[-1])
            at += 1000000
            i += 1
        return nested(3, number(1, 7) + nested(2, b"python") + number(3, 1000) + b"".join(events))

    calls = ["PjitFunction(step)", "TfrtCpuExecutable::Execute", "$train.py:12 step", "ThreadpoolListener::Record"]
    with open(out, "wb") as f:
        f.write(plane("/device:GPU:0", ops, stat_names, [device(size * 2 // 3)]))
        f.write(plane("/host:CPU", calls, stats, [host(size // 3)]))


# ---- Nsight Systems ------------------------------------------------------------------------------

def nsys(out, size):
    if os.path.exists(out):
        os.remove(out)
    db = sqlite3.connect(out)
    db.executescript("""
        PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
        CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
            category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
            domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
            int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
            eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
            returnValue INTEGER NOT NULL, callchainId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
            contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
            globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
            launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
            gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
            blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
            localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
            sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
            contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
            bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.24.14');""")
    strings = ["step", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020"]
    strings += ["aten::op%d, seq = %d" % (i, i) for i in range(60)]
    strings += ["void kernel_%d<float, %d>(float const*, float*, int)" % (i, i) for i in range(100)]
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(strings))
    pid = 4242 << 24
    tid = pid + 4242
    i = t = 0
    while os.path.getsize(out) < size:
        calls, kernels, ranges, copies = [], [], [], []
        for _ in range(20000):
            i += 1
            t += 12345
            calls.append((t, t + 6000, 0, tid, i, 1, 0, None))
            kernels.append((t + 9000, t + 19000, 0, 1, None, 7 + i % 2, i, pid, 64 + i % 100, 64 + i % 100, None, 1, 0, 64,
                            128, 4, 1, 256, 1, 1, 1024, 48, 0, 0, i, 32768, None, 0))
            if not i % 3:
                ranges.append((t - 500, t + 7000, 59, None, None, None, None, tid, None, 4 + i % 60, 0) + (None,) * 9)
            if not i % 20:
                calls.append((t + 7000, t + 8000, 0, tid, i + (1 << 28), 2, 0, None))
                copies.append((t + 20000, t + 21000, 0, 1, 9, i + (1 << 28), pid, 65536, 1, 1, 2))
        for table, rows in (("CUPTI_ACTIVITY_KIND_RUNTIME", calls), ("CUPTI_ACTIVITY_KIND_KERNEL", kernels),
                            ("NVTX_EVENTS", ranges), ("CUPTI_ACTIVITY_KIND_MEMCPY", copies)):
            db.executemany("INSERT INTO %s VALUES (%s)" % (table, ", ".join("?" * len(rows[0]))), rows)
        db.commit()
    db.close()


FORMATS = [nsys, xplane, horovod, ncclprof, dpro, inspector, flight, rocprof, optable]


def main():
    if sys.argv[1:] == ["--list"]:
        print(" ".join(f.__name__ for f in FORMATS))
        return
    if len(sys.argv) != 4 or sys.argv[1] not in [f.__name__ for f in FORMATS]:
        sys.exit(__doc__)
    {f.__name__: f for f in FORMATS}[sys.argv[1]](sys.argv[3], int(float(sys.argv[2]) * 1e6))


main()
