# Parameter servers: each failure under each policy, of three workers that need a fraction of a core. Worker 1 is
# killed, stopped for ever, stopped for 10 s, behind a network that swallows, half closes or resets its connection, or
# ten times slower than the others; the server is killed; the disk is full.
# runner: waits, threads, long
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# those that need all workers, and those that go on without one
needing='bsp local fixed-adacomm adacomm batchtune diloco'
going='ssp asp adsp adsp++ dylu'
sanitized any && needing='bsp diloco' going='adsp dylu'
policies="$needing $going"
sed -i 's/^batch .*/batch 8/' tiny.job

# words POLICY: as a job has it, with frequent commits
words() {
	case $1 in
	local | *adacomm | diloco | dylu) echo "$1 local-steps=2" ;;
	ssp) echo "$1 staleness=8" ;;
	*) echo "$1" ;;
	esac
}
# what happens in the folder of a training once it trains
signal() { # NAME PROCESS
	kill "-$1" "$(child "$(cat pid)" "$2")"
}
no_fault() { :; }
kill_worker() {
	signal KILL 'rank 1'
	see err 40
}
kill_server() {
	signal KILL 'server 0'
}
pause_worker() {
	signal STOP 'rank 1'
	see err 100
	sleep $((10 - $(cat seen 2>/dev/null || echo 100) / 20))
	signal CONT 'rank 1'
}
# see FILE TURNS: is the worker named there within so many twentieths of a second, which are two timeouts and a second? Then
# their number is in the file `seen`
see() {
	turn=0
	until grep -q 'worker 1 is lost' "$1" || [ $turn = "$2" ]; do
		sleep 0.05
		turn=$((turn + 1))
	done
	[ $turn = "$2" ] || echo "$turn" >seen
}
# forked FAULT TIMEOUT SPEEDS WHAT OPTION...: a training of each policy in a folder of its own, FAULT.POLICY, in the background;
# its status is in the file status
forked() {
	fault=$1
	timeout=$2
	speeds=$3
	what=$4
	shift 4
	for policy in $policies; do
		mkdir -p "$fault.$policy"
		(
			cd "$fault.$policy" || exit 1
			"$run" -n 3 --timeout "$timeout" --speeds="$speeds" --set 'engine ps' --set "policy $(words "$policy")" --log=log.csv \
				--export=end.st "$@" ../tiny.job >out 2>err &
			echo $! >pid
			until_trains log.csv
			$what
			wait "$(cat pid)"
			echo $? >status
		) &
	done
}
# launched FAULT OPTION...: the same by a launcher: rank 0 is the server, and rank 2, which is worker 1, reaches it through a
# proxy, whose first connection has the fault once the job trains
launched() {
	fault=$1
	shift
	for policy in $policies; do
		mkdir -p "$fault.$policy/near" "$fault.$policy/far"
		(
			cd "$fault.$policy" || exit 1
			mkfifo go
			for rank in 0 1 2 3; do
				meet=near
				[ $rank != 2 ] || meet=far
				(
					RANK=$rank WORLD_SIZE=4 PACELINE_TOKEN=0123456789abcdef "$run" --timeout 500ms --transport=tcp --meet "dir:$PWD/$meet" \
						--speeds=10,10,20 --set 'engine ps' --set "policy $(words "$policy")" --log=log.csv --export=end.st "$@" ../tiny.job >out.$rank 2>err.$rank
					echo $? >status.$rank
				) &
			done
			until [ -s near/endpoint.0 ]; do sleep 0.05; done
			read -r address rest <near/endpoint.0
			"$GEN/netfault" 0 "${address##*:}" wait=1 only=0 "$fault=0" <go >ready &
			exec 3>go
			until [ -s ready ]; do sleep 0.05; done
			read -r _ port <ready
			echo "tcp:127.0.0.1:$port $rest" >far/endpoint.0
			until_trains log.csv
			echo >&3
			see err.0 40
			until [ -s status.0 ] && [ -s status.1 ] && [ -s status.2 ] && [ -s status.3 ]; do sleep 0.1; done
			exec 3>&-
			wait
			cat status.? | sort -u | tr -d '\n' >status
		) &
	done
}
# ended FAULT: waits for all, 40 s at most
ended() {
	for policy in $policies; do
		turn=0
		until [ -s "$1.$policy/status" ] || [ $turn = 400 ]; do
			sleep 0.1
			turn=$((turn + 1))
		done
	done
}
# went_on NAME: the training of this policy has made all its steps; its time is in the log
went_on() {
	check "$policy: $1: training goes on to its end" [ "$(cat "$fault.$policy/status")" = 0 ]
	check "... with all its steps" [ "$(awk -F , 'NR > 1 && $2 > n { n = $2 } END { print n + 0 }' "$fault.$policy/log.csv")" -ge "$steps" ]
}
# right: policies whose commits do not depend on speeds have the weights of training without a failure; for bsp those of
# data-parallel training
right() {
	case $policy in
	bsp) set -- ;;
	local | fixed-adacomm | diloco) set -- --set 'engine ps' --set "policy $(words "$policy")" ;;
	*) return 0 ;;
	esac
	[ -s "ref.$policy.$steps.st" ] || "$run" -q -n 3 "$@" --set steps="$steps" --export="ref.$policy.$steps.st" tiny.job >out
	check "... to the weights of training without a failure" close 2e-5 "ref.$policy.$steps.st" "$fault.$policy/end.st"
}
# fast LOG SAMPLES: nearly so many a second in the best 1.5 s of the second half of the log; other programs of the machine may
# stop the workers at any time
fast() {
	awk -F , -v want="$2" 'NR > 1 && $4 != "" { t[++n] = $1; s[n] = $3 }
		END {
			for (i = j = int(n / 2); j <= n; j++)
				while (t[j] - t[i] >= 1.5) {
					v = (s[j] - s[i]) / (t[j] - t[i])
					best = v > best ? v : best
					i++
				}
			print "# " best " samples/s"
			exit best < 0.9 * want
		}' "$1"
}
is_needing() {
	case " $needing " in *" $policy "*) ;; *) return 1 ;; esac
}

