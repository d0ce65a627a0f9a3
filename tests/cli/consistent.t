# Two reports that state the same thing state the same number.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
not_under thread "its programs have one thread each"

# figure KEY FILE: the first number of this name in the JSON
figure() {
	sed 's/[,{]/\n/g' "$2" | sed -n "s/.*\"$1\": *\\([-0-9.e]*\\).*/\\1/p" | head -n 1
}
# near A B SHARE
near() {
	awk -v a="$1" -v b="$2" -v share="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= share * (b < 0 ? -b : b)) }'
}

# ---- steps that overlap --------------------------------------------------------------------------
"$BIN/graph" -q -o "$TMP/gloo.graph" "$SRC/samples/ddp-gloo"
"$BIN/replay" -q --no-worth -O json "$TMP/gloo.graph" >"$TMP/json"
check "the sample has steps that overlap" grep -q recorded_period_mean_ns "$TMP/json"
"$BIN/graph" -q --step=5 -o "$TMP/one.graph" "$SRC/samples/ddp-gloo" 2>/dev/null ||
	"$BIN/trace" -qu --step=5 "$SRC/samples/ddp-gloo" | "$BIN/merge" -qu | "$BIN/graph" -q -o "$TMP/one.graph"
"$BIN/replay" -q --no-worth -O json "$TMP/gloo.graph" "$TMP/gloo.graph" >"$TMP/both.json"
check "two jobs with periods are compared by periods" near "$(figure step_mean_ns "$TMP/both.json")" "$(figure replayed_period_mean_ns "$TMP/json")" 1e-9
holds "$TMP/both.json" '"by_period": *true' "... which is said"
status 0 "... also in the text" "$BIN/replay" -q --no-worth "$TMP/gloo.graph" "$TMP/gloo.graph"
holds "$TMP/out" '^A: .* a step (from its start to that of the next), B: ' "... is"
"$BIN/replay" -q --no-worth -O json "$TMP/gloo.graph" "$TMP/one.graph" >"$TMP/both.json"
check "one step has no period, so lengths are compared" near "$(figure step_mean_ns "$TMP/both.json")" "$(figure replayed_mean_ns "$TMP/json")" 1e-9
for fold in none auto; do
	"$BIN/plan" -q --preset none --fold $fold -O text "$TMP/gloo.graph" >"$TMP/plan"
	check "plan --fold $fold: the baseline is the period" near "$(awk '$1 == "baseline" { print $2 }' "$TMP/plan")" "$(figure replayed_period_mean_ns "$TMP/json")" 1e-6
done
"$BIN/replay" -q -O svg "$TMP/gloo.graph" >"$TMP/out"
"$BIN/replay" -q --no-worth -O csv --table=steps "$TMP/gloo.graph" | awk -F , 'NR > 1 { n[NR] = $1; v[NR] = $4; sum += $4 / 3 }
	END { for (i in v) { d = v[i] - sum; if (d < 0) d = -d; if (best == "" || d < least) { least = d; best = n[i] } } print best }' >"$TMP/usual"
check "the drawing is of the step whose length is nearest to the mean length, $(cat "$TMP/usual")" grep -q "step $(cat "$TMP/usual"), the usual one of 3" "$TMP/out"

# ---- tables that are cut ---------------------------------------------------------------------------
for what in "--table path" "--per operator"; do
	# shellcheck disable=SC2086  # two words
	"$BIN/replay" -q --no-worth $what --top=3 "$TMP/gloo.graph" >"$TMP/out"
	# shellcheck disable=SC2086
	"$BIN/replay" -q --no-worth $what --top=0 "$TMP/gloo.graph" >"$TMP/all"
	check "$what: what is left out is counted" grep -qx "... and $(($(wc -l <"$TMP/all") - 4)) more rows (--top=0 shows all)" "$TMP/out"
	check "... and nothing where all is there" no grep -q 'more rows' "$TMP/all"
done

