# Formats of other tools, on the small files of the fuzzers: what their events become.
. "$SRC/tests/cli/tap.sh"

cd "$TMP" || exit 1
trace=$BIN/trace
corpus=$SRC/tests/fuzz/corpus

# reads FORMAT FILE: the events of a file of the corpus as CSV, in $TMP/out; the columns of an event are
# rank, track, kind, name, start, duration, collective, group, seq, peer, bytes
reads() {
	status 0 "$1: $2" "$trace" -O csv "$corpus/$1/$2"
}

# row N TEXT NAME: the N-th event holds TEXT
row() {
	sed -n "$(($1 + 1))p" out >row
	holds row "$2" "$3"
}

# --- PyTorch's Flight Recorder: dumps of a run over gloo, and as NCCL fills them
reads flight gloo.json
cp out gloo.csv
row 1 'collective,gloo:all_reduce,1795919276982979401,,.*,allreduce,0,1,,4000,' "a call that gloo does not time"
row 4 'gloo:all_gather,.*,allgather,1,1,,8000,' "another group, and the size of the whole"
reads flight gloo.pickle
check "the pickle says the same" cmp -s out gloo.csv
reads flight nccl0.pickle
row 1 'nccl:all_reduce,1795917515001600000,1500000,.*,allreduce,0,1,,2097152,' "the end that was noticed, and the duration"
row 2 '_reduce_scatter_base,1795917515003200000,1800000,' "without a duration: the start that was noticed"
row 4 'reduce_scatter,0,,,256,' "calls that were coalesced match by order"
row 5 'send,nccl:send 0->1,.*,send,1,,6,256,' "the peer, as the group lists it"
row 6 'nccl:all_reduce,1795917515007200000,,' "one that never ended"
holds out 'forward train.py:12; main train.py:40' "Python frames"
reads flight later.json
says "a version of the dump other than 1 or 2" "a version of the future"
says "entry 3: an entry without a name or time" "an entry that is none"
status 3 "a pickle that calls functions" "$trace" "$corpus/flight/evil.pickle"
says "byte 2: instruction 0x63 of a pickle.*nothing was carried out" "is refused"
for r in 0 1; do cp "$corpus/flight/nccl$r.pickle" "nccl_trace_rank_$r"; done
status 0 "two ranks" sh -c "'$trace' nccl_trace_rank_* | '$BIN/merge' -v -o merged"
says "5 collectives and 0 transfers matched, 1 incomplete" "merge finds what one rank lacks"
cp "$corpus/flight/gloo.json" rank0.json
sed 's/17959192/17959193/g' rank0.json >rank1.json
"$trace" rank0.json rank1.json >both 2>/dev/null
status 0 "two ranks of gloo, 100 s apart, whose calls have no durations" "$BIN/merge" -v -o merged both
says "no communication joins 1 of 2 clocks" "... tell nothing of clocks"
status 3 "... and make no graph" "$BIN/graph" merged
says "communication, but no durations" "which is said"
head -c 1200 nccl_trace_rank_0 >part
status 0 "a dump that is cut off" "$trace" -f flight -O csv part
says "part: byte 1200: the pickle is cut off; what came before is kept" "is said"
row 1 'nccl:all_reduce' "its first entries are kept"

