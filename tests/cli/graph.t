# graph: from a merged trace to a graph and its views; what it refuses, and why.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

check "the streams of a tiny job" tiny_streams "$TMP"
g=$TMP/job.graph

# lines WHAT FILE: how many lines of the text form begin so
lines() {
	awk -F '\t' -v what="$1" '$1 == what { n++ } END { print n + 0 }' "$2"
}

# ---- views ------------------------------------------------------------------------------------
status 0 "stat" "$BIN/graph" -O stat "$g"
check "stat: ranks and steps" sh -c "grep -q '^ranks  *2' '$TMP/out' && grep -q '^steps  *2 of' '$TMP/out'"
check "stat: the collective" grep -q '^allreduce  *4 ' "$TMP/out"
status 0 "stat of a merged trace, without a file between" "$BIN/graph" -q -O stat "$TMP/job.merged"
cp "$TMP/out" "$TMP/stat"
"$BIN/graph" -O stat "$g" >"$TMP/stat2"
check "... is that of its graph" diff "$TMP/stat" "$TMP/stat2"
status 0 "text" "$BIN/graph" -O text -o "$TMP/text" "$g"
nodes=$(lines node "$TMP/text")
check "text: nodes, edges and times" test "$nodes" -gt 20 -a "$(lines edge "$TMP/text")" -ge $((nodes - 20)) \
	-a "$(lines time "$TMP/text")" -ge "$nodes"
check "text: a rendezvous for each collective of a shape" \
	awk -F '\t' '$3 == "rendezvous" && $1 == "node" { n++; if ($11 != 4096) bad = 1 }
		END { exit !n || bad }' "$TMP/text"
check "text: both members lead to each rendezvous" awk -F '\t' '
	$1 == "node" { meet = $3 == "rendezvous"; n += 2 * meet } $1 == "edge" && meet { n-- }
	END { exit n != 0 }' "$TMP/text"
check "text: no edge leads back" awk -F '\t' '$1 == "edge" && $2 >= $3 { exit 1 }' "$TMP/text"
status 0 "stat-json" "$BIN/graph" -O stat-json "$g"
check "stat-json: its schema" grep -q '"schema": *"paceline.graph-stat/1"' "$TMP/out"
cp "$TMP/out" "$TMP/stat.json"
status 0 "json" "$BIN/graph" -O json "$g"
check "json: its schema" grep -q '"schema": *"paceline.graph/1"' "$TMP/out"
if command -v python3 >/dev/null; then
	check "json: as many nodes, edges and times as in the text form" python3 - "$TMP/out" "$TMP/stat.json" \
		"$nodes" "$(lines edge "$TMP/text")" "$(lines time "$TMP/text")" <<-'END'
		import json, sys
		g, stat = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
		nodes = sum(len(s["nodes"]) for s in g["shapes"])
		edges = sum(len(n.get("after", [])) for s in g["shapes"] for n in s["nodes"])
		times = sum(len(s["dur_ns"]) for s in g["steps"])
		assert [nodes, edges, times] == [int(x) for x in sys.argv[3:]], (nodes, edges, times)
		assert stat["nodes"] == nodes and stat["edge_count"] == edges and stat["ranks"] == 2
		assert sum(e["recorded"] + e["inferred"] for e in stat["edges"]) == edges
	END
else
	skip "json: as many nodes, edges and times as in the text form" "no python3"
fi
status 0 "dot" "$BIN/graph" -O dot "$g"
check "dot: ranks that do the same share a cluster" test "$(grep -c 'subgraph cluster_' "$TMP/out")" = 1
check "dot: ... which names them" grep -q 'label="ranks 0-1"' "$TMP/out"
check "dot: their all-reduce stands outside" grep -q 'allreduce, group 0\\n1 x' "$TMP/out"
if command -v dot >/dev/null; then
	check "dot: graphviz reads it" sh -c "dot -Tsvg '$TMP/out' >/dev/null 2>&1"
else
	skip "dot: graphviz reads it" "no dot"
fi
mkdir "$TMP/stages"
awk -v dir="$TMP/stages" -v n=2 -v m=4 -v steps=3 -v schedule=gpipe -v forward=3000000 -v backward=6000000 -v transfer=200000 \
	-f "$SRC/tests/gen/posted.awk"
