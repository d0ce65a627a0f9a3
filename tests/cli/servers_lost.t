# Parameter servers: workers that are lost, and one that comes back.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

for policy in asp adsp 'dylu local-steps=2' 'ssp staleness=8'; do
	name=${policy%% *}
	start "$policy"
	kill -KILL "$worker"
	check "$name: a worker is killed, and training goes on" wait "$pid"
	holds err 'worker 1 is lost' "... the message names it"
done
for policy in bsp 'local local-steps=4'; do
	name=${policy%% *}
	start "$policy"
	kill -KILL "$worker"
	wait "$pid"
	check "$name: a worker is killed, and training ends" [ $? = 4 ]
	holds err 'worker 1 has left: 2 of 3 workers remain' "... the message names it"
done
start 'bsp min-workers=2'
kill -KILL "$worker"
check "bsp with min-workers: training goes on" wait "$pid"
start adsp --set steps=120
kill -STOP "$worker"
sleep 2
kill -CONT "$worker"
check "a worker is stopped for a while, and training goes on" wait "$pid"
holds err 'worker 1 is lost: it gave no sign of life' "... the message says why"
done_testing
