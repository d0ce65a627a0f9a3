# replay: the report and its forms, what-if, folding, the timeline, two jobs; what it refuses, and why.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

check "the streams of a tiny job" tiny_streams "$TMP"
g=$TMP/job.graph
python=$(command -v python3 || true)

# csv COLUMN FILE: the values of a column of a CSV table
csv() {
	awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $c }' "$2"
}

sum() {
	awk '{ s += $1 } END { print s + 0 }'
}

# ---- the text report --------------------------------------------------------------------------
status 0 "text" "$BIN/replay" "$g"
cp "$TMP/out" "$TMP/text"
check "text: the answer comes first" sh -c "head -n 1 '$TMP/text' | \
	grep -q '^step 480.0 us (mean of 2), replayed 480.0 us (+0.00 %), 2 ranks, '"
for s in Steps "Where the time goes" "Critical path" "Slowest ranks" "Worth most"; do
	check "text: $s" grep -q "^$s" "$TMP/text"
done
check "text: nothing but ASCII, at most 100 columns, no colour" \
	awk '/[^ -~]/ || length > 100 { print "# " $0; bad = 1 } END { exit bad }' "$TMP/text"
status 0 "from standard input" sh -c "'$BIN/replay' - <'$g'"
check "... it is the same" cmp -s "$TMP/text" "$TMP/out"
status 0 "with colour" "$BIN/replay" --color always "$g"
check "... there is some" grep -q "$(printf '\033')" "$TMP/out"
sed "s/$(printf '\033')\[[0-9]*m//g" "$TMP/out" >"$TMP/plain"
check "... and nothing else" cmp -s "$TMP/plain" "$TMP/text"
for n in 1 2 4; do
	status 0 "with $n threads" "$BIN/replay" -@ $n "$g"
	check "... it is the same" cmp -s "$TMP/text" "$TMP/out"
done
status 0 "one row of each" "$BIN/replay" --top 1 --path --resources "$g"
check "... and how many more" grep -q '^\.\.\. and [0-9]* more parts (--top=0 shows all)' "$TMP/out"
status 0 "without the changes worth most" "$BIN/replay" --no-worth "$g"
check "... there are none" sh -c "! grep -q '^Worth' '$TMP/out'"
status 0 "speed on request" "$BIN/replay" -v "$g"
says "operations/s" "... on standard error"

# ---- JSON -------------------------------------------------------------------------------------
status 0 "json" "$BIN/replay" -O json "$g"
cp "$TMP/out" "$TMP/json"
check "json: its schema" grep -q '^{"schema":"paceline.replay/1",' "$TMP/json"
"$BIN/replay" -O json --what-if 'scale kind=gap by 0.5' "$g" >"$TMP/predicted"
if [ -n "$python" ]; then
	check "json: what other tools rely on" "$python" - "$TMP/json" "$TMP/predicted" <<-'END'
		import json, sys
		a, b = (json.load(open(f)) for f in sys.argv[1:])
		for d in a, b:
		    assert [s["step"] for s in d["steps"]] == [0, 1]
		    assert [s["period_ns"] for s in d["steps"]] == [500000, None]
		    for s in d["steps"]:
		        assert abs(s["error"] - (s["replayed_ns"] - s["recorded_ns"]) / s["recorded_ns"]) < 1e-12
		        assert ("predicted_ns" in s) == (d is b)
		    mean = sum(abs(s["error"]) for s in d["steps"]) / 2
		    assert abs(d["mean_abs_error"] - mean) < 1e-12
		    for r in d["ranks"]:
		        parts = ["compute", "comm_exposed", "comm_overlapped", "copy", "host", "unexplained"]
		        whole = sum(r[p + "_ns"] for p in parts) + sum(i["ns"] for i in r["idle"])
		        assert whole == r["span_ns"] and all(i["cause"] for i in r["idle"])
		    assert sum(p["ns"] for p in d["critical_path"]) == d["span_ns"]
		    assert abs(sum(p["share"] for p in d["critical_path"]) - 1) < 1e-9
		    at = 0
		    for e in d["critical_path_events"]:
		        assert e["start_ns"] == at and e["name"] and e["kind"] and "rank" in e
		        at += e["ns"]
		    assert at == d["span_ns"]
		    un = sum(p["ns"] for p in d["critical_path"] if p["kind"] == "unexplained")
		    assert abs(d["unexplained_share"] - un / d["span_ns"]) < 1e-12
		    saves = [c["saves_ns"] for c in d["worth_most"]]
		    assert 0 < len(saves) <= 5 and saves == sorted(saves, reverse=True)
		assert not a["stepless"] and a["describes"] == "replayed" and b["describes"] == "predicted"
		assert b["steps"][0]["predicted_ns"] < b["steps"][0]["replayed_ns"] == a["steps"][0]["replayed_ns"]
	END
	best=$("$python" -c 'import json, sys; c = json.load(sys.stdin)["worth_most"][0]; print(c["change"])' <"$TMP/json")
	saves=$("$python" -c 'import json, sys; print(json.load(sys.stdin)["worth_most"][0]["saves_ns"])' <"$TMP/json")
	"$BIN/replay" -O csv --what-if "$best" "$g" >"$TMP/best"
	check "json: the best change is worth what --what-if says" test "$saves" = \
		$((($(csv replayed_ns "$TMP/best" | sum) - $(csv predicted_ns "$TMP/best" | sum)) / 2))