# --- NCCL's Inspector
reads inspector rank1.log
row 2 'collective,ReduceScatter,1752867229236164000,41077000,.*,reduce_scatter,0x7f8c496ae9f661,2,,4294967296,' "the kernels' end less the time by the device, and the size of the whole"
row 4 'collective,AllGather,.*,allgather,0x7f8c496ae9f661,35,' "numbers tell operations apart, which NCCL counts each for itself"
status 0 "two ranks" sh -c "'$trace' '$corpus/inspector/rank0.log' '$corpus/inspector/rank1.log' | '$BIN/merge' -v -o merged"
says "6 collectives and 0 transfers matched, 0 incomplete" "match"
reads inspector marker.log
row 1 '^0,0,2,example-hostname,stream,.*,AllReduce,1752867229214411000,61974000,' "the marker names the communicator, and is the time of the dump"
says "NCCL_INSPECTOR_DUMP_VERBOSE=1 records times" "which is said"
row 2 ',send,Send,.*,send,0x7f8c496ae9f661,,3,1048576,' "a send, and its peer"
row 3 'link,.*,annotation,proxy_step,1752867229235100000,40000,' "a step of the proxy"
says "byte 0: the Inspector dropped operations here" "operations that it dropped"
says "an object that is cut off" "a cut line"
p2p() { # p2p ID RANK RANKS: a send to rank 0 of a communicator
	printf '{"header":{"id":"%s","rank":%d,"n_ranks":%d},"metadata":{"inspector_output_format_version":"v4.0","dump_timestamp_us":1752867229236000},"p2p_perf":{"p2p":"Send","p2p_sn":1,"p2p_msg_size_bytes":100,"p2p_exec_time_us":10,"p2p_peer":0}}\n' "$@"
}
{ p2p a 1 2 && p2p b 5 8; } >small.log
status 0 "a small communicator that comes first" "$trace" -O csv small.log
row 1 ',send,a,,,100,' "... its peers are no ranks of the job"
row 2 ',send,b,,0,100,' "those of the largest one are"
{ p2p a 1 2 | awk '{ for (i = 0; i < 12000; i++) print }' && p2p b 5 8; } >small.log
status 0 "... where the largest one comes late" "$trace" -o none small.log
says "a communicator of 8 ranks comes after 12000 messages in one of 2: the peers of those messages are numbers in the smaller one" "... is said"
{ p2p a 1 2 && p2p a 1 2; } >rank5.log
status 0 "a file whose name says a rank that no communicator has" "$trace" -O csv rank5.log
says "rank5.log: its name says rank 5, and its largest communicator has 2 ranks, so that is a part of the job" "... is said"
row 1 '^0,0,5,.*,send,a,,,100,' "... the rank is that of the name, and peers are no ranks of the job"
status 0 "... is of a job of unknown size" "$trace" -O jsonl rank5.log
check "... which is not that of the communicator" no grep -q world_size out
mv rank5.log rank0.log
status 0 "a name that says another rank" "$trace" -O csv rank0.log
says "rank0.log: its name says rank 0, but it is rank 1 of its largest communicator, which counts; if that is a part of the job, type --rank-from=name" "... is said"
row 1 '^0,0,1,.*,send,a,,0,100,' "... the communicator counts"

# --- the example profiler of NCCL
reads ncclprof rank1.txt
check "a collective from its first kernel or message to its last one" grep -q 'collective,AllReduce,762110000,2095000,.*,allreduce,10644631396088996035,1,,1048576,' out
check "by the timer of the device where its end is missing" grep -q 'collective,AllReduce,782110000,2100000,' out
check "a message of it" grep -q 'link,.*,send,SendWait,762220000,860000,.*,10644631396088996035,,0,524288,,,,0,1,' out
check "waits of the proxy" grep -q 'link,.*,wait,SendGpuWait,' out
check "what was only enqueued" grep -q 'collective,AllGather,808500000,8000,.*,allgather,10644631396088996035,3,,,' out
says "of 1 operations only the time in which they were enqueued is known" "is said"
status 0 "two ranks" sh -c "'$trace' -q '$corpus'/ncclprof/rank*.txt | '$BIN/merge' -v -o merged"
says "8 messages of collectives matched, 0 halves alone" "messages of both ranks match"
says "ranks 1: offset 500 us" "and tell their clocks"
cp "$corpus/ncclprof/rank1.txt" rank3.txt
status 0 "a file whose name says another rank" "$trace" --rank-from=name -O csv rank3.txt
check "is of that rank, and peers in the communicator are no ranks of the job" \
	grep -q '^0,[0-9]*,3,.*,send,SendWait,762220000,860000,.*,10644631396088996035,,,524288,' out
sed 's/"Rank": 1, "Count": 64/"Rank": 0, "Count": 64/' rank3.txt >parts.txt
status 0 "a process with several ranks in its communicators" "$trace" -O csv parts.txt
says "parts.txt: its rank differs between its communicators" "is of no known rank"

# --- Horovod
reads horovod timeline.json
row 5 'wait,NEGOTIATE_ALLREDUCE,1795917515001001000,905000,' "a negotiation is a wait"
row 2 'instant,ready,1795917515001901000,.*rank"":1,""tensor"":""DistributedSGD/grad.0.weight' "which rank was ready when"
row 9 'collective,NCCL_ALLREDUCE,1795917515002021000,4001000,.*,allreduce,horovod,,,4198400,.*tensors"":2' "fused tensors are one collective, of both sizes"
row 8 ',copy,MEMCPY_OUT_FUSION_BUFFER,' "a copy"
row 17 ',wait,QUEUE,' "a wait for the device"
check "all belong to the coordinator, rank 0" test "$(grep -c '^0,[0-9]*,0,' out)" = 36
reads horovod broken.json
says "byte 329: an end without its begin" "an end without its begin"
says "begins nested too deep" "begins without their ends"
says "tensors without the end of what they did; what came before it is kept" "a timeline that is cut off"

