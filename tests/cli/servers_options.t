# Parameter servers: what options and statements mean together, and messages about them.
# runner: waits, threads
# shellcheck disable=SC2016  # fields of awk
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# lines: of ./err
lines() {
	wc -l <err
}

# ---- evaluations ------------------------------------------------------------------------------------
# train.csv and held.csv: two numbers, and a class that they say
seq 300 | awk 'BEGIN { print "a,b,c" } { a = sin($1); b = cos(3 * $1); print a "," b "," (a + b > 0 ? "yes" : "no") }' >train.csv
seq 301 400 | awk 'BEGIN { print "a,b,c" } { a = sin($1); b = cos(3 * $1); print a "," b "," (a + b > 0 ? "yes" : "no") }' >held.csv
printf '%s\n' 'model mlp:2-2' 'data csv:train.csv,label=c' 'eval-data csv:held.csv,label=c' 'batch 10' 'optimizer sgd lr=0.5' 'engine ps' \
	'ranks 2' 'steps 5000' >two.job
status 0 "a target of eval-data" "$run" -q --target-loss=0.4 --speeds=400,400 -O json two.job
check "... is reached" grep -q '"time_to_target_s": [0-9]' out
status 0 "... also in a comparison" "$run" -q --policies=asp --target-loss=0.4 --speeds=400,400 -O csv two.job
check "... is reached" awk -F , 'NR == 2 { exit $7 != 1 }' out
# 20 evaluations a second in place of one in 40 s
status 0 "a comparison to a target with few evaluations" timeout 60 "$run" -q --policies=asp --target-loss=0.4 --speeds=400,400 --set eval-every=2500 \
	--set steps=20000 -O csv two.job
check "... makes more of them" awk -F , 'NR == 2 { exit !($7 == 1 && $9 < 20 * 2500) }' out
sed 's/yes/0/; s/no/1/' held.csv | tail -n +2 | cut -d , -f 1,2 | sed '1i a,d' | awk 'NR == 1 { print $0 ",c"; next } { print $0 ",yes" }' >names.csv
sed 's/held.csv/names.csv/' two.job >names.job
status 3 "eval-data with other columns" "$run" names.job
says 'names.job: line 3, column 11: eval-data: csv:names.csv,label=c differs from the data to train on: names of columns' "... with line and column"
sed 's/,label=c$/,target=a/; s/^eval-data.*//' two.job >target.job
status 3 "a model for other data" "$run" --set 'model mlp:3-2' two.job
says 'the model takes samples of 3 numbers, csv:train.csv,label=c has 2' "... names the data"

# patience: the last evaluation is made twice, and counts once
status 0 "patience" "$run" --set 'optimizer sgd lr=0' --set eval-every=3 --set patience=3 two.job
holds out 'stopped early: no better evaluation in 3$' "... counts evaluations without the one at the end"

# ---- launchers --------------------------------------------------------------------------------------
# launched RANK OPTION...: one of three processes
launched() {
	rank=$1
	shift
	RANK=$rank WORLD_SIZE=3 PACELINE_TOKEN=0123456789abcdef "$run" -q --meet "dir:$TMP" --timeout 300ms "$@" tiny.job
}
status 2 "a launcher that has forgotten the server" launched 1 --set 'engine ps' --set 'ranks 3'
says 'started 3 processes, 1 server and 2 workers, but the job has ranks 3; start 4, or change ranks' "... is told how many"
status 2 "... also with speeds" launched 1 --set 'engine ps' --speeds=10,10,10
status 4 "a worker without the others" launched 2 --set 'engine ps'
says 'run: rank 1 (RANK=2): ' "... says which rank it is, and which process"
status 4 "a server without workers" launched 0 --set 'engine ps'
says 'run: server 0 (RANK=0): ' "... too"

# few FOLDER NEEDED: three of four processes; their numbers are in $pids, and begin with that of the server
few() {
	mkdir "$1"
	pids=
	for rank in 0 1 2; do
		RANK=$rank WORLD_SIZE=4 PACELINE_TOKEN=0123456789abcdef "$run" --meet "dir:$TMP/$1" --timeout 300ms --speeds=40,40,40 --set 'engine ps' \
			--set "policy asp min-workers=$2" --set steps=60 --log="$1.csv" --report="$1.json" tiny.job >"$1.out.$rank" 2>"$1.err.$rank" &
		pids="$pids $!"
	done
}
few needed 3
needed=$pids
few enough 2
until_trains enough.csv
RANK=3 WORLD_SIZE=4 PACELINE_TOKEN=0123456789abcdef "$run" --meet "dir:$TMP/enough" --timeout 300ms --speeds=40,40,40 --set 'engine ps' \
	--set "policy asp min-workers=2" --set steps=60 tiny.job >out 2>err &
codes=
for pid in $needed $pids $!; do
	wait "$pid"
	codes="$codes $?"
done
check "a worker that never comes: training ends or begins, as min-workers says" [ "$codes" = ' 4 4 4 0 0 0 0' ]
holds needed.err.0 'these workers never came: 2' "... it is named"
holds enough.err.0 'these workers have not come: 2; training begins without them' "... also where it is not needed"
check "... when it comes late, it takes part" [ "$(grep '^ .*"steps"' enough.json | tail -n 1 | tr -dc 0-9)" -gt 2 ]

# ---- messages, once ------------------------------------------------------------------------------------
status 3 "a name that no parameter has" ps asp 3 --set 'optimizer sgd lr=0.1 no-decay=none*'
check "... is told once" [ "$(lines)" = 1 ]
says 'run: server 0: optimizer: no-decay=none' "... by the first server"
status 3 "more samples than there are" ps asp 3 --set batch=5000
says 'a step takes 15000 samples (batch 5000 times ranks 3)' "... of all ranks"
check "... is told once" [ "$(lines)" = 1 ]
ps asp 3 -q --checkpoint=ck.st --set steps=8
ps asp 3 --resume=ck.st --set batch=16 --set steps=12
check "another batch after a checkpoint: one warning" [ "$(grep -c 'the steps of the checkpoint took' err)" = 1 ]
status 2 "local-steps=0" "$run" --set 'engine ps' --set 'policy local local-steps=0' tiny.job
says 'local-steps must be at least 1' "... is refused"
for policy in local:8 fixed-adacomm:40 adacomm:40 diloco:100 dylu:50; do
	check "${policy%:*}: its default of steps" sh -c "'$run' --help=policy | grep -q '[ ,]${policy#*:} with [a-z|-]*${policy%:*}'"
done

# ---- replay -------------------------------------------------------------------------------------------
printf '%s\n' 'engine ps' 'ranks 2' 'pace any speed=10' | cat tiny.job - >replay.job
for option in -O=svg -O=html -O=jsonl --what-if='scale kind=comm by 0.5' --timeline=t.trace --table=ranks --per=layer --stragglers; do
	case $option in
	-O=*) set -- -O "${option#-O=}" ;;
	*) set -- "$option" ;;
	esac
	status 2 "replay $*: a job with servers" "$BIN/replay" "$@" replay.job
	says "is for a graph" "... is refused"
done
status 0 "replay -O csv" "$BIN/replay" -O csv replay.job
done_testing
