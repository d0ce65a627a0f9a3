# trace: import, selection, forms, folders, checks.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

cd "$TMP" || exit 1
check "the streams of a tiny job" tiny_streams .
trace=$BIN/trace

lines() { # lines WANT PATTERN FILE
	test "$1" = "$(grep -c -e "$2" "$3")"
}

# --- forms
for form in chrome csv jsonl text stat stat-json perfetto trace; do
	status 0 "-O $form" "$trace" -O $form -o "x.$form" job.merged
	check "-O $form writes something" test -s "x.$form"
	status 0 "-O $form of a trace without events" "$trace" -O $form --name=nothing -o none job.trace
done
for form in chrome csv jsonl text stat; do
	"$trace" -O $form -@4 -o x.4 job.merged
	check "-O $form of several segments is the same with -@1 and -@4" sh -c "'$trace' -O $form -@1 job.merged | cmp - x.4"
done
echo '[{"ph":"b","name":"x","cat":"c","id":"0x7","pid":1,"tid":1,"ts":5}]' >open.json
check "a begin without an end keeps its id" sh -c "'$trace' -q -O text open.json | grep -q '\"id\"=\"0x7\"'"
check "csv: one line an event and a head" lines 37 "^" x.csv
check "jsonl: 36 events" lines 36 '"type":"event"' x.jsonl
check "stat-json: schema" grep -q '^{"schema":"paceline.stat/1"' x.stat-json
check "stat: the transfer of the collective" grep -q "^allreduce .*4.0 KiB .*transfer" x.stat
status 0 "a single file goes out as Chrome JSON" "$trace" -O chrome -o one.json rank0.json
status 0 "and in again" "$trace" -O chrome -o two.json one.json
check "to the same bytes" cmp one.json two.json
status 0 "text of the original" "$trace" -O text -o one.text rank0.json
status 0 "text of the copy" "$trace" -O text -o two.text one.json
sed 1d one.text | sort >one.sorted
# sizes that the importer worked out are members of their own in the copy
sed '1d; s/bytes:"bytes"/bytes/' two.text | sort >two.sorted
check "hold the same" cmp one.sorted two.sorted
if command -v python3 >/dev/null; then
	check "python reads the JSON of two ranks" python3 -c "
import json
d = json.load(open('x.chrome'))
assert len([e for e in d['traceEvents'] if e['ph'] == 'X']) == 36
assert len({e['pid'] for e in d['traceEvents']}) == 4
json.load(open('x.stat-json'))
for line in open('x.jsonl'): json.loads(line)"
else
	skip "python reads the JSON of two ranks" "no python3"
fi

# several ranks in one file: recognised for what the profiler wrote, and still several ranks
status 0 "two ranks as Chrome JSON" "$trace" -O chrome -o pair.json job.trace
status 0 "and in again" "$trace" -O jsonl -o pair.jsonl pair.json
check "as the profiler's" grep -q '"type":"segment".*"format":"kineto"' pair.jsonl
check "with the events of rank 0" lines 18 '"type":"event".*"rank":0,' pair.jsonl
check "and those of rank 1" lines 18 '"type":"event".*"rank":1,' pair.jsonl
"$trace" -q pair.json | "$BIN/merge" -q | "$BIN/graph" -O stat >pair.stat
"$BIN/merge" -q job.trace | "$BIN/graph" -O stat >job.stat
check "and to the same graph" sh -c "test -s pair.stat && cmp pair.stat job.stat"
# the same correlation on both ranks, launched in the first step of one and the second of the other
cat >"corr.json" <<'END'
{"schemaVersion":1,"traceEvents":[
{"ph":"M","name":"process_name","pid":1,"args":{"name":"rank 0 python"}},
{"ph":"M","name":"process_name","pid":2,"args":{"name":"rank 1 python"}},
{"ph":"M","name":"process_name","pid":3,"args":{"name":"rank 0 (GPU 0)"}},
{"ph":"M","name":"process_name","pid":4,"args":{"name":"rank 1 (GPU 0)"}},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":2,"tid":1,"ts":0,"dur":100},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":2,"tid":1,"ts":100,"dur":100},
{"ph":"X","cat":"cuda_runtime","name":"launch","pid":1,"tid":1,"ts":10,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"cuda_runtime","name":"launch","pid":2,"tid":1,"ts":110,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"gemm","pid":3,"tid":7,"ts":120,"dur":5,"args":{"correlation":7,"stream":7,"device":0}},
{"ph":"X","cat":"kernel","name":"gemm","pid":4,"tid":7,"ts":120,"dur":5,"args":{"correlation":7,"stream":7,"device":0}}
]}
END
for step in 1 2; do
	status 0 "--step=$step of both" "$trace" --step=$step --kind=kernel -O jsonl -o s corr.json
	check "--step=$step: the kernel that its rank launched in it" lines 1 \
		"\"type\":\"event\".*\"rank\":$((step - 1)),.*gemm" s
	check "--step=$step: and no other" lines 1 '"type":"event"' s
