# What newcomers get wrong: each message names the file or the option, the position, the cause and the remedy.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"
cd "$TMP" || exit 1

one_line() {
	check "... in one line" test "$(wc -l <err)" = 1
}

check "the streams of a tiny job" tiny_streams .
printf 'model mlp:4-8-2\ndata synthetic:samples=100,dims=4,classes=2\nsteps 2\n' >a.job

# ---- the wrong file -----------------------------------------------------------------------------

status 3 "run: a trace where a job is expected" "$BIN/run" job.trace
says 'run: job.trace: this is a trace, not the text of a job; type: replay FILE, or graph .*; see paceline-job(5)' "... is called a trace"
status 3 "run: a graph as the plan" "$BIN/run" -p job.graph a.job
says 'job.graph: .*a graph, but a plan is expected (type: replay FILE, plan FILE, ' "... is called a graph"
status 3 "run: a profiler's file" "$BIN/run" rank0.json
says 'run: rank0.json: this is JSON, not the text of a job; type, for a .*file: replay FILE;' "... is called JSON"
gzip -c rank0.json >rank0.json.gz
status 3 "run: a profiler's file, packed" "$BIN/run" rank0.json.gz
says 'run: rank0.json.gz: this is compressed data, not the text of a job' "... is called compressed data"
head -c $(($(wc -c <job.graph) - 60)) job.graph >cut.graph
status 3 "a cut graph" "$BIN/replay" cut.graph
says 'replay: cut.graph: byte [0-9]*: truncated: .* (copy or make it again)$' "... cannot be salvaged"
head -c $(($(wc -c <job.merged) - 60)) job.merged >cut.trace
status 3 "a cut trace" "$BIN/graph" -o g cut.trace
says 'or keep the whole blocks with trace --salvage)$' "... can"
printf 'layer,forward_ns,param_bytes\nfc,100,4096\n' >net.csv
status 3 "a table of layers that lacks a column, recognised all the same" "$BIN/graph" -o g net.csv
says 'graph: net.csv: line 1: no column "backward_ns"' "... and the column named"
"$BIN/trace" -q -o one.trace rank0.json
status 0 "merge of one rank of two" "$BIN/merge" -o m one.trace
says '2 of 2 collectives are on one rank only, because one rank was given: .*; give the files of all ranks to one merge$' "... says so"
if [ -x "$GEN/kgen" ]; then
	"$GEN/kgen" -o four --ranks=4 --layers=2 --steps=1 --record-groups --seed=1 >log
	"$BIN/trace" -q -o two.trace four/rank0.json four/rank2.json
	status 0 "merge of two ranks of four" "$BIN/merge" -o m two.trace
	says 'ranks of their groups were not given (1, 3): .*; give the files of all ranks to one merge$' "... says which are missing"
	status 0 "... with notes" "$BIN/merge" -v -o m two.trace
	says 'merge: ranks* [0-9, -]* of group .* ([0-9]* ranks) w[aser]* not given' "... says of which group"
	"$GEN/kgen" -o pipe --ranks=4 --tp=1 --pp=2 --layers=2 --microbatches=2 --steps=1 --record-groups --seed=1 >log
	"$BIN/trace" -q -o stage.trace pipe/rank0.json pipe/rank1.json
	status 0 "merge of one stage of two" "$BIN/merge" -o m stage.trace
	says 'sends and receives have no partner: .*; give the files of all ranks to one merge$' "... has the same remedy"
	check "... a line for collectives and one for sends" test "$(wc -l <err)" = 2
else
	skip "merge of two ranks of four" "no kgen"
fi


# ---- the next command ---------------------------------------------------------------------------

