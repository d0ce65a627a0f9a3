# What replay predicts of run's own traces over slow links, and what run then takes.
# runner: alone, threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
not_under any "a sanitizer takes time of its own, which no network makes longer or shorter"

cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
cat >job <<'END'
paceline-job 1
model mlp:64-160-160-10
data synthetic:samples=2000,dims=64,classes=10
batch 8
steps 8
optimizer sgd lr=0.01
END

# recorded NAME OPTION...: the job over TCP; its graph in NAME
recorded() {
	name=$1
	shift
	rm -f trace.?
	status 0 "$name: trained" timeout 50 "$BIN/run" -q -n "${RANKS:-2}" --transport=tcp -t trace "$@" "${JOB:-job}"
	"$BIN/merge" -q trace.? | "$BIN/graph" -q -o "$name"
}

# steps N GRAPH OPTION...: median of a column of the table of steps, but for the first
steps() {
	n=$1
	shift
	"$BIN/replay" -q -O csv --table=steps "$@" | awk -F , -v n="$n" 'NR > 2 { print $n }' | sort -n |
		awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# within LIMIT A B
within() {
	awk -v limit="$1" -v a="$2" -v b="$3" 'BEGIN { e = a / b - 1; print "# " a, b, e; exit !(a > 0 && b > 0 && e * e <= limit * limit) }'
}

# ---- the algorithm is in the trace ----
# of two ranks a tree sends all bytes twice, a ring half of them; over the loopback alone a busy machine would hide this
recorded trees --set algorithm=tree --link rate=200Mbit,latency=200us
status 0 "the recorded algorithm" "$BIN/replay" --no-worth --what-if 'algorithm tree' trees
check "... changes nothing and is not assumed" sh -c "head -n 1 '$TMP/out' | grep -q 'predicted .* ([+-]0.00 %, .*)$' && ! grep assumed '$TMP/out'"
status 0 "another algorithm" "$BIN/replay" --no-worth --what-if 'algorithm ring' trees
check "... is another prediction" sh -c "! head -n 1 '$TMP/out' | grep -q 'predicted .* ([+-]0.00 %'"

# thrice COMMAND...: succeeds if it does at least once in three times: other users of the machine make some runs long
thrice() {
	"$@" || "$@" || "$@"
}

# 37,290 floats: 60 ms of a link of 20 Mbit/s, so that a busy machine matters little
base() {
	recorded base --link rate=20Mbit,latency=2ms
	"$BIN/replay" -q --no-worth base >out
	awk 'NR == 1 { exit !($(NF - 2) <= 3 && $NF == "unexplained") }' out
}
check "two channels share the link: little is unexplained" thrice base

faster() {
	recorded fast --link rate=60Mbit,latency=2ms
	within 0.08 "$(steps 6 base --what-if 'bandwidth by 3')" "$(steps 2 fast)"
}
check "three times the bandwidth: as predicted" thrice faster
check "... which is another step" sh -c "[ $(steps 2 fast) -lt $(($(steps 2 base) / 2)) ]"
check "a third of it: as predicted" within 0.08 "$(steps 6 fast --what-if 'bandwidth by 0.333333')" "$(steps 2 base)"

farther() {
	recorded far --link rate=20Mbit,latency=4ms
	within 0.08 "$(steps 6 base --what-if 'latency by 2')" "$(steps 2 far)"
}
check "twice the latency: as predicted" thrice farther

# each tensor by itself: latencies of buckets that are under way together are waited for once
fused() {
	recorded each --link rate=20Mbit,latency=10ms --set bucket-mb=0.0001
	"$BIN/plan" -q --preset=all each -O text >plan
	status 0 "... all in one" timeout 50 "$BIN/run" -q -n 2 --transport=tcp -t trace --link rate=20Mbit,latency=10ms -p plan job
	"$BIN/merge" -q trace.0 trace.1 | "$BIN/graph" -q -o all
	within 0.08 "$(awk '$1 == "predicted" { print $2 }' plan)" "$(steps 2 all)"
}
check "buckets fused: as predicted" thrice fused

# ---- another algorithm: a rank that has a link to each other rank sends to all at once ----
sed 's/160-160/512-512/; s/^steps .*/steps 5/' job >large
# other_algorithm SHARED SIGN: as predicted, and the prediction is less (-lt) or more (-gt) than the recorded step
other_algorithm() {
	RANKS=3 JOB=large recorded ring --set algorithm=ring --link "rate=100Mbit,latency=1ms$1"
	RANKS=3 JOB=large recorded tree --set algorithm=tree --link "rate=100Mbit,latency=1ms$1"
	within 0.12 "$(steps 6 ring --what-if 'algorithm tree')" "$(steps 2 tree)" &&
		test "$(steps 6 ring --what-if 'algorithm tree')" "$2" "$(steps 2 ring)"
}
check "a ring made a tree, a link to each rank: shorter, as predicted" thrice other_algorithm "" -lt
check "... of which nothing is assumed" no sh -c "'$BIN/replay' --no-worth --what-if 'algorithm tree' ring | grep -E 'assumed|estimated'"
check "the same, one link a rank: longer, as predicted" thrice other_algorithm ,shared=yes -gt
"$BIN/graph" -q -O text ring >ring.text
check "the links are in the graph" sh -c "grep -c '^link' ring.text | grep -qx 3"

# ---- microbatches: the buckets of a short backward pass are ready nearly at once, and share the link ----
sed 's/160-160/256-256-256-256-256-256/; s/^steps .*/steps 5/; s/^batch .*/batch 64/' job >deep
accumulated() {
	JOB=deep recorded one --set bucket-mb=0.2 --pace '*:100' --link rate=100Mbit,latency=1ms
	JOB=deep recorded four --set bucket-mb=0.2 --pace '*:100' --link rate=100Mbit,latency=1ms --set accumulate=4
	within 0.08 "$(steps 6 one --what-if 'accumulate 4')" "$(steps 2 four)" # the limit of bench/predict
}
check "four microbatches: as predicted" thrice accumulated

done_testing
