# replay -O html and svg, trace -O svg: what they hold is what the graph holds; sizes, hostile names, refusals.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

check "the streams of a tiny job" tiny_streams "$TMP"
g=$TMP/job.graph
python=$(command -v python3 || true)

# Reads a page: the report, the head and the lists of the events; fails if the page is not well-formed.
cat >"$TMP/page.py" <<'END'
import base64, json, sys, zlib
from html.parser import HTMLParser

class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.data, self.id, self.links = [], {}, None, []
        self.feed(text)
        self.close()
        assert not self.open, self.open
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [v for k, v in attrs.items() if k in ("src", "href")]
        if tag not in ("meta", "input", "link"):
            self.open.append(tag)
        self.id = attrs.get("id", tag) if tag == "script" else tag
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
    def handle_data(self, text):
        self.data[self.id] = self.data.get(self.id, "") + text

def events(text):
    raw = zlib.decompress(base64.b64decode(text.strip()), -15)
    end = raw.index(10)
    head, at = json.loads(raw[:end]), end + 1
    def number():
        nonlocal at
        v = by = 0
        while True:
            c = raw[at]
            at += 1
            v |= (c & 127) << by
            by += 7
            if c < 128:
                return v
    def signed():
        u = number()
        return -(u + 1) // 2 if u & 1 else u // 2
    n = head["events"]
    count = [number() for _ in head["rows"]]
    first = [signed() for _ in range(n)]
    dur = [number() for _ in range(n)]
    style = [number() for _ in range(n)]
    mb = [number() - 1 for _ in range(n)]
    size = [number() - 1 for _ in range(n)]
    out, i = [], 0
    for row, c in zip(head["rows"], count):
        last = 0
        for _ in range(c):
            start = last + first[i]
            last = start + dur[i]
            cls, name, module = head["styles"][style[i]]
            out.append((row[0], head["names"][row[1]], head["classes"][cls][0], head["names"][name], start, dur[i], size[i]))
            i += 1
    n = head["path"]
    row = [number() - 1 for _ in range(n)]
    part = [number() for _ in range(n)]
    start = [signed() for _ in range(n)]
    length = [number() for _ in range(n)]
    path, last = [], 0
    for i in range(n):
        last = last + start[i] + length[i]
        path.append((row[i], part[i], last - length[i], length[i]))
    n = head["memory"]
    memory = [[f() for _ in range(n)] for f in (signed, signed, number)]
    head["marked"] = {}
    for line, n in head.pop("marks"):
        i, chosen = 0, set()
        for k in range(n):
            run = number()
            if k % 2:
                chosen |= set(range(i, i + run))
            i += run
        assert i == len(out) and chosen, line
        head["marked"][head["names"][line]] = chosen
    assert at == len(raw), (at, len(raw))
    return head, out, path, memory
END

# decoded WHAT PROGRAM ARGUMENT...: the program, in Python, is happy with the page $TMP/out
decoded() {
	if [ -z "$python" ]; then
		skip "$1" "no python3"
		return
	fi
	what=$1
	{
		cat "$TMP/page.py"
		echo "page = Page(open(sys.argv[1], encoding='utf-8').read())"
		echo "report = json.loads(page.data['report'])"
		echo "assert not page.links and page.open == [] and 'http' not in page.data['script']"
		cat
	} >"$TMP/program.py"
	shift
	check "$what" "$python" "$TMP/program.py" "$TMP/out" "$@"
}

# ---- a page ---------------------------------------------------------------------------------------
status 0 "a page" "$BIN/replay" -O html "$g"
cp "$TMP/out" "$TMP/page"
check "... the same each time, with any number of threads" sh -c "'$BIN/replay' -@ 3 -O html '$g' | cmp - '$TMP/page'"
"$BIN/replay" -O json "$g" >"$TMP/json"
"$BIN/replay" --timeline="$TMP/replayed.trace" -o "$TMP/text" "$g"
"$BIN/trace" -O jsonl -o "$TMP/jsonl" "$TMP/replayed.trace"
decoded "... holds the report, and the operations of the replayed run" "$TMP/json" "$TMP/jsonl" <<'END'
whole = json.load(open(sys.argv[2]))
assert all(whole[k] == report[k] for k in report), "not the report"
assert all(k in report for k in ("steps", "ranks", "critical_path", "worth_most", "slowest"))
head, out, path, memory = events(page.data["events"])
other = [json.loads(line) for line in open(sys.argv[3])]
other = [e for e in other if e["type"] == "event" and e["kind"] == "kernel"]
begin = min(e["start_ns"] for e in other)
got = [e for e in out if e[1] == "stream 7" and e[2] != "unexplained"]
first = min(e[4] for e in got)
assert len(got) == 8
assert sorted((e["rank"], e["name"], e["start_ns"] - begin, e["dur_ns"]) for e in other) == \
    sorted((e[0], e[3], e[4] - first, e[5]) for e in got)
