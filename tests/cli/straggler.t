# replay --stragglers on an operation table whose truth is simulated here: two data-parallel ranks of
# two stages, every operation late by a launch delay that must not count.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

cat >"$TMP/job.awk" <<'END'
# Durations in us: computation of stage 1 is slower, all of it differs by step, rank and microbatch.
function recorded(type, s, d, m, step,    wobble) {
	wobble = (step * 7 + m * 3 + d * 5 + s) % 4
	if (type == "forward-compute" || type == "backward-compute")
		return (type ~ /^b/ ? 20000 : 10000) * (s ? 1.5 : 1) + 700 * wobble
	if (type ~ /send|recv/)
		return 900 + 150 * (wobble % 3) + (type ~ /recv/ ? 40 : 0) + (type ~ /^b/ ? 60 : 0)
	return type == "optimizer" ? 2000 + 100 * wobble : 5000 + 250 * ((step + s) % 3)
}
function kept(type, s, d) {
	if (axis == "all" || axis == "nothing")
		return axis == "all"
	if (axis == "type")
		return key == type || (type ~ /(send|recv)$/ && key == substr(type, 1, index(type, "-")) "pp-comm")
	return key == (axis == "stage" ? s : axis == "dp" ? d : 2 * s + d)
}
function time(type, s, d, m) {
	if (mode == "learn") {
		seen[type, ++n[type]] = recorded(type, s, d, m, step)
		return 0
	}
	return kept(type, s, d) ? recorded(type, s, d, m, step) : typical[type]
}
function put(type, s, d, m, from, until) {
	if (mode == "table")
		printf "%d,%d,%d,%d,%s,%.9f,%.9f,%d\n", d, s, 2 * s + d, step, type, from / 1e6, (until - from) / 1e6, m
}
function op(type, s, d, m,    from) {
	from = now[s, d] + delay
	now[s, d] = from + time(type, s, d, m)
	put(type, s, d, m, from, now[s, d])
}
# Both sides of a pipeline transfer: (type)-send on stage a, -recv on the other.
function pair(type, a, d, m,    x, y, meet) {
	x = now[a, d] + delay
	y = now[1 - a, d] + delay
	meet = x > y ? x : y
	now[a, d] = meet + time(type "-send", a, d, m)
	now[1 - a, d] = meet + time(type "-recv", 1 - a, d, m)
	put(type "-send", a, d, m, x, now[a, d])
	put(type "-recv", 1 - a, d, m, y, now[1 - a, d])
}
function reduce(s,    d, x, meet) {
	meet = 0
	for (d = 0; d < 2; d++) {
		x[d] = now[s, d] + delay
		meet = x[d] > meet ? x[d] : meet
	}
	for (d = 0; d < 2; d++) {
		now[s, d] = meet + time("grads-reduce-scatter", s, d, 0)
		put("grads-reduce-scatter", s, d, 0, x[d], now[s, d])
	}
}
function run_step(    s, d, m, end) {
	for (d = 0; d < 2; d++) {
		now[0, d] = now[1, d] = 0
		for (m = 0; m < 3; m++) {
			op("forward-compute", 0, d, m)
			pair("forward", 0, d, m)
			op("forward-compute", 1, d, m)
		}
		for (m = 0; m < 3; m++) {
			op("backward-compute", 1, d, m)
			pair("backward", 1, d, m)
			op("backward-compute", 0, d, m)
		}
	}
	for (s = 0; s < 2; s++) {
		reduce(s)
		for (d = 0; d < 2; d++) {
			op("optimizer", s, d, 0)
			end = now[s, d] > end ? now[s, d] : end
		}
	}
	return end
}
function mean(a, k,    sum) {
	axis = a
	key = k
	sum = 0
	for (step = 3; step <= 15; step += 4)
		sum += run_step()
	return sum / 4
}
function learn(    t, i, k, v, sum) {
	mode = "learn"
	mean("all", "")
	mode = ""
	for (t in n) {
		sum = 0
		for (i = 1; i <= n[t]; i++) {
			sum += v = seen[t, i]
			for (k = i - 1; k && seen[t, k] > v; k--)
				seen[t, k + 1] = seen[t, k]
			seen[t, k + 1] = v
		}
		typical[t] = sum / n[t]
		if (t ~ /send|recv|grads/)
			typical[t] = (seen[t, int((n[t] + 1) / 2)] + seen[t, int(n[t] / 2) + 1]) / 2
	}
}
BEGIN {
	if (mode == "table") {
		print "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id"
		delay = 30
		mean("all", "")
		exit
	}
	learn()
	ideal = mean("nothing", "")
	printf "job,,%.12f\n", mean("all", "") / ideal
	k = split("forward-compute backward-compute forward-pp-comm backward-pp-comm grads-reduce-scatter optimizer", t, " ")
	for (i = 1; i <= k; i++)
		printf "type,%s,%.12f\n", t[i], mean("type", t[i]) / ideal
	for (i = 0; i < 4; i++) {
		if (i < 2) {
			printf "stage,%d,%.12f\n", i, mean("stage", i) / ideal
			printf "dp,%d,%.12f\n", i, mean("dp", i) / ideal
		}
		printf "rank,%d,%.12f\n", i, mean("rank", i) / ideal
	}
}
END
awk -v mode=table -f "$TMP/job.awk" </dev/null >"$TMP/job.csv"
awk -v mode=truth -f "$TMP/job.awk" </dev/null | sort >"$TMP/truth"
check "a table and its truth" test -s "$TMP/job.csv" -a -s "$TMP/truth"
"$BIN/trace" -q -u "$TMP/job.csv" | "$BIN/merge" -q -u | "$BIN/graph" -q -u -o "$TMP/job.graph"