else
	skip "json: what other tools rely on" "no python3"
	skip "json: the best change is worth what --what-if says" "no python3"
fi

# ---- tables -----------------------------------------------------------------------------------
for t in steps ranks resources path events slowest worth; do
	status 0 "table $t" "$BIN/replay" --table $t -O csv "$g"
	check "... as CSV with a header" sh -c "head -n 1 '$TMP/out' | grep -q '^[a-z_,]*$'"
	status 0 "table $t as text" "$BIN/replay" --table $t "$g"
	status 0 "table $t as lines of JSON" "$BIN/replay" --table $t -O jsonl "$g"
done
"$BIN/replay" --table ranks -O csv "$g" >"$TMP/ranks"
"$BIN/replay" --table ranks -O tsv "$g" | tr '\t' , >"$TMP/ranks2"
check "csv and tsv agree" cmp -s "$TMP/ranks" "$TMP/ranks2"
check "a row for each rank" test "$(csv rank "$TMP/ranks" | tr '\n' ' ')" = "0 1 "

# ---- what-if ----------------------------------------------------------------------------------
"$BIN/replay" -O csv "$g" >"$TMP/base"
status 0 "what if nothing changed" "$BIN/replay" -O csv --what-if 'scale all by 1' "$g"
check "... the steps stay as they are" test "$(csv predicted_ns "$TMP/out")" = "$(csv replayed_ns "$TMP/base")"
status 0 "a step that is twice as slow" "$BIN/replay" -O csv --what-if 'scale step=0,kind=kernel by 2' "$g"
check "... gets longer, the other does not" awk -F, 'NR == 2 { a = $6 > $4 } NR == 3 { b = $6 == $4 }
	END { exit !a || !b }' "$TMP/out"
status 0 "a prediction as text" "$BIN/replay" --no-worth --what-if 'scale kind=comm by 0.5' "$SRC/samples/ddp-gloo"
check "... no line has more than 100 columns" awk 'length > 100 { print "# " $0; bad = 1 } END { exit bad }' "$TMP/out"
check "... the first line predicts, the second replays" sh -c "sed -n '1{/, predicted /p}; 2{/^replayed .* 4 ranks, .* unexplained\$/p}' '$TMP/out' | wc -l | grep -qx 2"
printf '# a comment\n\n  scale kind=comm by 0.5  # half\nscale name=gemm,rank=1 by 0.5\n' >"$TMP/changes"
status 0 "changes from a file" "$BIN/replay" -O csv --what-if-file "$TMP/changes" "$g"
cp "$TMP/out" "$TMP/from-file"
status 0 "the same as options" "$BIN/replay" -O csv --what-if 'scale kind=comm by 0.5' \
	--what-if 'scale name=gemm,rank=1 by 0.5' "$g"