printf 'paceline-plan 1\nscale kind=comm by=0.5\n' >text.plan
echo "words that mean nothing" >words
"$BIN/plan" -q -o job.plan text.plan
status 3 "merge: a profiler's file" "$BIN/merge" -o m rank0.json
says '^merge: rank0.json: not a paceline trace; import it first (type: trace FILE... | merge)$' "... says what to type"
status 3 "merge: a graph" "$BIN/merge" -o m job.graph
says '^merge: job.graph: .*a graph, but a trace is expected (type: replay FILE, plan FILE, or graph -O stat FILE)$' "... says what to type"
status 3 "trace: a graph" "$BIN/trace" -o t job.graph
says '^trace: job.graph: .*a graph, but a trace is expected (type: replay FILE, plan FILE, ' "... says what to type"
status 3 "trace: a plan" "$BIN/trace" -o t job.plan
says '^trace: job.plan: .*a plan, but a trace is expected (type: replay -p FILE GRAPH, ' "... says what to type"
for p in replay graph; do
	status 3 "$p: a plan" "$BIN/$p" -o x job.plan
	says "^$p: job.plan: this is a plan, not a graph or a trace; type: replay -p FILE GRAPH, " "... says what to type"
	status 3 "$p: the text of a plan" "$BIN/$p" -o x text.plan
	says ": text.plan: byte 0: this is the text of a plan, not a trace; type, for a plan: replay -p FILE GRAPH" "... says what to type"
	status 2 "$p: a graph among files of a profiler" "$BIN/$p" -o x rank0.json job.graph rank1.json
	says "^$p: job.graph: this is a graph among other files; name graphs alone, or" "... is named"
	check "... and nothing is written" test ! -e x
	status 3 "$p: a text that nobody knows" "$BIN/$p" -o x words
	says 'trace: words: byte 0: no known trace format; name it .*(type: trace --from=NAME FILE; ' "... says how to name its format"
done
status 3 "replay: a job" "$BIN/replay" a.job
says 'a.job: this is the text of a job, not a trace; .* graph a.job | predict -m MODEL .* | replay$' "... says what to type"
status 3 "replay: a table of layers" "$BIN/replay" "$SRC/samples/layers/resnet-50.csv"
says 'resnet-50.csv: this is a table of layers; type: graph .*/resnet-50.csv | replay$' "... says what to type"
cp job.graph two.graph
status 2 "plan: two graphs" "$BIN/plan" -o x job.graph two.graph
status 2 "plan: a graph among files of a profiler" "$BIN/plan" -o x rank0.json job.graph
says '^plan: job.graph: this is a graph among other files' "... is named"
status 3 "graph: traces that were not merged" "$BIN/graph" -o g job.trace
says '^graph: job.trace: the trace has 2 ranks and was not merged; type: merge FILE... | graph$' "... says what to type"
mkdir twice && cp rank0.json rank1.json twice && sed 's/"ts":1/"ts":9/' rank0.json >twice/again0.json
status 3 "replay: two recordings in one folder" "$BIN/replay" twice
says '^replay: merge: .*--duplicates=newest' "... the stage says which option decides"
says 'put each into a folder (type: replay A B)$' "... and how to compare two recordings"

# ---- names that are not there --------------------------------------------------------------------

mkdir there && for i in 0 1 2; do cp rank0.json there/host_$i.pt.trace.json; done
cp job.graph there/notes
for p in trace merge graph replay plan; do
	status 4 "$p: a pattern that matches nothing" "$BIN/$p" -o x 'there/rank*.json'
	says "^$p: rank\\*.json matches nothing in there/; there are: host_0.pt.trace.json and 2 more\$" "... is answered with what there is"
	status 4 "$p: a misspelt name" "$BIN/$p" -o x job.grpah
	says "^$p: job.grpah: cannot open: .*; did you mean job.graph?\$" "... is answered with the nearest"
done
status 4 "a pattern with a suffix too many" "$BIN/replay" 'there/*.pt.trace.json.gz'
says '; there are: host_0.pt.trace.json and 2 more$' "... is answered with names that have most of it"
status 4 "a folder that is misspelt" "$BIN/replay" thre/rank0.json
says "^replay: thre/rank0.json: cannot open: .*; did you mean there?" "... is answered with the nearest"
status 4 "a name like no other" "$BIN/replay" frobnicate
says '^replay: frobnicate: cannot open: No such file or directory$' "... has no answer"
mkdir hollow
status 4 "a pattern in an empty folder" "$BIN/replay" 'hollow/*.json'
says '^replay: \*.json matches nothing in hollow/, which is empty$' "... which is said"
status 4 "a plan that is misspelt" "$BIN/replay" -p text.pan job.graph
says 'text.pan: cannot open: .*; did you mean text.plan?' "... is answered, too"

