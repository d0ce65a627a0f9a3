# Parameter servers of a launcher: processes that it starts anew; nothing to train; times and counts after a failure.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# launch FOLDER RANK OPTION...: one process of a job with `size` of them, in the background: $!
launch() {
	(
		cd "$1" || exit 1
		export RANK="$2" WORLD_SIZE="$size" PACELINE_TOKEN=0123456789abcdef
		shift 2
		exec "$run" --meet "dir:$TMP/$folder/meet" --log=log.csv --report=end.json --set 'engine ps' "$@" ../tiny.job
	) >"$1/out.$2" 2>"$1/err.$2" &
}
# begin FOLDER SIZE OPTION...: all of them: $pid_0, $pid_1 ...
begin() {
	folder=$1
	size=$2
	shift 2
	mkdir -p "$folder/meet"
	for rank in $(seq 0 $((size - 1))); do
		launch "$folder" "$rank" "$@"
		eval "pid_$rank=$!"
	done
	until_trains "$folder/log.csv"
}
# lasts SECONDS PID...: have all ended by then?
lasts() {
	turn=0
	most=$(($1 * 10))
	shift
	for pid; do
		while kill -0 "$pid" 2>/dev/null && [ $turn -lt "$most" ]; do
			sleep 0.1
			turn=$((turn + 1))
		done
	done
	[ $turn -lt "$most" ]
}

# ---- a server without the weights of the one before it --------------------------------------------------
for policy in asp bsp; do
	begin "anew_$policy" 4 --timeout 1s --speeds=40,40,40 --set steps=100000 --set "policy $policy"
	kill -KILL "$pid_0"
	wait "$pid_0"
	launch "$folder" 0 --timeout 1s --speeds=40,40,40 --set steps=100000 --set "policy $policy"
	new=$!
	check "$policy: server 0 is started anew: all end soon" lasts 8 "$new" "$pid_1" "$pid_2" "$pid_3"
	codes=
	for pid in $new $pid_1 $pid_2 $pid_3; do
		wait "$pid"
		codes="$codes$? "
	done
	check "... with status 4" [ "$codes" = '4 4 4 4 ' ]
	for rank in 0 1 2 3; do
		holds "$folder/err.$rank" 'server 0 was started anew, without the weights' "... process $rank names it"
	done
done
begin anew_second 4 --timeout 1s --speeds=40,40 --set steps=100000 --set 'policy asp' --set 'engine ps servers=2'
kill -KILL "$pid_1"
wait "$pid_1"
launch "$folder" 1 --timeout 1s --speeds=40,40 --set steps=100000 --set 'policy asp' --set 'engine ps servers=2'
new=$!
check "server 1 of two is started anew: all end soon" lasts 8 "$new" "$pid_0" "$pid_2" "$pid_3"
for rank in 0 1 2 3; do
	holds "$folder/err.$rank" 'server 1 was started anew, without the weights' "... process $rank names it"
done

# ---- a worker that is started again ------------------------------------------------------------------------
begin again 3 --timeout 500ms --speeds=40,40 --set steps=60 --set 'policy asp'
kill -KILL "$pid_2"
wait "$pid_2"
launch again 2 --timeout 500ms --speeds=40,40 --set steps=60 --set 'policy asp'
wait "$pid_0"
check "a worker is killed, and its launcher starts another one: training ends" [ $? = 0 ]
samples=$(awk -F , 'NR > 1 && $4 != "" && $3 > n { n = $3 } END { print n }' again/log.csv)
check "... the report has the samples of both" grep -q "\"samples\": $samples,$" again/end.json
check "... and the steps" [ "$(grep '^ .*"steps"' again/end.json | tail -2 | awk -F '[:,]' '{ n += $2 } END { print n }')" = $((samples / 32)) ]

# ---- times: of a server that is away, of a worker that is lost ------------------------------------------------
start asp --report=times.json
begun=$(date +%s%N)
kill -STOP "$worker"
kill -KILL "$server"
sleep 1.5
kill -CONT "$worker"
wait "$pid"
passed=$(($(date +%s%N) - begun))
check "a server is killed, and a worker comes back to it late" grep -q 'the server was started again' err
# shellcheck disable=SC2016  # fields of awk
check "... that time counts" awk -F '[:,]' -v ns=$passed '/"seconds"/ { s = $2 } END { exit !(s > ns / 1e9 - 0.3) }' times.json
# shellcheck disable=SC2016  # fields of awk
check "... in the log, too" awk -F , -v ns=$passed 'END { exit !($1 > ns / 1e9 - 0.3) }' log.csv
start asp --report=times.json
kill -KILL "$worker"
wait "$pid"
# shellcheck disable=SC2016  # fields of awk
check "a worker is lost: samples a second are those of all the time" awk -F '[:,]' '/"seconds"/ { s = $2 } /^  "samples"/ { n = $2 }
	/^  "samples_per_s"/ { v = $2 } END { exit !(s > 0 && v * s > 0.99 * n && v * s < 1.01 * n) }' times.json

# ---- the end --------------------------------------------------------------------------------------------------
start asp --timeout 3s --set steps=40
kill -KILL "$server" "$worker"
wait "$pid"
check "a lost worker, and a server that was started again: training ends" [ $? = 0 ]
check "... and nobody waits for the lost one" awk -F '[:,]' -v end="$(date +%s%N)" -v log_end="$(stat -c %.9Y log.csv)" 'BEGIN { exit !(end / 1e9 - log_end < 2.5) }'
for words in 'engine ps' 'engine ps servers=2' 'engine ps group=2'; do
	status 0 "nothing to train, $words" "$run" -q -n 2 --set 'policy asp' --set "$words" --set steps=0 --export=nothing.st tiny.job
	check "... no process finds fault" [ ! -s "$TMP/err" ]
done
done_testing
