# A what-if against the truth: kgen writes a small job before and after a change that we know, with the
# same random draws; replay predicts the second from the first, every step within 2 %. LONG=1 adds
# more kinds of jobs, and jobs of eight ranks.
# runner: long
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

LIMIT=0.02

# truth KEY DIR: of each step
truth() {
	sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$2/truth.json"
}

# graph_of DIR: the graph of the job in DIR, to standard output
graph_of() {
	"$BIN/trace" -q -u "$1"/rank*.json | "$BIN/merge" -q -u | "$BIN/graph" -q -u
}

# within FILE: each line "PREDICTED TRUE" of a step; as many as there are steps
within() {
	awk -v limit=$LIMIT -v n="$steps" '
		{ e = $1 / $2 - 1; if (e < 0) e = -e; if (NF != 2 || !($1 > 0) || e > limit) bad = 1
		  printf "# predicted %d, generated %d, error %.4f\n", $1, $2, e >"/dev/stderr" }
		END { exit bad || NR != n }' "$1" 2>"$TMP/shown" || { cat "$TMP/shown"; return 1; }
}

# apart DIR: is that job at least 3 % away from the one before? Or a prediction that says "the same" passes.
apart() {
	{ truth recorded_ns "$TMP/before" | sum && truth recorded_ns "$1" | sum; } |
		awk '{ v[NR] = $1 } END { r = v[2] / v[1]; exit !(r > 1.03 || r < 0.97) }'
}

sum() {
	awk '{ s += $1 } END { printf "%.0f\n", s }'
}

# changed NAME OPTIONS CHANGE...: of the job $job, described by $kind
changed() {
	name=$1
	# shellcheck disable=SC2086
	"$GEN/kgen" -o "$TMP/after" $job $2 >/dev/null
	shift 2
	if [ "$1" = transfers ]; then # by the ratio of the transfer times, as measured on a network
		x=$({ truth transfer_ns "$TMP/before" | sum && truth transfer_ns "$TMP/after" | sum; } |
			awk '{ v[NR] = $1 } END { print v[2] / v[1] }')
		set -- "scale kind=comm by $x"
	fi
	for change in "$@"; do
		echo "$change"
	done >"$TMP/changes"
	"$BIN/replay" -q -O csv --table=steps --what-if-file="$TMP/changes" "$TMP/graph" |
		awk -F , 'NR > 1 { print $6 }' >"$TMP/predicted"
	truth recorded_ns "$TMP/after" | paste -d ' ' "$TMP/predicted" - >"$TMP/pairs"
	check "$kind: $name" within "$TMP/pairs"
	rm -rf "$TMP/after.$name"
	mv "$TMP/after" "$TMP/after.$name"
}

# job_of KIND OPTION...: all changes
job_of() {
	kind=$1
	shift
	job=$*
	steps=3
	rm -rf "$TMP"/before "$TMP"/after*
	"$GEN/kgen" -o "$TMP/before" --steps=$steps "$@" >/dev/null
	job="--steps=$steps $job"
	graph_of "$TMP/before" >"$TMP/graph"
	"$BIN/replay" -q -O csv --table=steps "$TMP/graph" | awk -F , 'NR > 1 { print $4 }' >"$TMP/replayed"
	truth recorded_ns "$TMP/before" | paste -d ' ' "$TMP/replayed" - >"$TMP/pairs"
	check "$kind: replayed unchanged" within "$TMP/pairs"
	changed "network twice as fast" --comm-scale=0.5 "scale kind=comm by 0.5"
	changed "a slow rank" --slow-rank=1:1.3 "scale kind=kernel,rank=1 by 1.3"
	changed "both" "--comm-scale=0.5 --slow-rank=1:1.3" "scale kind=comm by 0.5" \
		"scale kind=kernel,rank=1 by 1.3"
	changed "larger messages" --bytes-scale=2 transfers
}

job_of "data parallel" --ranks=4 --layers=2 --tp=1 --seed=3
job_of "joined at once" --ranks=4 --layers=2 --sync-comm --seed=4
for name in "network twice as fast" "a slow rank" both "larger messages"; do
	check "joined at once: $name: it matters" apart "$TMP/after.$name"
done
job_of "slow network" --ranks=4 --layers=2 --tp=2 --sync-comm --hosts=1 --intra-gbps=100 --alpha-us=100 --seed=6
changed "four times the bandwidth" --intra-gbps=400 "bandwidth by 4"
changed "ten times the latency" --alpha-us=1000 "latency by 10"
changed "bandwidth for latency" "--intra-gbps=400 --alpha-us=1000" "latency by 10" "bandwidth by 4"
changed "twice the workers" --ranks=8 "ranks 4"
changed "no transfers" --comm-scale=0 "remove kind=comm"
for name in "four times the bandwidth" "ten times the latency" "twice the workers" "no transfers"; do
	check "slow network: $name: it matters" apart "$TMP/after.$name"