# --- BytePS and dPRO
reads dpro comm1.json
check "a push and its pull are one all-reduce" grep -q ',stream,.*,collective,Comm.byteps_push_pull.conv1.weight,1795917515101300000,5800000,.*,allreduce,byteps,68719476737,' out
check "on the track of its key, with the copies" test "$(grep -c '^0,[0-9]*,,,stream,0,1,' out)" = 6
check "they are there, too" grep -q ',link,.*,annotation,Comm.byteps_push_pull.conv1.weight.PULL,1795917515104600000,2500000,' out
check "coordination is waiting" grep -q ',wait,Comm.byteps_push_pull.fc.bias.COORDINATE_PUSH,' out
for r in 0 1; do mkdir $r && cp "$corpus/dpro/comm$r.json" $r/comm.json; done
status 0 "folders of the workers" sh -c "'$trace' --rank-from=%d/comm.json ?/comm.json | '$BIN/merge' -v -o merged"
says "6 collectives and 0 transfers matched, 0 incomplete" "all-reduces match"
says "ranks 1: offset 400 us" "and tell the clocks"
reads dpro bps_trace_final.json
row 7 '^0,6,0,,stream,.*,collective,Comm.0+1.NCCL_ALLREDUCE,1795917515154000000,3000000,,,3,.*,allreduce,all,' "an all-reduce of dPRO, with its step"
row 24 '^0,23,1,,stream,.*,kernel,FW.conv1,' "computation of another rank"
row 1 ',data,I/O_iterator,' "input"
row 8 ',annotation,Comm.0+1.SEND,.*chunkId"":6' "a chunk"
reads dpro broken.json
says "a pull before the push of its key" "times that cannot be"
says "pushes without their pulls, or the reverse" "what is missing"
says "an object that is cut off; what came before it is kept" "a cut file"

mkdir -p job/host0/0 && cp "$corpus/dpro/bps_trace_final.json" job
cat >job/host0/0/dag.gml <<'EOF'
graph [
  directed 1
  node [ id 0 label "BW.conv1" ]
  node [ id 4 label "I/O_iterator" ]
  node [ id 5 label "FW.conv1" ]
  node [ id 1 label "Comm.0" graphics [ x 1.0 ] ]
  node [ id 2 label "Comm.1" ]
  node [ id 3 label "UPDATE_0" ]
  edge [ source 0 target 1 ]
  edge [ source 0 target 2 ]
  edge [ source 1 target 3 ]
  edge [ source 9 target 3 ]
  edge [ source 4 target 5 ]
  edge [ source 2 target 3 weight 1.5 ]
]
EOF
status 0 "a graph of operators beside a trace" "$trace" -v -O csv job/bps_trace_final.json
says "5 dependencies of operators from job/host0/0/dag.gml" "is read"
row 7 'comes after"":""BW.conv1 Comm.0+1.MEMCPY_IN_FUSION_BUFFER""' "fused tensors come after what made them, and after their copy"
row 11 'UPDATE_0,.*comes after"":""Comm.0+1.NCCL_ALLREDUCE Comm.0+1.MEMCPY_OUT_FUSION_BUFFER Comm.0+1""' "an update comes after its tensors"
mkdir 'run[1]' run1 && cp job/bps_trace_final.json job/host0/0/dag.gml 'run[1]' && echo 'graph [ node [ id' >run1/dag.gml
status 0 "a folder whose name has brackets" "$trace" -v -O csv 'run[1]/bps_trace_final.json'
says '5 dependencies of operators from run\[1\]/dag.gml' "has its own graph"
status 0 "from standard input" "$trace" -v -O csv - <'run[1]/bps_trace_final.json'
check "there is none" no grep -q 'dag.gml' err
for from in "$corpus/dpro" job; do
	"$trace" -q "$from"/bps_trace_final.json | "$BIN/merge" -q | "$BIN/graph" -q -o after.graph
	"$BIN/graph" -O text after.graph >"${from##*/}.text"