check "... predict the same" cmp -s "$TMP/from-file" "$TMP/out"
# a receive that was posted early waits for nothing while the rank computes
"$BIN/trace" -q -u "$SRC"/samples/ddp-gloo/rank*.json.gz | "$BIN/merge" -q -u | "$BIN/graph" -q -o "$TMP/early.graph"
status 0 "ranks that post early" "$BIN/replay" -O csv --table ranks "$TMP/early.graph"
check "... wait no longer for one rank than they wait" awk -F, '
	NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
	{ n++; if (!($at["waits_for_ns"] > 0 && $at["waits_for_ns"] <= $at["wait_ns"])) bad = 1 }
	END { exit bad || n != 4 }' "$TMP/out"
# "compute" is a column, in which host operations of a rank with a device do not count; selectors name the kinds
status 0 "kinds as alternatives" "$BIN/replay" -O csv --what-if 'scale kind=kernel|host_op by 0.5' "$g"
cp "$TMP/out" "$TMP/kinds"
status 0 "the older word for them" "$BIN/replay" -O csv --what-if 'scale kind=compute by 0.5' "$g"
check "... means the same" cmp -s "$TMP/kinds" "$TMP/out"
status 0 "the changes worth most" "$BIN/replay" -O csv --table worth "$g"
check "... name kinds" grep -q 'scale kind=host_op by 0.5$' "$TMP/out"
check "... not the word of the column" no grep -q compute "$TMP/out"
for w in "" "scale" "scale x=y by 2" "scale kind=kernels by 2" "scale kind=kernel by" "scale kind=kernel by -1"; do
	status 2 "not a change: '$w'" "$BIN/replay" --what-if "$w" "$g"
done
status 4 "no such file of changes" "$BIN/replay" --what-if-file "$TMP/none" "$g"

# ---- fold -------------------------------------------------------------------------------------
for how in mean median; do
	status 0 "the $how of the steps" "$BIN/replay" --fold $how "$g"
	check "... says so" grep -q "^folded: the $how of [12] of 2 steps" "$TMP/out"
done

# ---- the timeline -----------------------------------------------------------------------------
status 0 "a timeline beside the report" "$BIN/replay" --timeline "$TMP/tl" --no-provenance "$g"
check "... the report is the same" cmp -s "$TMP/text" "$TMP/out"
status 0 "it is a good trace" "$BIN/trace" --check "$TMP/tl"
"$BIN/merge" -q -o "$TMP/tl.merged" "$TMP/tl" && "$BIN/graph" -q -o "$TMP/tl.graph" "$TMP/tl.merged"
status 0 "its graph replays" "$BIN/replay" -O csv "$TMP/tl.graph"
check "... to the same steps" test "$(csv replayed_ns "$TMP/out")" = "$(csv replayed_ns "$TMP/base")"
"$BIN/trace" -O csv "$TMP/tl" >"$TMP/tl.csv"
check "its waits are named" sh -c "grep -q 'wait: ' '$TMP/tl.csv' && grep -q 'host gap' '$TMP/tl.csv'"
check "it has the kernels and steps of both ranks" test "$(grep -c gemm "$TMP/tl.csv")" = 4 -a \
	"$(grep -c 'step [01]' "$TMP/tl.csv")" -ge 4