assert sum(p[3] for p in path) == report["span_ns"] and all(a[2] + a[3] == b[2] for a, b in zip(path, path[1:]))
comm = [e for e in out if e[2] == "communication"]
assert len(comm) == 4 and all(e[6] == 4096 for e in comm)
END
# the buttons of the changes mark what the changes select, whatever its name is
mkdir "$TMP/templates"
for r in 0 1; do
	sed 's/"name":"\(gemm\|aten::mm\)"/"name":"void k<4, A[2]>(int, a=1)"/' "$TMP/rank$r.json" >"$TMP/templates/rank$r.json"
done
status 0 "a page with names of templates" "$BIN/replay" -q -O html "$TMP/templates"
decoded "... marks what each change selects" <<'END'
head, out, path, memory = events(page.data["events"])
lines = [c["change"] for c in report["worth_most"]] + [a["change"] for a in report["would_help"] if a.get("change", "").startswith("scale")]
found = set()
for line in lines:
    chosen = [out[i] for i in head["marked"][line]]
    left = [e for i, e in enumerate(out) if i not in head["marked"][line]]
    assert chosen and left, line
    of = lambda i, v: {e[i] for e in chosen} == {v} and v not in {e[i] for e in left}
    for part, i, v in (("name=void", 3, "void k<4, A[2]>(int, a=1)"), ("kind=gap", 2, "host gap")):
        if line.startswith("scale " + part):
            assert of(i, v), (line, chosen, left)
            found.add(part)
assert {"name=void", "kind=gap"} <= found, lines
END
status 0 "a page of a predicted run" "$BIN/replay" -O html --what-if 'scale kind=gap by 0.5' "$g"
decoded "... says what changed" <<'END'
assert report["predicted_mean_ns"] < report["replayed_mean_ns"] and report["changes"][0]["change"].startswith("scale")
END
status 0 "without the changes worth most" "$BIN/replay" -O html --no-worth "$g"
decoded "... there are none" <<'END'
assert "worth_most" not in report
END

check "no function of the page is written twice" \
	test -z "$(sed -n 's/^\(async \)*function \([A-Za-z]*\).*/\2/p' "$SRC/lib/report/page.js" | sort | uniq -d)"

# ---- the page beside the sample -------------------------------------------------------------------
status 0 "a page of a folder" "$BIN/replay" -q -O html "$SRC/samples/ddp-gloo"
decoded "... has the name of the folder" <<'END'
assert page.data["h1"].strip() == page.data["title"].strip() == "ddp-gloo", page.data["h1"]
END
decoded "... is samples/ddp-gloo.html (samples/make-page writes it anew)" "$SRC/samples/ddp-gloo.html" <<'END'
other = Page(open(sys.argv[2], encoding="utf-8").read())
for k in page.data.keys() | other.data.keys():
    if k != "events":
        assert page.data.get(k) == other.data.get(k), k
assert events(page.data["events"]) == events(other.data["events"]), "events"
END

