# Parameter servers: groups of ranks that are one worker.
# runner: waits, threads
# shellcheck disable=SC2016  # fields of awk
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# grouped SIZE POLICY RANKS OPTION...: trains tiny.job with groups of this size
grouped() {
	size=$1
	shift
	ps_policy=$1
	ps_n=$2
	shift 2
	"$run" -n "$ps_n" --set "engine ps group=$size" --set "policy $ps_policy" "$@" tiny.job >out 2>err
}
# per_worker KEY: the numbers of the workers in the report in ./out, in one line
per_worker() {
	awk -F '[:,]' -v key="\"$1\"" '/"workers"/ { on = 1 } on && index($1, key) { printf "%s%d", sep, $2; sep = " " }' out
}

# ---- the same training ------------------------------------------------------------------------------
for model in mlp:16-4 mlp:16-128-48-4; do
	"$run" -q -n 1 --set batch=128 --set "model $model" --export=one.st tiny.job
	grouped 2 bsp 4 -q --set "model $model" --export=ps.st
	floats one.st >a
	floats ps.st >b
	check "$model, bsp, groups of two: the weights of one rank with the batch of all" \
		awk 'NR == FNR { v[NR] = $1; next } { d = v[FNR] - $1; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || FNR < 60 }' a b
done
"$run" -q -n 2 --export=dp.st tiny.job
for policy in bsp ssp asp adacomm adsp batchtune; do
	grouped 2 $policy 2 -q --export=ps.st
	check "$policy, one group of two: data-parallel training" close 8e-6 dp.st ps.st
done
grouped 2 bsp 4 -q --export=shm.st
grouped 2 bsp 4 -q --set transport=tcp --export=tcp.st
check "over TCP: the same weights, bit for bit" cmp shm.st tcp.st
grouped 2 bsp 4 -q --set accumulate=4 --export=micro.st
check "with microbatches: the same but for rounding" close 8e-6 shm.st micro.st
grouped 2 bsp 4 -q --set steps=16 --checkpoint=half.st
grouped 2 bsp 4 -q --resume=half.st --export=resumed.st
check "resumed: the weights of training without an interruption" close 8e-6 shm.st resumed.st
# an epoch of 1600 samples: 12 steps of 4 ranks with 32 samples each
grep -v '^steps' tiny.job | "$run" -q -n 4 --set 'engine ps group=2' --set epochs=1 -O json - >out 2>err
check "an epoch takes each sample once at most" [ "$(awk -F '[:,]' '/"steps"/ { print $2 + 0; exit }' out)" = 12 ]

# ---- a group is one worker ----------------------------------------------------------------------------
for policy in asp adsp; do
	grouped 2 $policy 4 -q --speeds=40,40,40,10 -O json
	check "$policy, two groups of two: two workers" [ "$(per_worker rank)" = '0 2' ]
	check "... of which the one with a slow rank is slow" [ "$(per_worker steps | awk '{ print ($1 > 1.5 * $2) }')" = 1 ]
	check "... and the steps are those of workers" [ "$(per_worker steps | awk '{ print ($1 + $2 >= 64 && $1 + $2 <= 110) }')" = 1 ]
done
grouped 2 asp 4 -q --set "engine ps group=2 servers=2 overlap" -O json
check "with two servers and overlap, too" [ "$(per_worker rank)" = '0 2' ]
# samples to train on are all alike, so the gradient is that of any of them, however many a rank takes
awk 'BEGIN { print "x,y"; for (i = 0; i < 800; i++) print (i % 2) ",", i < 400 ? "a" : "b" }' | sed 's/^1,/0,/; s/ //' >alike.csv
sed 's/^model.*/model mlp:1-8-2/; s/^data.*/data csv:alike.csv/; s/^split.*/split 0.5/; s/^batch.*/batch 3/' tiny.job >alike.job
"$run" -q -n 1 --export=one.st alike.job
"$run" -q -n 4 --speeds=200,200,50,50 --set 'engine ps group=2' --set 'policy batchtune' --export=ps.st --log=shares.csv alike.job
floats one.st >a
floats ps.st >b
check "batchtune: ranks of a group share its batch" awk 'NR == FNR { v[NR] = $1; next } { d = v[FNR] - $1
	if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || FNR < 30 }' a b
check "... which the policy changes, but not the sum of all" [ "$(awk -F , 'END { print $3 }' shares.csv)" = 384 ]
"$run" -q --policies=asp --speeds=100,50,100,100 --set 'engine ps group=2' -O csv tiny.job >out 2>err
check "a comparison: H and workers are those of groups" awk -F , 'NR == 2 { exit !($3 == 1.5 && $5 == 2 && $18 >= 1) }' out