# ---- the wrong option ---------------------------------------------------------------------------

status 2 "a misspelt option" "$BIN/replay" --what-iff 'ranks 4' job.graph
says 'replay: unknown option --what-iff; did you mean --what-if?$' "... names the nearest"
status 2 "a misspelt option with a value" "$BIN/replay" --topolgy=2x4 job.graph
says 'replay: unknown option --topolgy=2x4; did you mean --topology?$' "... names the nearest"
status 2 "an option like no other" "$BIN/replay" --frobnicate job.graph
says 'replay: unknown option --frobnicate; see replay --help$' "... points at the list"
status 2 "a value for an option that takes none" "$BIN/replay" --path=3 job.graph
says 'replay: option --path takes no value$' "... is not called unknown"
status 2 "a misspelt key of a link" "$BIN/run" --link rate=1Gbit,latencey=2ms a.job
says '^run: --link rate=1Gbit,latencey=2ms: link has no "latencey"; did you mean latency?' "... names the nearest"
status 2 "a link without its key" "$BIN/run" --link 1Gbit a.job
says '^run: --link 1Gbit: .*; did you mean rate=1Gbit?$' "... names the key"
status 2 "... with another one" "$BIN/run" --link 2ms,rate=1Gbit a.job
says '; did you mean latency=2ms?$' "... names the key"
status 2 "a misspelt key of a change" "$BIN/replay" --what-if 'scale kind=comm,rnak=1 by 0.5' job.graph
says 'has no "rnak"; did you mean rank?' "... names the nearest"
status 2 "--set without a value" "$BIN/run" --set steps a.job
says '^run: --set steps: the value is missing; write: --set steps=VALUE' "... says what to write"
status 4 "a topology that is cut short" "$BIN/replay" --what-if 'ranks 4' --topology 2x job.graph
says '^replay: 2x: .*(a topology is HOSTSxRANKS, HOSTSxRANKS:PRESET or a file)$' "... says what there is"
status 2 "an unknown operation, for three ranks" "$BIN/run" --bench comm -n 3 --op sendx
says '^run: --op: no "sendx"; these are: all-reduce' "... says which there are"
one_line
printf 'model mlp:4-8-2\ndata sythetic:samples=100\nsteps 2\n' >b.job
status 3 "data of an unknown kind" "$BIN/run" b.job
says '^run: b.job: line 2, column 6: data sythetic:samples=100: "sythetic" is no kind of data' "... with the file and the line"
printf 'model mlp:4-8-2\ndata synthetic:samples=100,dims=4,classes=2\n' >endless.job
status 3 "a job that never ends" "$BIN/run" endless.job
says '^run: endless.job: the job never ends' "... with the file"
status 3 "a pace of a rank that there is not" "$BIN/run" -n 2 --pace 5:3 a.job
says '^run: a.job: a pace of rank 5 (--pace); there are ranks 0 to 1$' "... names the option"
printf 'paceline-model 1\ninput 4\nlinear 2\n' >net.model
status 3 "a model where a job is expected" "$BIN/run" net.model
says '^run: net.model: line 1, column 1: no job: this is a model, which a job names: model FILE$' "... is called a model"
printf 'layer,forward_ns,backward_ns,param_bytes,activation_bytes\nh0,1,1,1,1\n' >table.csv
status 3 "a table of layers where a plan is expected" "$BIN/plan" table.csv
says ': no plan: this is a table of layers, for graph FILE | plan$' "... says how a plan comes of it"
status 2 "a change without its factor" "$BIN/replay" --what-if bandwidth job.graph
says ': by is missing; write: bandwidth \[LINK\] by=X$' "... says once what to write"
status 2 "a name where a number is selected" "$BIN/replay" --what-if 'scale layer=h5 by 2' job.graph
says 'layer=h5: "h5" is no number, range a..b or pattern of digits' "... says so"
"$BIN/run" -q -n 1 -t cpu.trace a.job >/dev/null
"$BIN/graph" -q -o cpu.graph cpu.trace
status 0 "a precision of host operations" "$BIN/replay" --no-worth --what-if 'precision bf16' cpu.graph
says 'warning: precision: not modelled for host operations; give share=X' "... says that it is not modelled"
status 2 "an algorithm that only jobs have" "$BIN/replay" --what-if 'algorithm direct' job.graph
says 'algorithm direct is for jobs, the cost model has no formula for it; write one of ring|tree' "... says which there are"
status 2 "... by an option" "$BIN/run" --set data=sythetic:samples=100 a.job
says '^run: --set data=sythetic:samples=100: "sythetic" is no kind of data' "... with the option"

