# Parameter servers: a server that is killed is started again; signals.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

for policy in bsp asp adsp; do
	start "$policy" --export=restarted.st
	kill -KILL "$server"
	check "$policy: the server is killed, and training goes on" wait "$pid"
	holds err 'the server was started again' "... with another server"
	[ $policy = bsp ] || continue
	"$run" -q -n 3 --set steps=60 --export=dp.st tiny.job >out
	check "... to the weights of training without a failure" close 2e-5 dp.st restarted.st
done
start bsp
kill -KILL "$server" "$worker"
wait "$pid"
check "bsp: the server and a worker are killed at once, and training ends" [ $? = 4 ]
holds err 'these workers did not come back: 1' "... the message names it"
start asp
kill -KILL "$server" "$worker"
check "asp: both are killed, and training goes on" wait "$pid"
start asp --set steps=100000 --timeout 300ms
kill -STOP "$server"
wait "$pid"
check "a server that is stopped for ever ends training" [ $? = 4 ]
holds err 'server 0 is lost, and did not come back' "... the workers say so"
start adsp
kill -TERM "$pid"
wait "$pid"
check "a signal ends training" [ $? = 143 ]
holds out 'interrupted by signal 15' "... and the report says so"
check "nothing is left behind" [ -z "$(ls -d paceline-* 2>/dev/null)" ]
done_testing