done
job_of "host-bound" --ranks=4 --layers=2 --host-bound
job_of "full launch queue" --ranks=4 --layers=2 --no-item --queue-depth=120 --seed=5
for name in "network twice as fast" "a slow rank" both "larger messages"; do
	check "full launch queue: $name: it matters" apart "$TMP/after.$name"
done
job_of "pipeline" --ranks=4 --pp=2 --microbatches=4 --layers=4
if [ "${LONG:-0}" = 1 ]; then
	job_of "8 ranks" --ranks=8
	job_of "8 ranks, tensor parallel" --ranks=8 --tp=4 --seed=2
	job_of "8 ranks, pipeline of 4" --ranks=8 --pp=4 --tp=1 --microbatches=8 --layers=8
	job_of "8 ranks, groups and events recorded" --ranks=8 --record-groups --cuda-sync
	job_of "8 ranks, full launch queue of each stream" --ranks=8 --no-item --queue-per-stream --queue-depth=100
	job_of "8 ranks, old profiler" --ranks=8 --integer-us --no-host-name
fi

# ---- communication: what it takes is known, for a job that was made from a table of layers ------
awk 'BEGIN {
	srand(7)
	print "layer,forward_us,backward_us,param_bytes,activation_bytes"
	for (i = 0; i < 40; i++)
		printf "l%d,%d,%d,%d,0\n", i, 20 + 200 * rand(), 40 + 400 * rand(), 4096 * 3 ^ (8 * rand())
}' >"$TMP/layers.csv"

# regenerated CHANGES OPTIONS: is the prediction that of the job made anew? Recorded transfers are whole nanoseconds,
# so within two millionths.
regenerated() {
	# shellcheck disable=SC2086
	"$BIN/graph" -q -u -f layers $2 "$TMP/layers.csv" | "$BIN/replay" -q -O csv --table=steps |
		awk -F , 'NR > 1 { print $4 }' >"$TMP/want"
	echo "$1" | tr ';' '\n' | "$BIN/replay" -q -O csv --table=steps --what-if-file=- "$TMP/layers.graph" |
		awk -F , 'NR > 1 { print $6, $4 }' >"$TMP/got"
	check "made anew: $1" awk 'NR == FNR { want = $1; next }
		{ d = $1 - want; if (d < 0) d = -d; n++; print "# predicted " $1 ", made anew " want
		  bad = d > 2e-6 * want || $1 == $2 }
		END { exit bad || n != 1 }' "$TMP/want" "$TMP/got"
}

"$BIN/graph" -q -f layers --ranks 8 --bandwidth 2G --latency 10us -o "$TMP/layers.graph" "$TMP/layers.csv"
regenerated "bandwidth by 2" "--ranks 8 --bandwidth 4G --latency 10us"
regenerated "bandwidth by 0.25" "--ranks 8 --bandwidth 512M --latency 10us"
regenerated "latency by 3" "--ranks 8 --bandwidth 2G --latency 30us"
regenerated "latency to 100us" "--ranks 8 --bandwidth 2G --latency 100us"
regenerated "latency by 0" "--ranks 8 --bandwidth 2G --latency 0s"
regenerated "ranks 64" "--ranks 64 --bandwidth 2G --latency 10us"
regenerated "ranks by 8" "--ranks 64 --bandwidth 2G --latency 10us"
regenerated "ranks by 0.25" "--ranks 2 --bandwidth 2G --latency 10us"
regenerated "ranks 4;ranks by 16" "--ranks 64 --bandwidth 2G --latency 10us"
regenerated "ranks 2" "--ranks 2 --bandwidth 2G --latency 10us"
regenerated "ranks 1" "--ranks 1"
regenerated "ranks 32;latency to 3us;bandwidth by 10" "--ranks 32 --bandwidth 20G --latency 3us"
regenerated "bandwidth by 10;ranks 32;latency to 3us" "--ranks 32 --bandwidth 20G --latency 3us"

status 2 "no whole number of workers" "$BIN/replay" --what-if "ranks by 0.3" "$TMP/layers.graph"
says "that makes 2.4 data-parallel replicas of 8" "... is refused"
status 2 "no number of workers" "$BIN/replay" --what-if "ranks" "$TMP/layers.graph"
says "it needs a number of replicas or by X" "... says what is missing"
status 2 "two numbers of workers" "$BIN/replay" --what-if "ranks 3 by 2" "$TMP/layers.graph"

