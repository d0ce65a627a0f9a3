# Parameter servers: several of them, each with a slice of the weights; some are killed.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# ---- the same weights, whoever holds them ----------------------------------------------------------
for n in 1 2 3; do
	ps bsp 2 -q --set "engine ps servers=$n" --export=bsp.$n || cat err
done
check "two servers: the weights of one, bit for bit" cmp bsp.1 bsp.2
check "three servers: the same" cmp bsp.1 bsp.3
ps bsp 2 -q --set 'engine ps servers=2' --set 'transport tcp' --export=tcp.st
check "over TCP: the same" cmp bsp.1 tcp.st
for policy in asp 'ssp staleness=2' 'diloco local-steps=4' dylu; do
	name=${policy%% *}
	ps "$policy" 1 -q --export=one.st
	ps "$policy" 1 -q --set 'engine ps servers=2' --export=two.st
	check "$name, one worker: the weights of one server, bit for bit" cmp one.st two.st
done
ps bsp 2 -q --log=log.csv --set 'engine ps servers=2' --set eval-every=8 --checkpoint=half.st --set steps=16
check "evaluations of all slices" [ "$(awk -F , 'NR > 1 && $5 != ""' log.csv | wc -l)" -ge 2 ]
ps bsp 2 -q --resume=half.st --set 'engine ps servers=3' --export=resumed.st
check "a checkpoint goes on with another number of servers" cmp bsp.1 resumed.st
check "a round of eight workers and a tiny network" ps bsp 8 --set 'engine ps servers=2' --set 'model mlp:16-4'
status 3 "more servers than the network has numbers" "$run" --set 'engine ps servers=1000' --set 'model mlp:16-4' tiny.job
says 'the network has only' "... are refused"
# shellcheck disable=SC2016  # fields of awk
bytes() {
	"$run" -q --policies=bsp --speeds=100,100 -O csv --set "engine ps servers=$1" tiny.job | awk -F , 'NR == 2 { print $13 }'
}
check "bytes are those of all servers" [ $(($(bytes 3) * 100 / $(bytes 1))) -ge 99 ]

# ---- commits that overlap with steps ---------------------------------------------------------------
ps bsp 2 -q --set 'engine ps overlap' --export=over.st
check "a policy whose workers wait has no overlap" cmp bsp.1 over.st
# computes OPTION...: percent of a worker's time in steps, with a link of 100 ms there and back
computes() {
	"$run" -q -n 2 --speeds=50,50 --set steps=20 --set 'policy asp' --link latency=50ms -O json "$@" tiny.job |
		tr , '\n' | awk -F : '/"compute_share"/ { s = $2 } END { print int(100 * s) }'
}
check "asp waits for each reply" [ "$(computes --set 'engine ps')" -lt 40 ]
check "... and with overlap for none" [ "$(computes --set 'engine ps servers=2 overlap')" -gt 80 ]

# the sum of all commits is the change of the weights, and the schedule counts all steps: one worker is an optimizer
for policy in asp adsp adsp++; do
	for servers in 1 2; do
		set -- --set 'optimizer sgd lr=0.05 momentum=0.9' --set 'schedule step every=7'
		ps $policy 1 -q --set "engine ps servers=$servers overlap" --link latency=20ms --speeds=200 "$@" --export=over.st --report=over.json
		"$run" -q --set "steps=$(awk -F '[:,]' '/^  "steps"/ { print $2 + 0 }' over.json)" "$@" --export=one.st tiny.job >out
		check "$policy, $servers servers, overlap, one worker: the weights of one rank" close 2e-5 one.st over.st
	done
done

# ---- predicted ------------------------------------------------------------------------------------
# commit SERVERS LINK: percent of a worker's time that commits take, as replay predicts; a step takes 10 ms
commit() {
	(
		cat tiny.job
		printf 'engine ps servers=%s\npolicy asp\nranks 2\npace 0 speed=100\npace 1 speed=100\nlink %s\n' "$1" "$2"
	) >predicted.job
	"$BIN/replay" -q -O csv predicted.job | awk -F , 'NR == 2 { print int(100 * $8) }'
}
check "replay: two links carry two parts at once" [ "$(commit 1 rate=4Mbit) $(commit 2 rate=4Mbit)" = '80 67' ]
check "... but one link of all that a worker sends carries the whole commit" [ "$(commit 2 'rate=4Mbit shared=yes')" = 75 ]
check "... and servers tell one another of a commit" [ "$(commit 1 latency=10ms) $(commit 2 latency=10ms)" = '66 80' ]

# ---- failures --------------------------------------------------------------------------------------
# begin POLICY OPTION...: a training with two servers and two workers in the background; $first, $second and $worker 1
begin() {
	policy=$1
	shift
	rm -f log.csv
	"$run" -n 2 --timeout 1s --speeds=25,50 --set 'engine ps servers=2' --set "policy $policy" --set steps=40 --log=log.csv "$@" tiny.job >out 2>err &
	pid=$!
	until_trains log.csv
	# shellcheck disable=SC2034  # eval reads it
	first=$(child $pid 'server 0')
	second=$(child $pid 'server 1')
	worker=$(child $pid 'rank 1')
}
ps bsp 2 -q --set steps=40 --export=whole.st
for victims in first second 'first second'; do
	begin bsp --export=again.st
	pids=
	for victim in $victims; do
		eval "pids=\"\$pids \$$victim\""
	done
	# shellcheck disable=SC2086
	kill -KILL $pids
	check "bsp, killed: $victims: training goes on" wait "$pid"
	holds err 'started again' "... with another server"
	check "... to the weights of training without a failure, bit for bit" cmp whole.st again.st
done
begin asp
kill -KILL "$second" "$worker"
check "asp: a server and a worker are killed, and training goes on" wait "$pid"
holds err 'server 1 is lost' "... the message names the server"
holds err 'worker 1 is lost' "... and the worker"
begin adsp
kill -STOP "$worker"
sleep 2
kill -CONT "$worker"
check "a worker is stopped for a while, and training goes on" wait "$pid"
begin adsp --set 'engine ps servers=2 overlap' --link latency=20ms
kill -KILL "$second"
check "overlap: a server is killed while commits are on their way, and training goes on" wait "$pid"
begin asp --set steps=100000 --timeout 200ms
kill -STOP "$second"
wait "$pid"
check "a server that is stopped for ever ends training" [ $? = 4 ]
holds err 'server 1 is lost, and did not come back' "... the message names it"
begin asp --set steps=100000
kill -TERM "$second"
wait "$pid"
check "a signal to one server ends training" [ $? = 143 ]
holds out 'interrupted by signal 15' "... and the report says so"

# ---- launchers: servers are the first processes, and the others learn from the first where they are ----
meet=tcp:127.0.0.1:$((21000 + $$ % 9000))
pids=
for rank in 3 2 1 0; do
	RANK=$rank WORLD_SIZE=4 PACELINE_TOKEN=0123456789abcdef "$run" -q --meet $meet --set 'engine ps servers=2' --export=met.st \
		tiny.job >out.$rank 2>err.$rank &
	pids="$pids $!"
done
codes=
for pid in $pids; do
	wait "$pid"
	codes="$codes $?"
done
check "processes of a launcher meet at one address" [ "$codes" = ' 0 0 0 0' ]
check "... with the same weights" cmp bsp.1 met.st
done_testing