"$BIN/replay" -q -o "$TMP/o" --timeline - --no-provenance "$g" >"$TMP/tl2"
check "to standard output, the report into a file" cmp -s "$TMP/tl" "$TMP/tl2"
"$BIN/replay" -q -o "$TMP/o" --timeline "$TMP/tl4" --no-provenance -@ 4 "$g"
check "with four threads it is the same" cmp -s "$TMP/tl" "$TMP/tl4"
"$BIN/replay" --what-if 'scale kind=comm by 0.5' --timeline "$TMP/tl5" -O csv "$g" >"$TMP/want"
"$BIN/merge" -q "$TMP/tl5" | "$BIN/graph" -q | "$BIN/replay" -O csv >"$TMP/got"
check "the timeline of a prediction replays to it" test "$(csv predicted_ns "$TMP/want")" = "$(csv replayed_ns "$TMP/got")"
# gap TIME: a kernel ends at 110 us, the next one was launched long before and begins at TIME
gap() {
	{
		printf '{"schemaVersion":1,"traceEvents":['
		printf '{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%s,"dur":0.5,"args":{"correlation":%s}},\n' \
			1 1 2 2
		printf '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s,"args":{"device":0,"stream":7,"correlation":%s}},\n' \
			10 100 1 "$1" 50 2
		printf '{"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":1,"tid":1,"ts":5,"dur":200}]}\n'
	} >"$TMP/gap.json"
	"$BIN/trace" -q "$TMP/gap.json" | "$BIN/graph" -q -o "$TMP/gap.graph"
	"$BIN/replay" -q --timeline "$TMP/gap.tl" -o "$TMP/o" "$TMP/gap.graph"
	"$BIN/trace" -q -O text "$TMP/gap.tl" | grep -c '"unexplained"'
}
check "ROUNDING_NS: a gap of 0.7 us is none" test "$(gap 110.7)" = 0
check "ROUNDING_NS: one of 1.5 us is in the timeline" test "$(gap 111.5)" = 1

# ---- a job without steps ----------------------------------------------------------------------
for r in 0 1; do grep -v ProfilerStep "$TMP/rank$r.json" >"$TMP/plain$r.json"; done
"$BIN/trace" -q "$TMP/plain0.json" "$TMP/plain1.json" | "$BIN/merge" -q | "$BIN/graph" -q >"$TMP/plain.graph"
status 0 "no steps" "$BIN/replay" "$TMP/plain.graph"
check "... says so" grep -q '^the input had no steps: all of it counts as one' "$TMP/out"
check "... one step" grep -q '^step ' "$TMP/out"

# ---- two jobs ---------------------------------------------------------------------------------
status 0 "a job and itself" "$BIN/replay" "$g" "$g"
check "... no difference" grep -q 'difference 0 ns (+0.00 %)' "$TMP/out"
for r in 0 1; do sed 's/"name":"adam"\(.*\)"dur":60/"name":"adam"\1"dur":90/' "$TMP/rank$r.json" >"$TMP/slow$r.json"; done
"$BIN/trace" -q "$TMP/slow0.json" "$TMP/slow1.json" | "$BIN/merge" -q | "$BIN/graph" -q >"$TMP/slow.graph"
status 0 "a job and another" "$BIN/replay" -O csv "$g" "$TMP/slow.graph"
check "... it is the operation that changed" awk -F, '
	NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
	$at["name"] == "adam" { hit = $at["b_mean_ns"] - $at["a_mean_ns"] == 30000 }
	$at["name"] == "gemm" { other = $at["b_mean_ns"] == $at["a_mean_ns"] } END { exit !hit || !other }' "$TMP/out"
for r in 0 1; do
	sed 's/"name":"adam"\(.*\)"dur":60/"name":"fused_adam"\1"dur":'$((200 - r * 10))'/' "$TMP/rank$r.json" >"$TMP/kernel$r.json"
done
"$BIN/trace" -q "$TMP"/kernel?.json | "$BIN/merge" -q | "$BIN/graph" -q >"$TMP/kernel.graph"
status 0 "a job with another kernel" "$BIN/replay" "$g" "$TMP/kernel.graph"
holds "$TMP/out" "^A is $g: 2 steps, 2 ranks" "... names its files"
holds "$TMP/out" "^B is $TMP/kernel.graph: " "... both"
check "... is compared by operator, with the reason" awk '
	/^Slower in B/ { getline; where = /  optimizer update$/; getline; why = $0 } END {
		exit !(where && why ~ /each takes 195.0 us, was 60.00 us; mostly fused_adam, was adam/) }' "$TMP/out"