# ---- links ----------------------------------------------------------------------------------------
# link CHANGE TOPOLOGY: the predicted step; what is said is in $TMP/err
link() {
	"$BIN/replay" -O csv --table=steps --what-if "$1" --topology "$2" "$TMP/layers.graph" 2>"$TMP/err" |
		awk -F , 'NR > 1 { print $6 }'
}
check "on one host its link is all there is" test "$(link "bandwidth pcie by 0.25" 1x8)" = "$(link "bandwidth by 0.25" 1x8)"
check "... and takes all of the latency" test "$(link "latency pcie by 3" 1x8)" = "$(link "latency by 3" 1x8)"
check "... so that another one changes nothing" test "$(link "scale all by 1" 1x8)" = "$(link "bandwidth nic by 0.25" 1x8)"
link "bandwidth nic by 0.25" 1x8 >"$TMP/out"
check "... of which it warns" grep -q 'the change "bandwidth nic by 0.25" selects no operation' "$TMP/err"
check "a ring over hosts is as fast as the network" test "$(link "bandwidth nic by 0.25" 4x2)" = "$(link "bandwidth by 0.25" 4x2)"
check "... whatever is inside" test "$(link "bandwidth pcie by 2" 4x2)" = "$(link "scale all by 1" 4x2)"
status 2 "no such link" "$BIN/replay" --what-if "latency fibre by 2" --topology 4x2:dgx-a100 "$TMP/layers.graph"
says 'what-if "latency fibre by 2": no link of the topology is called "fibre", but "nvlink" and "nic"' "... says which there are"
status 2 "no such preset" "$BIN/replay" --what-if "latency by 2" --topology 4x2:abacus "$TMP/layers.graph"

# ---- one engine -----------------------------------------------------------------------------------
# same LINE PLAN: is the option what the line of a plan is? Some steps and members are the same, but for the list of changes.
same() {
	printf 'paceline-plan 1\n%s\n' "$2" >"$TMP/one.plan"
	"$BIN/replay" -q -O csv --table=steps --what-if "$1" "$TMP/layers.graph" >"$TMP/line"
	"$BIN/replay" -q -O csv --table=steps -p "$TMP/one.plan" "$TMP/layers.graph" >"$TMP/plan" &&
		cmp "$TMP/line" "$TMP/plan" && ! grep -q ',,$' "$TMP/plan"
}
check "bandwidth: the option and the plan agree" same "bandwidth by 2" "bandwidth * by=2"
check "ranks: the option and the plan agree" same "ranks 16" "ranks 16"
check "ranks by a factor: the option and the plan agree" same "ranks by 2" "ranks by=2"
check "latency: the option and the plan agree" same "latency to 30us" "latency to=30us"
check "scale: the option and the plan agree" same "scale kind=comm,rank=0..3 by 0.5" "scale kind=comm rank=0..3 by=0.5"
check "speed: the option and the plan agree" same "speed \"rank 3\" factor=0.5" "speed x 0.5 \"rank 3\""
check "fuse-tensors: the option and the plan agree" same "fuse-tensors \"grad l3\" \"grad l4\"" "fuse-tensors \"grad l3\" \"grad l4\""
printf 'paceline-plan 1\nfuse-tensors "grad l3" "grad l4"\n' >"$TMP/fused.plan"
printf 'paceline-plan 1\nfuse-tensors "grad l3" "grad l4"\nbandwidth by=2\nranks 16\n' >"$TMP/both.plan"
"$BIN/replay" -q -O csv --table=steps -p "$TMP/fused.plan" "$TMP/layers.graph" >"$TMP/fused"
"$BIN/replay" -q -O csv --table=steps -p "$TMP/both.plan" "$TMP/layers.graph" >"$TMP/out"
"$BIN/replay" -q -O csv --table=steps -p "$TMP/fused.plan" --what-if "bandwidth by 2" --what-if "ranks 16" \
	"$TMP/layers.graph" >"$TMP/after"
check "a network that changes with the buckets, and behind them" awk -F , 'FNR == 2 { v[++n] = $6 } END {
	d = v[2] / v[3] - 1; print "# " v[1], v[2], v[3]; exit !(v[2] < v[1] && d < 1e-4 && d > -1e-4) }' "$TMP/fused" "$TMP/out" "$TMP/after"

# ---- the recorded algorithm: as it was, and another ----

for algorithm in ring tree; do
	"$BIN/graph" -q -f layers --ranks 4 --bandwidth 2G --latency 10us --algorithm="$algorithm" "$TMP/layers.csv" -o "$TMP/$algorithm.graph"
	for other in ring tree; do
		"$BIN/replay" -q -O csv --table=steps --what-if "algorithm $other" "$TMP/$algorithm.graph" |
			awk -F , 'NR == 2 { print $2, $6 }' >"$TMP/$algorithm.$other"
	done
	check "$algorithm: stays as long with the recorded algorithm" awk '{ exit !($1 == $2) }' "$TMP/$algorithm.$algorithm"
done
check "a tree made a ring, and a ring made a tree" awk '
	FNR == NR { tree = $1; ring = $2; next }
	{ a = ring / $1 - 1; b = $2 / tree - 1; print "# " tree, ring, $0; exit !($1 < tree && a * a < 1e-3 && b * b < 1e-3) }' \
	"$TMP/tree.ring" "$TMP/ring.tree"