status 2 "trace: a misspelt kind" "$BIN/trace" --kind kernl -o gone.trace job.merged
says '^trace: --kind: no kind matches "kernl"; did you mean kernel?$' "... names those that there are"

# ---- the wrong file among others, and files that were cut ---------------------------------------
mkdir mixed && cp rank0.json job.graph mixed
status 0 "trace: a folder with a graph" "$BIN/trace" -o mixed.trace mixed
says 'warning: mixed/job.graph: this is a graph, no trace; left out$' "... leaves it out and says so"
status 0 "trace: a check of it" "$BIN/trace" --check -o check.out mixed
check "... looks at the graph too" grep -q '^mixed/job.graph: ok: GRPH' check.out
"$BIN/trace" -q -o whole.trace rank0.json
head -c 400 whole.trace >head.trace
status 3 "trace: nothing to salvage" "$BIN/trace" --salvage -o salvaged.trace head.trace
says '^trace: head.trace: 0 events kept: no event of it is whole$' "... says so"
check "... does not say to use the option that was given" sh -c '! grep -q -e --salvage err'
check "... and leaves no file" test ! -e salvaged.trace
printf 'step,loss\n1,2.0\n2,1.5\n' >log.csv
for wrong in log.csv job.graph; do
	status 3 "run: $wrong as weights" "$BIN/run" --import $wrong a.job
	says "$wrong: this is no safetensors file: 8 bytes are the size of the header, .* begins with an opening brace\$" "... says so"
done

# reduces RANK COUNT SIZE: a recording of so many all-reduces, the second of which has SIZE elements
reduces() {
	awk -v rank="$1" -v n="$2" -v size="$3" 'BEGIN {
		printf "{\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":%d,\"world_size\":2},\"traceEvents\":[", rank
		for (i = 1; i <= n; i++) {
			printf "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"pid\":1,\"tid\":2,\"name\":\"gloo:all_reduce\",\"ts\":%d,", i * i * 100
			printf "\"dur\":20,\"args\":{\"Input type\":[\"float\"],\"Input Dims\":[[%d]]}},", (i == 2) ? size : i
		}
		print "{}]}"
	}'
}
reduces 0 30 2 >long.json
reduces 1 9 700 >short.json
"$BIN/trace" -q -o uneven.trace long.json short.json
status 0 "merge: a recording that was cut" "$BIN/merge" -o m uneven.trace
says 'rank 1 has "gloo:all_reduce" .* where rank 0 has "gloo:all_reduce" of 8, not 2800 bytes;' "... says which sizes differ"
says 'or all of a file that was cut: the least is in short.json$' "... and names the shortest file"

# ---- nothing is left ----------------------------------------------------------------------------

