# merge: clocks put right, groups found, what it refuses, what it passes on.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

# number KEY [N]: the N-th value of "KEY" in the report
number() {
	awk -v key="\"$1\":" -v nth="${2:-1}" '$1 == key && ++n == nth { sub(/,$/, "", $2); print $2 }' \
		"$TMP/report"
}
# near VALUE WANT BY
near() {
	awk -v v="$1" -v w="$2" -v by="$3" 'BEGIN { exit !(v != "" && v - w <= by && w - v <= by) }'
}
merged() {
	"$BIN/merge" --no-provenance --report="$TMP/report" -o "$TMP/merged" "$@"
}

# ---- the tiny job: two ranks, one group with a name ---------------------------------------------

check "the streams of a tiny job" tiny_streams "$TMP"
status 0 "a trace of two ranks" merged "$TMP/job.trace"
check "the schema is named" test "$(number schema)" = '"paceline.clock/1"'
check "two collectives are matched" test "$(number collective_matches)" = 2
check "the recorded group is not inferred" test "$(number inferred_groups)" = 0
check "clocks that agree stay as they are" test "$(number offset_ns 2)" = 0
check "the output is a merged trace" sh -c "'$BIN/trace' --check '$TMP/merged' 2>&1 | grep -q merged"

for r in 0 1; do
	"$BIN/trace" -q --no-provenance -o "$TMP/r$r.trace" "$TMP/rank$r.json"
done
status 0 "files" "$BIN/merge" --no-provenance -o "$TMP/m1" "$TMP/r0.trace" "$TMP/r1.trace"
status 0 "one stream" sh -c \
	"cat '$TMP/r0.trace' '$TMP/r1.trace' | '$BIN/merge' --no-provenance >'$TMP/m2'"
check "... the same bytes" cmp -s "$TMP/m1" "$TMP/m2"
status 0 "what is merged, merged again" "$BIN/merge" --no-provenance -o "$TMP/m3" "$TMP/m1"
check "... the same bytes" cmp -s "$TMP/m1" "$TMP/m3"
status 0 "four threads" "$BIN/merge" -@4 --no-provenance -o "$TMP/m4" "$TMP/r0.trace" "$TMP/r1.trace"
check "... the same bytes" cmp -s "$TMP/m1" "$TMP/m4"
"$BIN/trace" -q -O text "$TMP/job.trace" | grep ^event >"$TMP/before"
"$BIN/trace" -q -O text "$TMP/m1" | grep ^event >"$TMP/after"
check "no event is rewritten" cmp -s "$TMP/before" "$TMP/after"
status 0 "provenance" sh -c "'$BIN/merge' '$TMP/job.trace' | zcat | grep -q -a 'merge .*job.trace'"

# lines FILE: the programs that a graph of it names, in their order
lines() {
	"$BIN/graph" -q -u "$1" | "$BIN/graph" -q -O text |
		sed -n 's/^provenance[[:space:]]*\([a-z]*\) .*/\1/p' | tr '\n' ' '
}
"$BIN/trace" -q -o "$TMP/p0.trace" "$TMP/rank0.json"
"$BIN/trace" -q -o "$TMP/p1.trace" "$TMP/rank1.json"
"$BIN/merge" -o "$TMP/p.merged" "$TMP/p0.trace" "$TMP/p1.trace"
check "a graph names what merged its traces: $(lines "$TMP/p.merged")" \
	test "$(lines "$TMP/p.merged")" = "trace trace merge graph "
"$BIN/trace" -q --no-provenance -o "$TMP/p.again" "$TMP/p.merged"
check "... also when trace passed it on" test "$(lines "$TMP/p.again")" = "trace trace merge graph "
"$BIN/trace" -q --no-provenance --kind=comm -o "$TMP/p.some" "$TMP/p.merged"
check "... or a part of it" sh -c "zcat '$TMP/p.some' | grep -q -a 'merge .*p1.trace'"

status 0 "a rank alone" "$BIN/merge" -o "$TMP/m5" "$TMP/r1.trace"
says "on one rank only" "... is warned of"

# ---- refusals ------------------------------------------------------------------------------------

