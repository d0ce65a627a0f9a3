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
# the held-out loss has its minimum after a few steps
noisy='data synthetic:samples=400,dims=16,classes=4,noise=3'
start bsp --set "$noisy" --set split=0.5 --set 'optimizer adamw lr=0.05' --set eval-every=1 --checkpoint-best=best.st --report=best.json
until [ "$(wc -l <log.csv)" -gt 80 ] || ! kill -0 "$pid"; do
	sleep 0.1
done
kill -KILL "$server"
check "with checkpoint-best, too" wait "$pid"
best=$(awk -F '[:,]' '/"best"/ { print $2 }' best.json)
# shellcheck disable=SC2016  # fields of awk
check "... the new server knows the best evaluation before it" awk -F , -v best="$best" 'NR > 1 && $5 != "" && $5 < best - 1e-6 { bad = 1 }
	END { exit bad || best == "" || NR < 100 }' log.csv
"$run" -q --set "$noisy" --set split=0.5 --eval --import=best.st --report=best.json tiny.job >out
# shellcheck disable=SC2016  # fields of awk
check "... and keeps its weights" awk -F '[:,]' -v best="$best" '/"eval_loss"/ { d = $2 - best; exit !(d < 1e-6 && d > -1e-6) }' best.json
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
start adsp --set steps=100000 # it must still train when the signal comes
kill -TERM "$pid"
wait "$pid"
check "a signal ends training" [ $? = 143 ]
holds out 'interrupted by signal 15' "... and the report says so"
for servers in 1 2; do
	begun=$(date +%s)
	"$run" -n 3 --timeout 10s --set "engine ps servers=$servers" --log=/dev/full tiny.job >out 2>err
	check "$servers servers, the first has ended before training, and does not come: all end" [ $? = 4 ]
	holds err 'server 0: /dev/full: writing: No space left' "... it says why"
	holds err 'rank.* server 0 is lost: .*: it has ended' "... and the others that it is gone"
	check "... at once" [ $(($(date +%s) - begun)) -lt 8 ]
done
# the trace of process 2 cannot be written, as that is a folder
mkdir t.2
for servers in 1 2; do
	begun=$(date +%s)
	"$run" -n 3 --timeout 10s --set "engine ps servers=$servers" --trace=t tiny.job >out 2>err
	check "$servers servers, a worker has ended before training, and does not come: all end" [ $? = 4 ]
	# the others end because of it, and server 0 may see one of them first
	holds err 'server 0: \(rank\|server\) [0-9] has ended before training began' "... it is seen"
	holds err "rank $((2 - servers)): .*t.2: cannot open: Is a directory" "... and named"
	check "... at once" [ $(($(date +%s) - begun)) -lt 8 ]
done
rm -rf t.*
mkdir t.1
begun=$(date +%s)
"$run" -n 3 --timeout 10s --set "engine ps servers=2" --trace=t tiny.job >out 2>err
check "the second server has, too" [ $? = 4 ]
holds err 'server 0: \(rank\|server\) [0-9] has ended before training began' "... it is seen"
holds err 'server 1: t.1: cannot open: Is a directory' "... and named"
check "... at once" [ $(($(date +%s) - begun)) -lt 8 ]
check "nothing is left behind" [ -z "$(ls -d paceline-* 2>/dev/null)" ]
done_testing