status 0 "... as a page" "$BIN/replay" -O html "$g" "$TMP/kernel.graph"
holds "$TMP/out" '"operator":"update","why":"each takes 195.0 us, was 60.00 us; mostly fused_adam' "... with the same"
status 0 "... as JSON" "$BIN/replay" -O json "$g" "$TMP/slow.graph"
check "... with its schema" grep -q '"schema":"paceline.replay-difference/1"' "$TMP/out"
check "... with its files" grep -qF "\"b\":{\"file\":\"$TMP/slow.graph\"" "$TMP/out"
# noise NAME MS...: a job with steps of these lengths
noise() {
	name=$1
	shift
	printf '%s\n' "$@" | awk '
		function put(cat, name, from, dur) {
			printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d}", n++ ? ",\n" : "[", cat, name, from, dur
		}
		{
			put("user_annotation", "ProfilerStep#" NR, at, 1000 * $1)
			put("cpu_op", "aten::mm", at + 1, 1000 * $1 - 2)
			at += 1000 * $1
		}
		END { print "]" }' >"$TMP/$name.json"
	"$BIN/graph" -q -o "$TMP/$name.graph" "$TMP/$name.json"
}
noise a 90 100 110
noise b 98 108 118
noise c 140 150 160
noise one 150
# between NAME LOW HIGH: is this member of the JSON in $TMP/out there, and between these?
between() {
	sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$TMP/out" | awk -v low="$2" -v high="$3" '{ hit = $1 >= low && $1 <= high } END { exit !hit }'
}
# 10 ms of deviation in three steps each: 8.165 ms of the difference, times 2.13 with four degrees of freedom
status 0 "two jobs whose steps differ as much" "$BIN/replay" -q "$TMP/a.graph" "$TMP/b.graph"
check "... may differ by chance" sh -c "tr -s ' \n' ' ' <'$TMP/out' | grep -q 'difference: -9\.[0-9]* ms to +25\.[0-9]* ms (-9\.[0-9] to +25\.[0-9] %): it holds 0, so the difference may be chance'"
status 0 "... as JSON" "$BIN/replay" -q -O json "$TMP/a.graph" "$TMP/b.graph"
check "... says so" grep -q '"may_be_chance":true' "$TMP/out"
check "... with the interval" between difference_lo_ns -9.5e6 -9.3e6
check "... of both sides" between difference_hi_ns 25.3e6 25.5e6
status 0 "... as a page" "$BIN/replay" -q -O html "$TMP/a.graph" "$TMP/b.graph"
check "... says so" grep -q '"may_be_chance":true' "$TMP/out"
status 0 "two jobs that differ by more" "$BIN/replay" -q "$TMP/a.graph" "$TMP/c.graph"
check "... do not by chance" sh -c "grep -q '90 % interval of the difference: +32\.[0-9]* ms to +67\.[0-9]* ms' '$TMP/out' && ! grep -q chance '$TMP/out'"
status 0 "a job of one step" "$BIN/replay" -q -O json "$TMP/a.graph" "$TMP/one.graph"
check "... does not say it" grep -q '"difference_lo_ns":null,"difference_hi_ns":null,"' "$TMP/out"
check "... nor whether it is chance" no grep -q may_be_chance "$TMP/out"
status 0 "two jobs with a change" "$BIN/replay" -O json --what-if 'scale name=gemm by 0.5' "$g" "$TMP/slow.graph"
check "... is among what both have" grep -qF '"changes":[{"change":"scale name=gemm by 0.5","a_operations":4,"b_operations":4}]' "$TMP/out"
status 0 "... as text" "$BIN/replay" --what-if 'scale name=gemm by 0.5' "$g" "$TMP/slow.graph"
holds "$TMP/out" '^changed in both: scale name=gemm by 0.5$' "... too"
status 0 "... and as a page" "$BIN/replay" -O html --what-if 'scale name=gemm by 0.5' "$g" "$TMP/slow.graph"
holds "$TMP/out" '"changes":\[{"change":"scale name=gemm by 0.5"' "... which has it"
status 0 "... one from standard input" sh -c "'$BIN/replay' - '$TMP/slow.graph' <'$g'"

# ---- names that look like selectors -------------------------------------------------------------
printf '{"traceEvents":[' >"$TMP/names.json"
for ts in 0 100 200; do
	[ $ts = 100 ] && name=relu || name='gemm<a,tile=128,rank=7>(x,mask=1)'
	printf '{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%d,' "$name" $ts
	printf '"dur":90,"args":{"stream":7,"device":0}}'
	[ $ts = 200 ] || printf ,
