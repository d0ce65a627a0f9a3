# The time that the profiler takes: found from the shortest parts of operations, and left out of predictions.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# profiled COST BETWEEN DEVICE [STEPS [LOADER]]: STEPS (6) steps of 120 operations of 15 us, each of which calls three others, and 1 ms that
# "own::sleep" takes. A profiler takes COST ns for a part of an operation. 60 ns are between two ends, and BETWEEN ns
# between other bounds of parts; what is left of the cost falls where memory of the profiler is new. With
# DEVICE there is a kernel, too; with LOADER "own::sleep" reads a batch.
profiled() {
	awk -v cost="$1" -v between="$2" -v device="$3" -v steps="${4:-6}" -v loader="${5:-0}" '
	function put(name, from, until) {
		printf ",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{}}",
			name, from / 1000, (until - from) / 1000
	}
	BEGIN {
		print "{\"schemaVersion\":1,\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"python\"}}"
		t = 1000000
		for (s = 0; s < steps; s++) {
			begin = t
			if (loader)
				printf ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":1001,\"args\":{}}", t / 1000
			t += loader ? 500 : 0
			put("own::sleep", t, t + 1000000)
			t += loader ? 1000500 : 1000000
			if (device)
				printf ",\n{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":%.3f,\"dur\":9,\"args\":{\"device\":0,\"stream\":7}}", t / 1000
			for (i = 0; i < 120; i++) {
				t += between
				put("aten::linear", t, t + 5 * between + 15000 + 60)
				put("aten::view", t + between, t + 2 * between)
				put("aten::view", t + 3 * between, t + 4 * between)
				put("own::product", t + 5 * between, t + 5 * between + 15000)
				t += 5 * between + 15000 + 60
			}
			t += 120 * (8 * cost - 6 * between - 60)
			printf ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{}}",
				s, begin / 1000, (t - begin) / 1000
		}
		print "]}"
	}'
}
python=$(command -v python3 || true)
[ -n "$python" ] || { skip "the time that a profiler takes" "no python3"; done_testing; exit; }
number() { "$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d.get(sys.argv[2], "none"))' "$TMP/out" "$1"; }
within() { # within VALUE TRUTH SHARE
	awk -v v="$1" -v t="$2" -v s="$3" 'BEGIN { exit !(v >= t * (1 - s) && v <= t * (1 + s)) }'
}

# 520 = 0.78 * 200^2 / 60: what a part costs by the shortest parts
profiled 520 200 0 >"$TMP/own.json"
status 0 "a job whose profiler costs much" "$BIN/replay" -O json --no-worth --what-if 'remove name=own::sleep' "$TMP/own.json"
all=$(number replayed_mean_ns)
share=$(awk -v all="$all" 'BEGIN { print 120 * 8 * 520 / all }')
check "... its share is found" within "$(number profiler_share)" "$share" 0.05
truth=$(awk 'BEGIN { print 120 * 15000 / (120 * 15000 + 1000000) }')
ratio=$(awk -v p="$(number predicted_mean_ns)" -v all="$all" 'BEGIN { print p / all }')
check "... the prediction is that of the job without a profiler ($ratio, and the truth is $truth)" within "$ratio" "$truth" 0.02
check "... with it the ratio would be another one" no within "$(awk -v a="$all" 'BEGIN { print 1 - 1e6 / a }')" "$truth" 0.05
status 0 "parts of unlike length that take their mean" "$BIN/replay" -O json --no-worth --what-if 'fix name=aten::linear to=mean' "$TMP/own.json"
check "... cost the profiler no more than before ($(number predicted_mean_ns))" within "$(number predicted_mean_ns)" "$all" 0.02
status 0 "nothing changes" "$BIN/replay" -O json --no-worth --what-if 'scale name=own::sleep by 1' "$TMP/own.json"
check "... so the prediction is the replay" [ "$(number predicted_mean_ns)" = "$(number replayed_mean_ns)" ]
status 0 "the report" "$BIN/replay" --no-worth "$TMP/own.json"
check "... says it" sh -c 'tr "\n" " " <"$1" | tr -s " " | grep -q "the profiler takes about [12][0-9] % of the step, which predictions leave out"' - "$TMP/out"

# what a change saves on top of another one: of one step nothing is known better than the assumed scatter says
profiled 520 200 0 1 >"$TMP/one.json"
"$BIN/replay" -q -O json --what-if 'scale name=own::sleep by 0' "$TMP/one.json" >"$TMP/out"
check "... intervals on top of a change have the scatter of steps" "$python" -c '
import json, sys
rows = json.load(open(sys.argv[1]))["worth_most"]
bad = [r for r in rows if r["saves_ns"] - r["saves_lo_ns"] < 1.645 * 0.25 * r["saves_ns"]]
assert len(rows) > 1 and not bad, rows' "$TMP/out"

# the setting for a job that waits for input, and what --what-if says of it
profiled 520 200 0 6 1 >"$TMP/loader.json"
"$BIN/replay" -q -O json "$TMP/loader.json" >"$TMP/advised"
"$BIN/replay" -q -O json --no-worth --what-if 'loader-workers 1' "$TMP/loader.json" >"$TMP/out"
check "workers of a loader save what --what-if says of them" "$python" -c '
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
row = [x for x in a["would_help"] if x.get("change") == "loader-workers 1"][0]
r = b["replayed_mean_ns"]
says = 1 - b["predicted_mean_ns"] / r, 1 - b["predicted_high_ns"] / r, 1 - b["predicted_low_ns"] / r
print("#", says, row)
assert abs(row["share"] - says[0]) < 0.001 and abs(row["share_lo"] - says[1]) < 0.01 and abs(row["share_hi"] - says[2]) < 0.01' \
	"$TMP/advised" "$TMP/out"
status 0 "workers, and operations in half the time" "$BIN/replay" -O json --no-worth --what-if 'scale kind=host_op|gap by 0.5' \
	--what-if 'loader-workers 4' "$TMP/loader.json"
truth=$(awk 'BEGIN { print 0.9 / 2.8 }')
ratio=$(awk -v p="$(number predicted_mean_ns)" -v r="$(number replayed_mean_ns)" 'BEGIN { print p / r }')
check "... $ratio of the job without a profiler, where the truth is $truth" within "$ratio" "$truth" 0.05
check "... workers need processors, of which the recording says nothing" grep -q 'need processors that the job leaves idle' "$TMP/out"
printf 'paceline-plan 1\nloader-workers 4\n' >"$TMP/workers.plan"
status 0 "a plan makes the step shorter, and the change, which makes it longer, is no contradiction" \
	"$BIN/replay" --no-worth -p "$TMP/workers.plan" --what-if 'scale kind=gap by 1.1' "$TMP/loader.json"

# in a comparison nothing is predicted
profiled 520 200 0 5 >"$TMP/five.json"
for f in own five; do
	"$BIN/graph" -q -o "$TMP/$f.graph" "$TMP/$f.json"
done
status 0 "two jobs" "$BIN/replay" "$TMP/own.graph" "$TMP/five.graph"
check "... both have the time of the profiler in them" sh -c 'tr "\n" " " <"$1" | tr -s " " | grep -q "A: trust: [a-z]*: the profiler takes about [12][0-9] % of the step, which this comparison has in it .*B: trust: .*which this comparison has in it"' - "$TMP/out"
check "... and no prediction leaves it out" no grep -q "predictions leave" "$TMP/out"

profiled 700 1100 0 >"$TMP/long.json"
status 0 "parts that do work of their own" "$BIN/replay" -O json --no-worth "$TMP/long.json"
check "... do not show what a profiler costs" [ "$(number profiler_share)" = none ]
profiled 520 200 1 >"$TMP/device.json"
status 0 "a job with a device" "$BIN/replay" -O json --no-worth "$TMP/device.json"
check "... keeps the recorded times" [ "$(number profiler_share)" = none ]
done_testing