done
check "without it, no wait is known" grep -q '^recorded_waits	0$' dpro.text
check "with it, they are recorded ones" grep -q '^recorded_waits	15$' job.text
"$BIN/replay" -O json after.graph >out
check "and the replay explains the step" grep -q '"unexplained_share":0\.0' out
# an operator after very many others, in each step: minutes if each step or each edge visited all of them
mkdir -p wide/host0/0 && python3 - <<'EOF'
import json
with open("wide/host0/0/dag.gml", "w") as f:
    f.write('graph [\n  node [ id 0 label "BW.last" ]\n')
    for i in range(1, 120001):
        f.write('  node [ id %d label "Comm.t%d" ]\n' % (i, i))
    for i in range(1, 120001):
        f.write("  edge [ source %d target 0 ]\n" % i)
    f.write("]\n")
with open("wide/bps_trace_final.json", "w") as f:
    json.dump([{"name": "BW.last", "ts": 1795917515000000 + 1000 * i, "dur": 500, "pid": "host0.rank0", "tid": "op", "ph": "X",
                "cat": "BW", "args": {"name": "BW.last", "cnt": i, "step": i}} for i in range(500)], f)
EOF
status 0 "an operator after 120,000 others, 500 times" "$trace" --from=dpro -u -o wide.trace wide/bps_trace_final.json
"$trace" -O csv wide.trace 2>/dev/null | sed -n '2{p;q}' | tr -s '": ' '\n' >names
check "names them all" test "$(grep -c '^Comm.t[0-9]*$' names)" = 120000
status 0 "... of each event" "$trace" --check wide.trace
holds out "ok: trace, 1 segment.* 500 events" "which are 500"
rm -rf wide wide.trace
echo 'graph [ node [ id' >job/host0/0/dag.gml
status 0 "a file that is cut off" "$trace" -O csv job/bps_trace_final.json
says "job/host0/0/dag.gml: no graph of operators in GML" "is left out"

# --- XPlane: one so large that what is kept of it goes to a temporary file
python3 "$SRC/bench/readers.py" xplane 2 small.pb && python3 "$SRC/bench/readers.py" xplane 20 large.pb
status 0 "a small profile" "$trace" -f xplane -O csv small.pb
head -n 20000 out >small.csv
status 0 "a large one of the same job" "$trace" -f xplane -O csv large.pb
check "whose events begin with the same" sh -c 'head -n 20000 out | cmp -s - small.csv'
check "and is read to its end" test "$(grep -c ',kernel,' out)" -gt 200000
check "from a pipe it says the same" sh -c "'$trace' -f xplane -O csv - <large.pb | cmp -s - out"
status 4 "without a folder for the file" env TMPDIR=/nowhere "$trace" -f xplane -u -o none large.pb
says "/nowhere/paceline-.*: a temporary file" "it says so"
rm -f large.pb small.pb

# --- rocprofv3
reads rocprof rank0.json
row 1 '^0,0,0,mi0,stream,4242,0,0,0,kernel,gemm(float\*),5000000200000,1500000,,,,2,' "a kernel, its name, stream and launch"
row 2 ',collective,ncclDevKernel_AllReduce_Sum_f32_RING_LL.*,allreduce,' "a kernel of RCCL"
row 5 ',thread,.*,runtime,hipMemcpyAsync,5000000010000,10000,,,,1,' "a call"
row 17 ',step,train step 1,5000000000000,9000000,,,1,' "a range of roctx that is a step"
row 19 ',instant,"epoch ""0"" begins",5000000001000,' "a mark"
row 22 ',stream,4242,0,.*,copy,MEMORY_COPY_HOST_TO_DEVICE,.*,1048576,' "a copy, its stream and size"
row 24 ',sync,Stream Wait Event,.*wait_on_stream"":0,""wait_on_cuda_event_record_corr_id"":3' "which stream waits for what"
status 0 "two ranks" sh -c "'$trace' '$corpus'/rocprof/rank?.json | '$BIN/merge' -v -o merged"
says "2 collectives and 0 transfers matched, 0 incomplete" "match"
says "ranks 1: offset 3.00 ms" "and tell their clocks"
status 0 "a graph of them" "$BIN/graph" -O stat merged
check "has the recorded waits" grep -q '^waits  *4 recorded' out
reads rocprof broken.json
says "byte 256: a record without its time" "a record that is none"
says "byte 296: an object that is not JSON" "one that cannot be read"
says "several processes in one file" "processes"
says "a document without its end; what came before it is kept" "a document that is cut off"

done_testing
