# interval: the 90 % interval of a prediction holds what really happens, and says something.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# job RANK PROGRAM: the trace of a rank whose steps PROGRAM makes with op(NAME, US), comm(BYTES, US) and pause(US)
job() {
	awk -v rank="$1" '
	function event(cat, name, dur, args) {
		printf "%s\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}",
			comma, cat, name, 100 + rank, t, dur, args
		comma = ","
	}
	function op(name, us, rows) {
		event("cpu_op", name, us, rows ? sprintf("\"Input Dims\":[[%d,64],[64,64]],\"Input type\":[\"float\",\"float\"]", rows) : "")
		t += us
	}
	function pause(us) { t += us }
	function comm(bytes, us) {
		event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", us,
			sprintf("\"stream\":7,\"device\":0,\"Process Group Name\":\"dp\",\"Process Group Ranks\":\"[0, 1]\",\"Seq\":%d,\"In msg nelems\":%d,\"dtype\":\"Float\"",
				++seq, bytes / 4))
		t += us
	}
	function kernel(us) { event("kernel", "gemm", us, "\"stream\":7,\"device\":0"); t += us }
	BEGIN {
		printf "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":%d,\"world_size\":2},\"traceEvents\":[", rank
		t = 1000
		for (s = 0; s < 4; s++) {
			from = t
			'"$2"'
			to = t
			t = from
			event("user_annotation", "ProfilerStep#" s, to - from)
			t = to
		}
		print "\n]}"
	}'
}
graph() { # NAME FILE...
	name=$1
	shift
	"$BIN/trace" -q -u "$@" | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/$name.graph"
}
# predict GRAPH CHANGE...: "LOW PREDICTED HIGH", shares of the replayed step
predict() {
	of=$1
	shift
	for change; do
		set -- "$@" --what-if "$change"
		shift
	done
	"$BIN/replay" -q --no-worth -O csv --table=steps "$@" "$TMP/$of.graph" |
		awk -F , 'NR > 1 { r += $4; p += $6; low += $7; high += $8 } END { print low / r, p / r, high / r }'
}
# holds_truth TRUTH LEAST MOST: true if the interval on standard input holds it, and is within LEAST and MOST
holds_truth() {
	awk -v truth="$1" -v least="$2" -v most="$3" \
		'{ print "# " $0 > "/dev/stderr"; exit !($1 <= truth && truth <= $3 && $1 >= least && $3 <= most) }'
}

# ---- a link: 30 ms of kernels, then one all-reduce of 25 MB in 20 ms --------------------------------
for r in 0 1; do
	job $r 'kernel(30000); comm(25e6, 20000)' >"$TMP/one.$r.json"
	job $r 'kernel(10000); comm(1e6, 1800); kernel(10000); comm(10e6, 9000 + 20 * s); kernel(10000); comm(20e6, 17000 - 20 * s)' >"$TMP/many.$r.json"
done
graph one "$TMP"/one.?.json
graph many "$TMP"/many.?.json
# the bytes take twice as long: 30 + 2 * 20 of 50 ms, if no message needs a millisecond
predict one 'bandwidth by 0.5' >"$TMP/interval"
check "one size: latency and bytes cannot be told apart, but no latency takes 20 ms" holds_truth 1.4 1.33 1.47 <"$TMP/interval"
predict one 'bandwidth by 0.1' >"$TMP/interval"
check "... a tenth of the bandwidth: 30 + 10 * 20 of 50 ms" holds_truth 4.6 4 5.1 <"$TMP/interval"
# 1 ms and 0.8 ms a MB: 30 + 3 * 1 + 2 * 24.8 of 57.8 ms
predict many 'bandwidth by 0.5' >"$TMP/interval"
check "several sizes: the line says what a byte takes" holds_truth 1.429 1.37 1.48 <"$TMP/interval"

# ---- a thread whose interpreter takes a fifth of the time -------------------------------------------
job 0 'for (i = 0; i < 100; i++) { op("aten::mm", 80); pause(20) }' >"$TMP/pauses.json"
job 0 'for (i = 0; i < 100; i++) { op("aten::mm", 80); pause(1) }' >"$TMP/dense.json"
graph pauses "$TMP/pauses.json"
graph dense "$TMP/dense.json"
# operations twice as long: 1.8; twice as many of them, with their pauses: 2
predict pauses 'scale name=aten::mm by 2' >"$TMP/interval"
check "pauses may follow the operations" holds_truth 1.98 1.7 2.05 <"$TMP/interval"
check "... but not on the other side" holds_truth 1.8 1.72 2.05 <"$TMP/interval"
predict pauses 'scale name=aten::mm by 0.5' >"$TMP/interval"
check "... nor where the operations are half as long: 0.5 to 0.6" holds_truth 0.51 0.45 0.65 <"$TMP/interval"
predict dense 'scale name=aten::mm by 2' >"$TMP/interval"
check "without pauses the interval is narrow" holds_truth 1.99 1.91 2.07 <"$TMP/interval"

# ---- operations between those that a change selects -------------------------------------------------
job 0 'for (i = 0; i < 100; i++) { op("aten::mm", 80); op("aten::copy_", 20); pause(1) }' >"$TMP/between.json"
job 0 'op("aten::mm", 1000); op("aten::copy_", 9000)' >"$TMP/apart.json"
graph between "$TMP/between.json"
graph apart "$TMP/apart.json"
predict between 'scale name=aten::mm by 2' >"$TMP/interval"
check "what lies between selected operations may follow them" holds_truth 1.97 1.7 2.05 <"$TMP/interval"
predict apart 'scale name=aten::mm by 2' >"$TMP/interval"
check "... but not what takes longer than these" holds_truth 1.1 1.05 1.15 <"$TMP/interval"

