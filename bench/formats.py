# SPDX-License-Identifier: Apache-2.0
"""What other people's readers make of the formats that trace writes.

formats.py perfetto FILE   Perfetto's own protocol buffers (package perfetto): fields that they do
                           not know, events on tracks that were not described, slices that end
                           before they begin or never, flows that end without having begun
formats.py chrome FILE     the json module: events by phase, complete events without duration
formats.py csv FILE        the csv module: rows whose length is not the header's

Prints "WHAT COUNT FAULTS" and exits with 1 if there are faults.
"""

import collections
import csv
import json
import sys

SLICE_BEGIN, SLICE_END = 1, 2


def unknown_fields(message):
    from google.protobuf.unknown_fields import UnknownFieldSet

    n = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                n += unknown_fields(part)
    return n


def check_perfetto(path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    with open(path, "rb") as f:
        trace.ParseFromString(f.read())
    faults = unknown_fields(trace)
    tracks, depth = set(), collections.Counter()
    begun, ended = set(), set()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        faults += event.HasField("track_uuid") and event.track_uuid not in tracks
        if event.type == SLICE_BEGIN:
            depth[event.track_uuid] += 1
        elif event.type == SLICE_END:
            depth[event.track_uuid] -= 1
            faults += depth[event.track_uuid] < 0
        begun.update(event.flow_ids)
        ended.update(event.terminating_flow_ids)
    faults += sum(depth.values()) + len(ended - begun)
    return len(trace.packet), faults


def check_chrome(path):
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    faults = sum(e.get("ph") == "X" and e.get("dur", -1) < 0 for e in events)
    return len(events), faults


def check_csv(path):
    with open(path, encoding="utf-8", newline="") as f:
        rows = list(csv.reader(f))
    return len(rows) - 1, sum(len(r) != len(rows[0]) for r in rows)


def main():
    what, path = sys.argv[1:]
    checks = {"perfetto": check_perfetto, "chrome": check_chrome, "csv": check_csv}
    count, faults = checks[what](path)
    print(what, count, faults)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
