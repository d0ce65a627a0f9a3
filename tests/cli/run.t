# Jobs that are really run: one rank and several, checkpoints, traces, plans, deaths.
# runner: waits, threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
tiny_job 30

# ---- one rank, several ranks ----------------------------------------------------------------------
status 0 "one rank" "$run" -n 1 --log=one.csv --report=one.json --set batch=128 tiny.job
check "... says what it did" grep -q 'mlp:16-48-32-4: 1 rank, 30 steps' out
check "... logs each step" [ "$(losses one.csv | wc -l)" = 30 ]
check "... and learns" awk -F , 'NR == 2 { first = $4 } $4 != "" { last = $4 } END { exit !(last < 0.8 * first) }' one.csv
check "... with a report" grep -q '"schema": "paceline.run/1"' one.json
losses one.csv >one
for transport in shm tcp; do
	status 0 "four ranks, $transport" timeout 50 "$run" -n 4 --transport=$transport --log=four.csv \
		--checkpoint=$transport.st tiny.job
	losses four.csv >four
	check "... have the losses of one with four times the batch" alike 1e-5 one four
done
status 0 "once more" timeout 50 "$run" -n 4 --transport=tcp --checkpoint=again.st tiny.job
check "... gives the same bits" cmp again.st tcp.st
check "no folder of a meeting is left" sh -c '! ls -d paceline-*' 2>/dev/null
status 0 "a job from standard input, as JSON" sh -c "'$run' -n 2 -O json - <tiny.job"
check "... has both workers" [ "$(grep -c '"wait_share"' out)" = 2 ]
status 0 "statements in place of the job's" "$run" -q --set steps=3 --set 'optimizer adam lr=0.001' tiny.job
check "... hold" grep -q ' 3 steps' out
check "... in silence" test ! -s err
cat >text.job <<'END'
model gpt:layers=1,heads=1,width=8,context=8,vocab=8
data synthetic:tokens=1000,vocab=8
split 0.8
batch 4
epochs 2
END
status 0 "epochs of a text" "$run" -q text.job
check "... take as many tokens as it has" grep -q ' 50 steps' out
status 0 "layers" "$run" --layers -O csv --set model=mlp:16-48-4 tiny.job
check "... with their work, without training" grep -q '^,dense,2,4,196,384,992$' out
status 0 "... and without the data" "$run" --layers -O csv --set model=mlp:16-48-4 --set data=none.npy tiny.job
check "... which no layer needs" grep -q '^,dense,2,4,196,384,992$' out
status 0 "a target" "$run" --set steps=2000 --set target-loss=0.05 tiny.job
check "... ends it" grep -q 'target reached' out

# ---- state ----------------------------------------------------------------------------------------
for set in 'optimizer sgd lr=0.05 momentum=0.9' 'optimizer adamw lr=0.002'; do
	"$run" -q -n 2 --set "$set" --checkpoint=whole.st tiny.job >out 2>err &&
		"$run" -q -n 2 --set "$set" --set steps=11 --checkpoint=half.st tiny.job >out 2>err
	status 0 "resumed: ${set%% lr*}" "$run" -q -n 2 --set "$set" --resume=half.st --checkpoint=again.st tiny.job
	check "... to the same bits" cmp whole.st again.st
done
# every step of a job with all that has state: dropout, running means, clipping, a schedule, a plan
cat >state.model <<'END'
input 16
dense 24 name=first
batchnorm
relu
dropout 0.3
residual
dense 24
gelu
end
dense 4 name=last
loss softmax-cross-entropy
END
cat >state.plan <<'END'
paceline-plan 1
tensor last.weight 384
tensor first.weight 1536
tensor first.bias 96
fuse-tensors last.weight first.weight
partition-tensor last.weight 3
recompute 1
END
# state RANKS OPTIMIZER OPTION...
state() {
	n=$1 set=$2
	shift 2
	"$run" -q -n "$n" -p state.plan --set model=state.model --set batch=8 --set accumulate=2 --set "$set" \
		--set 'schedule cosine steps=20' --set warmup=1 "$@" tiny.job >>out 2>>err
}
for set in 'optimizer sgd momentum=0.9 nesterov clip=0.5' 'optimizer adamw lr=0.01 clip=1'; do
	for n in 1 3; do
		same=
		state "$n" "$set" --set steps=6 --checkpoint=whole.st --report=whole.json
		for k in 1 2 3 4 5; do
			state "$n" "$set" --set steps=$k --checkpoint=half.st || break
			state "$n" "$set" --set steps=6 --resume=half.st --checkpoint=again.st --report=again.json || break
			cmp whole.st again.st && grep eval_loss whole.json >a && grep eval_loss again.json | cmp - a && same=$same$k
		done
		check "${set%% clip*}, $n ranks: resumed at any step to the same bits" [ "$same" = 12345 ]
	done
