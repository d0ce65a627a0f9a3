# Parameter servers: what rounds leave in the weights, in checkpoints, in evaluations, and in predictions, where the
# last round is shorter, or training ends within one.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# local_sgd STEPS ROUND: the weights of the engine for equal ranks, into dp.st
local_sgd() {
	"$run" -q -n 3 --set "policy local-sgd local-steps=$2" --set "steps=$1" --export=dp.st tiny.job >/dev/null
}
# number KEY FILE: of a checkpoint
number() {
	grep -ao "\"paceline.$1\": *\"[0-9]*\"" "$2" | grep -o '[0-9]*'
}

# ---- the last round ----------------------------------------------------------------------------------
for case in 'local 8 20' 'local 8 29' 'fixed-adacomm 40 20' 'adacomm 40 20'; do
	# shellcheck disable=SC2086  # words
	set -- $case
	local_sgd "$3" "$2"
	ps "$1 local-steps=$2" 3 --set "steps=$3" --export=ps.st --report=ps.json
	check "$1, rounds of $2 steps, $3 steps: the weights of local-sgd" close 1e-6 dp.st ps.st
	check "... and the steps" grep -q "^  \"steps\": $3,$" ps.json
done
"$run" -q --set steps=0 --export=begin.st tiny.job >/dev/null
local_sgd 10 100
ps diloco 3 --set steps=10 --export=ps.st
for f in begin dp ps; do
	floats $f.st >$f.txt
done
check "diloco: 0.7 (1 + 0.9) of the change of one short round" sh -c "paste begin.txt dp.txt ps.txt | awk '
	{ d = \$3 - \$1 - 1.33 * (\$2 - \$1); if (d > 1e-6 || d < -1e-6) bad = 1; if (\$2 != \$1) changed++ }
	END { exit bad || changed < 2000 }'"

# ---- checkpoints and evaluations -----------------------------------------------------------------------
ps 'local local-steps=8' 3 --set steps=29 --set eval-every=6 --set checkpoint-every=4 --set checkpoint-keep=20 --checkpoint=ck.st --log=log.csv \
	--export=whole.st
check "checkpoints are those of ends of rounds" [ "$(echo ck.st.*)" = 'ck.st.16 ck.st.24 ck.st.29 ck.st.8' ]
check "... and so are evaluations" [ "$(awk -F , 'NR > 1 && $5 > 0 { printf "%s:%s ", $2, $3 }' log.csv)" = '8:768 16:1536 24:2304 29:2784 ' ]
for step in 8 16 24 29; do
	local_sgd $step 8
	check "the checkpoint of step $step has its weights" close 1e-6 dp.st ck.st.$step
	check "... and samples" [ "$(number step ck.st.$step) $(number samples ck.st.$step)" = "$step $((step * 96))" ]
done
ps 'local local-steps=8' 3 --set steps=29 --resume=ck.st.16 --export=resumed.st --report=resumed.json
check "resumed: the weights of training without an interruption" close 1e-6 whole.st resumed.st
check "... and the steps since then" grep -q '^  "steps": 13,$' resumed.json
ps bsp 3 --set steps=24 --set eval-every=8 --log=once.csv
check "the last weights are evaluated once" [ "$(awk -F , 'NR > 1 && $5 > 0 { printf "%s ", $2 }' once.csv)" = '8 16 24 ' ]
ps 'local local-steps=8' 3 -q --set steps=29 --set eval-every=8 --report=cut.json --set checkpoint-every=8 --checkpoint=cut.st --speeds=60,60,60 --log=cut.csv &
turn=0
until [ "$(wc -l 2>/dev/null <cut.csv || echo 0)" -gt 3 ] || [ $turn = 100 ]; do
	sleep 0.1
	turn=$((turn + 1))
done
sleep 0.05
kill -TERM "$(pgrep -P $!)"
wait $!
check "a signal within a round: the checkpoint is that of its beginning" [ $(($(number step cut.st) % 8)) = 0 ]
# shellcheck disable=SC2016  # fields of awk
check "... the report has no evaluation, or that of these weights" awk -F '[:,]' -v step="$(number step cut.st)" '
	FNR == NR && /"eval_loss"/ { loss = $2 } FNR < NR && $2 == step && $5 != "" { right = $5 }
	END { exit !(loss ~ /null/ || (right - loss < 1e-6 && loss - right < 1e-6)) }' cut.json cut.csv
check "... with its samples" [ "$(number samples cut.st)" = $(($(number step cut.st) * 96)) ]
ps 'local local-steps=8' 3 --set steps=29 --resume=cut.st --export=resumed.st
check "... and training goes on from there" close 1e-6 whole.st resumed.st

# evaluations that take longer than the steps between two checkpoints
ps bsp 3 --set 'data synthetic:samples=20000,dims=16,classes=4' --set split=0.1 --set steps=30 --set eval-every=1 --set checkpoint-every=10 \
	--set checkpoint-keep=9 --checkpoint=slow.st --checkpoint-best=best.st
for step in 10 20 30; do
	check "slow evaluations: the checkpoint of step $step has its samples" [ "$(number samples slow.st.$step)" = $((step * 96)) ]
done
check "... and the best evaluation has its own" [ "$(number samples best.st)" = $(($(number step best.st) * 96)) ]

# ---- samples of unequal workers --------------------------------------------------------------------------
ps adsp 3 --set steps=20 --speeds=100,100,400 --checkpoint=adsp.st --log=adsp.csv
committed=$(awk -F , 'NR > 1 && $4 != "" && $3 > n { n = $3 } END { print n }' adsp.csv)
check "adsp: the last evaluation and the checkpoint have the samples of the log" \
	[ "$(awk -F , 'END { print $3 }' adsp.csv) $(number samples adsp.st)" = "$committed $committed" ]

