# Parameter servers: hosts with unequal numbers of ranks, each host one worker.
# runner: waits, threads
# shellcheck disable=SC2016  # fields of awk
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# hosts HOSTS POLICY OPTION...: trains tiny.job with four ranks, each host a worker
hosts() {
	hosts=$1
	policy=$2
	shift 2
	"$run" -n 4 --set "hosts=$hosts" --set 'engine ps group=host' --set "policy $policy" "$@" tiny.job >out 2>err
}
# per_worker KEY: the numbers of the workers in the report in ./out, in one line
per_worker() {
	awk -F '[:,]' -v key="\"$1\"" '/"workers"/ { on = 1 } on && index($1, key) { printf "%s%d", sep, $2; sep = " " }' out
}

# ---- the same training ------------------------------------------------------------------------------
hosts 2 bsp -q --export=two.st
hosts 2,2 bsp -q --export=list.st
check "hosts as a list: the weights of as many hosts, bit for bit" cmp two.st list.st
"$run" -q -n 4 --export=dp.st tiny.job
for list in 3,1 1,3 1,2,1; do
	hosts $list bsp -q --export=ps.st -O json
	check "hosts $list, bsp: the ranks without servers" close 8e-6 dp.st ps.st
done
hosts 3,1 bsp -q --set 'engine ps group=host servers=2' --export=two.st -O json
check "two servers: the same" close 8e-6 dp.st two.st
check "... workers have the numbers of their first ranks" [ "$(per_worker rank)" = '0 3' ]
check "... and the samples of all their ranks" [ "$(per_worker samples_per_s | awk '{ print ($1 > 2 * $2 && $1 < 4 * $2) }')" = 1 ]
"$run" -q -n 4 --set hosts=3,1 --export=without.st tiny.job
check "unequal hosts without servers" close 8e-6 dp.st without.st
status 0 "... measured" "$run" --bench=comm -n 4 --set hosts=3,1 --op=allreduce --max-size=16K --iterations=2 -O csv
check "... nothing wrong" awk -F , 'NR > 1 { n++; bad += $NF != 0 } END { exit bad || n != 3 }' out
status 2 "... of other ranks" "$run" --bench=comm -n 3 --set hosts=3,1
says 'hosts 3,1 have 4 ranks, and the job 3' "... is refused"

# ---- predicted and measured -------------------------------------------------------------------------
# rates: are the samples a second of both reports within 5 %? A sanitizer makes steps longer than their periods.
rates() {
	! sanitized any || return 0
	awk -F '[:,]' '/"samples_per_s"/ && !seen[FILENAME]++ { v[FILENAME] = $2 }
		END { r = v["predicted.json"] / v["out"]; if (r < 0.95 || r > 1.05) { print "# " r; exit 1 } }' predicted.json out
}
# Other work of the machine would keep the workers from their speeds. With the priority of the real-time class, which root may
# give, it does not.
first=
if chrt -r 2 true 2>/dev/null; then first='chrt -r 2'; fi
# predicted HOSTS SPEEDS POLICY [STATEMENT]: is what replay says what run measures? Once of six times
predicted() {
	(
		sed 's/^steps.*/steps 30/' tiny.job
		printf 'hosts %s\nengine ps group=host\npolicy %s\nranks 4\n%s\n' "$1" "$3" "$4"
		echo "$2" | tr , '\n' | awk '{ print "pace", NR - 1, "speed=" $1 }'
	) >predicted.job
	"$BIN/replay" -q -O json predicted.job >predicted.json
	for turn in 1 2 3 4 5 6; do
		$first "$run" -q -O json predicted.job >out
		! rates || break
	done
	if [ -z "$first" ] && ! rates; then
		skip "hosts $1, speeds $2, $3: samples a second as predicted" "something else may run on this machine"
	else
		check "hosts $1, speeds $2, $3: samples a second as predicted (turn $turn)" rates
	fi
	# workers are cut off at the end: one commit more or less
	check "... and the commits of each host" awk -F '[:,]' '/"workers"/ { on[FILENAME] = 1 } on[FILENAME] && /"commits"/ { n[FILENAME]++; v[FILENAME, n[FILENAME]] = $2 }
		END { for (i = 1; i <= n["out"]; i++) { a = v["predicted.json", i]; b = v["out", i]; d = a > b ? a - b : b - a; bad += !(d <= 0.05 * b + 2) }
		exit bad || n["out"] < 2 || n["predicted.json"] != n["out"] }' predicted.json out
}
predicted 3,1 10,20,20,20 bsp
predicted 3,1 10,20,20,20 asp
predicted 1,3 20,10,10,10 batchtune
# what a host sends shares one link: without it the server's replies would not wait for one another
for policy in bsp asp batchtune; do
	predicted 1,1,1,1 20,40,40,80 $policy 'link rate=4Mbit,latency=1ms,shared=yes'