done
"$run" -q --set 'optimizer adam' --checkpoint=half.st tiny.job >out
status 3 "another optimizer's checkpoint" "$run" --resume=half.st --set steps=40 tiny.job
says 'its optimizer was adam, that of this job is sgd with momentum' "... is said"
sed 's/"paceline.step":"30"/"paceline.step":"31"/' half.st >wrong.st
status 3 "a checkpoint whose step was changed" "$run" --resume=wrong.st --set 'optimizer adam' --set steps=40 tiny.job
says 'damaged' "... is damaged"
status 2 "a checkpoint and other weights" "$run" --resume=half.st --import=half.st tiny.job
status 3 "another seed's checkpoint" "$run" --seed=5 --resume=half.st tiny.job
says 'half.st: of a job with seed' "... is said"
# what a checkpoint counts: its samples, whoever takes them
"$run" -q -n 1 --set steps=20 --set batch=64 --checkpoint=half.st tiny.job >out
status 0 "a checkpoint with its samples on two ranks" "$run" -n 2 --log=split.csv --set batch=32 --set steps=40 --resume=half.st tiny.job
"$run" -q -n 1 --set steps=40 --set batch=64 --log=whole.csv tiny.job >out
losses whole.csv | tail -n 20 >whole
losses split.csv >half
check "... goes on where it was" alike 1e-5 half whole
check "... at the next sample" [ "$(sed -n 2p split.csv | cut -d , -f 3)" = 1344 ]
status 3 "another split" "$run" --set batch=64 --set split=0.7 --set steps=40 --resume=half.st tiny.job
says 'trained on the first 1600 samples, this job trains on the first 1400.*--import' "... is refused"
status 0 "... but evaluated" "$run" --set split=0.7 --eval --resume=half.st tiny.job
"$run" -q --set 'optimizer adam' --checkpoint=half.st tiny.job >out
head -c 3000 half.st >cut.st
status 3 "a cut checkpoint" "$run" --resume=cut.st tiny.job
status 4 "no checkpoint" "$run" --resume=missing.st tiny.job
status 0 "weights exported" "$run" -q --export=weights.st tiny.job
awk '/^loss/ { print $5, $7 }' out >trained
status 0 "... imported, and evaluated" "$run" -q -n 2 --import=weights.st --eval tiny.job
awk '{ for (i = 1; i < NF; i++) if ($i == "out") held = $(i + 1); else if ($i == "accuracy") a = $(i + 1) }
	END { print held, a }' out >evaluated
check "... are as good" cmp trained evaluated
printf '%s\n' 'input 16' 'dense 24' batchnorm relu 'dense 4' 'loss softmax-cross-entropy' >norm.model
for n in 1 2; do
	"$run" -q -n $n --set model=norm.model --export=norm.st --report=norm.json tiny.job >out
	status 0 "running means, $n ranks" "$run" -q --set model=norm.model --import=norm.st --eval -O json tiny.job
	grep accuracy norm.json >trained
	check "... go with the weights" sh -c 'grep accuracy out | cmp - trained'
done
check "... as PyTorch calls them" grep -aq '"1.running_mean":{"dtype":"F32","shape":\[24\]' norm.st
status 3 "weights of another model" "$run" --import=weights.st --set model=mlp:16-20-4 tiny.job
# the transpose of a matrix has as many numbers
LC_ALL=C sed 's/"shape":\[48,16\]/"shape":[16,48]/' weights.st >turned.st
check "weights with a matrix of another shape" no cmp -s turned.st weights.st
status 3 "... are refused" "$run" --import=turned.st --eval tiny.job
says '0.weight.* has the shape \[16, 48\], that of the model is \[48, 16\]' "... with both shapes"
LC_ALL=C sed 's/\("shape":\[48\)\]\(.*}}\)  /\1,1]\2/' weights.st >column.st
check "a vector as a matrix of one column" grep -aq '"shape":\[48,1\]' column.st
status 0 "... is the same" "$run" --import=column.st --eval tiny.job
status 3 "weights are no checkpoint" "$run" --resume=weights.st tiny.job