done >>"$TMP/names.json"
printf ']}\n' >>"$TMP/names.json"
status 0 "names of kernels with commas and keys" sh -c \
	"'$BIN/trace' -q '$TMP/names.json' | '$BIN/graph' -q >'$TMP/names.graph' && '$BIN/replay' -q '$TMP/names.graph'"
check "... are among what is worth most" grep -qF 'scale name=gemm<a?tile=128?rank=7>(x?mask=1) by 0.5' "$TMP/out"
status 0 "a plan with such a name" "$BIN/replay" -q --no-worth \
	--what-if 'scale name=*(x,mask=1) by 0.5' "$TMP/names.graph"
check "... changes the step" grep -q 'predicted [^(]*(-' "$TMP/out"

# ---- memory of a large job --------------------------------------------------------------------
# The graph takes 55 bytes for each operation, a report 75 with the programs themselves.
if [ -n "${SAN-}" ]; then
	skip "memory of a large job" "sanitizers need memory of their own"
else
	"$GEN/kgen" --ranks=32 --tp=8 --pp=4 --layers=8 --microbatches=8 --steps=2 --record-groups -o "$TMP/large" \
		>/dev/null && "$BIN/graph" -q -o "$TMP/large.graph" "$TMP"/large/rank*.json
	rm -rf "$TMP/large"
	for report in --worth --no-worth; do
		"$BUILD/bench/timeit" "$BIN/replay" -v -@1 $report "$TMP/large.graph" 3>"$TMP/cost" >"$TMP/out" 2>"$TMP/err"
		ops=$(sed -n 's/.* \([0-9]*\) operations: read.*/\1/p' "$TMP/err")
		bytes=$(awk -v n="${ops:-0}" '{ printf "%d", n ? $4 * 1024 / n : 0 }' "$TMP/cost")
		check "replay $report: $bytes bytes for each of $ops operations" \
			test "${ops:-0}" -gt 400000 -a "$bytes" -gt 0 -a "$bytes" -le 92
	done
fi

# ---- what is refused --------------------------------------------------------------------------
status 2 "three graphs" "$BIN/replay" "$g" "$g" "$g"
status 2 "standard input twice" "$BIN/replay" - -
status 2 "report and timeline both to standard output" "$BIN/replay" --timeline - "$g"
status 2 "a timeline of two jobs" "$BIN/replay" --timeline "$TMP/t" "$g" "$g"
status 2 "a negative number of rows" "$BIN/replay" --top -1 "$g"
status 2 "only the changes worth most, without these" "$BIN/replay" --no-worth --table=worth "$g"
says "no-worth leaves --table=worth nothing" "... says so"
status 2 "the step of a worker, of a graph" "$BIN/replay" --step=5ms "$g"
says "step is for a job with a parameter server" "... says so"
status 2 "... of profiler files" "$BIN/replay" --step=5ms "$TMP/rank0.json"
status 2 "... of standard input" "$BIN/replay" --step=5ms - <"$g"
status 2 "... of a command" "$BIN/replay" --step=5ms -- touch "$TMP/was-run"
check "... which is not run" test ! -e "$TMP/was-run"
status 0 "a trace" "$BIN/replay" "$TMP/job.merged"
status 0 "a profiler's file" "$BIN/replay" "$TMP/rank0.json"
status 3 "a job" "$BIN/replay" "$SRC/samples/blobs.job"
says "this is the text of a job, not a trace; .*: run .*blobs.job; .* graph .*blobs.job | predict " "... says what to type"
status 3 "nothing" "$BIN/replay" /dev/null
says "empty" "... says so"
status 4 "a timeline that cannot be written" "$BIN/replay" --timeline "$TMP/none/tl" "$g"
status 4 "a full disk" sh -c "'$BIN/replay' '$g' >/dev/full"
check "any call may fail, with timeline, changes and fold" "$SRC/tests/fault/torture" -n 30 "$BIN/replay" \
	--timeline "$TMP/tl.x" --fold mean --what-if 'scale kind=comm by 0.5' "$g"
check "any call may fail with two graphs" "$SRC/tests/fault/torture" -n 20 "$BIN/replay" "$g" "$TMP/slow.graph"
done_testing