check "a plan finds better than a recorded tree" sh -c "'$BIN/plan' -q --allow=algorithm -O text '$TMP/tree.graph' >'$TMP/rings' && grep -qE '^algorithm (ring|halving-doubling)' '$TMP/rings'"
"$BIN/plan" -q --evaluations=0 -O text "$TMP/tree.graph" >"$TMP/trees"
check "... and its bound is that of other algorithms only if it may" awk '$1 == "bound" { v[++n] = $2 } END { print "# " v[1], v[2]; exit !(v[1] > v[2]) }' \
	"$TMP/trees" "$TMP/rings"

# ---- how sure a prediction is: without messages it has a range, and says what it assumes ----

"$BIN/trace" -q -u "$SRC"/samples/ddp-gloo/rank*.json.gz | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/whole.graph"
status 0 "what helps after a change of the graph" "$BIN/replay" -q --what-if "bucket-mb 25" "$TMP/whole.graph"
holds "$TMP/out" "^Worth most, by simulation (as --what-if takes them, but without contention" "... is simulated alone"
number() {
	sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" "$TMP/out" | head -n 1
}
status 0 "a latency without recorded messages" "$BIN/replay" --no-worth --what-if "latency to 5ms" "$TMP/whole.graph"
check "... has a range" sh -c "head -n 1 '$TMP/out' | grep -qE 'predicted [0-9.]+ ms \([+][0-9.]+ %, 90 % interval [-+][0-9.]+ to [-+][0-9.]+ %\)\$'"
holds "$TMP/out" '^assumed: collectives go along rings; the graph does not say their algorithm$' "... what is assumed"
holds "$TMP/out" '^estimated from 11 whole transfers, as there are no messages: ' "... and why"
status 0 "... in JSON" "$BIN/replay" --no-worth -O json --what-if "latency to 5ms" "$TMP/whole.graph"
check "... what is assumed" grep -q '"rings_assumed":true' "$TMP/out"
# 5 all-reduces of 6 messages in a step: not even if all of them followed one another would it be longer
check "... noise is not multiplied" awk -v p="$(number predicted_mean_ns)" -v r="$(number replayed_mean_ns)" \
	'BEGIN { exit !(p > r && p < r + 5 * 6 * 5e6) }'
check "... and all of the effect is in doubt" awk -v p="$(number predicted_mean_ns)" -v r="$(number replayed_mean_ns)" \
	-v doubt="$(number predicted_doubt_ns)" 'BEGIN { exit !(doubt > 0.5 * (p - r) && doubt < p) }'
# a little more latency cannot make the step shorter, nor a little less make it longer, whatever is in doubt;
# every interval has 1 % that is not about the direction
status 0 "more latency" "$BIN/replay" --no-worth -O json --what-if "latency by 30" "$TMP/whole.graph"
check "... makes the step no shorter" awk -v r="$(number replayed_mean_ns)" -v low="$(number predicted_low_ns)" \
	-v high="$(number predicted_high_ns)" -v p="$(number predicted_mean_ns)" -v x="$(number predicted_doubt_ns)" \
	'BEGIN { print "# " r, low, high, x; exit !(low >= r * 0.99 - 1 && low <= p && high > p && p - x < r * 0.99) }'
status 0 "a little less latency" "$BIN/replay" --no-worth -O json --what-if "latency by 0.9" "$TMP/whole.graph"
check "... makes the step no longer" awk -v r="$(number replayed_mean_ns)" -v low="$(number predicted_low_ns)" \
	-v high="$(number predicted_high_ns)" -v p="$(number predicted_mean_ns)" \
	'BEGIN { print "# " r, low, high; exit !(high <= r * 1.01 + 1 && high >= p && low < p && p + (p - low) > r * 1.01) }'
status 0 "another algorithm" "$BIN/replay" --no-worth --what-if "algorithm tree" "$TMP/whole.graph"
check "... has a range" sh -c "head -n 1 '$TMP/out' | grep -qE 'predicted [0-9.]+ ms \([-+][0-9.]+ %, 90 % interval [-+][0-9.]+ to [-+][0-9.]+ %\)\$'"
holds "$TMP/out" '^assumed: collectives go along rings; the graph does not say their algorithm$' "... what is assumed"
holds "$TMP/out" '^assumed: each rank has one link for all that it sends' "... of the links too"
status 0 "... with a topology" "$BIN/replay" --no-worth --topology=1x4 --what-if "algorithm tree" "$TMP/whole.graph"
check "... that says it" no grep -q 'assumed: each rank' "$TMP/out"
mkdir "$TMP/some"
for r in 0 1; do
	awk -v r="$r" 'BEGIN {
		printf "{\"distributedInfo\": {\"rank\": %d, \"world_size\": 2}, \"traceEvents\": [", r
		for (i = 0; i < 8; i++)
			printf "%s{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclKernel_AllReduce%s(x)\", \"pid\": 0, \"tid\": 7, " \
				"\"ts\": %d, \"dur\": 50, \"args\": {\"stream\": 7, \"device\": 0, \"Process Group Name\": \"dp\", \"Seq\": %d}}",
				i ? ", " : "", i < 2 ? "" : "_RING_LL", 1000 + 100 * i, i
		print "]}" }' >"$TMP/some/rank$r.json"