# ---- its own trace --------------------------------------------------------------------------------
status 0 "two ranks, traced" "$run" -q -n 2 -t job.trace --transport=tcp tiny.job
check "each has a trace" "$BIN/trace" --check job.trace.0 job.trace.1
status 0 "merged" "$BIN/merge" -q --report=clock job.trace.0 job.trace.1 -o merged
check "... all messages matched" sh -c "grep -q '\"unmatched_messages\": 0' clock && ! grep -q '\"message_matches\": 0' clock"
check "... all collectives" sh -c "grep -q '\"unmatched_collectives\": 0' clock && grep -q '\"incomplete_matches\": 0' clock"
status 0 "made a graph" "$BIN/graph" merged -o graph
"$BIN/graph" -O stat graph >graph.stat
check "... with a recorded wait for each step and rank" awk '$1 == "waits" && $2 >= 60 && $3 ~ /recorded/ { ok = 1 } END { exit !ok }' graph.stat
check "... with gradients, none estimated" grep -q '^tensors .* 0 estimated' graph.stat
"$BIN/replay" -O csv --table=steps graph >steps.csv
check "... 30 steps" [ "$(wc -l <steps.csv)" = 31 ]
"$BIN/replay" --no-worth graph >replayed
check "... that replays to within 0.2 %" awk 'NR == 1 { if (!match($0, /\([-+][0-9.]+ %\)/)) exit 1
	e = substr($0, RSTART + 2) + 0; exit e > 0.2 }' replayed
status 0 "a trace of one rank" "$run" -q -n 1 -t single.trace tiny.job
status 0 "... needs no merge" sh -c "'$BIN/graph' -q single.trace | '$BIN/replay' --no-worth -"
status 4 "a trace to a full disk" "$run" -q -t /dev/full --set steps=4000 --checkpoint=kept.st tiny.job
says 'trace full' "... is said"
check "... and the job was done" test -s kept.st

# ---- plans ----------------------------------------------------------------------------------------
status 0 "a plan of that graph" "$BIN/plan" -q --preset=each -O text graph -o each.plan
"$BIN/graph" -q --fold-messages graph -o folded
for g in graph folded; do
	"$BIN/plan" -q --no-provenance --preset=each -O text "$g" | sed '/^base/d' >"$g.plan"
done
check "... whether messages are folded before or by plan" cmp graph.plan folded.plan
check "... knows that they went as one" sh -c '[ "$(grep -c "^tensor .* set=0$" graph.plan)" = 6 ]'
status 0 "... for DDP" "$BIN/plan" -q --preset=all -O ddp graph
check "... is one bucket" grep -q "bucket_cap_mb_list=\[[0-9.e-]*\]" out
status 0 "... is carried out" "$run" -n 2 -p each.plan -t planned.trace --checkpoint=planned.st tiny.job
check "... without a warning" test ! -s err
status 0 "... as its trace shows" sh -c "'$BIN/merge' -q planned.trace.? | '$BIN/graph' -q -O text -"
check "... six buckets" sh -c "grep -q 'allreduce bucket 5' out && ! grep -q 'allreduce bucket 6' out"
"$run" -q -n 2 --checkpoint=default.st tiny.job >out
check "... to the bits of the default" sh -c "cmp planned.st default.st"
cat >hand.plan <<'END'
paceline-plan 1
tensor 4.bias 16
tensor 0.weight 3072
bucket-mb 1
fuse-tensors 4.bias 0.weight
partition-tensor 0.weight 3
accumulate 2
algorithm tree
ranks 3
END
status 0 "a plan by hand" "$run" -n 2 -p hand.plan --log=hand.csv tiny.job
says 'ranks is left out' "... what is not ours is said"
check "... and what is done is not" no grep -q bucket-mb "$TMP/err"
"$run" -q -n 2 --log=default.csv tiny.job >out
losses hand.csv >hand
losses default.csv >default
check "... changes no loss" alike 1e-5 default hand
echo 'tensor conv1.weight 16' | cat hand.plan - >other.plan
status 3 "another model's plan" "$run" -n 2 -p other.plan tiny.job
says 'conv1.weight' "... names what is not there"
sed '/^tensor/d; s/0.weight/0/' hand.plan >nobase.plan
status 0 "a plan by hand without tensors" "$run" -q -n 2 -p nobase.plan -t nobase.trace tiny.job
status 0 "... is carried out" sh -c "'$BIN/merge' -q nobase.trace.? | '$BIN/graph' -q -O text - >nobase && ! cmp -s nobase planned"
check "... all that its lines say" sh -c "grep -q 'allreduce bucket 1' nobase && ! grep -q 'allreduce bucket 2' nobase"
echo 'order 0.weight 4.biass' | cat nobase.plan - >wrong.plan
sed 's/0 3$/0.weight 3/; s/4.bias 0$/4.bias 0.weight/' wrong.plan >misspelt.plan
status 3 "a name that no tensor has" "$run" -n 2 -p misspelt.plan tiny.job
says 'misspelt.plan: line 8, column 16: order: there is no tensor "4.biass"; did you mean "4.bias"?' "... is refused, with its place and the nearest"
status 3 "... under local SGD, which sends no buckets, too" "$run" -n 2 -p misspelt.plan --set 'policy local-sgd local-steps=2' tiny.job