done
status 0 "a rank that was asked for goes first" "$trace" --rank-from=order -O jsonl -o s pair.json
check "all are of it" lines 36 '"type":"event".*"rank":0,' s

# --- inputs
mkdir -p f
cp rank0.json f/r10.json
gzip -c rank1.json >f/r2.data
echo "no trace" >f/notes
status 0 "a folder" "$trace" -O jsonl -o f.jsonl f
check "has its traces in natural order, whatever their names end in" test "r2.data r10.json" = \
	"$(sed -n 's/.*"type":"segment".*"source":"\([^"]*\)".*/\1/p' f.jsonl | tr '\n' ' ' | sed 's/ $//')"
status 3 "a file that is no trace" "$trace" -o n.out f/notes
says "notes" "is named"
mkdir -p g
cp f/notes g
mkdir tables
awk 'BEGIN {
	srand(1)
	print "rank,step,optype,start_ts,duration"
	for (i = 0; i < 3000; i++) printf "0,%d,compute-%d,%.9f,%.9f\n", i, 1e6 * rand(), i + rand(), rand()
}' | gzip >tables/ops.csv.gz
status 0 "a folder with a table that gzip shrinks by little" "$trace" -o table.out tables
rm -r tables
status 3 "a folder without traces" "$trace" -o n.out g
status 2 "standard input twice" "$trace" -o n.out - -
status 2 "an unknown form" "$trace" -O nonsense rank0.json
status 2 "an unknown format" "$trace" -f nonsense rank0.json
status 0 "a forced format" "$trace" -f chrome -O stat rank0.json
status 0 "a file given twice, and by a link" sh -c "ln -s rank0.json again.json
	'$trace' --no-provenance -o twice.trace rank0.json ./rank0.json again.json 2>err"
check "is read once" sh -c "'$trace' --no-provenance -q -o once.trace rank0.json && cmp once.trace twice.trace"
check "which is said" test "$(grep -c "given twice" err)" = 2
rm again.json
cat job.trace job.trace >double.trace
status 0 "two streams after one another" "$trace" -O jsonl -o double.jsonl double.trace
check "are four segments" lines 4 '"type":"segment"' double.jsonl

# --- threads
for form in trace chrome stat-json; do
	"$trace" --no-provenance -O $form -@ 1 f rank0.json job.trace >a.$form 2>err
	"$trace" --no-provenance -O $form -@ 4 f rank0.json job.trace >b.$form 2>err
	check "-O $form of several files is the same with -@1 and -@4" cmp a.$form b.$form
done

# A stream that is too long for memory waits in a temporary file.
size=50
! sanitized any || size=16
"$GEN/kgen" --big=$size --distinct-shapes big.json
cp big.json big2.json
for form in trace csv; do
	"$trace" -u --no-provenance -O $form -@ 1 big.json rank0.json big2.json >a.$form 2>err
	"$trace" -u --no-provenance -O $form -@ 4 big.json rank0.json big2.json >b.$form 2>err
	check "-O $form of long files is the same with -@1 and -@4" cmp a.$form b.$form
done
"$trace" --check a.trace >out
check "a long stream is one of several segments" grep -q ' [2-9] segments,' out
rm -f big.json big2.json [ab].trace [ab].csv

# --- selection
status 0 "--rank" "$trace" --rank=1 -O jsonl -o s job.trace
check "--rank: 18 events" lines 18 '"type":"event"' s
status 0 "--step" "$trace" --step=1 -O jsonl -o s job.trace
check "--step: half of them, device operations with their launch" lines 18 '"type":"event"' s
check "--step: with its kernels" test 6 = "$(grep -c '"kind":"kernel"\|"kind":"coll' s)"
status 0 "--step twice" "$trace" --step=0 --step=1 -O jsonl -o s job.trace
check "--step twice: all" lines 36 '"type":"event"' s
printf 'optype,rank,start_ts,duration\na,0,0,5\n' >stepless.csv
status 0 "--step of the least number" "$trace" -q --step=-9223372036854775808 -O jsonl -o s stepless.csv
check "... selects nothing that has no step" lines 0 '"type":"event"' s
mkdir order
for i in r1 r02 r3 r10; do
	cp stepless.csv order/$i.csv
done
status 0 "a folder" "$trace" -q -O text -o s order
check "... in the order of the numbers in names" test 'r1 r02 r3 r10 ' = "$(sed -n 's/^segment.*source="[^"]*\(r[0-9]*\)\.csv".*/\1/p' s | tr '\n' ' ')"
rm -r order stepless.csv
status 0 "--kind" "$trace" --kind="kernel|step" -O jsonl -o s job.trace
check "--kind: kernels and steps" lines 12 '"type":"event"' s
status 0 "--name" "$trace" --name="aten::*" -O jsonl -o s job.trace
check "--name" lines 4 '"type":"event"' s
status 0 "--time" "$trace" --time=490us..510us -O jsonl -o s job.trace
check "--time: what overlaps it" lines 4 '"type":"event"' s
status 0 "a selection of a merged stream" "$trace" --kind=comm -o s job.merged
check "says nothing" test ! -s "$TMP/err"
status 0 "which can be merged again" sh -c "'$BIN/merge' -q s | '$trace' -O stat >s.stat"
check "to the same transfer" test "$(grep ^allreduce x.stat)" = "$(grep ^allreduce s.stat)"

# what is left of a merge: the ranks picked of four are a graph as those two alone are, but for the
# partners that are missing
data=$SRC/samples/ddp-gloo
"$trace" -q "$data"/rank[0-3].json.gz | "$BIN/merge" -q -o four.trace
"$trace" -q "$data"/rank[01].json.gz | "$BIN/merge" -q -o two.trace
status 0 "--rank of a merged trace" "$trace" --rank=0-1 -o picked.trace four.trace
status 0 "is whole" "$trace" --check picked.trace
for t in two picked; do
	"$BIN/graph" -O text $t.trace | grep '^node\|^edge' | sed 's/\tmissing\t/\t-\t/' >$t.nodes
done
check "and gives the graph of these ranks" sh -c "test -s two.nodes && cmp two.nodes picked.nodes"
status 0 "one rank of two" "$trace" --rank=1 -o s job.merged
"$trace" -O text s >s.text
check "its collectives miss a partner" grep -q '^match .*missing' s.text
check "but not all are gone" test "$(grep -c '^match ' s.text)" = "$("$trace" -O text job.merged | grep -c '^match ')"
status 0 "which replays" sh -c "'$BIN/graph' -q s | '$BIN/replay' -q"
for bad in --rank=x --rank=3-1 --step= --time=5 --time=9..1 --top=-3; do
	status 2 "$bad" "$trace" $bad rank0.json
done

# --- a thread whose operations and launches alternate in disorder
awk 'BEGIN {
	op = "\"name\":\"record_param_comms\",\"cat\":\"cpu_op\",\"pid\":10,\"tid\":10,\"dur\":50"
	call = "\"name\":\"cudaLaunchKernelExC\",\"cat\":\"cuda_runtime\",\"pid\":10,\"tid\":10,\"dur\":5"
	kernel = "\"name\":\"ncclDevKernel_AllReduce\",\"cat\":\"kernel\",\"pid\":0,\"tid\":20,\"dur\":40"
	printf "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":0},\"traceEvents\":["
	for (i = 0; i < 200; i++) {
		t = 50000 - 100 * i
		printf "{\"ph\":\"X\",%s,\"ts\":%d,\"args\":{\"Collective name\":\"allreduce\",", op, t
		printf "\"Process Group Name\":\"5\",\"Seq\":%d}},\n", i
		printf "{\"ph\":\"X\",%s,\"ts\":%d,\"args\":{\"correlation\":%d}},\n", call, t + 10, i
		printf "{\"ph\":\"X\",%s,\"ts\":%d,\"args\":{\"stream\":20,\"correlation\":%d}},\n", kernel, t + 60000, i
	}
	print "{}]}"
}' >disorder.json
status 0 "operations and launches in disorder" "$trace" -O jsonl disorder.json
check "... each kernel has what its operation says" \
	test 200 = "$(grep '"kind":"collective"' out | grep -c '"group":"5","seq":')"

