# trust: the line of the report, its JSON, intervals of predictions, and what is refused. (runner: long)
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

json() { # json EXPRESSION FILE: true if Python finds it so of the object d
	"$python" -c 'import json, sys; d = json.load(open(sys.argv[2])); assert eval(sys.argv[1]), d.get("trust")' "$1" "$2"
}
python=$(command -v python3 || true)

# ---- two ranks whose sends have no partner --------------------------------------------------------
# Both have steps of 20 ms. Rank 0 sends for 10 ms and computes for 10 ms, rank 1 for 1 and 19 ms. Nobody receives.
apart() {
	awk -v rank="$1" -v send="$2" '
	function event(cat, name, ts, dur) {
		printf "%s\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{}}",
			comma, cat, name, 100 + rank, 100 + rank, ts, dur
		comma = ","
	}
	BEGIN {
		printf "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":%d,\"world_size\":2},\"traceEvents\":[", rank
		for (s = 0; s < 4; s++) {
			t = 1000 + 20000 * s
			event("user_annotation", "ProfilerStep#" s, t, 20000)
			event("user_annotation", "gloo:send", t, send)
			event("cpu_op", "aten::mm", t + send, 20000 - send)
		}
		print "\n]}"
	}'
}
apart 0 10000 >"$TMP/rank0.json"
apart 1 1000 >"$TMP/rank1.json"
"$BIN/trace" -q -u "$TMP/rank0.json" "$TMP/rank1.json" | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/apart.graph"
status 0 "ranks that nothing joins" "$BIN/replay" --no-worth "$TMP/apart.graph"
holds "$TMP/out" '^trust: low: 8 of 8 sends and receives have no partner; ' "... the trust is low, as they have no partners"
tr '\n' ' ' <"$TMP/out" | tr -s ' ' >"$TMP/line"
holds "$TMP/line" 'a contradiction: "remove kind=comm" makes the step' "... a contradiction"
check "... the line is below the answer" awk '/^step .* replayed / { n = NR } /^trust:/ { exit NR != n + 1 }' "$TMP/out"
status 1 "a step that gets longer without communication is refused" "$BIN/replay" --what-if 'remove kind=comm' "$TMP/apart.graph"
says 'the prediction is impossible: the changes only make operations shorter, but the step gets' "... with the reason"
check "... nothing is printed" test ! -s "$TMP/out"
status 0 "what does not turn round" "$BIN/replay" --no-worth --what-if 'scale kind=host_op by 2' "$TMP/apart.graph"
holds "$TMP/out" 'predicted [0-9.]* ms ([-+][0-9.]* %, 90 % interval [-+0-9.]* to [-+0-9.]* %, not reliable)' "... is marked"

# ---- a job that is understood ---------------------------------------------------------------------
"$GEN/kgen" -o "$TMP/k" --steps=4 --record-groups >"$TMP/log" 2>&1
"$GEN/kgen" -o "$TMP/half" --steps=4 --record-groups --comm-scale=0.5 >"$TMP/log" 2>&1
"$BIN/trace" -q -u "$TMP/k" | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/k.graph"
status 0 "a generated job" "$BIN/replay" "$TMP/k.graph"
holds "$TMP/out" '^trust: high$' "... the trust is high, without a reason"
if [ -n "$python" ]; then
	"$BIN/replay" -O json "$TMP/k.graph" >"$TMP/json"
	check "... in JSON" json 'd["trust"] == {"level": "high", "reasons": []}' "$TMP/json"
	check "... without an interval, as nothing is predicted" json '"predicted_lo_ns" not in d["steps"][0]' "$TMP/json"
	"$BIN/replay" --no-worth -O json --what-if 'scale kind=comm by 0.5' "$TMP/k.graph" >"$TMP/json"
	check "steps have their intervals" json 'all(0 < s["predicted_lo_ns"] < s["predicted_ns"] < s["predicted_hi_ns"] for s in d["steps"])' "$TMP/json"
	check "... which add up to that of the mean" json 'abs(sum(s["predicted_hi_ns"] for s in d["steps"]) / len(d["steps"]) - d["predicted_high_ns"]) < 1' "$TMP/json"
	"$python" - "$TMP/k/truth.json" "$TMP/half/truth.json" >"$TMP/ratio" <<-'END'
		import json, sys
		a, b = (sum(s["recorded_ns"] for s in json.load(open(f))["steps"]) for f in sys.argv[1:])
		print(b / a)
	END
	ratio=$(cat "$TMP/ratio")
	check "... and hold the true ratio, $ratio" json "sum(s['predicted_lo_ns'] for s in d['steps']) < $ratio * sum(s['replayed_ns'] for s in d['steps']) < sum(s['predicted_hi_ns'] for s in d['steps'])" "$TMP/json"
	check "... within 5 %" json '(d["predicted_high_ns"] - d["predicted_low_ns"]) / 2 < 0.05 * d["replayed_mean_ns"]' "$TMP/json"
	"$BIN/replay" --no-worth -O json "$TMP/apart.graph" >"$TMP/json"
	check "low trust in JSON" json 'd["trust"]["level"] == "low" and any("partner" in x for x in d["trust"]["reasons"])' "$TMP/json"
