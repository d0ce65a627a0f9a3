"""Compare execution traces of Chakra with the graph that they were made of.

    chakra_check.py DIR PREFIX TEXT    # DIR: et_def_pb2.py of protoc; TEXT: graph -O text

Reads PREFIX.RANK.et with the code that protoc made, and makes the same nodes and dependencies of
the text by the rules of paceline-graph(1). Prints the counts; the status is 1 where they differ.
"""
import sys

sys.path.insert(0, sys.argv[1])
import et_def_pb2 as chakra

COLL = {"allreduce": 0, "reduce": 1, "allgather": 2, "gather": 3, "scatter": 4, "broadcast": 5,
        "alltoall": 6, "reduce_scatter": 7, "barrier": 9}


def messages(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield data[at:at + n]
        at += n


def read(path):
    nodes = []
    for i, m in enumerate(messages(path)):
        x = chakra.Node() if i else chakra.GlobalMetadata()
        x.ParseFromString(m)
        if i and x.type != chakra.METADATA_NODE:
            nodes.append(x)
    return nodes


def attr(node, name):
    for a in node.attr:
        if a.name == name:
            return getattr(a, a.WhichOneof("value"))
    return None


class Text:
    """Shapes with nodes [role, resource, name, comm, type] and edges, and steps with times."""

    def __init__(self, path):
        self.res, self.shape, self.step, self.ranks, self.epoch = {}, [], [], [], 0
        for line in open(path):
            f = line.rstrip("\n").split("\t")
            if f[0] == "stepless":
                self.stepless = f[1] == "1"
            elif f[0] == "epoch_ns":
                self.epoch = int(f[1])
            elif f[0] == "rank":
                self.ranks.append(int(f[1]))
            elif f[0] == "resource":
                self.res[f[1]] = f
            elif f[0] == "shape":
                self.shape.append({"node": [], "edge": {}, "comm": []})
            elif f[0] == "comm":
                self.shape[-1]["comm"].append(f[2])
            elif f[0] == "node":
                self.shape[-1]["node"].append(f)
            elif f[0] == "edge":
                self.shape[-1]["edge"].setdefault(int(f[2]), []).append(
                    (int(f[1]), f[3].split("?")[0].split(" ")[0].split(",")[0]))
            elif f[0] == "step":
                self.step.append((int(f[3]), [], f[2]))
            elif f[0] == "time":
                self.step[-1][1].append((int(f[2]), int(f[3])))


    def meets(self, shape, i):
        """Has a send or receive a partner, or at least its number?"""
        return shape["node"][i][14] != "-" or any(
            shape["node"][p][2] == "rendezvous" for p, _ in shape["edge"].get(i, []))


def expected(text, rank):
    """(name, is communication, start, end, set of places in this list) for each node."""
    out, last = [], {}

    def rank_of(node):
        return None if node[6] == "-" else int(text.res[node[6]][3])

    for shape_number, times, step in text.step:
        shape = text.shape[shape_number]
        if step == "-" and not text.stepless:
            continue
        place, after = {}, {}

        def resolve(i, p, kind):
            node = shape["node"][p]
            if node[2] == "rendezvous":
                if shape["node"][i][3] == "transfer":
                    return set()
                return set().union(*[resolve(i, q, k) for q, k in shape["edge"].get(p, [])
                                     if rank_of(shape["node"][q]) == rank])
            if rank_of(node) != rank:
                return set()
            if kind in ("start", "early") or p not in place:
                return set(after[p])
            return {place[p]}

        for i, node in enumerate(shape["node"]):
            if rank_of(node) != rank:
                continue
            deps = set().union(*[resolve(i, p, k) for p, k in shape["edge"].get(i, [])])
            if not deps and node[6] in last:
                deps = {last[node[6]]}
            after[i] = deps
            if node[2] == "entry" or node[3] == "arrive":
                continue
            if text.res[node[6]][2] == "queue":
                continue
            place[i] = last[node[6]] = len(out)
            start, length = times[i]
            begin = (text.epoch + start) // 1000
            coll = shape["comm"][int(node[17])] if node[3] == "transfer" and node[17] != "-" else ""
            comm = coll in COLL or (coll in ("send", "recv") and text.meets(shape, i))
            out.append((node[7], comm, begin,
                        (text.epoch + start + length) // 1000 - begin, deps))
    return out


def main():
    text = Text(sys.argv[3])
    total = edges = bad = 0
    for rank in text.ranks:
        want = expected(text, rank)
        got = read("%s.%d.et" % (sys.argv[2], rank))
        place = {x.id: i for i, x in enumerate(got)}
        if len(place) != len(got) or len(got) != len(want):
            print("rank %d: %d nodes, want %d" % (rank, len(got), len(want)))
            bad += 1
            continue
        for i, (x, w) in enumerate(zip(got, want)):
            deps = {place[d] for d in x.data_deps if d in place}
            comm = x.type in (chakra.COMM_COLL_NODE, chakra.COMM_SEND_NODE, chakra.COMM_RECV_NODE)
            have = (x.name, comm, x.start_time_micros, x.duration_micros, deps)
            fine = have == w and all(d < i for d in deps) and not x.ctrl_deps
            if comm:
                fine = fine and attr(x, "is_cpu_op") is False and attr(x, "comm_size") >= 1
            if x.type == chakra.COMM_COLL_NODE:
                fine = fine and attr(x, "comm_type") in COLL.values()
            if not fine and bad < 5:
                print("rank %d node %d:" % (rank, i), have, "want", w)
            bad += not fine
            total += 1
            edges += len(deps)
    print("%d nodes, %d dependencies" % (total, edges))
    sys.exit(bad > 0)


main()