done
"$BIN/trace" -q "$TMP/some" | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/some.graph"
status 0 "some of unknown algorithm" "$BIN/replay" --no-worth --what-if "ranks 3" "$TMP/some.graph"
holds "$TMP/out" '^assumed: 2 of 8 collectives go along rings; the graph does not say their algorithm$' "... how many"
# one large broadcast, whose latency does not matter, and 400 small all-reduces, of which nobody knows how much is latency
mkdir "$TMP/mixed"
for r in 0 1; do
	awk -v r="$r" 'BEGIN {
		printf "{\"distributedInfo\": {\"rank\": %d, \"world_size\": 2}, \"traceEvents\": [", r
		for (i = t = 0; i <= 400; i++) {
			printf "%s{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclKernel_%s_RING_LL(x)\", \"pid\": 0, \"tid\": 7, " \
				"\"ts\": %d, \"dur\": %d, \"args\": {\"stream\": 7, \"device\": 0, \"Process Group Name\": \"dp\", \"Seq\": %d, " \
				"\"Collective name\": \"%s\", \"In msg nelems\": %d, \"dtype\": \"Float\"}}", i ? ",\n" : "", i ? "AllReduce" : "Broadcast",
				1000 + t, i ? 50 : 80000, i, i ? "allreduce" : "broadcast", i ? 2048 : 268435456
			t += (i ? 50 : 80000) + 10
		}
		print "]}" }' >"$TMP/mixed/rank$r.json"
done
"$BIN/trace" -q "$TMP/mixed" | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/mixed.graph"
status 0 "a faster network for transfers of unlike sizes" "$BIN/replay" --no-worth --what-if "bandwidth by 4" "$TMP/mixed.graph"
wrong=$(sed -n 's/^estimated from .* transfers, .*: \([0-9]*\) % of the time of transfers may be wrong$/\1/p' "$TMP/out")
check "... each counts by its time in the step: $wrong % may be wrong" [ "$wrong" -gt 25 ]
doubt_of() {
	"$BIN/replay" -q --no-worth -O json "$@" "$TMP/layers.graph" | sed 's/.*"predicted_doubt_ns":\([0-9.]*\).*/\1/'
}
check "two lines of latency are in doubt as one" awk -v one="$(doubt_of --what-if 'latency by 4')" \
	-v two="$(doubt_of --what-if 'latency by 2' --what-if 'latency by 2')" \
	'BEGIN { print "# " one, two; exit !(one > 0 && two > 0.99 * one && two < 1.01 * one) }'
status 0 "other ranks" "$BIN/replay" --no-worth --what-if "ranks 3" "$TMP/whole.graph"
check "... in the second line" sh -c "sed -n 2p '$TMP/out' | grep -q ', 4 ranks, 3 predicted, '"
holds "$TMP/out" '^assumed: collectives go along rings' "... what is assumed"
status 0 "a change that needs no links" "$BIN/replay" --no-worth --what-if "scale kind=comm by 0.5" "$TMP/whole.graph"
check "... assumes nothing" no grep -qE 'assumed|estimated' "$TMP/out"

# ---- a server that ranks share: times that can be computed by hand -------------------------------
# Ranks compute for 10 us, are served for 20 us one after another, and update for 5 us.
"$GEN/queuegen" 1 10:20 10:20 10:20 >"$TMP/queue.graph"
"$GEN/queuegen" 2 10:20 10:20 10:20 >"$TMP/pairs.graph"
# queue GRAPH NS CHANGE: the step with the change, as --what-if and as a plan have it
queue() {
	printf 'paceline-plan 1\n%s\n' "$3" >"$TMP/queue.plan"
	for how in --what-if "-p"; do
		[ "$how" = -p ] && what=$TMP/queue.plan || what=$3
		"$BIN/replay" -q --no-worth -O csv --table=steps "$how" "$what" "$TMP/$1.graph" >"$TMP/out"
		check "$how $3: a step of $2 ns with $1" [ "$(awk -F, 'NR == 2 { print $6 }' "$TMP/out")" = "$2" ]
	done
}
"$BIN/replay" --no-worth -O csv --table=steps "$TMP/queue.graph" >"$TMP/out"
check "a queue at a server explains the recording" grep -q '^0,75000,,75000,0,,,$' "$TMP/out" # 10 + 3 * 20 + 5
queue queue 45000 'scale name=push by 0.5'	       # 10 + 3 * 10 + 5
queue queue 15000 'remove name=push'		       # 10 + 5
queue queue 135000 'set name=push to 40us'	       # 10 + 3 * 40 + 5
queue queue 125000 'scale name=compute,rank=0 by 10'   # rank 0 comes last, after 100 us: 100 + 20 + 5
queue pairs 55000 'scale name=push by 1'	       # two at once, then one: 10 + 2 * 20 + 5
queue pairs 35000 'scale name=push by 0.5'	       # 10 + 2 * 10 + 5
# with shared resources another order can change the step either way, so the interval is all that is in doubt
"$GEN/queuegen" 2 10:20 10:20 10:20 10:25 >"$TMP/range.graph"
"$BIN/replay" --no-worth -O json --what-if "latency by 2" "$TMP/range.graph" >"$TMP/out"
holds "$TMP/out" '"predicted_mean_ns":76000,"predicted_doubt_ns":61000,"predicted_low_ns":14[0-9.]*,"predicted_high_ns":137[0-9.]*,' "the interval on a server holds all that is in doubt"
for line in 'accumulate 2:shares a resource' 'fuse-ops compute push:do not follow one another'; do
	printf 'paceline-plan 1\n%s\n' "${line%:*}" >"$TMP/queue.plan"
	status 3 "${line%:*} on a server" "$BIN/replay" -p "$TMP/queue.plan" "$TMP/queue.graph"
	says "${line#*:}" "... is refused with the reason"