else
	skip "intervals and levels in JSON" "no python3"
fi
status 0 "two graphs" "$BIN/replay" "$TMP/apart.graph" "$TMP/k.graph"
check "... each with its trust" sh -c "grep -q '^A: trust: low: ' '$TMP/out' && grep -qx 'B: trust: high' '$TMP/out'"
status 0 "the steps as a table" "$BIN/replay" -O csv --what-if 'scale kind=comm by 0.5' "$TMP/k.graph"
check "... have the interval" sh -c "head -n 1 '$TMP/out' | grep -q ',predicted_ns,predicted_lo_ns,predicted_hi_ns$'"
status 0 "less and more at once" "$BIN/replay" --no-worth --what-if 'scale kind=comm by 0' --what-if 'scale kind=gap by 3' "$TMP/k.graph"
check "... have no direction that could be impossible" grep -q '90 % interval' "$TMP/out"

# ---- generated jobs: no contradiction, and intervals that hold the truth ---------------------------
# Small jobs of several kinds. Each change was really made.
true_ratio() { # BEFORE AFTER
	for f in "$1" "$2"; do
		grep -o '"recorded_ns": *[0-9]*' "$f/truth.json" | awk -F : '{ s += $2; n++ } END { print s / n }'
	done | awk '{ v[NR] = $1 } END { print v[2] / v[1] }'
}
: >"$TMP/intervals"
for job in "--ranks=4 --tp=1" "--ranks=4 --tp=2 --record-groups" "--ranks=4 --pp=2 --microbatches=4" \
	"--ranks=8 --pp=4 --tp=1 --microbatches=4 --record-groups" "--ranks=2 --no-item" "--ranks=4 --tp=1 --sync-comm --cuda-graphs"; do
	rm -rf "$TMP/job"
	# shellcheck disable=SC2086
	"$GEN/kgen" -o "$TMP/job" --layers=4 $job >"$TMP/log" || continue
	"$BIN/trace" -q -u "$TMP/job" | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/job.graph"
	"$BIN/replay" "$TMP/job.graph" >"$TMP/out"
	check "$job: no contradiction" no grep -q contradiction "$TMP/out"
	check "... and high trust" grep -qx 'trust: high' "$TMP/out"
	while read -r option change; do
		rm -rf "$TMP/after"
		# shellcheck disable=SC2086
		"$GEN/kgen" -o "$TMP/after" --layers=4 $job "$option" >"$TMP/log"
		"$BIN/replay" -O csv --what-if "$change" "$TMP/job.graph" |
			awk -F , -v ratio="$(true_ratio "$TMP/job" "$TMP/after")" -v what="$job $option" \
				'NR > 1 { r += $4; low += $7; high += $8 }
				END { print ratio, low / r, high / r, (ratio >= low / r && ratio <= high / r), what }' >>"$TMP/intervals"
	done <<-END
		--comm-scale=0.5 scale kind=comm by 0.5
		--comm-scale=3 scale kind=comm by 3
		--slow-rank=1:1.4 scale kind=kernel,rank=1 by 1.4
	END