# ---- slow links, slow ranks -----------------------------------------------------------------------
status 0 "a paced rank" "$run" -n 2 --pace=1:150 --report=paced.json --set steps=5 tiny.job
check "... makes it heterogeneous" awk '/"heterogeneity"/ { exit !($2 + 0 > 2) }' paced.json
status 0 "a slow link" "$run" -n 2 --transport=tcp --link=latency=5ms --report=slow.json --set steps=20 tiny.job
check "... is waited for" awk '/"seconds"/ { exit !($2 > 0.1) }' slow.json

# ---- started by others ----------------------------------------------------------------------------
PACELINE_TOKEN=not-a-secret-but-long-enough
export PACELINE_TOKEN
mkdir meet
for r in 1 0; do
	PACELINE_RANK=$r PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q --checkpoint=env.st tiny.job >env.$r 2>&1 &
done
wait
"$run" -q -n 2 --checkpoint=forked.st tiny.job >out
check "two ranks of an environment do what two forked ones do" cmp env.st forked.st
check "... rank 0 alone says what" sh -c 'test -s env.0 && test ! -s env.1'
status 4 "a rank that never comes" env PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_MEET="dir:$TMP/meet" \
	timeout 20 "$run" --timeout=500ms tiny.job
says 'rank' "... is named"
PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" --timeout=60s tiny.job >out 2>err &
pid=$!
i=0
until [ -n "$(ls meet)" ] || [ $i = 100 ]; do
	sleep 0.1
	i=$((i + 1))
