# Local SGD: against data parallelism, its checkpoints, its trace, a rank that dies.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
tiny_job 32

# ---- beside data parallelism ----------------------------------------------------------------------
for n in 2 3; do
	"$run" -q -n $n --set 'optimizer sgd lr=0.05' --export=bsp.st tiny.job >out 2>err &&
		"$run" -q -n $n --set 'optimizer sgd lr=0.05' --set 'policy local-sgd local-steps=1' --export=local.st tiny.job >out 2>err
	floats bsp.st >bsp
	floats local.st >local
	# 32 steps, each of which rounds weights below 1 a few times: 32 x 4 x 2^-25 is 4e-6
	check "one local step, plain SGD, $n ranks: the weights of bsp to 4e-6" sh -c "paste bsp local | awk '
		{ d = \$1 - \$2; if (d > 4e-6 || d < -4e-6) bad = 1 } END { exit bad || NR < 2000 }'"
done
status 0 "eight local steps" "$run" -n 3 --set 'policy local-sgd' --report=local.json tiny.job
check "... as the report says" grep -q '"policy": "local-sgd"' local.json
"$run" -q -n 3 --report=bsp.json tiny.job >out
sent() {
	awk -F '[:,]' '/"bytes_sent"/ { n += $2 } END { print n }' "$1"
}
check "... send less than a third of what bsp sends" [ $((3 * $(sent local.json))) -lt "$(sent bsp.json)" ]
"$run" -q -n 1 --set 'policy local-sgd' --export=local.st tiny.job >out
"$run" -q -n 1 --export=bsp.st tiny.job >out
check "one rank: the same bits as bsp" cmp bsp.st local.st

# ---- state ----------------------------------------------------------------------------------------
printf '%s\n' 'input 16' 'dense 24' batchnorm relu 'dropout 0.2' 'dense 4' 'loss softmax-cross-entropy' >norm.model
# local_sgd SET OPTION...
local_sgd() {
	set=$1
	shift
	"$run" -q -n 3 --set model=norm.model --set "$set" --set 'policy local-sgd local-steps=4' "$@" tiny.job >>out 2>>err
}
for set in 'optimizer sgd lr=0.05' 'optimizer sgd lr=0.05 momentum=0.9' 'optimizer adamw lr=0.002'; do
	local_sgd "$set" --checkpoint=whole.st && local_sgd "$set" --set steps=12 --checkpoint=half.st &&
		local_sgd "$set" --resume=half.st --checkpoint=again.st
	check "${set#* }: resumed at the end of a round to the same bits" cmp whole.st again.st
	local_sgd "$set" --checkpoint=every.st --set checkpoint-every=8 --set eval-every=4
	check "... checkpoints and evaluations at ends of rounds change nothing" cmp whole.st every.st
done
status 0 "an end within a round" "$run" -n 2 --set 'policy local-sgd' --set steps=13 --checkpoint=half.st tiny.job
status 3 "... is not continued" "$run" -n 2 --set 'policy local-sgd' --resume=half.st tiny.job
says 'after step 13, within a round of 8 local steps.*--import' "... which is said with a remedy"
status 0 "... but evaluated" "$run" --set 'policy local-sgd' --eval --resume=half.st tiny.job
for every in eval checkpoint; do
	status 3 "$every-every within rounds" "$run" -n 2 --set 'policy local-sgd' --set $every-every=5 --checkpoint=x.st tiny.job
	says "$every-every 5 is no multiple of local-steps=8" "... is refused"
done
"$run" -q -n 2 --set 'policy local-sgd local-steps=16' --set steps=1000000 --log=long.csv --checkpoint=stopped.st tiny.job >out 2>err &
pid=$!
until_trains long.csv
kill -TERM $pid
wait $pid
check "a signal ends it" [ $? = 143 ]
step=$(grep -ao '"paceline.step":"[0-9]*"' stopped.st | tr -dc 0-9)
check "... at the end of a round" [ $((step % 16)) = 0 ]
status 0 "... which is continued" "$run" -n 2 --set 'policy local-sgd local-steps=16' --set steps=$((step + 16)) --resume=stopped.st tiny.job

# ---- trace, plan, failure -------------------------------------------------------------------------
status 0 "traced" "$run" -q -n 3 --set 'policy local-sgd' --set 'optimizer sgd lr=0.05' -t local.trace tiny.job
status 0 "merged" "$BIN/merge" -q --report=clock local.trace.0 local.trace.1 local.trace.2 -o merged
check "... all collectives matched" grep -q '"unmatched_collectives": 0' clock
check "... whole" [ ! -s "$TMP/err" ]
status 0 "merged without a rank" "$BIN/merge" local.trace.0 local.trace.2 -o few
says '^merge: warning: rank 1 of 3 is missing$' "... is warned of"
status 3 "... --strict" "$BIN/merge" --strict local.trace.0 local.trace.2 -o few
status 0 "... all ranks, --strict" "$BIN/merge" -q --strict local.trace.0 local.trace.1 local.trace.2 -o few
"$BIN/trace" -O csv merged >merged.csv
check "... an average after each eight steps, on each rank" [ "$(grep -c 'allreduce bucket 0' merged.csv)" = $((3 * 4)) ]
status 0 "... and replayed" sh -c "'$BIN/graph' -q merged | '$BIN/replay' --no-worth -"
printf '%s\n' 'paceline-plan 1' 'tensor 4.bias 16' 'tensor 0.weight 3072' 'fuse-tensors 4.bias 0.weight' 'accumulate 2' >a.plan
status 0 "a plan" "$run" -n 2 -p a.plan --set 'policy local-sgd' tiny.job
says 'fuse-tensors is left out: local SGD sends no gradients' "... what it does not do is said"
check "... and nothing else" [ "$(wc -l <err)" = 1 ]
if ps -o pid= --ppid $$ >/dev/null 2>&1; then
	"$run" -q -n 3 --timeout=1s --set 'policy local-sgd' --set steps=100000000 --log=death.csv tiny.job >out 2>err &
	pid=$!
	until_trains death.csv
	kill -KILL "$(ps -o pid= --ppid $pid | sed -n 2p | tr -d ' ')"
	wait $pid
	check "a rank is killed: status 4" [ $? = 4 ]
	check "... each survivor names it" [ "$(ranks_say 'rank 1 ' err)" = '0 2 ' ]
fi
done_testing