# ---- a call with calls inside, on ranks that alternate ------------------------------------------------
# nest RANKS: "outer" of 1 ms with two collectives inside, on each rank
nest() {
	mkdir -p "$TMP/nest$1"
	for r in $(seq 0 $(($1 - 1))); do
		awk -v rank="$r" -v ranks="$1" 'function x(cat, name, ts, dur, args) {
				printf "%s\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}", comma, cat, name, 10 + rank, ts, dur, args
				comma = ","
			}
			BEGIN {
				printf "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":%d,\"world_size\":%d},\"traceEvents\":[", rank, ranks
				sizes = "\"Input type\":[\"float\"],\"Input Dims\":[[1000000]]"
				for (s = 0; s < 3; s++) {
					t = 1000 + 1700 * s
					h = t + 3 * rank
					x("cpu_op", "aten::mm", h, 500, "")
					x("cpu_op", "outer", h + 500, 1000, "")
					for (k = 0; k < 2; k++)
						x("user_annotation", "gloo:all_reduce", h + 600 + 400 * k, 300 - 3 * rank, sizes)
					x("cpu_op", "aten::add", h + 1510, 100, "")
					x("user_annotation", "ProfilerStep#" s, t, h + 1615 - t, "")
				}
				print "\n]}"
			}' >"$TMP/nest$1/rank$r.json"
	done
	"$BIN/graph" -q -o "$TMP/nest$1/graph" "$TMP/nest$1"/rank*.json
	"$BIN/replay" -q --no-worth -O json --what-if 'set name=outer to 200us' "$TMP/nest$1/graph" >"$TMP/nest$1/json"
	figure predicted_mean_ns "$TMP/nest$1/json"
}
one=$(nest 1)
two=$(nest 2)
check "set of a call in parts: two ranks that do the same take as long as one, $one and $two" near "$two" "$one" 0.01
check "... which is shorter" awk -v is="$one" -v was="$(figure replayed_mean_ns "$TMP/nest1/json")" 'BEGIN { exit !(is > 0 && is < 0.9 * was) }'

# ---- equal layers ----------------------------------------------------------------------------------
awk 'BEGIN {
	printf "{\"schemaVersion\":1,\"traceEvents\":["
	for (s = 0; s < 3; s++) {
		printf "%s{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1300,\"args\":{}}", s ? ",\n" : "\n", s, 1300 * s
		for (k = 0; k < 2; k++)
			printf ",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"gemm_%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":600,\"args\":{}}", k, 1300 * s + 10 + 620 * k
	}
	print "\n]}" }' >"$TMP/equal.json"
"$BIN/replay" -q "$TMP/equal.json" >"$TMP/out"
check "changes of two equal operations are both shown" test "$(grep -c 'scale name=gemm_[01] by 0.5' "$TMP/out")" = 2

# ---- plans ------------------------------------------------------------------------------------------
mkdir "$TMP/reads"
awk -v dir="$TMP/reads" -v cause=input -v n=1 -v ms=80 -v who=-1 -v named=1 -f "$SRC/tests/gen/planted.awk"
status 0 "a plan of a job that waits for input" "$BIN/plan" -O text "$TMP/reads"
cp "$TMP/out" "$TMP/reads.plan"
says "there is no communication to plan" "... is not said to have nothing to plan"
check "... its error is that of a change of durations, as in replay" awk '
	$1 == "baseline" { was = $2 } $1 == "predicted" { is = $2 } $1 == "error" { error = $2 }
	END { saves = was - is; exit !(saves > 0.1 * was && error > 0 && error < 0.1 * saves + 0.011 * was) }' "$TMP/reads.plan"

# ---- input that takes longer than 64 times the rest -----------------------------------------------
awk 'BEGIN {
	printf "{\"schemaVersion\":1,\"traceEvents\":["
	for (s = 0; s < 4; s++) {
		at = 100200 * s
		printf "%s{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":100190,\"args\":{}}", s ? ",\n" : "\n", s, at
		printf ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":100000,\"args\":{}}", at
		printf ",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"gemm\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":150,\"args\":{}}", at + 100020
	}
	print "\n]}" }' >"$TMP/slow.json"
"$BIN/replay" -q "$TMP/slow.json" >"$TMP/out"
advised=$(sed -n 's/^would help: \(-[0-9.]*\) %.*/\1/p' "$TMP/out")
predicted=$("$BIN/replay" -q --no-worth --what-if 'loader-workers 64' "$TMP/slow.json" | sed -n '1s/.*predicted [^(]*(\([-0-9.]*\) %.*/\1/p')
check "as many workers as are advised do not hide all of it: $advised %, --what-if $predicted %" awk -v a="$advised" -v p="$predicted" 'BEGIN { exit !(a < -90 && (a - p) ^ 2 < 0.5 ^ 2) }'
done_testing