done

# ---- the report -----------------------------------------------------------------------------------
# ---- gradients that are synchronised in some steps ----------------------------------------------
steps_of() {
	"$BIN/replay" -q -O csv --table=steps --what-if "$@" | cut -d , -f 1,4,6
}
steps_of "remove kind=comm" "$TMP/layers.graph" >"$TMP/want"
steps_of "no-sync 1000" "$TMP/layers.graph" >"$TMP/got"
check "no-sync: all communication of the table carries gradients" cmp "$TMP/want" "$TMP/got"
for change in "no-sync 1000" "remove kind=comm" "set kind=collective to 0us"; do
	steps_of "$change" --what-if "bucket-mb 50" "$TMP/layers.graph" >"$TMP/want"
	steps_of "$change" --what-if "bucket-mb 50" --what-if "bandwidth by 2" "$TMP/layers.graph" >"$TMP/got"
	check "$change: of buckets over another network, too" cmp "$TMP/want" "$TMP/got"
done
status 0 "buckets, and a link that nothing uses" "$BIN/replay" --no-worth --topology 1x8 --what-if "bucket-mb 50" --what-if "bandwidth nic by 0.5" "$TMP/layers.graph"
says "no communication uses that link" "... is said"
"$GEN/kgen" -o "$TMP/nosync" --steps=4 --ranks=4 --layers=2 --tp=1 --seed=3 >/dev/null
graph_of "$TMP/nosync" >"$TMP/nosync.graph"
steps_of "no-sync 2" "$TMP/nosync.graph" >"$TMP/got"
check "no-sync: every second step synchronises and stays, the others do not" awk -F , \
	'NR > 1 && (NR % 2 ? $3 != $2 : $3 >= $2) { bad = 1 } END { exit bad || NR != 5 }' "$TMP/got"
check "... in a multiple of so many steps: the trust says nothing" sh -c \
	"'$BIN/replay' -q -O json --what-if 'no-sync 2' '$TMP/nosync.graph' | grep -q 'recorded steps synchronise' && exit 1; exit 0"
check "... else it says by how much the change may be wrong" sh -c \
	"'$BIN/replay' -q -O json --what-if 'no-sync 8' '$TMP/nosync.graph' | grep -q 'than of the job.s, so 12 % of the change may be wrong'"
"$GEN/kgen" -o "$TMP/alone" --steps=2 --ranks=1 --layers=2 --tp=1 >/dev/null
graph_of "$TMP/alone" >"$TMP/alone.graph"
status 2 "no-sync: a graph without communication" "$BIN/replay" --what-if "no-sync 2" "$TMP/alone.graph"
says "knows no gradients" "... says why"
cat >"$TMP/tiny.json" <<'END'
{"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"rank": 0, "world_size": 1},
"traceEvents": [
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1000, "dur": 500, "args": {"stream": 7, "device": 0}},
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 21500, "dur": 500, "args": {"stream": 7, "device": 0}}
]}
END
"$BIN/graph" -q -o "$TMP/tiny.graph" "$TMP/tiny.json"
status 0 "a graph file whose operations have no phases, and a long gap" "$BIN/replay" -q "$TMP/tiny.graph"
status 3 "... half a batch of it" "$BIN/replay" -q --what-if "batch by 0.5" "$TMP/tiny.graph"
says "no operation is known to take in samples" "... is refused with the reason"
status 3 "... in both of two jobs" "$BIN/replay" -q --what-if "batch by 0.5" "$TMP/tiny.graph" "$TMP/tiny.graph"
status 0 "changes in words" "$BIN/replay" --what-if "ranks 16" --what-if "fix rank=0..3" "$TMP/layers.graph"
check "... each with what it selects" sh -c "grep '^changed: ' '$TMP/out' | tr '\n' ' ' |
	grep -qx 'changed: ranks 16 (320 operations) changed: fix rank=0..3 (484 operations) '"