"$BIN/graph" -q -o "$TMP/stages.graph" "$TMP/stages"
status 0 "dot: a pipeline" "$BIN/graph" -O dot "$TMP/stages.graph"
check "dot: ... four messages to each side" test 4 = "$(grep -cE 'label="(send|recv).n4 x' "$TMP/out")"
check "dot: ... each node of a rank" no grep -q '0 x, 0 ns' "$TMP/out"

# ---- a graph in, a graph out --------------------------------------------------------------------
check "a graph written anew is the same" sh -c "
	'$BIN/graph' --no-provenance '$g' | cmp - '$g'"
check "... and at another level, by its text" sh -c "
	'$BIN/graph' -u --no-provenance '$g' | '$BIN/graph' -O text | cmp - '$TMP/text'"
status 0 "a stream that gzip can check" sh -c "gzip -t <'$g'"
"$BIN/graph" -o "$TMP/prov.graph" "$g"
check "history is recorded" sh -c "'$BIN/graph' -O text '$TMP/prov.graph' |
	grep -q '^provenance	graph [0-9.]*: -o'"
status 0 "one step" "$BIN/graph" --step 1 -O text "$g"
check "... is one step" test "$(lines step "$TMP/out")" = 1
status 0 "one rank" "$BIN/graph" --rank 1 -O text "$g"
check "... is one rank, and lacks its partners" sh -c "
	test 1 = \"\$(grep -c '^rank	' '$TMP/out')\" && grep -q 'missing' '$TMP/out'"
status 2 "one rank as a graph" "$BIN/graph" --rank 1 "$g"
says "trace --rank" "... says where to choose it"
status 3 "a rank that there is not" "$BIN/graph" --rank 9 -O stat "$g"
status 2 "a list that is none" "$BIN/graph" --rank 1,,2 -O stat "$g"
status 2 "a range that is empty" "$BIN/graph" --step 5-3 -O stat "$g"

# ---- inferred or not ------------------------------------------------------------------------------
status 0 "--no-infer" "$BIN/graph" --no-infer -O text "$TMP/job.merged"
check "... infers no wait" sh -c "! grep '^edge	' '$TMP/out' | grep -q 'wait?'"

# ---- what is refused ------------------------------------------------------------------------------
status 0 "a profiler's file" "$BIN/graph" -o "$TMP/x.graph" "$TMP/rank0.json"
says '^merge: warning: .* give the files of all ranks to one merge$' "... passes through merge, which says so"
status 3 "ranks that were not merged" "$BIN/graph" "$TMP/job.trace"
says "merge" "... says so"
cat "$g" "$g" >"$TMP/two.graph"
status 3 "two graphs in a row" "$BIN/graph" -O stat "$TMP/two.graph"
says "two.graph: a second graph" "... says so"
status 2 "a graph and another file" "$BIN/graph" -O stat "$g" "$TMP/job.merged"
status 3 "two traces that were merged apart" "$BIN/graph" "$TMP/job.merged" "$TMP/job.merged"
says "merged separately" "... says so"
head -c 700 "$g" >"$TMP/cut.graph"
status 3 "a cut graph" "$BIN/graph" -O stat "$TMP/cut.graph"
says "cut.graph: " "... is named"
check "and none of the output is there" test ! -s "$TMP/out"

# ---- one rank needs no merge ---------------------------------------------------------------------
"$BIN/trace" -o "$TMP/one.trace" "$TMP/rank0.json"
status 0 "a trace of one rank" "$BIN/graph" -O stat "$TMP/one.trace"
check "... says nothing" test ! -s "$TMP/err"

# ---- a job of many ranks ---------------------------------------------------------------------------
"$GEN/ggen" --ranks=32 --ops=200000 --steps=3 -o "$TMP/big.graph"
status 0 "a generated graph" "$BIN/graph" -O stat -@ 4 "$TMP/big.graph"
check "... of 3 steps and one shape" grep -q '^steps  *3 of 1 shape' "$TMP/out"
check "long tables are cut, and say so" grep -q 'more: -O stat-json has all' "$TMP/out"
status 0 "a picture of it" "$BIN/graph" -O dot "$TMP/big.graph"
check "... is small" test "$(wc -l <"$TMP/out")" -lt 200
check "the generator does the same twice" sh -c "
	'$GEN/ggen' --ranks=32 --ops=200000 --steps=3 -@ 4 | cmp - '$TMP/big.graph'"