status 3 "trace: a step that is not there" "$BIN/trace" --step 99 -o gone.trace job.merged
says '^trace: job.merged: no event has one of the selected steps; the trace has the steps 0-1$' "... says which there are"
check "... and leaves no file" test ! -e gone.trace
status 3 "trace: a rank that is not there" "$BIN/trace" --rank 7-9 -o gone.trace rank0.json rank1.json
says '^trace: no event has one of the selected ranks; the trace has the ranks 0-1$' "... says which there are"
status 0 "trace: some of the steps are there" "$BIN/trace" --step 1-99 -o some.trace job.merged
status 3 "graph: a step that is not there" "$BIN/graph" --step 99 -o gone.graph job.merged
says '^graph: job.merged: none of the steps asked for is in the graph; it has the steps 0-1$' "... says which there are"
printf 'paceline-plan 1\nscale kind=comm,rank=9 by=0.5\n' >none.plan
status 3 "a plan that selects nothing" "$BIN/replay" -p none.plan job.graph
says 'job.graph: the change "scale kind=comm rank=9 by=0.5": no operation of the graph has rank=9; there are rank=0..1$' "... is shown in full, with the ranks"
nothing() {
	status 3 "$1: it selects nothing" "$BIN/replay" -o x --what-if "$1" job.graph
	says "$2" "... which the message explains"
}
nothing 'remove name=AllReduce' ': no operation of the graph has name=AllReduce; the whole name must match: name=\*AllReduce\* matches a part$'
nothing 'set name=gemn to=1ms' 'did you mean name=gemm?$'
nothing 'scale step=2.. by 0.5' 'has step=2..; there are step=0..1$'
nothing 'remove layer=3' 'has layer=3; of no operation the layer is known$'
nothing 'fix kind=kernel|host_op,phase=communication' 'some match each pattern, but none matches all of them$'
check "... and there is no report" test ! -e x
status 0 "what some rank and step has is selected" "$BIN/replay" --what-if 'remove name=gemm,rank=1,step=0..7' job.graph
status 3 "a selector that selects nothing in two jobs" "$BIN/replay" --what-if 'remove name=nobody' job.graph two.graph

status 2 "a change with an equals sign" "$BIN/replay" --what-if 'batch=2' job.graph
says 'what-if "batch=2": write "batch 2" (samples of a rank in a step) or "batch by 2" (factor of the samples of a step)$' "... names the right lines"
status 2 "a change of a link with an equals sign" "$BIN/replay" --what-if 'latency=5ms' job.graph
says 'write "latency to 5ms" (time)$' "... names the right line"
status 2 "an equals sign that can mean one thing only" "$BIN/replay" --what-if 'loader-workers=4' job.graph
says 'what-if "loader-workers=4": the recording shows no loader of batches$' "... means that"

status 2 "a phase that is not one" "$BIN/replay" --what-if 'scale phase=fwd by 0.5' job.graph
says 'no phase matches "fwd"; there are .*, forward, .*communication' "... names those that there are"
status 2 "a kind that is not one" "$BIN/replay" --what-if 'scale kind=kernels by 0.5' job.graph
says 'no kind matches "kernels"; did you mean kernel?; expected' "... names the nearest"
status 2 "a kind that is like none" "$BIN/replay" --what-if 'scale kind=nccl by 0.5' job.graph
says 'no kind matches "nccl"; there are .*kernel, .*, comm, gap, all; expected' "... names those that there are"
status 2 "a word of PyTorch" "$BIN/replay" --what-if 'bucket_cap_mb=25' job.graph
says 'there is no statement "bucket_cap_mb=25"; it is called bucket-mb here$' "... is known"
status 0 "a link that nothing uses" "$BIN/replay" --what-if 'bandwidth nic by 2' job.graph
says 'the change "bandwidth nic by 2" selects no operation; no communication uses that link$' "... says so"
status 2 "a rank without quotes" "$BIN/replay" --what-if 'speed rank 1 factor=2' job.graph
says 'there is no such rank or host, "rank"; a rank is written with quotes: speed "rank 0" factor=2$' "... says how to write it"

# ---- what there is ------------------------------------------------------------------------------

status 0 "run --layers" "$BIN/run" --layers -O csv a.job
check "... names the layers as the trace does" test "$(cut -d , -f 3 out | tr '\n' ' ')" = "name  0 1 2 loss "
status 0 "--help=optimizer" "$BIN/run" --help=optimizer
check "... shows each key once" test "$(grep -cE '^  (lr|decay) ' out)" = 2
holds out 'default 0.1 with sgd, 0.001 with adam|adamw)$' "... with its defaults"
done_testing