status 0 "changes in JSON" "$BIN/replay" -O json --what-if "remove kind=comm,size=1M.." "$TMP/layers.graph"
large=$(awk -F , 'NR > 1 && $4 >= 1048576 { n += 8 } END { print n }' "$TMP/layers.csv")
check "... each with what it selects: $large" grep -q \
	"\"changes\":\[{\"change\":\"remove kind=comm,size=1M..\",\"operations\":$large}\]" "$TMP/out"
status 0 "changes in a comparison" "$BIN/replay" --what-if "ranks 16" "$TMP/layers.graph" "$TMP/layers.graph"
check "... are named" grep -qx 'changed in both: ranks 16' "$TMP/out"
status 0 "the changes worth most" "$BIN/replay" -O csv --table worth --what-if "fix all" --what-if "bandwidth by 2" "$TMP/layers.graph"
best=$(awk -F , 'NR == 2 { print $5 }' "$TMP/out")
saves=$(awk -F , 'NR == 2 { print $1 }' "$TMP/out")
"$BIN/replay" -O csv --what-if "fix all" --what-if "bandwidth by 2" "$TMP/layers.graph" >"$TMP/without"
"$BIN/replay" -O csv --what-if "fix all" --what-if "bandwidth by 2" --what-if "$best" "$TMP/layers.graph" >"$TMP/with"
check "... come on top of those given" test "$saves" = \
	$(($(awk -F , 'NR == 2 { print $6 }' "$TMP/without") - $(awk -F , 'NR == 2 { print $6 }' "$TMP/with")))
check "any call may fail" "$SRC/tests/fault/torture" -n 100 "$BIN/replay" --no-worth --what-if "fix all" \
	--what-if "bandwidth nic by 2" --what-if "ranks 3" --what-if "set size=1K..,rank=1 to 3us" --topology 2x4 "$TMP/layers.graph"