done
kill -TERM $pid
from=$(date +%s)
wait $pid
check "one that waits for others is asked to end: status 143" [ $? = 143 ]
check "... at once" [ $(($(date +%s) - from)) -lt 10 ]
rm -f meet/*
status 2 "-n against the environment" env PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_MEET="dir:$TMP/meet" \
	"$run" -n 3 tiny.job
# differ OPTION...: rank 1 is given them, rank 0 is not; the statuses of both
differ() {
	PACELINE_RANK=1 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q "$@" tiny.job >other.out 2>other.err &
	PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q tiny.job >out 2>err
	zero=$?
	wait $!
	echo $zero $?
}
for set in batch=16 seed=3 model=mlp:16-20-4 data=synthetic:samples=2000,dims=16,classes=4,noise=2 resume=half.st; do
	check "ranks that differ in ${set%%=*} do not train" [ "$(differ --set $set)" = "4 3" ]
	check "... and say why" grep -q ' of rank 1 is not that of rank 0' other.err
	check "... both" grep -q 'rank 1 gave up: ' err
done
# one value of 16,000, and not the first of its sample
awk 'BEGIN { OFS = ","; print "a,b,c,d,label"; for (i = 0; i < 4000; i++) print i % 7, i % 11, i % 13, i % 3, i % 4 }' >data.csv
awk 'NR == 2777 { sub(/,[0-9]*,/, ",5,") } 1' data.csv >changed.csv
same='model=mlp:4-8-4'
PACELINE_RANK=1 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q --set $same --set data=csv:changed.csv tiny.job >out 2>other.err &
PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q --set $same --set data=csv:data.csv tiny.job >out 2>err
wait $!
check "... in one value of the data" grep -q 'the data of rank 1 is not that of rank 0' other.err
check "... in weights" [ "$(differ --import=weights.st)" != "0 0" ]
hidden=
for n in 60 68 76 84 92 100 108 116 124 132; do
	PL_FAIL=$n PACELINE_RANK=1 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q tiny.job >other.out 2>other.err &
	PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_MEET=dir:$TMP/meet "$run" -q tiny.job >out 2>err
	wait $!
	! grep -q 'must begin the same' err other.err || hidden="$hidden $n"
done
check "a rank without memory says so, not that ranks differ ($hidden)" [ -z "$hidden" ]
unset PACELINE_TOKEN

# ---- deaths ---------------------------------------------------------------------------------------
# begin RANKS OPTION...: a job without end; $pid, and its ranks in $ranks
how=
begin() {
	n=$1
	ranks=
	shift
	# shellcheck disable=SC2086  # one word, or none
	env $how "$run" -q -n "$n" --set steps=100000000 "$@" tiny.job >dead.out 2>dead.err &
	pid=$!
	i=0
	while [ $i -lt 100 ]; do
		[ "$n" = 1 ] && break
		ranks=$(ps -o pid= --ppid $pid 2>/dev/null | tr '\n' ' ')
		# shellcheck disable=SC2086  # one word a rank
		set -- $ranks
		[ $# = "$n" ] && break
		sleep 0.1
		i=$((i + 1))
	done
	# a job that has begun catches SIGTERM: bit 14 of the mask; on a busy machine that takes long
	# shellcheck disable=SC2086  # one word a rank
	while [ $i -lt 300 ] && ! all_catch $pid $ranks; do
		sleep 0.1
		i=$((i + 1))
	done
	sleep 1
}
all_catch() {
	for p; do
		mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$p/status" 2>/dev/null)
		case $mask in
		'') return 0 ;; # no such file here
		*[4567cdef]???) ;;
		*) return 1 ;;
		esac
	done
}
if ps -o pid= --ppid $$ >/dev/null 2>&1; then
	begin 3
	# shellcheck disable=SC2086
	kill -KILL "$(echo $ranks | cut -d ' ' -f 2)"
	wait $pid
	check "a rank is killed: status 4" [ $? = 4 ]
	check "... each survivor names it" [ "$(ranks_say 'rank 1 ' dead.err)" = '0 2 ' ]
	begin 2 --timeout=200ms
	# shellcheck disable=SC2086
	victim=$(echo $ranks | cut -d ' ' -f 1)
	kill -STOP "$victim"
	wait $pid
	check "a rank is stopped: status 4" [ $? = 4 ]
	check "... the other one names it" grep -q '^run: rank 1: .*rank 0 ' dead.err
	check "... it is killed" grep -q '^run: rank 0 did not end' dead.err
	begin 2 --checkpoint=orphan.st
	kill -KILL $pid
	wait $pid
	i=0
	while [ $i -lt 100 ] && [ ! -s orphan.st ]; do
		sleep 0.1
		i=$((i + 1))
	done
	check "ranks end when what waits for them is killed" test -s orphan.st
	# shellcheck disable=SC2086
	kill -KILL $ranks 2>/dev/null
	check "... and leave no folder" no ls -d paceline-*
	rm -rf paceline-*
	begin 2 --checkpoint=term.st
	kill -TERM $pid
	wait $pid
	check "asked to end: status 143" [ $? = 143 ]
	check "... with a checkpoint" test -s term.st
	check "... and no message" test ! -s dead.err
	for n in 1 2; do # an output that is open already must not change what a signal does
		begin $n -t sig.trace -o sig.out --log=sig.csv --checkpoint=sig.st --report=sig.json
		kill -TERM $pid
		wait $pid
		check "asked to end, $n ranks, with a trace: status 143" [ $? = 143 ]
		check "... with a checkpoint" test -s sig.st
		check "... with whole traces" sh -c "cat sig.trace* | '$BIN/trace' -q -O text - >out"
		step=$(tail -n 1 sig.csv | cut -d , -f 2)
		check "... a summary that says so" grep -q "^interrupted by signal 15 .* after step $step\$" sig.out
		check "... and a report" grep -q "\"interrupted_at_step\": $step," sig.json
		rm -f sig.*
	done
	begin 3 --checkpoint=one.st
	# shellcheck disable=SC2086
	kill -TERM "$(echo $ranks | cut -d ' ' -f 2)"
	wait $pid
	check "one rank asked to end: status 143" [ $? = 143 ]
	check "... with a checkpoint" test -s one.st
	check "... and no message" test ! -s dead.err
	status 0 "... from which it goes on" "$run" -q -n 3 --set steps=100000000 --set target-loss=1000 --resume=one.st tiny.job
	sed 's/^model .*/model mlp:16-1024-1024-4/; s/samples=2000/samples=20000/; s/^split .*/split 0.05/' tiny.job >late.job
	"$run" -q -n 2 --set steps=5 --checkpoint=late.st --report=late.json late.job >out 2>dead.err &
	pid=$!
	turn=0
	until [ -s late.st ] || [ $turn = 500 ]; do
		sleep 0.02
		turn=$((turn + 1))
	done
	kill -TERM "$(child $pid 'rank 1')"
	wait $pid
	check "one rank asked to end in the last evaluation: the job is done" [ $? = 0 ]
	check "... with its report" grep -q '"steps": 5' late.json
	check "... and no message" test ! -s dead.err
	# what a shell has in the background ignores SIGINT
	if env --default-signal=INT true 2>/dev/null; then
		how=--default-signal=INT
		# the thread sanitizer holds a signal back until its thread calls something that waits: here, a minute
		case $BUILD in *-thread) skip "asked twice in a step" "the thread sanitizer holds signals back" ;; *)
			begin 2 --pace='*:60000' --checkpoint=twice.st
			kill -INT $pid
			sleep 0.5
			check "asked in a step of a minute: it goes on" kill -0 $pid
			kill -INT $pid
			wait $pid
			check "... asked twice: status 130" [ $? = 130 ]
			check "... without a checkpoint" test ! -e twice.st
			begin 2 --pace='*:60000' --checkpoint=twice.st
			# shellcheck disable=SC2086
			kill -INT $ranks
			sleep 0.5
			kill -INT $pid
			sleep 0.5
			# shellcheck disable=SC2086
			check "asked once, directly and by who passes it on late: it goes on" kill -0 $pid $ranks
			kill -INT $pid
			wait $pid
			check "... asked twice: status 130" [ $? = 130 ]
			check "... without a checkpoint" test ! -e twice.st
			begin 1 -t twice.trace --pace='*:60000' --checkpoint=twice.st
			kill -INT $pid
			sleep 0.5
			kill -INT $pid
			wait $pid
			check "asked twice, with a trace: status 130" [ $? = 130 ]
			check "... leaves nothing" no ls twice.*
			cp tiny.job small.job
			sed -i 's/^model .*/model mlp:16-3000-3000-4/' tiny.job
			# shellcheck disable=SC2034  # it only counts
			for turn in 1 2 3; do
				begin 1 --pace='*:2000' --checkpoint=twice.st
				kill -INT $pid
				sleep 0.4
				until [ -e twice.st.tmp.$pid ] || [ -e twice.st ] || ! kill -0 $pid; do :; done
				kill -STOP $pid
				[ -e twice.st.tmp.$pid ] && break
				kill -CONT $pid
				wait $pid
				rm -f twice.st
			done
			check "stopped while it writes the checkpoint" test -e twice.st.tmp.$pid
			kill -INT $pid
			kill -CONT $pid
			wait $pid
			check "... asked twice: status 130" [ $? = 130 ]
			check "... leaves nothing" no ls twice.*
			mv small.job tiny.job
			;;
		esac
		begin 2 --checkpoint=int.st
		# as a terminal does, and who passes it on
		# shellcheck disable=SC2086
		kill -INT $pid $ranks
		wait $pid
		check "all asked at once: status 130" [ $? = 130 ]
		check "... with a checkpoint" test -s int.st
		rm -f one.st
		begin 3 --checkpoint=one.st
		# shellcheck disable=SC2086
		kill -INT "$(echo $ranks | cut -d ' ' -f 2)"
		wait $pid
		check "one rank interrupted: status 130" [ $? = 130 ]
		check "... with a checkpoint" test -s one.st
		check "... and no message" test ! -s dead.err
		begin 2 --pace='*:2000'
		other=${ranks#* }
		kill -INT $pid
		for i in 1 2; do # the second one ends it inside a step, as a rank ends that has not begun
			# shellcheck disable=SC2086  # one number
			kill -INT $other
			sleep 0.4
		done
		wait $pid
		check "asked, and one rank ends before the other one: status 130" [ $? = 130 ]
		env $how "$run" -n 2 --bench=comm --iterations=1000000 >dead.out 2>dead.err &
		pid=$!
		sleep 1
		kill -INT $pid
		wait $pid
		check "a measurement asked to end: status 130" [ $? = 130 ]
		how=
	else
		skip "SIGINT" "no env --default-signal"
	fi
	"$run" -q -n 2 --set steps=1000 --log=- tiny.job 2>dead.err | head -n 3 >few
	check "who reads the log goes: nothing hangs" [ "$(wc -l <few)" = 3 ]
else
	skip "deaths" "no ps"
fi

# ---- pictures and benchmarks ----------------------------------------------------------------------
status 0 "a picture of two logs" "$run" -O svg one.csv four.csv
check "... two curves in two panels, two in the legend" [ "$(grep -c 'class="l" stroke' out)" = 6 ]
mkdir deep && cp one.csv deep && head -n 2 one.csv >point.csv
status 0 "logs of one name in two folders" "$run" -O svg one.csv deep/one.csv point.csv
check "... are told apart" sh -c "grep -q '>deep/one.csv<' out && grep -q '>point.csv<' out"
check "... and one point is seen" grep -q 'd="M[0-9.]* [0-9.]*h0"' out
status 3 "a picture of no log" "$run" -O svg tiny.job
for transport in shm tcp; do
	status 0 "communication measured, $transport" timeout 50 "$run" --bench=comm -n 3 --max-size=16K \
		--iterations=2 --transport=$transport -O csv
	check "... six operations, three sizes, nothing wrong" awk -F , 'NR > 1 { n++; bad += $NF != 0 }
		END { exit bad || n != 18 }' out
done
status 0 "... as JSON" "$run" --bench=comm -n 2 --op=allreduce --max-size=8K -O json
check "... with its schema" grep -q '"schema": "paceline.comm/1"' out
check "... and the transport that was measured" grep -q '"transport": "shm"' out
check "... and the one that was asked for" grep -q '"transport_asked": "auto"' out

# ---- what users get wrong -------------------------------------------------------------------------
status 3 "an empty job" "$run" /dev/null
status 3 "data that do not fit the model" "$run" --set model=mlp:17-4 tiny.job
says '17 numbers' "... and how"
status 4 "no such model" "$run" --set model=nothing:3 tiny.job
status 2 "--set nonsense" "$run" --set bathc=3 tiny.job
status 2 "--link nonsense" "$run" --link=speed=3 tiny.job
status 2 "--pace nonsense" "$run" --pace=1 tiny.job
status 2 "no ranks" "$run" -n 0 tiny.job
status 5 "ranks without number" "$run" --set ranks=3000 tiny.job
status 2 "no timeout" "$run" -n 2 --timeout=0 tiny.job
status 2 "--transport nonsense" "$run" --transport=ftp tiny.job
status 2 "an empty link" "$run" --link= tiny.job
status 2 "a pace that is no slower" "$run" --pace=0:x0.5 tiny.job
status 4 "no preset" "$run" --set model=mpl:16-4 tiny.job
says 'mlp:784' "... of which there are"
for out in checkpoint export report output; do
	status 4 "--$out where nothing can be written" timeout 20 "$run" --set steps=1000000000 --$out=none/x tiny.job
done
status 0 "the first step" "$run" --set steps=9 -O json -o steps.json tiny.job
check "... is not in the rate of the samples" awk -F '[:,]' '{ gsub(/[" ]/, "", $1); v[$1] = v[$1] ? v[$1] : $2 }
	END { rate = v["samples"] * 8 / 9 / (v["seconds"] - v["first_step_s"]); r = v["samples_per_s"] / rate
		print "# " r, v["first_step_s"]; exit !(v["first_step_s"] > 0 && r > 0.9999 && r < 1.0001) }' steps.json
status 0 "... as the summary says" "$run" --set steps=9 tiny.job
holds out '9 steps in [0-9.e-]* s (the first [0-9.e-]* s), [0-9]* samples/s after it$' "... with its time"
status 0 "a job of one step" "$run" --set steps=1 tiny.job
holds out '1 step in [0-9.e-]* s, [0-9]* samples/s$' "... has no other"
status 3 "nothing to evaluate on" "$run" --eval --set split=1 tiny.job
status 0 "untrained weights evaluated" "$run" --eval tiny.job
says 'never trained' "... are known to be"
status 3 "too few samples" "$run" --set batch=3000 tiny.job
says 'a step takes 3000 samples' "... how many it takes"
status 0 "a log to standard output" "$run" --log=- -o none.txt tiny.job
check "... without anything else" [ "$(wc -l <out)" = 32 ]
printf '%s\n' 'input 4 4' 'attention 2' 'dense 4' 'loss hinge' >places.model
status 3 "a class for each place, where samples have one" "$run" --set model=places.model tiny.job
says 'flatten' "... and what to do"
for last in 'dense 7' 'flatten;dense 8'; do
	echo "input 8;embedding 8 16;$last;loss softmax-cross-entropy" | tr ';' '\n' >text.model
	status 3 "a text for a model with $last" "$run" --set model=text.model --set data=synthetic:tokens=900,vocab=8 tiny.job
done
status 2 "two jobs" "$run" tiny.job tiny.job
status 2 "--bench nonsense" "$run" --bench=gpu
status 2 "-O csv of a job" "$run" -O csv tiny.job
status 4 "a full disk for the result" sh -c "'$run' -q tiny.job >/dev/full"
status 4 "a full disk for the log" "$run" -q --log=/dev/full tiny.job
status 4 "a full disk for the checkpoint" "$run" -q --checkpoint=/dev/full tiny.job
status 4 "... of three ranks" timeout 20 "$run" -q -n 3 --checkpoint=/dev/full tiny.job
says '^run: rank 0: .*No space' "... which says why"
check "... alone" [ "$(grep -c 'No space' err)" = 1 ]
check "... and the others that it gave up" [ "$(ranks_say 'rank 0 gave up' err)" = '1 2 ' ]
status 3 "a step that takes more samples than there are, of four ranks" "$run" -q -n 4 --set batch=30000 tiny.job
check "... is said once" [ "$(grep -c 'a step takes 120000 samples' err)" = 1 ]
says "4 of 4 ranks failed" "... and how many failed"
# little: files of 16 KiB at most, as on a disk that fills up
little() {
	(
		ulimit -f 32
		exec timeout 30 "$run" -q -n 2 --transport=tcp "$@"
	)
}
sed 's/^model .*/model mlp:16-192-128-4/' tiny.job >wide.job
status 4 "a disk that fills up in the checkpoint" little --checkpoint=big.st wide.job
check "... of which nothing is left" sh -c '! ls | grep -q big.st'
status 4 "a disk that fills up in traces" little --set steps=4000 -u -t big.trace --report=big.json tiny.job
says 'rank 1: .*big.trace.1' "... each rank says whose"
check "... and the job was done" grep -q '"steps": 4000' big.json
status 3 "a loss that grows without end" "$run" --set 'optimizer sgd lr=100000' tiny.job
says 'diverged' "... is said"
check "any call of an evaluation may fail" "$SRC/tests/fault/torture" -n 30 "$run" --eval tiny.job

# torture N...: the same for training, whose output is the checkpoint
torture() {
	"$run" -q --set steps=2 --checkpoint=good.st tiny.job >out || return
	for n; do
		rm -f fail.st
		PL_FAIL=$n "$run" -q --set steps=2 --checkpoint=fail.st -t fail.trace tiny.job >out 2>err
		case $? in
		0) cmp fail.st good.st || return ;;
		4 | 5) grep -q '^run: ' err || return ;;
		*) echo "# PL_FAIL=$n"; return 1 ;;
		esac
	done
}
# shellcheck disable=SC2046  # numbers
check "any call of a training may fail" torture $(seq 1 5 200) $(seq 3 19 200 | sed 's/$/+/')
done_testing