# --- pipes with names, which can be read once
"$trace" -O jsonl rank0.json | grep '"type":"event"' >s1
mkfifo fifo
cat rank0.json >fifo &
status 0 "a named pipe" timeout 10 "$trace" -O jsonl fifo
check "... is read like a file" sh -c "grep '\"type\":\"event\"' out | cmp s1 -"
status 0 "/dev/fd/N, as <(...) names a pipe" sh -c "cat rank0.json | '$trace' -O jsonl /dev/fd/0"
check "... is read like a file" sh -c "grep '\"type\":\"event\"' out | cmp s1 -"

# --- check, salvage, strict
status 0 "--check of good inputs" "$trace" --check job.trace job.merged job.graph rank0.json
check "--check: a line each" lines 4 ": ok: " out
head -c 1500 job.trace >"cut"
status 3 "--check of a cut stream" "$trace" --check job.trace cut
check "--check: names the bad one" grep -q "^cut: bad" out
for option in --rank=0 --step=3 --time=..1ms --kind=kernel --name=gemm --to=csv --top=3 --salvage; do
	status 2 "--check with $option" "$trace" --check "$option" job.trace
	says "trace: ${option%%=*} is not for --check" "... is refused by its name"
done
status 0 "--check reads what --from says" "$trace" --check --from=kineto rank0.json
status 0 "--salvage" "$trace" --salvage -o saved cut
says "cut" "--salvage says what was lost"
status 0 "--salvage with --from=native" "$trace" --from=native --salvage -o named cut
check "... saves the same" sh -c "'$trace' -O jsonl saved >s1 && '$trace' -O jsonl named >s2 && cmp s1 s2"
status 3 "--from=native of a cut stream" "$trace" --from=native -o s cut
status 0 "what was saved is whole" "$trace" --check saved
head -c 2000 rank0.json >"cut.json"
status 0 "a cut profiler file" "$trace" -O jsonl -o s cut.json
says "cut.json" "is reported"
check "and read as far as it goes" test "$(grep -c '"type":"event"' s)" -gt 5
status 3 "--strict refuses it" "$trace" --strict -o n.out cut.json
check "and leaves no output" test ! -e n.out
status 0 "-q says nothing" "$trace" -q -o s cut.json
check "-q says nothing at all" test ! -s err
sed 's/"dur":20.000/"dur":oops/' rank0.json >bad.json
status 0 "a bad value" "$trace" -O jsonl -o s bad.json
says "bad.json: .*byte [0-9]" "is reported with its place"
status 0 "-v counts" "$trace" -v -o s rank0.json
says "18 events" "-v says how many events"