# ---- hostile names -----------------------------------------------------------------------------------
cat >"$TMP/hostile.json" <<'END'
{"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
{"ph":"X","cat":"cpu_op","name":"</script><script>alert('\"\\\n&amp;é')<!--","pid":1,"tid":1,"ts":10,"dur":20},
{"ph":"X","cat":"cpu_op","name":"@EVENTS@ \u2028 \u0001","pid":1,"tid":1,"ts":40,"dur":20}
]}
END
"$BIN/trace" -q -u "$TMP/hostile.json" | "$BIN/graph" -q -o "$TMP/hos<&\"tile.graph"
status 0 "hostile names" "$BIN/replay" -O html "$TMP/hos<&\"tile.graph"
decoded "... are names" <<'END'
names = events(page.data["events"])[0]["names"]
assert "</script><script>alert('\"\\\n&amp;é')<!--" in names and "@EVENTS@ \u2028 \u0001" in names
assert page.data["h1"].strip() == 'hos<&"tile.graph', page.data["h1"]
assert set(page.data) >= {"report", "events", "script"}
END
status 0 "... in a drawing" "$BIN/replay" -O svg "$TMP/hos<&\"tile.graph"
xml() {
	if [ -z "$python" ]; then
		skip "$1" "no python3"
	else
		check "$1" "$python" -c 'import sys, xml.etree.ElementTree as e; e.parse(sys.argv[1])' "$TMP/out"
	fi
}
xml "... that is XML"

# ---- drawings ------------------------------------------------------------------------------------------
status 0 "a drawing" "$BIN/replay" -O svg "$g"
xml "... is XML"
for text in '>rank 0<' '>rank 1<' '>stream 7<' 'gemm' 'critical path' 'job.graph: step'; do
	holds "$TMP/out" "$text" "... with $text"
done
status 0 "a drawing of a trace" "$BIN/trace" -O svg "$SRC"/samples/ddp-gloo/rank*.json.gz
xml "... is XML"
check "... of a few thousand shapes" test "$(grep -c '<rect' "$TMP/out")" -lt 4000
holds "$TMP/out" '>rank 3<' "... of all ranks"
status 0 "a drawing of a step" "$BIN/trace" -O svg --step=6 "$SRC"/samples/ddp-gloo/rank*.json.gz
holds "$TMP/out" 'ProfilerStep#6' "... of that step"
check "... alone" no grep -q 'ProfilerStep#5' "$TMP/out"
printf '[{"ph":"X","name":"\355\240\200 \365\200\200\200 \300\200 \357\277\276 \342\202\254","pid":1,"tid":1,"ts":1,"dur":5}]' >"$TMP/odd.json"
status 0 "a drawing with a surrogate, a number beyond Unicode, a long form and U+FFFE" "$BIN/trace" -O svg "$TMP/odd.json"
xml "... is XML"
holds "$TMP/out" '€' "... and the rest of the name stays"
status 0 "a drawing of nothing" "$BIN/trace" -O svg --name=nobody "$TMP/rank0.json"
xml "... is XML"

# ---- large jobs ------------------------------------------------------------------------------------------
ops=1000000
! sanitized any || ops=200000 # the same code, which takes its time for other reasons
"$GEN/ggen" --ranks=8 --ops=$ops --steps=5 -o "$TMP/big.graph"
status 0 "a page of $ops operations" sh -c "{ time -p '$BIN/replay' -O html -o '$TMP/big.html' '$TMP/big.graph'; } 2>'$TMP/time'"
check "... at most 20 MB" test "$(wc -c <"$TMP/big.html")" -le 20000000
case $BUILD in
*-*) skip "... in 3 s" "not a build for speed" ;;
*) check "... in 3 s" awk '/^(user|sys)/ { t += $2 } END { print "# " t " s"; exit t > 3 }' "$TMP/time" ;;
esac
"$GEN/ggen" --ranks=1024 --ops=100000 --steps=1 -o "$TMP/many.graph"
status 0 "a page of 1,024 ranks" "$BIN/replay" -O html "$TMP/many.graph"
check "... at most 5 MB" test "$(wc -c <"$TMP/out")" -le 5000000
decoded "... has them all" <<'END'
assert len({e[0] for e in events(page.data["events"])[1]}) == 1024
END

# ---- refusals ----------------------------------------------------------------------------------------------
status 2 "a table as a page" "$BIN/replay" -O html --table path "$g"
status 2 "stragglers as a drawing" "$BIN/replay" -O svg --stragglers "$g"
status 2 "two graphs in a drawing" "$BIN/replay" -O svg "$g" "$g"
status 0 "two graphs on a page" "$BIN/replay" -O html "$g" "$g"
decoded "... without a timeline" <<'END'
assert report["schema"] == "paceline.replay-difference/1" and report["difference_ns"] == 0 and not page.data["events"].strip()
END
status 4 "a full disk" sh -c "'$BIN/replay' -O html '$g' >/dev/full"
done_testing