# ---- steps of unlike length -------------------------------------------------------------------------
job 0 'op("aten::mm", 10000 + (s == 2) * 20000)' >"$TMP/unlike.json"
graph unlike "$TMP/unlike.json"
status 0 "one of four steps takes three times as long" "$BIN/replay" --no-worth "$TMP/unlike.graph"
holds "$TMP/out" '^trust: medium: 4 steps, which take 67 to 200 % of their mean, are too few: record more steps' "... the trust line says so"
job 0 'op("aten::mm", 10000 + (s == 2) * 20000, s == 2 ? 96 : 32)' >"$TMP/prefill.json"
graph prefill "$TMP/prefill.json"
status 0 "... with three times the work" "$BIN/replay" --no-worth "$TMP/prefill.graph"
holds "$TMP/out" '^trust: high: steps do unlike work: the sizes of operations differ; 4 steps, which take' "... which is no fault of the recording"
job 0 'op("aten::mm", 10000 + (s > 1) * 10000)' >"$TMP/grows.json"
graph grows "$TMP/grows.json"
status 0 "steps get twice as long while they are recorded" "$BIN/replay" --no-worth "$TMP/grows.graph"
holds "$TMP/out" '^trust: low: each of the last steps takes at least 2.0 times as long as each of the' "... which comes first in a low trust"
job 0 'op("aten::mm", 10000 + (s > 1) * 10000, s > 1 ? 64 : 32)' >"$TMP/longer.json"
graph longer "$TMP/longer.json"
status 0 "steps get twice as long, and twice as large" "$BIN/replay" --no-worth "$TMP/longer.graph"
holds "$TMP/out" '^trust: [hm][a-z]*: steps do unlike work: the sizes of operations differ' "... which is no fault of the machine"
job 0 'op("aten::mm", 10000 + (s > 1) * 10000, s > 1 ? 64 : 32); op("aten::add", 2000 + (s > 1) * 2000, 8)' >"$TMP/both.json"
graph both "$TMP/both.json"
status 0 "... while equal operations get slower, too" "$BIN/replay" --no-worth "$TMP/both.graph"
holds "$TMP/out" '^trust: low: each of the last steps takes at least 2.0 times' "... which is one"
job 0 'op("aten::mm", 2000, 8); pause(s > 1 ? 18000 : 8000)' >"$TMP/pauses.json"
graph pauses "$TMP/pauses.json"
status 0 "... or only the pauses between them" "$BIN/replay" --no-worth "$TMP/pauses.graph"
holds "$TMP/out" '^trust: low: each of the last steps takes at least 2.0 times' "... is no unlike work"
status 0 "like steps" "$BIN/replay" --no-worth "$TMP/dense.graph"
check "... are trusted" grep -qx 'trust: high' "$TMP/out"
status 3 "a batch where nothing is known to follow it" "$BIN/replay" -q --no-worth --what-if 'batch by 0.5' "$TMP/dense.graph"
says 'the change "batch by 0.5": no operation is known to take in samples' "... is refused with the reason"
job 0 'op("aten::mm", 8000); op("autograd::engine::evaluate_function: MmBackward0", 16000); op("Optimizer.step#SGD.step", 2000)' >"$TMP/passes.json"
graph passes "$TMP/passes.json"
status 0 "a batch without sizes" "$BIN/replay" -q --no-worth --what-if 'batch by 0.5' "$TMP/passes.graph"
check "... changes the passes" sh -c "head -n 1 '$TMP/out' | grep -qE 'predicted [0-9.]+ ms \(-[1-9]'"
holds "$TMP/out" '^trust: medium: the recording does not say which sizes follow the batch$' "... is not trusted much"

# ---- changes of communication that is not there -----------------------------------------------------
for change in 'ranks 8' 'bandwidth by 2' 'latency by 2'; do
	status 3 "$change of a process that does not communicate" "$BIN/replay" -q --no-worth --what-if "$change" "$TMP/dense.graph"
	says "the change \"$change\": " "... is refused"
done
says 'the graph has no communication between ranks' "... with the reason"
status 0 "a link that nothing uses" "$BIN/replay" --no-worth --topology=1x2 --what-if 'bandwidth nic by 2' "$TMP/many.graph"
says 'selects no operation; no communication uses that link' "... is none, so a warning says it"

# where steps overlap, the first line has the interval of the mean period, which follows another ratio
"$BIN/replay" -q --no-worth -O json --what-if 'batch by 0.5' "$SRC/samples/ddp-gloo" >"$TMP/json"
check "the samples of a recorded step" grep -q '"recorded_samples":128,' "$TMP/json"
"$BIN/replay" -q --no-worth -O json --what-if 'scale kind=host_op by 2' "$SRC/samples/ddp-gloo" >"$TMP/json"
"$BIN/replay" -q --no-worth --what-if 'scale kind=host_op by 2' "$SRC/samples/ddp-gloo" >"$TMP/text"
number() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" "$TMP/json"; }
check "the interval of the first line is that of the mean period" awk -v p="$(number predicted_period_mean_ns)" \
	-v low="$(number predicted_period_low_ns)" -v r="$(number replayed_period_mean_ns)" '
	NR == 1 { match($0, /interval [-+][0-9.]+/); said = substr($0, RSTART + 9, RLENGTH - 9) }
	END { x = 100 * (low / r - 1) - said; exit !(low < p && x > -0.06 && x < 0.06) }' "$TMP/text"

done_testing