done
sed 's/^/# /' "$TMP/intervals"
check "intervals hold at least 85 % of 18 true ratios" awk '{ n++; held += $4 } END { exit !(n == 18 && held >= 0.85 * n) }' "$TMP/intervals"
check "... and half of them are at most 5 % to either side" sh -c "awk '{ print (\$3 - \$2) / 2 }' '$TMP/intervals' | sort -g |
	awk '{ v[NR] = \$1 } END { exit !(v[NR / 2] <= 0.05) }'"

"$GEN/kgen" -o "$TMP/sizes" --ranks=4 --tp=1 --layers=2 >"$TMP/log"
"$BIN/trace" -q -u "$TMP/sizes" | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/sizes.graph"
"$BIN/plan" -q --preset=all -o "$TMP/all.plan" "$TMP/sizes.graph"
status 0 "a plan of gradients whose sizes were not recorded" "$BIN/replay" --no-worth -p "$TMP/all.plan" "$TMP/sizes.graph"
holds "$TMP/out" '^trust: medium: the sizes of 9 of 9 gradients are estimated$' "... says so"

# ---- equal operations that take unlike times ------------------------------------------------------
# busy TIMES: steps of ten operations of 1 ms, one of which, another one in each step, takes TIMES times as long
busy() {
	awk -v times="$1" 'BEGIN {
		printf "{\"schemaVersion\":1,\"traceEvents\":["
		for (s = t = 0; s < 6; s++) {
			begin = t
			for (i = 0; i < 10; i++) {
				ns = i == s ? 1000 * times : 1000
				printf "%s{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{}}",
					s + i ? ",\n" : "\n", t, ns
				t += ns
			}
			printf ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{}}",
				s, begin, t - begin
		}
		print "\n]}" }' >"$TMP/busy.json"
	"$BIN/replay" -q --no-worth "$TMP/busy.json" >"$TMP/out"
}
busy 2.8
holds "$TMP/out" '^trust: high$' "operations that take up to 2.8 times as long as usual: caches may do that"
busy 3.2
holds "$TMP/out" '^trust: medium: a tenth of the computation is in operations that take 3 times as' "... 3.2 times: the machine was busy"
busy 12
holds "$TMP/out" '^trust: medium: a tenth of the computation is in operations that take 12 times as' "... 12 times"
# steps of unlike length, and operations of 1 ms, whose first two pieces, before operations inside them, take 10 us
awk 'function put(name, at, ns) {
		printf "%s{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{\"Input Dims\":[[64,64],[64,64]],\"Input type\":[\"float\",\"float\"]}}",
			n++ ? ",\n" : "\n", name, at, ns
	}
	BEGIN {
		printf "{\"schemaVersion\":1,\"traceEvents\":["
		for (s = t = 0; s < 6; s++) {
			begin = t
			for (i = 0; i < 8 + s; i++) {
				put("aten::mm", t, 1000)
				put("aten::resolve_conj", t + 10, 2)
				put("aten::resolve_conj", t + 20, 2)
				t += 1000
				put("aten::relu", t, 5)
				t += 5
			}
			printf ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{}}",
				s, begin, t - begin
		}
		print "\n]}" }' >"$TMP/pieces.json"
"$BIN/replay" -q --no-worth "$TMP/pieces.json" >"$TMP/out"
check "pieces of an operation are compared with the same pieces" no grep -q 'times as long as' "$TMP/out"

# ---- one step, and one file of a job --------------------------------------------------------------
width() { # of the interval of a change, as a share of the change
	"$BIN/replay" -q --no-worth -O json --what-if 'scale kind=comm by 0.5' "$@" | tr ',' '\n' |
		awk -F : '{ v[$1] = $2 } END { wide = v["\"predicted_high_ns\""] - v["\"predicted_low_ns\""]
			print wide / (v["\"replayed_mean_ns\""] - v["\"predicted_mean_ns\""]) }'
}
"$BIN/trace" -qu --step=1 "$TMP/k" | "$BIN/merge" -qu | "$BIN/graph" -q -o "$TMP/one.graph"
status 0 "one step of a job" "$BIN/replay" --no-worth "$TMP/one.graph"
holds "$TMP/out" '^trust: medium: there is one complete step: how much steps differ is not known' "... does not say how others differ"
check "... the interval is that of the assumption, 1.645 * 25 % to both sides, and no less" \
	awk -v w="$(width "$TMP/one.graph")" 'BEGIN { exit !(w > 2 * 1.645 * 0.25 && w < 1.2) }'