# ---- what workers do with their optimizers ---------------------------------------------------------------
for case in 'bsp 3 sgd lr=0.05 momentum=0.9' 'asp 1 sgd lr=0.05 momentum=0.9' 'asp 1 adam lr=0.01'; do
	policy=${case%% *}
	optimizer=${case#* }
	n=${optimizer%% *}
	optimizer=${optimizer#* }
	"$run" -q -n "$n" --set "optimizer $optimizer" --set 'schedule cosine' --set 'warmup 5' --export=dp.st --log=dp.csv --report=dp.json tiny.job >out
	ps "$policy" "$n" -q --set "optimizer $optimizer" --set 'schedule cosine' --set 'warmup 5' --export=ps.st --log=ps.csv --report=ps.json
	check "$case, with a schedule: the weights of data parallelism" close 2e-5 dp.st ps.st
	check "... and the final loss" [ "$(grep -o '"final_loss": [0-9.]\{5\}' dp.json)" = "$(grep -o '"final_loss": [0-9.]\{5\}' ps.json)" ]
	awk -F , -v n="$n" 'NR > 1 && $7 != "" && k++ % n == 0 { print $7 }' ps.csv >ps.lr
	awk -F , 'NR > 1 && $7 != "" { print $7 }' dp.csv >dp.lr
	check "... and the rates" cmp ps.lr dp.lr
done
# after step 6 of the job, rates are tiny
ps asp 2 --speeds=50,200 --set steps=24 --set 'schedule step every=6 gamma=1e-9' --set eval-every=1 --log=rates.csv
# shellcheck disable=SC2016  # fields of awk
check "unequal workers: the schedule is that of the job" awk -F , 'NR > 1 && $5 > 0 && $2 > 6 + 2 { if (n++ && $5 != was) bad = 1; was = $5 } END { exit bad || n < 4 }' rates.csv
ps asp 1 --set 'optimizer adam lr=0.01' --set steps=20 --checkpoint=adam.st --export=begin.st
ps asp 1 --set 'optimizer adam lr=0.01' --set steps=21 --resume=adam.st --export=end.st
holds err 'warning: .*adam.st has no state of the optimizer' "resumed: the optimizers begin anew, says a warning"
check "... and the first step of Adam has the length of a first step" close 0.0101 begin.st end.st
alone() {
	"$run" --set 'optimizer adam lr=0.01' "$@" tiny.job >out 2>err
}
alone --set steps=21 --resume=adam.st --export=end.st
holds err 'warning: .*adam.st has no state of the optimizer' "... nor has the job without servers that goes on"
check "... whose first step has that length, too" close 0.0101 begin.st end.st
check "... and is no shorter" no close 0.0095 begin.st end.st
alone --set steps=40 --resume=adam.st --checkpoint=whole.st
alone --set steps=30 --resume=adam.st --checkpoint=half.st
alone --set steps=40 --resume=half.st --checkpoint=again.st
check "... and which is continued to the same bits" cmp whole.st again.st
check "... without a warning" [ ! -s err ]
"$run" -q --set 'optimizer adam lr=0.01' --set steps=20 --checkpoint=adam.st tiny.job >out
"$run" -q --set 'optimizer adam lr=0.01' --export=dp.st tiny.job >out
ps asp 1 --set 'optimizer adam lr=0.01' --resume=adam.st --export=ps.st
check "from a checkpoint without servers the state goes on" close 2e-5 dp.st ps.st
check "... without a warning" [ ! -s err ]
ps asp 1 --set 'optimizer adam lr=0.01' --set steps=24 --resume=adam.st --checkpoint=later.st
ps asp 1 --set 'optimizer adam lr=0.01' --set steps=28 --resume=later.st
holds err 'warning: .*later.st has no state of the optimizer' "... and is not that of later checkpoints, which servers write"

# ---- replay --------------------------------------------------------------------------------------------
for policy in 'local local-steps=8' 'fixed-adacomm' 'bsp'; do
	{
		grep -v ^steps tiny.job
		printf 'engine ps\nranks 3\nsteps 20\npace 0 speed=200\npace 1 speed=200\npace 2 speed=400\npolicy %s\n' "$policy"
	} >rounds.job
	"$run" -O json rounds.job >run.json
	"$BIN/replay" -O json rounds.job >replay.json
	check "$policy: replay predicts the commits of run" [ "$(grep '"commits"' run.json | grep -o '[0-9]*' | tr '\n' ' ')" = \
		"$(grep '^ .*"commits"' replay.json | tail -3 | grep -o '[0-9]*' | tr '\n' ' ')" ]
	check "... and its steps" grep -q '^  "steps": 60,$' replay.json
done
{
	grep -v ^steps tiny.job
	printf 'engine ps\nranks 3\nsteps 20\npace 0 speed=200\npace 1 speed=200\npace 2 speed=400\npolicy dylu local-steps=12\n'
} >last.job
"$BIN/replay" -O json last.job >replay.json
# shellcheck disable=SC2016  # an awk program
check "steps behind the last commits do not count, as in run" awk '/^  "steps"/ { all = $2 + 0 } /"seconds"/ { s = $2 + 0 }
	/^  "samples"/ { n = $2 + 0 } /^  "samples_per_s"/ { v = $2 + 0 } /^ .*"worker"/ { workers = 1 } workers && /"steps"/ { sum += $2 }
	END { exit !(all > 0 && sum == all && v > 0.999 * n / s && v < 1.001 * n / s) }' replay.json
done_testing