# ---- tables of very many ranks and steps -----------------------------------------------------------
# Seconds; with one loop over all ranks (or steps) for each of them it would take many minutes.
large() # RANKS STEPS
{
	awk -v r="$1" -v s="$2" 'BEGIN { print "rank,step,optype,start_ts,duration"
		for (i = 0; i < r; i++) for (k = 0; k < s; k++)
			printf "%d,%d,fwd,%.6f,0.0015\n%d,%d,bwd,%.6f,0.001\n", \
				i, k, k * 0.01, i, k, k * 0.01 + 0.002 }'
}
# ---- memory of many ranks ---------------------------------------------------------------------
# The file of each rank describes all groups of the job. So a program that keeps what each file says needs
# memory that grows with the square of the ranks: here 170 MiB, without it 70.
case ${BUILD-} in
*-thread | *address*) skip "memory of 384 ranks" "sanitizers need memory of their own" ;;
*)
	"$GEN/kgen" --ranks=384 --tp=8 --pp=4 --layers=4 --steps=1 --record-groups -o "$TMP/ranks" >"$TMP/out" &&
		"$BIN/trace" -q "$TMP"/ranks/rank*.json | "$BIN/merge" -q -o "$TMP/ranks.merged"
	rm -rf "$TMP/ranks"
	status 0 "memory of 384 ranks" sh -c "ulimit -v 112640; '$BIN/graph' -q -@1 -o '$TMP/ranks.graph' '$TMP/ranks.merged'"
	;;
esac

if [ "$LONG" = 1 ]; then
	large 200000 1 >"$TMP/ranks.csv"
	large 2 100000 >"$TMP/steps.csv"
	for t in ranks steps; do
		status 0 "a table of many $t: statistics" timeout 30 "$BIN/trace" -O stat "$TMP/$t.csv"
		"$BIN/trace" "$TMP/$t.csv" | timeout 30 "$BIN/merge" -q -o "$TMP/$t.merged"
		status 0 "... graph" timeout 30 "$BIN/graph" -q -o "$TMP/$t.graph" "$TMP/$t.merged"
		status 0 "... statistics of it" timeout 30 "$BIN/graph" -O stat "$TMP/$t.graph"
	done
	check "... all steps" grep -q '^steps  *100000 of' "$TMP/out"
fi
gzip -dc "$SRC"/samples/ddp-gloo/rank0.*json.gz 2>/dev/null | tr -d '\n' >"$TMP/line.json"
status 0 "a recording on one line, as json.dump writes it" "$BIN/graph" -q -o "$TMP/line.graph" "$TMP/line.json"

# Two files of one name and rank, as the parts of a long trace: their stream is one resource.
mkdir "$TMP/part1" "$TMP/part2"
for p in 1 2; do
	echo '[{"ph":"X","name":"k","pid":1,"tid":7,"ts":'$p'00,"dur":5,"cat":"kernel","args":{"stream":7}}]' >"$TMP/part$p/rank0.json"
done
"$BIN/trace" -q "$TMP"/part?/rank0.json >"$TMP/parts"
status 0 "a stream without steps in two parts" "$BIN/graph" -O stat "$TMP/parts"
check "... is one resource with all operations" grep -q '^nodes  *2 in' "$TMP/out"

# --- very many threads that wait for threads: minutes if each pause visited all of them
threads=10000
! sanitized any || threads=2500 # the same code in a tenth of the time
python3 - $threads >"$TMP/threads.json" <<'EOF'
import json, random, sys
random.seed(1)
events = []
for tid in range(1, int(sys.argv[1]) + 1):
    ts = random.randrange(200)
    while ts < 6000:
        dur = random.choice([5, 20, 60, 150, 400]) + random.randrange(30)
        events.append({"ph": "X", "cat": "cpu_op", "name": "op%d" % (tid % 5), "pid": 1, "tid": tid, "ts": ts, "dur": dur})
        ts += dur + random.choice([0, 1, 10, 30, 100, 300, 800])
print(json.dumps({"schemaVersion": 1, "traceEvents": events, "deviceProperties": []}))
EOF
status 0 "$threads threads" "$BIN/graph" -O stat "$TMP/threads.json"
check "of which many wait for others" awk '/^waits/ { n = $6 } END { exit !(n > 1000) }' "$TMP/out"
rm "$TMP/threads.json"

done_testing