status 0 "... compared with another" "$BIN/replay" --no-worth "$TMP/one.graph" "$TMP/k.graph"
holds "$TMP/out" '^A: trust: medium: there is one complete step: nothing says how much steps differ$' "... has no interval, for which something would be assumed"
status 0 "... four as one" "$BIN/replay" -q --no-worth --fold=mean "$TMP/k.graph"
holds "$TMP/out" '^trust: high$' "... do"
check "... whose mean is known better, but not exactly" \
	awk -v w="$(width --fold=mean "$TMP/k.graph")" -v one="$(width "$TMP/one.graph")" 'BEGIN { exit !(w > 1.645 * 0.25 && w < 0.75 * one) }'
status 0 "one file of eight" "$BIN/replay" -q --no-worth "$TMP/k/rank3.json"
check "... its trust is low, and says who is missing" sh -c \
	"tr -s ' \n' ' ' <'$TMP/out' | grep -q 'trust: low: [0-9]* of [0-9]* communications have no partner, as ranks 1-2, 5, 7 were not recorded'"
"$BIN/replay" -q --no-worth "$TMP/rank0.json" >"$TMP/out"
holds "$TMP/out" '^trust: low: 4 of 4 sends and receives have no partner, as no other rank was recorded' "... so is that of sends to ranks without a name"

# one of two ranks, and hardly any communication: what is in doubt is the work of the ranks that nobody recorded
"$GEN/kgen" -o "$TMP/two" --ranks=2 --tp=1 --record-groups --comm-scale=0.01 --layers=2 --steps=4 >"$TMP/log"
said() { # said CHANGE INPUT: does the report say what is assumed of ranks?
	"$BIN/replay" -q --no-worth --what-if "$1" "$2" | tr -s ' \n' ' ' | grep -q 'one rank was recorded: how much ranks differ is assumed (by 10 %)'
}
check "other ranks, of which one was recorded: the trust line says what is assumed" said 'ranks 8' "$TMP/two/rank0.json"
check "... fewer ranks are others, too" said 'ranks 1' "$TMP/two/rank0.json"
check "... as many as the job has are not, though not all were recorded" no said 'ranks 2' "$TMP/two/rank0.json"
check "... of other ranks only" no said 'scale kind=kernel by 0.5' "$TMP/two/rank0.json"
check "... and not where two ranks show it" no said 'ranks 8' "$TMP/two"
if [ -n "$python" ]; then
	"$BIN/replay" -q --no-worth -O json --what-if 'ranks 8' "$TMP/two/rank0.json" >"$TMP/json"
	check "... they may have 1.645 * 10 % more work" json '0.164 < d["predicted_high_ns"] / d["replayed_mean_ns"] - d["predicted_mean_ns"] / d["replayed_mean_ns"] < 0.2' "$TMP/json"
	"$BIN/replay" -q --no-worth -O json --what-if 'ranks 8' "$TMP/two" >"$TMP/json"
	check "... two like ones do not" json 'd["predicted_high_ns"] / d["replayed_mean_ns"] - d["predicted_mean_ns"] / d["replayed_mean_ns"] < 0.1' "$TMP/json"
fi

# ---- changes worth most, where communication slows down computation -------------------------------
if [ -n "$python" ]; then
	mkdir "$TMP/cores"
	awk -v dir="$TMP/cores" -v cause=contention -v ms=80 -v n=4 -f "$SRC/tests/gen/planted.awk"
	"$BIN/graph" -q -o "$TMP/cores.graph" "$TMP/cores"
	"$BIN/replay" -q -O json "$TMP/cores.graph" >"$TMP/json"
	"$BIN/replay" -q --table=worth -O csv "$TMP/cores.graph" >"$TMP/worth.csv"
	check "the table alone has the same changes" sh -c "cut -d, -f1 '$TMP/worth.csv' | tail -n +2 | tr '\n' ' ' | grep -qxF \"\$('$python' -c '