status 3 "one rank twice" "$BIN/merge" -o "$TMP/twice" "$TMP/r0.trace" "$TMP/r0.trace"
says "rank 0 is in segment 0 already" "... is named"
check "... nothing is left behind" test ! -e "$TMP/twice"
status 0 "the first of them" merged --duplicates=first "$TMP/r0.trace" "$TMP/r0.trace" "$TMP/r1.trace"
check "... the other is gone" test "$(number dropped_segments)" = 1
check "... what is left is whole" cmp -s "$TMP/merged" "$TMP/m1"
status 0 "the newest of them" merged --duplicates=newest "$TMP/r0.trace" "$TMP/r0.trace" "$TMP/r1.trace"
check "... the other is gone" test "$(number dropped_segments)" = 1
check "... what is left is whole" cmp -s "$TMP/merged" "$TMP/m1"
status 0 "both of them" merged -q --duplicates=keep "$TMP/r0.trace" "$TMP/r0.trace" "$TMP/r1.trace"
# Two runs may write files of one name into two folders, in containers where every process has the same number.
for run in 1 2; do
	mkdir "$TMP/run$run"
	printf '{"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [
		{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": %d, "dur": 50},
		{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": %d, "dur": 50}]}\n' \
		$((run * 900000)) $((run * 900500)) >"$TMP/run$run/trace.json"
done
"$BIN/trace" -q -o "$TMP/named.trace" "$TMP/run1/trace.json" "$TMP/run2/trace.json"
status 3 "two recordings in files of one name" "$BIN/merge" -o "$TMP/twice" "$TMP/named.trace"
says "rank 0 is in segment 0 already" "... are two"
status 0 "the newest of them" merged --duplicates=newest "$TMP/named.trace"
check "... the other is gone" test "$(number dropped_segments)" = 1
status 0 "both of them" merged -q --duplicates=keep "$TMP/named.trace"
"$BIN/graph" -q -O text "$TMP/merged" >"$TMP/named.graph"
check "... their threads of one number are two" test "$(grep -c ^resource "$TMP/named.graph")" = 2
# A long file becomes several segments, which are one recording.
awk 'BEGIN {
	print "{\"distributedInfo\": {\"rank\": 0, \"world_size\": 1}, \"traceEvents\": ["
	for (i = 0; i < 100000; i++)
		printf "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"%0200d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":5},\n", i, i * 10
	print "{}]}"
}' >"$TMP/long.json"
"$BIN/trace" -q -u -o "$TMP/long.trace" "$TMP/long.json"
check "a long file is of several segments" sh -c "'$BIN/trace' --check '$TMP/long.trace' | grep -q ' [2-9] segments,'"
status 0 "... of one recording" "$BIN/merge" -q -o "$TMP/long.m" "$TMP/long.trace"
"$BIN/graph" -q -O text "$TMP/long.m" | grep ^resource >"$TMP/long.resources"
check "... and one thread" test "$(wc -l <"$TMP/long.resources")" = 1
"$BIN/trace" -q -u --kind=host_op -o "$TMP/long.some" "$TMP/long.m"
status 0 "... also when a filter has passed them on" "$BIN/merge" -q -o "$TMP/long.m" "$TMP/long.some"
rm -f "$TMP"/long.*
# An earlier run of more ranks left files in the folder: as of one host, 74 s before.
profile() { # RANK HOST START
	printf '{"host_name": "%s", "distributedInfo": {"rank": %d, "world_size": 4}, "traceEvents": [\n' "$2" "$1"
	for i in 0 1 2 3 4 5 6 7; do
		printf '{"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce_RING_LL_Sum_float(x)", '
		printf '"pid": 0, "tid": 7, "ts": %d, "dur": 50, "args": {"stream": 7, "device": 0, ' \
			"$(($3 + 100 * i + 3 * $1))"
		printf '"Process Group Name": "dp", "Seq": %d}}%s\n' "$i" "$(test $i = 7 || echo ,)"
	done
	echo ']}'
}
mkdir "$TMP/runs"
for r in 0 1; do profile $r node1 75000000 >"$TMP/runs/rank$r.json"; done
for r in 2 3; do profile $r node1 1000000 >"$TMP/runs/rank$r.json"; done
"$BIN/trace" -q --no-provenance -o "$TMP/runs.trace" "$TMP/runs"
"$BIN/trace" -q --no-provenance -o "$TMP/new.trace" "$TMP/runs/rank0.json" "$TMP/runs/rank1.json"
status 3 "files of two runs in one folder" "$BIN/merge" -o "$TMP/none" "$TMP/runs.trace"
says "2 recordings: rank2.json and 1 other; 74.0 s after its end: rank0.json and 1 other" "... are named"
status 0 "the newest run" merged --duplicates=newest "$TMP/runs.trace"
"$BIN/merge" -q --no-provenance -o "$TMP/new" "$TMP/new.trace"
check "... is alone in the output" cmp -s "$TMP/merged" "$TMP/new"
status 0 "the first run" merged --duplicates=first "$TMP/runs.trace"
check "... is that of the first file" cmp -s "$TMP/merged" "$TMP/new"
sed 's/"world_size": 4/"world_size": 8/' "$TMP/runs/rank2.json" >"$TMP/rank2.json"
"$BIN/trace" -q -o "$TMP/other.trace" "$TMP/rank2.json" "$TMP/runs/rank0.json" "$TMP/runs/rank1.json"
status 3 "the newest run, of a job of other size" merged --strict --duplicates=newest "$TMP/other.trace"
says "ranks 2-3 of 4" "... lacks ranks, as without the older one"
status 0 "both" merged -v --duplicates=keep "$TMP/runs.trace"
says "2 recordings: .*, used as one" "... which is said with -v"
# Ranks of one host whose collectives do not overlap: no clock can be moved.
profile 0 node1 1000000 >"$TMP/rank0.json"
profile 1 node1 1000200 >"$TMP/rank1.json"
"$BIN/trace" -q -o "$TMP/apart.trace" "$TMP/rank0.json" "$TMP/rank1.json"
status 0 "partners that cannot be, on one clock" merged "$TMP/apart.trace"
says "8 contradictions within one clock: .* the match is wrong or the ranks do not share a clock" "... are said as such"
check "... and all are counted" test "$(number conflicts_total)" = 8
# No collective has members on both clocks: how well they agree is not known.
profile 0 node1 1000000 >"$TMP/rank0.json"
profile 1 node2 1000000 | sed 's/"dp"/"other"/' >"$TMP/rank1.json"
"$BIN/trace" -q -o "$TMP/alone.trace" "$TMP/rank0.json" "$TMP/rank1.json"
status 1 "clocks without a residual" merged -q --max-residual=1ms "$TMP/alone.trace"
says "clock 0 (rank 0) has no residual" "... are none with a small one"
check "... and what is not known is null: $(number residual_p50_ns 3)" test "$(number residual_p50_ns 3)" = null
status 0 "files of two runs, on hosts that are not known" sh -c \
	"sed -i 's/\"host_name\": \"node1\", //; s/\"dp\"/\"old\"/' '$TMP'/runs/rank[23].json
	'$BIN/trace' -q '$TMP/runs' | '$BIN/merge' >/dev/null"
says "may be of different recordings" "... is warned of"

status 3 "profiler files are not traces yet" "$BIN/merge" "$TMP/rank0.json"
says "trace FILE" "... the remedy is named"
status 3 "an empty file" "$BIN/merge" -o "$TMP/none" /dev/null
status 2 "report and trace to one place" "$BIN/merge" --report=- "$TMP/job.trace"
status 2 "a negative limit" "$BIN/merge" --max-residual=-1ns -o "$TMP/none" "$TMP/job.trace"
status 2 "an unknown way to share clocks" "$BIN/merge" --clock=phase "$TMP/job.trace"
status 0 "the report to standard output" "$BIN/merge" --report=- -o "$TMP/m6" "$TMP/job.trace"
check "... arrives" grep -q paceline.clock/1 "$TMP/out"

# ---- groups that headers list --------------------------------------------------------------------

# listing RANK GROUPS: a profiler's file of few collectives, of which ranks 0 and 2 end together, and 1 and 3
listing() {
	{
		printf '{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":%s,"world_size":4,"pg_config":%s},"traceEvents":[' "$1" "$2"
		for k in 1 2 3 4 5 6; do
			late=$(((k * k * 37 + k * $1 % 2 * 53) % 200))
			printf '{"ph":"X","cat":"user_annotation","pid":1,"tid":2,"name":"gloo:all_reduce","ts":%s,"dur":%s,"args":{"Input Dims":[[64]],"Input type":["float"]}},\n' \
				$((k * 1000 + $1 * 20)) $((300 + late - $1 * 20))
		done
		printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::mm","ts":1,"dur":2}]}\n'
	} >"$TMP/listed$1.json"
}
# found: the groups of the report, those that are inferred with a "?"
found() {
	tr -d ' \n' <"$TMP/report" | sed 's/"group":/\n&/g' |
		sed -n 's/^"group":"\([^"]*\)","inferred":\([a-z]*\),"ranks":\[\([0-9,]*\)\].*/\1:\3\2/p' |
		sed 's/true/?/; s/false//' | tr '\n' ' '
}
for r in 0 1 2 3; do
	listing $r '[{"pg_name":"0","pg_desc":"default_pg","pg_size":4,"ranks":[0,1,2,3]}]'
done
"$BIN/trace" -q -o "$TMP/listed.trace" "$TMP"/listed?.json
status 0 "files that list one group" merged "$TMP/listed.trace"
check "... have that one: $(found)" test "$(found)" = "0:0,1,2,3"
check "... which is not inferred" test "$(number inferred_groups)" = 0
check "... without a warning" test ! -s "$TMP/err"
listing 1 '[{"pg_name":"1","pg_size":2,"ranks":[1,3]}]'
"$BIN/trace" -q -o "$TMP/listed.trace" "$TMP"/listed?.json
status 0 "files whose lists contradict each other" merged "$TMP/listed.trace"
says "the file of rank 1 does not" "... are named"
check "... and groups inferred" test "$(number inferred_groups)" -gt 0

# ---- steps that ranks count differently ----------------------------------------------------------

# table COLUMNS FILE: an operation table to a merged trace; the times of partners in $TMP/matches
table() {
	"$BIN/trace" -q -f optable --columns="$1" -o "$TMP/table.trace" "$2" &&
		"$BIN/merge" -q -o "$TMP/merged" "$TMP/table.trace" || return
	"$BIN/trace" -q -O text "$TMP/merged" | awk '
		$1 == "event" { sub("ts=", "", $5); ts[$2] = $5 / 1e8 }
		$1 == "match" { sub("members=", "", $NF); n = split($NF, v, /[,:]/); all[++matches] = $NF }
		END { for (m = 1; m <= matches; m++) {
			n = split(all[m], v, /[,:]/)
			for (i = 2; i <= n; i += 2) printf "%s%s", ts[v[i]], i < n ? "-" : " " } }' >"$TMP/matches"
}
cat >"$TMP/numbers.csv" <<-X
	rank,optype,start_ts,duration,step,seq_id,group,bytes
	0,all-reduce,1,0.5,0,1,g,1000
	0,all-reduce,3,0.5,1,2,g,1000
	1,all-reduce,1,0.5,1,1,g,1000
	1,all-reduce,3,0.5,2,2,g,1000
X
check "numbers that occur once" table group=group,bytes=bytes "$TMP/numbers.csv"
check "... tell without the step: $(cat "$TMP/matches")" test "$(cat "$TMP/matches")" = "10-10 30-30 "
cat >"$TMP/again.csv" <<-X
	rank,optype,start_ts,duration,step,seq_id,group,bytes
	0,all-reduce,3,0.5,1,1,g,1000
	1,all-reduce,1,0.5,0,1,g,1000
	1,all-reduce,3,0.5,1,1,g,1000
X
check "numbers that begin again in each step" table group=group,bytes=bytes "$TMP/again.csv"
check "... tell in their step: $(cat "$TMP/matches")" test "$(cat "$TMP/matches")" = "10 30-30 "
cat >"$TMP/sends.csv" <<-X
	rank,optype,start_ts,duration,step,peer,bytes
	0,send,1,0.5,0,1,1000
	0,send,3,0.5,1,1,1000
	0,send,5,0.5,2,1,1000
	1,recv,1.2,0.3,1,0,1000
	1,recv,3.1,0.4,2,0,1000
	1,recv,5.1,0.4,3,0,1000
X
check "receives whose steps are counted from 1" table bytes=bytes "$TMP/sends.csv"
check "... match by order: $(cat "$TMP/matches")" test "$(cat "$TMP/matches")" = "10-12 30-31 50-51 "
cat >"$TMP/some.csv" <<-X
	rank,optype,start_ts,duration,step,peer,bytes
	0,send,1,0.5,0,1,1000
	0,send,3,0.5,1,1,1000
	1,recv,3.1,0.4,1,0,1000
	1,recv,5.1,0.4,2,0,1000
X
check "a send too many and a receive too many" table bytes=bytes "$TMP/some.csv"
check "... are alone, as the steps say: $(cat "$TMP/matches")" test "$(cat "$TMP/matches")" = "30-31 "

# ---- numbers that begin again --------------------------------------------------------------------

# restarted RANK HOST PATTERN RUN...: collectives 0-9 of each run, "RUN:FIRST" those from FIRST on; their times
# differ from run to run with the pattern "own", and do not with "same"
restarted() {
	rank=$1
	host=$2
	pattern=$3
	shift 3
	printf '%s\n' "$@" | awk -F : -v rank="$rank" -v host="$host" -v pattern="$pattern" '
		BEGIN { printf "{\"host_name\": \"%s\", \"distributedInfo\": {\"rank\": %d, \"world_size\": 2}, \"traceEvents\": [\n", host, rank }
		{ for (i = $2 + 0; i < 10; i++) {
			end = $1 * 100000 + i * 1000 + (pattern == "own" ? ($1 * 37 + i * i * 53 * $1) % 400 : 0)
			printf "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclKernel_AllReduce_RING_LL_Sum_float(x)\", \"pid\": 0, \"tid\": 7, "
			printf "\"ts\": %d, \"dur\": %d, \"args\": {\"stream\": 7, \"device\": 0, \"Process Group Name\": \"dp\", \"Seq\": %d}},\n", end - 200 - 50 * rank, 200 + 50 * rank, i } }
		END { print "{}]}" }' >"$TMP/restarted$rank.json"
}
# pairs: merges both; the matches of two, as the numbers of the events
pairs() {
	"$BIN/trace" -q "$TMP/restarted0.json" "$TMP/restarted1.json" | "$BIN/merge" -o "$TMP/merged" 2>"$TMP/err" || return
	"$BIN/trace" -q -O text "$TMP/merged" | sed -n 's/^match .* members=0:\([0-9]*\),1:\([0-9]*\)$/\1-\2/p' | tr '\n' ' ' >"$TMP/pairs"
}
second="10-0 11-1 12-2 13-3 14-4 15-5 16-6 17-7 18-8 19-9 "
first="0-0 1-1 2-2 3-3 4-4 5-5 6-6 7-7 8-8 9-9 "
restarted 0 node1 same 1 2
restarted 1 node1 same 2
check "a second run on one clock" pairs
check "... is found by its times: $(cat "$TMP/pairs")" test "$(cat "$TMP/pairs")" = "$second"
check "... without a doubt" sh -c "! grep -q 'begin again' '$TMP/err'"
restarted 1 node1 same 1
check "a first run on one clock" pairs
check "... is found by its times: $(cat "$TMP/pairs")" test "$(cat "$TMP/pairs")" = "$first"
restarted 1 node2 same 2
check "runs that are alike on two clocks" pairs
check "... end together: $(cat "$TMP/pairs")" test "$(cat "$TMP/pairs")" = "$second"
says "numbers begin again on rank 0 more often than on rank 1" "... which is said to be assumed"
restarted 0 node1 own 1 2
restarted 1 node2 own 1
check "a first run with times of its own, on another clock" pairs
check "... is found by its ends: $(cat "$TMP/pairs")" test "$(cat "$TMP/pairs")" = "$first"
check "... without a doubt" sh -c "! grep -q 'begin again' '$TMP/err'"
restarted 0 node1 own 1:5 2
restarted 1 node2 own 1 2
check "runs that are equally many, one begins in the middle" pairs
check "... each number is in its run: $(cat "$TMP/pairs")" test "$(cat "$TMP/pairs")" = \
	"0-5 1-6 2-7 3-8 4-9 5-10 6-11 7-12 8-13 9-14 10-15 11-16 12-17 13-18 14-19 "

# ---- jobs with known clocks ----------------------------------------------------------------------

kgen=${GEN:-}/kgen
if [ ! -x "$kgen" ]; then
	skip "generated jobs" "no kgen"
	done_testing
	exit
fi

"$kgen" -o "$TMP/job" --steps=4 --clock-offset=host:1:-3000000 --clock-drift=host:1:40 \
	--truncate-last >"$TMP/log"
"$BIN/trace" -q -o "$TMP/two.trace" "$TMP"/job/rank*.json
status 0 "two hosts, one of them wrong" merged "$TMP/two.trace"
check "two clocks" test "$(grep -c '"clock": [01],$' "$TMP/report")" = 2
check "its offset is found: $(number offset_ns 2)" near "$(number offset_ns 2)" -3000000 10000
check "its drift is found: $(number drift_ppm 2)" near "$(number drift_ppm 2)" 40 8
check "none of the groups is doubtful" test "$(number doubtful)" = 0
check "all groups are inferred" test "$(number inferred_groups)" = 6
check "each pair is one, and every second rank" sh -c "tr -d ' \n' <'$TMP/report' |
	grep -q '\"ranks\":\[4,5\].*\"ranks\":\[0,2,4,6\]'"
check "nothing contradicts" test "$(number conflicts_total)" = 0
check "what is cut off is no divergence" test "$(number divergences)" = 0
check "residuals are microseconds: $(number residual_max_ns)" near "$(number residual_max_ns)" 5000 5000

status 0 "each rank on its own" merged --clock=rank "$TMP/two.trace"
check "eight clocks" test "$(grep -c '"clock": [0-7],$' "$TMP/report")" = 8
check "... the fifth is found too" near "$(number offset_ns 5)" -3000000 10000

status 1 "residuals that are too great" merged -q --clock=one --max-residual=1ms "$TMP/two.trace"
says "greatest residual" "... are shown"
check "... the trace is written all the same" sh -c "'$BIN/trace' --check '$TMP/merged' >/dev/null 2>&1"
status 0 "one clock for all contradicts" merged --clock=one "$TMP/two.trace"
says "contradictions" "... which is said"
check "... and counted" test "$(number conflicts_total)" -gt 0
status 3 "strict: contradictions are refused" "$BIN/merge" --strict --clock=one -o "$TMP/no" "$TMP/two.trace"
status 0 "residuals that are small enough" merged --max-residual=1ms "$TMP/two.trace"

# a rank of the group is missing
"$BIN/trace" -q -o "$TMP/few.trace" "$TMP/job/rank0.json" "$TMP/job/rank1.json" "$TMP/job/rank2.json"
status 0 "three of eight ranks" merged "$TMP/few.trace"

# stages: sends and receives, without and with their peers
for how in --no-host-name --record-groups; do
	rm -rf "$TMP/pipe"
	"$kgen" -o "$TMP/pipe" --ranks=4 --pp=4 --tp=1 --microbatches=6 --steps=2 $how \
		--clock-offset=2:5000000 --clock-offset=3:5000000 >"$TMP/log"
	"$BIN/trace" -q "$TMP"/pipe/rank*.json >"$TMP/pipe.trace"
	status 0 "a pipeline $how" merged --clock=rank "$TMP/pipe.trace"
	check "every send finds its receive $how" test "$(number p2p_matches)" = 72
	check "none is left over $how" test "$(number unmatched_sends)$(number unmatched_recvs)" = 00
	check "the third clock is found: $(number offset_ns 3)" near "$(number offset_ns 3)" 5000000 60000
done

# what is inferred is what was recorded, also where the steps are few
# matches FILE: the members of each match that has several
matches() {
	"$BIN/trace" -q -O text "$1" | sed -n 's/^match .*members=\(.*,.*\)$/\1/p' | sort
}
# as_recorded NAME OPTION...
as_recorded() {
	name=$1
	shift
	rm -rf "$TMP/pipe"
	"$kgen" -o "$TMP/pipe" --record-groups "$@" >"$TMP/log"
	"$BIN/trace" -q "$TMP"/pipe/rank*.json | "$BIN/merge" -q -o "$TMP/known"
	rm -rf "$TMP/pipe"
	"$kgen" -o "$TMP/pipe" --clock-offset=host:1:7000000 "$@" >"$TMP/log"
	"$BIN/trace" -q "$TMP"/pipe/rank*.json >"$TMP/pipe.trace"
	status 0 "$name: merges" merged "$TMP/pipe.trace"
	check "$name: without a warning" test ! -s "$TMP/err"
	matches "$TMP/known" >"$TMP/want"
	matches "$TMP/merged" >"$TMP/got"
	check "$name: sends and receives too" grep -q , "$TMP/want"
	check "$name: every match is the recorded one" cmp -s "$TMP/want" "$TMP/got"
}
as_recorded "two stages, eight steps" --pp=2 --steps=8 --layers=2
as_recorded "two stages, two steps" --pp=2 --steps=2
as_recorded "two stages, one step" --pp=2 --steps=1
as_recorded "two stages of one replica each" --pp=2 --tp=1 --steps=2 --ranks=4
as_recorded "four stages, one step, a clock a rank" --pp=4 --tp=1 --ranks=4 --steps=1 --no-host-name
as_recorded "four stages, eight batches" --pp=4 --tp=1 --microbatches=8 --layers=4 --steps=3

# half of the files: what has no partner is said
"$BIN/trace" -q -o "$TMP/half.trace" "$TMP"/pipe/rank[0-3].json
status 0 "half of the stages" "$BIN/merge" -o "$TMP/m7" "$TMP/half.trace"
says "sends and receives have no partner" "... leave sends without receives, which is said"

# regular steps of a job over gloo on one host, whose ends vary by milliseconds: a step later they fit as well
regular() {
	mkdir -p "$TMP/regular"
	awk -v dir="$TMP/regular" 'function put(name, tid, ts, dur, bytes) {
		printf "%s{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"%s\", \"pid\": 1%d, \"tid\": %d, \"ts\": %d, \"dur\": %d, \"args\": {%s}}",
			n++ ? ",\n" : "", name, r, tid, ts, dur, bytes ? "\"Input Dims\": [[" bytes / 4 "]], \"Input type\": [\"float\"]" : "" >f
	}
	{
		r = $1
		f = dir "/rank" r ".json"
		n = 0
		printf "{\"distributedInfo\": {\"backend\": \"gloo\", \"rank\": %d, \"world_size\": 2, \"pg_config\": [{\"pg_name\": \"0\", \"ranks\": [0, 1]}]},\n", r >f
		printf "\"host_name\": \"vm\", \"traceEvents\": [\n" >f
		for (i = 0; i < 5; i++) {
			put("ProfilerStep#" i, 1, i * 198000 - 40000, 197000, 0)
			put("gloo:all_reduce", 2, $(2 + 4 * i), $(3 + 4 * i), 2308496)
			put("gloo:all_reduce", 3, $(4 + 4 * i), $(5 + 4 * i), 24178688)
		}
		print "]}" >f
	}' <<-X
		0 0 1331 54827 14063 193546 8136 254664 17934 390833 13768 450973 17748 592765 8499 650819 15887 791496 10127 847654 23737
		1 0 1332 56306 16306 193546 8136 251279 16891 390833 10755 453530 19066 593473 7744 653677 13087 792293 9332 857967 13395
	X
}
regular
"$BIN/trace" -q -o "$TMP/regular.trace" "$TMP"/regular/rank*.json
status 0 "regular steps on one host" "$BIN/merge" -q --report="$TMP/regular.report" -o "$TMP/m8" "$TMP/regular.trace"
check "... every collective meets the one beside it" grep -q '"incomplete_matches": *0,' "$TMP/regular.report"
done_testing