# ---- what cannot be -----------------------------------------------------------------------------------
status 3 "ranks that are no multiple" grouped 2 asp 3
holds err 'group=2, but there are 3 ranks: .* change group or ranks' "... are refused with a remedy"
status 3 "more workers than groups" grouped 2 'asp min-workers=3' 4
holds err 'there are 2 groups of 2 ranks' "... are refused"
status 3 "a transport of groups" grouped 1 asp 4 --set transport=mpi
holds err 'servers take auto, shm and tcp; groups of ranks also mpi and nccl' "... is refused without groups"
status 3 "a transport of GPUs without one" grouped 2 asp 4 --set transport=nccl
holds err 'write: device cuda, or another transport' "... is refused with a remedy"
status 2 "groups without servers" "$run" -n 2 --set 'engine dp group=2' tiny.job

# ---- predicted ----------------------------------------------------------------------------------------
# predicted OPTION...: samples a second by the simulation of four ranks in groups of two
predicted() {
	(
		cat tiny.job
		printf 'engine ps group=2\npolicy asp\nranks 4\n'
		printf 'pace %s\n' '0 speed=100' '1 speed=100' '2 speed=100' '3 speed=50'
		[ $# = 0 ] || printf '%s\n' "$@"
	) >predicted.job
	"$BIN/replay" -q -O csv predicted.job >predicted
}
predicted
check "replay: a group is one worker, as fast as its slowest rank" awk -F , 'NR == 2 && ($2 < 90 || $2 > 100) { bad = 1 }
	NR == 3 && ($2 < 45 || $2 > 50) { bad = 1 } END { exit bad || NR != 3 }' predicted
predicted 'link latency=20ms from=0 to=1'
check "... a link between its ranks slows its steps down" awk -F , 'NR == 2 { exit !($2 < 30 && $6 > 0.95) }' predicted
predicted 'link latency=20ms'
check "... and one to the servers its commits" awk -F , 'NR == 2 { exit !($8 > 0.5) }' predicted
check "plan: which policy suits groups" sh -c "'$BIN/plan' -O json predicted.job | grep -q '\"workers\": 2'"
status 3 "speeds for a part of a group" "$BIN/plan" --speeds=1,2,3 predicted.job
says 'there are 3 ranks' "... are refused"

# ---- links and traces -----------------------------------------------------------------------------------
grouped 2 bsp 4 -q --set steps=6 --link latency=20ms -t job.trace -O json
check "a link of all ranks is one to the servers" [ "$(per_worker compute_share)" = '0 0' ]
"$BIN/merge" -q -o merged job.trace.1 job.trace.2 job.trace.3 job.trace.4
check "the ranks of each group are one in traces" sh -c "'$BIN/graph' -q merged | '$BIN/graph' -O stat - | grep -q '^groups  *2, 0 inferred'"

# ---- a rank is lost ---------------------------------------------------------------------------------------
# begin POLICY OPTION...: two groups of two in the background; $leader and $member of the second
begin() {
	policy=$1
	shift
	rm -f log.csv
	"$run" -n 4 --timeout 1s --speeds=25,25,50,50 --set 'engine ps group=2' --set "policy $policy" --set steps=40 --log=log.csv "$@" tiny.job >out 2>err &
	pid=$!
	until_trains log.csv
	leader=$(child $pid 'rank 2')
	member=$(child $pid 'rank 3')
}
begin asp
kill -KILL "$member"
check "asp: a rank is killed, and the other group goes on" wait "$pid"
holds err 'rank 2: .*rank 3 is gone' "... the message names the rank"
holds err 'worker 1 (ranks 2-3) is lost' "... and the group"
begin adsp
kill -KILL "$leader"
check "adsp: the first rank is killed, and the other group goes on" wait "$pid"
holds err 'rank 3: .*rank 2 is gone' "... the message names the rank"
# whole: waits until the group has come back, 30 s at most, and ends training
whole() {
	turn=0
	until grep -q 'whole again' err || [ $turn = 300 ]; do
		sleep 0.1
		turn=$((turn + 1))
	done
	kill -TERM "$pid"
	wait "$pid"
}
for rank in 3 2; do
	begin asp --set steps=100000
	[ $rank = 3 ] || member=$leader
	kill -STOP "$member"
	sleep 2.5
	kill -CONT "$member"
	whole
	check "asp: rank $rank is stopped for longer than the timeout, and the other group goes on" [ $? = 143 ]
	holds err 'worker 1 (ranks 2-3) is lost' "... its group is lost"
	holds err 'group 1 (ranks 2-3) is whole again' "... and comes back"
done
begin bsp --set steps=100000
killed=$(date +%s)
kill -KILL "$member"
wait "$pid"
check "bsp: training ends" [ $? = 4 ]
check "... soon" [ $(($(date +%s) - killed)) -lt 10 ]
holds err 'worker 1 has left: 1 of 2 workers remain' "... the message names the group"
begin asp --set steps=100000
kill -TERM "$member"
wait "$pid"
check "a signal to one rank ends training" [ $? = 143 ]
holds out 'interrupted by signal 15' "... and the report says so"
check "nothing is left behind" [ -z "$(ls -d paceline-* 2>/dev/null)" ]

# ---- launchers: the ranks of a group learn from the first server where they meet ----------------------------
meet=tcp:127.0.0.1:$((21000 + $$ % 9000))
pids=
for rank in 5 4 3 2 1 0; do
	RANK=$rank WORLD_SIZE=6 PACELINE_TOKEN=0123456789abcdef "$run" -q --meet $meet --set 'engine ps servers=2 group=2' --export=met.st \
		tiny.job >out.$rank 2>err.$rank &
	pids="$pids $!"
done
codes=
for pid in $pids; do
	wait "$pid"
	codes="$codes $?"
done
check "processes of a launcher meet at one address" [ "$codes" = ' 0 0 0 0 0 0' ]
check "... with the same weights" cmp shm.st met.st
# process RANK OPTION...: of a launcher; $pids has all
process() {
	rank=$1
	shift
	RANK=$rank WORLD_SIZE=${world:-5} PACELINE_TOKEN=0123456789abcdef "$run" --meet "$meet" "$@" tiny.job >"out.$rank" 2>"err.$rank" &
	pids="$pids $!"
}
# ended: the exit codes of all are in $codes
ended() {
	codes=
	for pid in $pids; do
		wait "$pid"
		codes="$codes $?"
	done
	pids=
}
mkdir meet
pids=
lossy="--timeout 1s --speeds=25,25,50,50 --set steps=120 --log=log.csv"
for meet in "dir:$TMP/meet" tcp:127.0.0.1:$((21000 + ($$ + 1) % 9000)); do
	rm -f log.csv
	for rank in 0 1 2 3 4; do
		# shellcheck disable=SC2086  # several words
		process $rank $lossy --set 'engine ps group=2' --set 'policy asp'
	done
	until_trains log.csv
	kill -KILL "${pids##* }"
	wait "${pids##* }"
	pids=${pids% *}
	# shellcheck disable=SC2086
	process 4 $lossy --set 'engine ps group=2' --set 'policy asp'
	ended
	check "${meet%%:*}: a rank is killed, and started again" [ "$codes" = ' 0 0 0 0 0' ]
	holds err.3 'group 1 (ranks 2-3) is whole again' "... its group goes on"
	holds err.0 'worker 1 (ranks 2-3) is lost: .*rank 3 is gone' "... which was lost"
done

# ---- hosts are groups -----------------------------------------------------------------------------------
"$run" -q -n 4 --set hosts=2 --set 'engine ps group=host' --export=ps.st tiny.job >out 2>err
check "group=host: the ranks of each host that the job imitates" cmp shm.st ps.st
"$run" -n 2 --set 'engine ps group=host' -O json tiny.job >out 2>err
check "... of one host without them" [ "$(per_worker rank)" = 0 ]
holds err 'all ranks are on one host, so they are one worker' "... with a warning"
status 3 "more workers than hosts" "$run" -n 2 --set 'engine ps group=host' --set 'policy asp min-workers=2' tiny.job
says 'the ranks are 1 worker' "... are refused"
# three ranks: the second on a host of its own; the mean counts samples, not groups
"$run" -q -n 3 --export=dp.st tiny.job
for servers in 1 2; do
	world=$((servers + 3)) rank=0
	while [ $rank -lt $world ]; do
		if [ $rank = $((servers + 1)) ]; then
			PACELINE_HOST=other
		else
			PACELINE_HOST=one
		fi
		export PACELINE_HOST
		process $rank --set "engine ps group=host servers=$servers" --export=ps.st --report=ps.json
		rank=$((rank + 1))
	done
	unset PACELINE_HOST
	ended
	check "hosts of a launcher, servers: $servers" [ -z "$(echo "$codes" | tr -d ' 0')" ]
	check "... unequal groups train as their ranks without servers" close 8e-6 dp.st ps.st
	cp ps.json out
	check "... and are two workers" [ "$(per_worker rank)" = '0 1' ]
done
world=4
for rank in 3 2 1 0; do
	process $rank -q --timeout 300ms --set 'engine ps group=host' --set 'policy asp min-workers=2' --eval --import=ps.st
done
ended
check "weights are evaluated by one process, which waits for no other" [ "$codes" = ' 0 0 0 0' ]
holds out.0 'held out' "... and says the result"
world=3
process 0 --timeout 200ms --set 'engine ps group=host'
process 1 --timeout 200ms --set 'engine ps group=host'
ended
check "a rank that never comes" [ "$codes" = ' 4 4' ]
holds err.0 'these never came: rank 1' "... is named"
holds err.1 'these never came: rank 1' "... to the others, too"
done_testing