import json, sys
print(*(x[\"saves_ns\"] for x in json.load(open(sys.argv[1]))[\"worth_most\"]), \"\")' '$TMP/json')\""
	for change in 'scale kind=comm by 0.5' 'scale kind=host_op by 0.5'; do
		"$BIN/replay" -q --no-worth -O json --what-if "$change" "$TMP/cores.graph" >"$TMP/changed"
		check "$change saves what --what-if says of it" "$python" -c '
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[2:])
row = [x for x in a["worth_most"] if x["change"] == sys.argv[1]][0]
assert abs(row["saves_ns"] - (b["replayed_mean_ns"] - b["predicted_mean_ns"])) <= 1, (row, b["predicted_mean_ns"])' \
			"$change" "$TMP/json" "$TMP/changed"
	done
fi

# ---- time in which the program recorded nothing ---------------------------------------------------
awk 'BEGIN {
	printf "{\"schemaVersion\":1,\"traceEvents\":["
	for (s = 0; s < 3; s++) {
		t = 1000 + 20000 * s
		printf "%s{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":20000,\"args\":{}}",
			s ? ",\n" : "\n", s, t
		printf ",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":8000,\"args\":{}}", t + 12000
	}
	print "\n]}" }' >"$TMP/sleep.json"
"$BIN/trace" -q -u "$TMP/sleep.json" | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/sleep.graph"
status 0 "a program that sleeps" "$BIN/replay" "$TMP/sleep.graph"
holds "$TMP/out" '^trust: medium: 60 % of the critical path is time in which the program recorded nothing$' "... medium"

# ---- copies into new memory ----------------------------------------------------------------------
# copies NS: steps of products of 60 ms and ten copies of 8 MiB, of which the first two take NS us, the others 1 ms
copies() {
	awk -v ns="$1" 'function op(name, t, ns, dims) {
		printf "%s{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{\"Input Dims\":[%s,%s],\"Input type\":[\"float\",\"float\"]}}",
			n++ ? ",\n" : "\n", name, t, ns, dims, dims
	}
	BEGIN {
		printf "{\"schemaVersion\":1,\"traceEvents\":["
		for (s = t = 0; s < 4; s++) {
			begin = t
			for (i = 0; i < 10; i++) {
				op("aten::copy_", t, i < 2 ? ns : 1000, "[1024,1024]")
				t += i < 2 ? ns : 1000
				op("aten::mm", t, 6000, "[512,512]")
				t += 6000
			}
			printf ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{}}",
				s, begin, t - begin
		}
		print "\n]}" }' >"$TMP/copies.json"
	"$BIN/replay" -q --no-worth --what-if 'scale name=aten::mm by 0.5' "$TMP/copies.json" >"$TMP/out"
	"$BIN/replay" -q --no-worth -O csv --table=steps --what-if 'scale name=aten::mm by 0.5' "$TMP/copies.json" |
		awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
			NR == 2 { print $at["predicted_lo_ns"] / $at["replayed_ns"], $at["predicted_hi_ns"] / $at["replayed_ns"] }' >"$TMP/ends.$1"
}
copies 1000
holds "$TMP/out" '^trust: high$' "copies that take as long as others"
copies 2000
holds "$TMP/out" '^trust: high$' "... twice as long: caches may do that"
copies 12000
holds "$TMP/out" '^trust: medium: writing into new memory takes 24 % of the step' "... twelve times as long: the memory is new"
"$BIN/replay" -q --no-worth -O json "$TMP/copies.json" >"$TMP/out.json"
holds "$TMP/out.json" '"cause":"memory-stall","share":0.2[0-9]*,"where":"aten::copy_"' "... the verdict names it"
# With all of the time for new memory the change leaves 0.674 of the step, and without 0.57
check "... another run may not have them: the interval reaches to both, $(cat "$TMP/ends.12000")" \
	awk '{ exit !($1 < 0.57 && $2 > 0.674) }' "$TMP/ends.12000"
done_testing
