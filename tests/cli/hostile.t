# Input that means harm, or was damaged so that it looks like it: one bad event costs one event, nothing
# hangs, nothing that does not belong together is joined in silence.
# runner: long
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

cd "$TMP" || exit 1
check "the streams of a tiny job" tiny_streams .

# events TEXT: a document whose events are a good one, TEXT, and two good ones
events() {
	good='"cat":"cpu_op","pid":1,"tid":1,"dur":1'
	printf '{"traceEvents":[{"ph":"X","name":"a","ts":1,%s},' "$good"
	cat
	printf ',{"ph":"X","name":"b","ts":2,%s},{"ph":"X","name":"c","ts":3,%s}]}' "$good" "$good"
}

# repeat N FORMAT: FORMAT may hold %d
repeat() {
	awk -v n="$1" -v form="$2" 'BEGIN { for (i = 0; i < n; i++) printf form, i }'
}

kept() { # kept N FILE: as many events
	test "$1" = "$("$BIN/trace" -q -O jsonl "$2" | grep -c '"type":"event"')"
}

# ---- one bad event costs one event --------------------------------------------------------------
{
	repeat 300000 '['
	repeat 300000 ']'
} | events >deep.json
status 0 "an array nested 300,000 deep between events" "$BIN/trace" -o x deep.json
says "deep.json: byte [0-9]*: an event expected" "... is said"
check "... and costs no event" kept 3 x
{
	printf '{"ph":"X","name":"q","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1,"args":{"k":0'
	repeat 70000 ',"k%d":1'
	printf '}}'
} | events >wide.json
status 0 "an event of 70,000 arguments" "$BIN/trace" -o x wide.json
says "wide.json: byte [0-9]*: an event of more than" "... is said"
check "... and costs one event" kept 3 x
printf '{"ph":"X","name":"q","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1,"args":{"m":%s,"n":%s}}' \
	-9223372036854775808 -9223372036854775809 | events >least.json
status 0 "the least integer, and one less" "$BIN/trace" -O csv least.json
check "... are kept as they are" grep -q '"{""m"":-9223372036854775808,""n"":-9223372036854775809}"' out

# ---- the time that damage takes -----------------------------------------------------------------
{
	printf '{"traceEvents":[\n'
	repeat 60000 '{"ph":"X","args":{"a":[\n'
} >open.json
status 0 "60,000 events that never end" timeout 20 "$BIN/trace" -q -o x open.json
{
	printf '{"traceEvents":1'
	repeat 60000 '\n"b":{'
} >members.json
status 0 "60,000 members that never end" timeout 20 "$BIN/trace" -q -o x members.json
{
	printf '{"traceEvents":[{}'
	repeat 150000 ',{"ph":"X","k%d":1}'
	printf ']}'
} >keys.json
status 0 "150,000 bad events, each with a key of its own" timeout 20 "$BIN/trace" -q -o x keys.json

# ---- operation tables ---------------------------------------------------------------------------
{
	printf 'rank,step,optype,start_ts,duration\n0,0,a,1,1\n0,0,b,2,1\n0,0,"'
	repeat 400000 'never ends '
} >open.csv
status 0 "a quote that is never closed" timeout 20 "$BIN/trace" -O csv -o x open.csv
says "open.csv: line 4: .*quote" "... is said, with its line"
check "... and the rows before it are kept" test 2 = "$(grep -c host_op x)"
printf 'rank,step,optype,start_ts,duration\n0,0,a,1,1\n' >small.csv
status 3 "a column that --columns names and the table lacks" "$BIN/trace" --columns=rank=gpu small.csv
says 'small.csv: line 1: no column "gpu"' "... is named"

# ---- times that no clock shows ------------------------------------------------------------------
sed 's/"name":"adam"\(.*\)"ts":[0-9.]*,"dur":60/"name":"adam"\1"ts":9223372036854775.8,"dur":60/' \
	rank0.json | awk '/adam/ && !n++ || !/adam/' >late.json
sed 's/"name":"gemm"\(.*\)"dur":[0-9.]*/"name":"gemm"\1"dur":9223372036854775/' rank1.json >long.json
sed 's/"ts":1030.000/"ts":-9223372036854775.808/' rank0.json >early.json
for f in late long early; do
	other=rank1.json
	[ $f = long ] && other=rank0.json
	"$BIN/trace" -q -o w.trace $f.json $other
	status 0 "$f: other forms" "$BIN/trace" -q -O perfetto -o x w.trace
	status 0 "$f: clocks" "$BIN/merge" -q --clock=rank -o w.merged w.trace
	status 0 "$f: a graph" "$BIN/graph" -o w.graph w.merged
	says "events lie years from the rest" "$f: ... says what it did"
	status 0 "$f: a report" "$BIN/replay" -o x w.graph
done