# ---- the numbers -------------------------------------------------------------------------------
status 0 "csv" "$BIN/replay" --stragglers -O csv "$TMP/job.graph"
check "... its head" test "$(head -n 1 "$TMP/out")" = by,key,slowdown
cp "$TMP/out" "$TMP/csv"
sed 1d "$TMP/csv" | sort >"$TMP/got"
check "... what the truth has: the job, types, stages, data-parallel ranks, ranks" sh -c \
	"cut -d, -f1,2 '$TMP/got' >'$TMP/a'; cut -d, -f1,2 '$TMP/truth' >'$TMP/b'; cmp '$TMP/a' '$TMP/b'"
check "... as in truth" sh -c "paste -d, '$TMP/truth' '$TMP/got' | awk -F, '
	{ e = \$3 - \$6; if (e > 1e-6 || e < -1e-6) { print \"# \" \$0; bad = 1 } } END { exit bad || NR < 15 }'"
check "... the slow stage is seen" awk -F, '$1 == "stage" { v[$2] = $3 } END { exit !(v[1] > 1.05 && v[0] < 1) }' \
	"$TMP/got"
check "... the slowest first" awk -F, 'NR > 2 && $1 == by && $3 > last { exit 1 } { by = $1; last = $3 }' \
	"$TMP/csv"

# ---- the forms ---------------------------------------------------------------------------------
status 0 "tsv" "$BIN/replay" --stragglers -O tsv "$TMP/job.graph"
check "... the same" sh -c "tr '\t' , <'$TMP/out' | cmp - '$TMP/csv'"
status 0 "json, four threads" "$BIN/replay" --stragglers -O json -@ 4 "$TMP/job.graph"
cp "$TMP/out" "$TMP/json"
check "json: its schema" grep -q '^{"schema":"paceline.straggler/1","slowdown":' "$TMP/json"
tr '{' , <"$TMP/json" | tr , '\n' | sed -n 's/^"\([^"]*\)":\([0-9.e+-][0-9.e+-]*\)}*$/\1,\2/p' |
	grep -v mean_ns | sed 's/^slowdown,/,/' >"$TMP/pairs"
check "json: the same numbers" sh -c "sed 1d '$TMP/csv' | cut -d, -f2,3 | cmp - '$TMP/pairs'"
status 0 "json from standard input" sh -c "'$BIN/replay' --stragglers -O json <'$TMP/job.graph'"
check "... the same bytes" cmp -s "$TMP/out" "$TMP/json"
status 0 "text" "$BIN/replay" --stragglers --top 2 "$TMP/job.graph"
check "text: the answer first" sh -c "head -n 1 '$TMP/out' | grep -q '^slowdown 1\.[0-9]*: step [0-9.]* ms without'"
check "text: four sections, cut at two rows" test "$(grep -c '^By ' "$TMP/out") $(grep -c '^\.\.\. and' "$TMP/out")" = "4 2"

# ---- a profiler's trace: types are names, and there are no stages ---------------------------------
check "the streams of a tiny job" tiny_streams "$TMP"
status 0 "of a profiler's trace" "$BIN/replay" --stragglers -O csv "$TMP/job.graph"
check "... kernels by name" grep -q '^type,gemm,' "$TMP/out"
check "... host gaps" grep -q '^type,gap,' "$TMP/out"
check "... ranks, no stages" test "$(grep -c '^rank,' "$TMP/out") $(grep -c '^stage,' "$TMP/out")" = "2 0"

# ---- what is refused ---------------------------------------------------------------------------
g=$TMP/job.graph
status 2 "two graphs" "$BIN/replay" --stragglers "$g" "$g"
says "for one graph" "... why"
status 2 "with a change" "$BIN/replay" --stragglers --what-if 'scale all by 2' "$g"
says "not together with --what-if" "... why"
status 2 "with a table" "$BIN/replay" --stragglers --table ranks "$g"
status 2 "with a timeline" "$BIN/replay" --stragglers --timeline "$TMP/timeline" "$g"
check "... which is not made" test ! -e "$TMP/timeline"
"$BIN/trace" -q -u "$TMP/job.csv" | "$BIN/merge" -q -u | "$BIN/graph" -q -u | "$BIN/replay" --stragglers >"$TMP/want"
"$BIN/replay" --stragglers "$TMP/job.csv" >"$TMP/got"
check "a table of operations becomes a graph first" cmp "$TMP/want" "$TMP/got"
status 3 "neither a graph nor what becomes one" "$BIN/replay" --stragglers "$TMP/truth"
says "truth: .*no known trace format" "... which"
if [ "$LONG" = 1 ]; then set -- -a; else set -- -n 60; fi
check "any call may fail" "$SRC/tests/fault/torture" "$@" "$BIN/replay" --stragglers "$g"
done_testing