# --- progress
status 0 "--progress=always" "$trace" --progress=always -o s rank0.json
check "no progress without a terminal" sh -c "'$trace' -o s rank0.json 2>p; test ! -s p"
# --- blocks are decoded ahead of one another, what is written does not depend on it
awk 'BEGIN {
	print "["
	for (i = 0; i < 60000; i++)
		printf "{\"ph\":\"X\",\"name\":\"op%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1},\n", i / 9000, 2 * i
	print "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"late\"}}]"
}' >late.json
status 0 "strings and tracks that come late" "$trace" -q -o late.trace late.json
for select in --name=op[0-5] --step=0 --rank=0; do
	"$trace" -q -O trace --no-provenance -o late.1 "$select" late.trace
	"$trace" -q -O trace --no-provenance -o late.4 "$select" -@4 late.trace
	check "$select: the same for any number of threads" cmp late.1 late.4
done
awk 'BEGIN {
	n = split("a b ca dba ad ecb", keys, " ")
	print "["
	for (i = 0; i < 13 * 16384; i++) {
		k = keys[int(i / 16384) % n + 1]
		printf "{\"ph\":\"X\",\"name\":\"op\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1,\"args\":{", 2 * i
		for (c = 1; c <= length(k); c++)
			printf("%s\"%s\":%d", (c > 1 ? "," : ""), substr(k, c, 1), i)
		print "}},"
	}
	print "{}]"
}' >columns.json
status 0 "blocks with other columns" "$trace" -q --no-provenance -o columns.trace columns.json
for form in trace chrome csv; do
	for threads in 1 2 3; do
		"$trace" -q -O $form --no-provenance -o "columns.$threads" -@ $threads columns.trace
	done
	check "-O $form: their order does not depend on the threads" \
		sh -c "cmp columns.1 columns.2 && cmp columns.1 columns.3"
done

# --- a kernel gets its group from the collective of the host around its launch: 8 are looked at
behind() { # behind N: N collectives that began in the outer one and ended come before the launch
	{
		printf '{"schemaVersion":1,"traceEvents":['
		printf '{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":10,"dur":1000,'
		printf '"args":{"Collective name":"allreduce","Process Group Name":"outer"}},\n'
		for i in $(seq "$1"); do
			printf '{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":%s,"dur":1},\n' $((20 + 2 * i))
		done
		printf '{"ph":"X","cat":"cuda_runtime","name":"launch","pid":1,"tid":1,"ts":500,"dur":1,"args":{"correlation":1}},\n'
		printf '{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce(x)","pid":0,"tid":7,"ts":600,"dur":1,'
		printf '"args":{"device":0,"stream":7,"correlation":1}}]}\n'
	} >behind.json
	"$trace" -q -O jsonl behind.json | grep '"kind":"collective"' | grep -c outer
}
check "ENCLOSING: the launch behind 6 collectives" test 1 = "$(behind 6)"
check "ENCLOSING: behind 12 there is no group" test 0 = "$(behind 12)"

done_testing