# a host call has parts before, between and behind the calls inside
{
	echo '{"schemaVersion":1,"traceEvents":['
	for call in 'outer 0 100' 'inner 10 20' 'inner 50 10' 'last 100 50'; do
		echo "$call" | awk '{ printf "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"pid\":1,\"tid\":1,\"name\":\"%s\",\"ts\":%d,\"dur\":%d},\n", $1, 1000 + $2, $3 }'
	done
	echo '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"end","ts":1150,"dur":0}]}'
} >"$TMP/parts.json"
"$BIN/graph" -q -o "$TMP/parts.graph" "$TMP/parts.json"
status 0 "set: the time of a whole call" "$BIN/replay" -q --no-worth --what-if 'set name=outer to 20us' "$TMP/parts.graph"
holds "$TMP/out" 'predicted 100.0 us' "... without the calls inside"
holds "$TMP/out" "(1 operation)" "... which counts once"
status 0 "scale" "$BIN/replay" -q --no-worth --what-if 'scale name=outer by 2' "$TMP/parts.graph"
holds "$TMP/out" 'predicted 220.0 us' "... each part"
# a rank without work begins its next step while the other still does this one: the mean period counts
mkdir "$TMP/two"
awk -v dir="$TMP/two" -v cause=compute -v n=2 -v steps=6 -v seed=5 -f "$SRC/tests/gen/planted.awk"
"$BIN/graph" -q "$TMP/two"/* -o "$TMP/two.graph"
for rank in 0 1; do
	status 0 "rank $rank does nothing" "$BIN/replay" --no-worth -O json --what-if "remove rank=$rank" "$TMP/two.graph"
	check "... no step gets longer" awk -v p="$(number predicted_period_mean_ns)" -v r="$(number replayed_period_mean_ns)" \
		'BEGIN { exit !(p <= r && p > 0.9 * r) }'
done
# --- a recording of modules alone, as `trace --light -- COMMAND` makes it: the loss is a function, so that only its
# backward pass is there
awk 'function event(cat, name, ts, dur, args) {
	printf ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{%s}}", \
		cat, name, cat == "python_function" || name !~ /Backward/ ? 1 : 2, ts, dur, args
}
BEGIN {
	printf "{\"schemaVersion\":1,\"deviceProperties\":[],\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":0,\"world_size\":1},\"traceEvents\":[\n"
	printf "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"python\"}}"
	for (i = 0; i < 4; i++) {
		t = 10000 * i
		event("user_annotation", "ProfilerStep#" i, t, 9900, "")
		for (pass = 0; pass < 2; pass++) {
			b = t + 4000 * pass
			event("python_function", "nn.Module: head", b + 100, 1000, "")
			event("cpu_op", "Linear.forward", b + 110, 900 + i, \
				"\"Input Dims\":[[64,256],[512,256]],\"Input type\":[\"float32\",\"float32\"]")
			event("cpu_op", "LayerNorm.forward", b + 1120, 100, \
				"\"Input Dims\":[[64,512],[512]],\"Input type\":[\"float32\",\"float32\"]")
			event("cpu_op", "NllLossBackward0", b + 1500, 20, "\"Input Dims\":[[]],\"Input type\":[\"float\"]")
			event("cpu_op", "AddmmBackward0", b + 1600, 1800, \
				"\"Input Dims\":[[64,512],[512,256]],\"Input type\":[\"float\",\"float\"]")
		}
		event("cpu_op", "AdamW.step", t + 8200, 1000, "")
	}
	print "\n]}"
}' >"$TMP/light.json"
status 0 "batch by 2 of a light recording" "$BIN/replay" --what-if 'batch by 2' "$TMP/light.json"
holds "$TMP/out" 'the recording has 128 samples a rank and step' "the samples of both passes"
status 0 "a module of it" "$BIN/replay" --what-if 'scale module=head by 0.5' "$TMP/light.json"
holds "$TMP/out" '^changed: scale module=head by 0.5 (8 operations)' "its forward passes"
printf 'paceline-plan 1\nprecision bf16\n' >"$TMP/half.plan"
status 0 "a plan with a precision for hosts" "$BIN/replay" -p "$TMP/half.plan" "$TMP/light.json"
says 'precision: not modelled for host operations; give share=X' "... warns as the option does"
printf 'paceline-plan 1\nprecision bf16\nscale kind=kernl by=0.5\n' >"$TMP/wrong.plan"
status 3 "a plan with a selector that cannot be read" "$BIN/replay" -p "$TMP/wrong.plan" "$TMP/light.json"
says 'wrong.plan: line 3.*no kind matches "kernl"' "... is refused with its line"
# a rank with twice the samples of the other one: each of its sizes is a multiple of the other's
mkdir "$TMP/unlike"
sed 's/"rank":0,"world_size":1/"rank":1,"world_size":2/; s/\[64,/[128,/g' "$TMP/light.json" >"$TMP/unlike/rank1.json"
sed 's/"world_size":1/"world_size":2/' "$TMP/light.json" >"$TMP/unlike/rank0.json"
status 2 "batch of ranks that have unlike numbers of samples" "$BIN/replay" --what-if 'batch 96' "$TMP/unlike"
says 'rank 1 128, others 64' "... is refused with the numbers"
status 0 "batch by is not" "$BIN/replay" --what-if 'batch by=1.5' "$TMP/unlike"
# unlike numbers of samples that nobody recorded
mkdir "$TMP/even"
awk -v dir="$TMP/even" -v cause=compute -v n=2 -v steps=6 -v seed=5 -v shapes=1 -f "$SRC/tests/gen/planted.awk"
"$BIN/graph" -q "$TMP/even"/* -o "$TMP/even.graph"
step_with() {
	"$BIN/replay" -q --no-worth -O json --what-if "$1" "$TMP/even.graph" | sed 's/[,{]/\n/g' |
		sed -n 's/^ *"predicted_mean_ns": *//p'
}
check "batch by of all ranks by number, as of all" [ "$(step_with 'batch by=2')" = "$(step_with 'batch by=2 rank=0|1')" ]
check "... the rank with more samples decides, as the others wait for it" awk -v all="$(step_with 'batch by=2')" -v one="$(step_with 'batch by=2 rank=1')" \
	-v none="$(step_with 'batch by=1 rank=1')" 'BEGIN { exit !(one > 1.5 * none && one <= all && one > 0.98 * all) }'
check "... the rank with fewer samples gains nothing" awk -v less="$(step_with 'batch by=0.5 rank=0')" -v none="$(step_with 'batch by=1 rank=1')" \
	'BEGIN { exit !(less > 0.97 * none && less <= none) }'
status 3 "batch by of a rank that is not there" "$BIN/replay" --what-if 'batch by=2 rank=7' "$TMP/even.graph"
says 'no operation of the graph has rank=7' "... is refused with those that are"
status 2 "a number of samples for one rank" "$BIN/replay" --what-if 'batch 96 rank=1' "$TMP/even.graph"
says 'write: batch by=X rank=R' "... is refused with the remedy"
status 2 "all ranks behind one rank" "$BIN/replay" --what-if 'batch by=2 rank=1' --what-if 'batch by=2' "$TMP/even.graph"
says '1 times the recorded ones on rank 0, 2 times on rank 1' "... is refused with what they take in"
status 2 "a number of samples behind one rank" "$BIN/replay" --what-if 'batch by=2 rank=1' --what-if 'batch 96' "$TMP/even.graph"
says 'put batch of all ranks before batch of some' "... is refused with the remedy"
status 0 "... in the other order" "$BIN/replay" --what-if 'batch by=2' --what-if 'batch by=2 rank=1' "$TMP/even.graph"
printf 'paceline-plan 1\nbatch by=1.5 rank=1\n' >"$TMP/uneven.plan"
"$BIN/plan" -o "$TMP/uneven.bin" "$TMP/uneven.plan"
"$BIN/plan" -O text "$TMP/uneven.bin" >"$TMP/got"
check "... in a plan, written and read" grep -qx 'batch rank=1 by=1.5' "$TMP/got"

done_testing