# ---- what does not belong together --------------------------------------------------------------
cat job.merged job.merged >twice
status 3 "two merged streams in a row" "$BIN/graph" -o x twice
says "twice: was merged separately" "... are refused by name"
cat job.merged job.trace >mixed
status 3 "a stream that was added after the merge" "$BIN/graph" -o x mixed
says "mixed: segment 2 .* after the merge" "... is refused by name"
status 3 "... as a file of its own too" "$BIN/graph" -o x job.trace job.merged
status 3 "ranks that were not merged" "$BIN/graph" -o x job.trace
says "^graph: job.trace: " "... are refused by name"

# ---- one file for two outputs -------------------------------------------------------------------
rm -f both
status 2 "trace and report under one name" "$BIN/merge" -o both --report=both job.trace
status 2 "... or under two names of one file" "$BIN/merge" -o both --report=./both job.trace
status 2 "report and timeline likewise" "$BIN/replay" -o both --timeline="$TMP/both" job.graph
check "... leaves nothing" test -z "$(find . -name 'both*')"
status 2 "an output without a name" "$BIN/merge" -o "" job.trace
status 4 "a report that cannot be written is known before the work" "$BIN/merge" -o both \
	--report=nowhere/x job.trace
check "... leaves nothing" test -z "$(find . -name 'both*')"

# ---- what is said, and how much of it -----------------------------------------------------------
printf 'scale all by 2\n\n# a comment\nscale foo by 3\n' >changes
status 2 "a bad line in a file of changes" "$BIN/replay" --what-if-file changes job.graph
says "changes: line 4: " "... is said with its number"
i=0
while [ $i -lt 60 ]; do
	head -c 1500 rank0.json >"cut$i.json"
	i=$((i + 1))
done
status 0 "60 damaged files" "$BIN/trace" -o x cut*.json
check "... are not 120 lines" test "$(wc -l <err)" -le 41
says "more warnings are not shown" "... and the rest is counted"
status 0 "... unless asked for" "$BIN/trace" -v -o x cut*.json
check "... all of them" test "$(grep -c 'warning: cut' err)" -ge 120

# ---- memory that runs out in the exporters -------------------------------------------------------
calls=400
! sanitized any || calls=100 # spread over all of them
for form in perfetto chrome; do
	check "-O $form: any call may fail" "$SRC/tests/fault/torture" -n $calls "$BIN/trace" -O $form \
		rank0.json rank1.json
done
# ---- work that grows with the square of what is there -----------------------------------------
# within WHAT COMMAND...: a second's work, twelve are enough
within() {
	name=$1
	shift
	status 0 "$name" timeout 12 "$@"
}
awk 'BEGIN {
	n = 1048576
	printf "{\"distributedInfo\":{\"rank\":0,\"world_size\":%d,\"pg_config\":[", n
	for (i = 0; i < 400; i++)
		printf "%s{\"pg_name\":\"%d\",\"pg_size\":%d,\"ranks\":[]}", i ? "," : "", i, n
	print "]},\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"collective\",\"name\":\"allreduce\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":5}]}"
}' >"$TMP/world.json"
"$BIN/trace" -q -o "$TMP/world.trace" "$TMP/world.json"
within "a small file that lists a million ranks, again and again" "$BIN/merge" -q -o "$TMP/x" "$TMP/world.trace"

# event RANK KIND AT DUR ARGS, for awk
event='function event(rank, kind, at, dur, args) {
	printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":\"%s\",\"ts\":%d,\"dur\":%d,\"args\":{%s}}",
		sep, kind, kind == "collective" ? "allreduce" : kind, rank, kind == "collective" ? "main" : "channel", at, dur, args
	sep = ",\n"
}'
awk "$event"' BEGIN {
	print "{\"distributedInfo\":{\"rank\":0,\"world_size\":2},\"traceEvents\":["
	for (i = 0; i < 80000; i++)
		event(0, "collective", 10 * i, 1, "\"Process Group Name\":\"dp\",\"Seq\":7")
	for (i = 0; i < 80000; i++)
		event(0, "send", 1000000 + i, 1, "\"of\":7,\"channel\":0,\"peer\":1,\"bytes\":4")
	print "]}"
}' >"$TMP/same.json"
"$BIN/trace" -q -o "$TMP/same.trace" "$TMP/same.json"
within "messages of none of many collectives of one number" "$BIN/merge" -q -o "$TMP/x" "$TMP/same.trace"
for r in 0 1; do
	awk -v r=$r "$event"' BEGIN {
		printf "{\"distributedInfo\":{\"rank\":%d,\"world_size\":2},\"traceEvents\":[\n", r
		event(r, "collective", 100, 1000, "\"Process Group Name\":\"dp\",\"Seq\":7,\"bytes\":400")
		for (i = 0; i < 60000; i++)
			event(r, i % 2 ? "send" : "recv", 500, 0, "\"Process Group Name\":\"dp\",\"of\":7,\"channel\":0,\"peer\":" 1 - r)
		print "]}"
	}' >"$TMP/now$r.json"
done
"$BIN/trace" -q "$TMP/now0.json" "$TMP/now1.json" | "$BIN/merge" -q -o "$TMP/now.merged"
within "messages that are all at one instant" "$BIN/graph" -q -o "$TMP/x" "$TMP/now.merged"

done_testing