done
predicted 3,1 10,20,20,20 adsp
check "plan: which policy suits them" sh -c "'$BIN/plan' -O json predicted.job | grep -q '\"workers\": 2'"
"$run" -q --policies=asp --speeds=100,50,100,100 --set 'engine ps group=host' --set hosts=3,1 -O csv tiny.job >out 2>err
check "a comparison: H and workers are those of hosts" awk -F , 'NR == 2 { exit !($3 == 1.5 && $5 == 2) }' out

# ---- what cannot be -----------------------------------------------------------------------------------
sed 's/hosts 3,1/hosts 3,2/' predicted.job >sum.job
line=$(grep -n '^hosts' sum.job | cut -d : -f 1)
for program in run replay plan; do
	status 3 "$program: hosts with other ranks" "$BIN/$program" sum.job
	says "sum.job: .*line $line, column 7: hosts 3,2 have 5 ranks, and the job 4" "... with line and column"
	sed 's/^hosts .*/hosts 3,0,1/' predicted.job >zero.job
	status 3 "$program: a host without a rank" "$BIN/$program" zero.job
	says "zero.job: line $line, column 9: hosts must each be at least 1" "... with line and column"
done
status 2 "an option with a wrong list" hosts 3,,1 bsp
holds err 'hosts must be a whole number, or several, like 3,1' "... is refused"
status 3 "ranks of an option" "$run" -n 3 sum.job
says 'hosts 3,2 have 5 ranks, and the job 3' "... that the hosts do not have"
status 3 "speeds of an option" "$BIN/plan" --speeds=1,2,3 predicted.job
says 'hosts 3,1 have 4 ranks, and the job 3' "... that the hosts do not have"

# ---- a host is lost -----------------------------------------------------------------------------------
rm -f log.csv
"$run" -n 4 --timeout 1s --speeds=25,25,25,25 --set hosts=3,1 --set 'engine ps group=host' --set 'policy asp' --set steps=50 --log=log.csv tiny.job >out 2>err &
pid=$!
until_trains log.csv
kill -KILL "$(child $pid 'rank 1')"
check "asp: a rank of a host is killed, and the other host goes on" wait "$pid"
holds err 'worker 0 (ranks 0-2) is lost' "... the message names the ranks of its host"

# ---- launchers ------------------------------------------------------------------------------------------
# launched OPTION...: a server and four ranks, as a launcher starts them; their exit statuses are in $codes
meet=$((21000 + $$ % 9000))
launched() {
	meet=$((meet + 1))
	pids=
	codes=
	for rank in 4 3 2 1 0; do
		RANK=$rank WORLD_SIZE=5 PACELINE_TOKEN=0123456789abcdef "$run" -q --meet tcp:127.0.0.1:$meet --export=met.st "$@" tiny.job >out.$rank 2>err.$rank &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait "$pid"
		codes="$codes $?"
	done
}
launched --set hosts=3,1 --set 'engine ps group=host'
check "a launcher counts the server, hosts do not" [ "$codes" = ' 0 0 0 0 0' ]
check "... the same weights" close 8e-6 dp.st met.st
launched --set 'engine ps group=2'
check "groups neither" [ "$codes" = ' 0 0 0 0 0' ]
check "... the same weights" close 8e-6 dp.st met.st
launched --set hosts=3,2 --set 'engine ps group=host'
check "hosts with other ranks" [ "$codes" = ' 3 3 3 3 3' ]
holds err.0 'hosts 3,2 have 5 ranks, and the job 4' "... are refused"
done_testing
