# Parameter servers: too few workers remain, as the only one is stopped or killed, and it comes back or does not.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

job=tiny.job
policies='bsp local ssp asp fixed-adacomm adacomm adsp adsp++ batchtune diloco dylu'

# words POLICY: as a job has it, with frequent commits
words() {
	case $1 in
	local | *adacomm | diloco | dylu) echo "$1 local-steps=2" ;;
	*) echo "$1" ;;
	esac
}
# begin FOLDER RANKS OPTION...: a training in a folder of its own; its process is in $FOLDER/pid
begin() {
	folder=$1
	ranks=$2
	shift 2
	mkdir -p "$folder"
	(
		cd "$folder" || exit 1
		"$run" -n "$ranks" --timeout 500ms --set 'pace any speed=40' --log=log.csv --export=end.st "$@" "../$job" >out 2>err &
		echo $! >pid
		wait $!
		echo $? >status
	) &
}
# trains FOLDER...: waits until all have begun
trains() {
	for folder; do
		until_trains "$folder/log.csv"
	done
}
# signal NAME RANK FOLDER...: sends it to the rank of each
signal() {
	signal=$1
	number=$2
	shift 2
	for folder; do
		kill "-$signal" "$(child "$(cat "$folder/pid")" "rank $number")"
	done
}
# ended FOLDER...: waits until each has ended, 30 s at most
ended() {
	for folder; do
		turn=0
		until [ -s "$folder/status" ] || [ $turn = 300 ]; do
			sleep 0.1
			turn=$((turn + 1))
		done
	done
}

# ---- the only worker --------------------------------------------------------------------------------
for policy in $policies; do
	begin "$policy" 1 --set 'engine ps' --set "policy $(words "$policy")" --set steps=150
done
# shellcheck disable=SC2086  # several words
{
	trains $policies
	signal STOP 0 $policies
	sleep 2.5
	signal CONT 0 $policies
	ended $policies
}
for policy in $policies; do
	check "$policy: the only worker is stopped for longer than the timeout, and goes on" [ "$(cat "$policy/status")" = 0 ]
	holds "$policy/err" 'worker 0 has left: 0 of 1 workers remain, .*; training waits for it to come back' "... training waits"
	holds "$policy/err" 'enough workers are there again' "... for it"
	check "... to the last step" [ "$(awk -F , 'NR > 1 && $2 > n { n = $2 } END { print (n >= 150) }' "$policy/log.csv")" = 1 ]
	rm -r "$policy"
done
for policy in $policies; do
	begin "$policy" 1 --set 'engine ps' --set "policy $(words "$policy")" --set steps=100000
done
# shellcheck disable=SC2086
{
	trains $policies
	killed=$(date +%s)
	signal KILL 0 $policies
	ended $policies
}
check "killed workers end their jobs soon" [ $(($(date +%s) - killed)) -lt 5 ]
for policy in $policies; do
	check "$policy: the only worker is killed, and training ends" [ "$(cat "$policy/status")" = 4 ]
	holds "$policy/err" 'worker 0 has left: 0 of 1 workers remain, .*; rank 0 has ended' "... the message names the rank"
	rm -r "$policy"
done

# a group will go on from there with half the batch: of three epochs of 1600 samples, 110 steps of 32 samples are left
"$run" -q -n 2 --set 'engine ps group=2' --set steps=20 --checkpoint=twenty.st tiny.job >out
grep -v '^steps' tiny.job >epochs.job