# ---- a policy that needs two of three ---------------------------------------------------------------------
start 'bsp min-workers=2'
kill -KILL "$worker"
check "bsp with min-workers: a worker is killed, and training goes on" wait "$pid"

# ---- stopped for 10 s, beside everything else --------------------------------------------------------------
forked pause 2s 10,10,20 pause_worker --set steps=100

# ---- killed; a server is killed ------------------------------------------------------------------------------
forked kill 500ms 10,10,20 kill_worker --set steps=50
forked server 500ms 10,10,20 kill_server --set steps=50
ended kill
ended server
for policy in $policies; do
	fault=kill steps=50
	check "$policy: a killed worker is named within two timeouts and a second" [ -s "kill.$policy/seen" ]
	if is_needing; then
		check "... training ends" [ "$(cat "kill.$policy/status")" = 4 ]
		holds "kill.$policy/err" 'worker 1 has left: 2 of 3 workers remain' "... and says why"
	else
		went_on "a worker is killed"
		# the bound of ssp lets the others go as the slower one
		speed=240
		[ "$policy" != ssp ] || speed=160
		sanitized any || check "... the others as fast as the policy lets them" fast "kill.$policy/log.csv" $speed
	fi
	fault=server
	went_on "the server is killed"
	holds "server.$policy/err" 'the server was started again' "... with another one"
	right
done

# ---- a network that fails ----------------------------------------------------------------------------------
for fault in hole half reset; do
	launched $fault --set steps=50
done
for fault in hole half reset; do
	ended $fault
done
for policy in $policies; do
	steps=50
	for fault in hole half reset; do
		check "$policy: $fault: the worker is lost within two timeouts and a second" [ -s "$fault.$policy/seen" ]
		went_on "$fault of its connection"
		right
	done
done

# ---- a slow worker; a full disk ------------------------------------------------------------------------------
forked slow 500ms 40,4,40 no_fault --set steps=20
# a disk that takes one checkpoint of the two that there are while the second one is written
for policy in $policies; do
	mkdir -p "full.$policy/disk"
	(
		cd "full.$policy" || exit 1
		# shellcheck disable=SC2016  # another shell expands it
		unshare -rm sh -c 'mount -t tmpfs -o size=16k none disk || exit 77
			"$run" -n 3 --speeds=20,20,20 --set "engine ps" --set "policy $1" --set steps=20 --set checkpoint-every=2 --checkpoint=disk/its.st ../tiny.job >out 2>err
			ended=$?
			ls disk >files
			"$run" -q --import=disk/its.st --eval ../tiny.job >evaluated 2>&1
			echo $ended >status' . "$(words "$policy")" || echo 77 >status
	) &
done
ended full
for policy in $policies; do
	if [ "$(cat "full.$policy/status")" = 77 ]; then
		skip "$policy: a full disk" "no file system of its own here"
		continue
	fi
	check "$policy: the disk is full for the second checkpoint: training ends" [ "$(cat "full.$policy/status")" = 4 ]
	holds "full.$policy/err" 'checkpoint disk/its.st: cannot write at byte .*: No space left' "... it is named"
	check "... the first one is there, alone" [ "$(cat "full.$policy/files")" = its.st ]
	holds "full.$policy/evaluated" 'held out' "... and whole"
done
ended slow
for policy in $policies; do
	fault=slow steps=20
	went_on "a worker ten times slower"
	check "... and nobody is lost" no grep -q lost "slow.$policy/err"
	right
done

# ---- stopped for 10 s --------------------------------------------------------------------------------------
ended pause
for policy in $policies; do
	fault=pause steps=100
	went_on "a worker is stopped for 10 s"
	check "... which is seen within two timeouts and a second" [ -s "pause.$policy/seen" ]
	holds "pause.$policy/err" 'worker 1 is lost: it gave no sign of life' "... the message says why"
	right
done
done_testing