# ---- a policy that needs all workers -----------------------------------------------------------------
begin bsp 3 --set 'engine ps' --set 'policy bsp' --set steps=100
begin two 3 --set 'engine ps servers=2' --set 'policy bsp' --set steps=100
begin least 3 --set 'engine ps' --set 'policy asp min-workers=3' --set steps=100
# ---- the only group ----------------------------------------------------------------------------------
begin member 2 --set 'engine ps group=2' --set 'policy bsp' --set steps=120
begin first 2 --set 'engine ps group=2' --set 'policy adsp' --set steps=120
begin gone 2 --set 'engine ps group=2' --set 'policy asp' --set steps=100000
begin stays 1 --set 'engine ps' --set 'policy asp' --set steps=100000
job=epochs.job
begin schedule 2 --set 'engine ps group=2' --set 'policy asp' --set epochs=3 --set 'schedule linear' --set batch=16 --resume=../twenty.st
job=tiny.job
trains bsp two least member first gone stays schedule
signal STOP 1 bsp two least member schedule
signal STOP 0 first stays
signal KILL 1 gone
sleep 2.5
signal CONT 1 bsp two least member schedule
signal CONT 0 first
ended bsp two least member first gone stays schedule
"$run" -q -n 3 --set steps=100 --export=dp.st tiny.job >out
for folder in bsp two; do
	check "$folder: one of three workers is stopped and comes back" [ "$(cat $folder/status)" = 0 ]
	holds $folder/err 'worker 1 has left: 2 of 3 workers remain, .*; training waits' "... the others wait for it"
	check "... to the weights of training without a failure" close 2e-5 dp.st $folder/end.st
done
check "asp with min-workers: the same" [ "$(cat least/status)" = 0 ]
holds least/err 'enough workers are there again' "... which waits"
# shellcheck disable=SC2016  # fields of awk
check "a group goes on with its schedule" awk -F , 'NR > 1 && $7 != "" { n = $2; d = $7 - 0.05 * (1 - (n - 1) / 130); if (d > 1e-6 || d < -1e-6) bad = 1 }
	END { exit bad || n != 130 }' schedule/log.csv
for folder in member first schedule; do
	check "$folder: a rank of the only group is stopped, and training goes on" [ "$(cat $folder/status)" = 0 ]
	holds $folder/err 'group 0 (ranks 0-1) is whole again' "... with the whole group"
done
check "a rank of the only group is killed, and training ends" [ "$(cat gone/status)" = 4 ]
holds gone/err 'worker 0 has left: 0 of 1 workers remain, .*; rank 1 has ended' "... the message names the rank"
check "a worker that stays away ends training" [ "$(cat stays/status)" = 4 ]
holds stays/err 'rank 0 did not come back within 6 s' "... the message names the rank"

# ---- launchers: another process in place of the only worker -------------------------------------------
# process RANK OPTION...: of a launcher that starts a server and a worker
process() {
	rank=$1
	shift
	RANK=$rank WORLD_SIZE=2 PACELINE_TOKEN=0123456789abcdef "$run" --timeout 500ms --meet "dir:$TMP/meet" --set 'engine ps' --set 'policy asp' \
		--set 'pace any speed=40' --log=log.csv "$@" tiny.job >"out.${as:-$rank}" 2>"err.${as:-$rank}" &
}
mkdir meet
process 0 --set steps=120
server=$!
process 1 --set steps=120
until_trains log.csv
kill -KILL $!
wait $! 2>/dev/null
sleep 1
process 1 --set steps=120
check "the only worker is killed, and started again" wait $!
check "... training goes on" wait $server
holds err.0 'enough workers are there again' "... with it"
rm log.csv
process 0 --set steps=100000
server=$!
process 1 --set steps=100000
until_trains log.csv
kill -KILL $!
wait $server
check "... or is not" [ $? = 4 ]
holds err.0 'rank 0 did not come back within 6 s' "... the message names the rank"
rm log.csv
process 0 --set steps=200
server=$!
process 1 --set steps=200
stopped=$!
until_trains log.csv
kill -STOP $stopped
lines=$(wc -l <log.csv)
as=other
process 1 --set steps=200
turn=0
until [ "$(wc -l <log.csv)" -gt $((lines + 20)) ] || [ $turn = 100 ]; do
	sleep 0.1
	turn=$((turn + 1))
done
kill -KILL $!
wait $! 2>/dev/null
kill -CONT $stopped
check "a worker is stopped, another process takes its place and is killed, and the first one goes on" wait $stopped
check "... to the end" wait $server
holds err.1 'another process has taken the place of worker 0 meanwhile: the steps of this one since its last commit are lost' "... from other weights"
check "nothing is left behind" [ -z "$(ls -d paceline-* 2>/dev/null)" ]
done_testing
