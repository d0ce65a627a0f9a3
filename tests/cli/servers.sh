# shellcheck shell=sh
# What tests of parameter servers share: a job in $TMP, which becomes the folder, and
#
# close LIMIT FILE FILE       the weights of two files differ by no more
# ps POLICY RANKS OPTION...   trains tiny.job with a server; its output goes to ./out and ./err
# start POLICY OPTION...      a long training with three workers in the background: $pid, its $server, $worker 1

. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR run
tiny_job 32
sed -i 's/^optimizer.*/optimizer sgd lr=0.05/' tiny.job

close() {
	floats "$2" >a
	floats "$3" >b
	paste a b | awk -v limit="$1" '{ d = $1 - $2; if (d > limit || d < -limit) bad = 1 } END { exit bad || NR < 2000 }'
}

ps() {
	ps_policy=$1
	ps_n=$2
	shift 2
	"$run" -n "$ps_n" --set 'engine ps' --set "policy $ps_policy" "$@" tiny.job >out 2>err
}

start() {
	start_policy=$1
	shift
	rm -f log.csv
	"$run" -n 3 --timeout 1s --speeds=25,25,50 --set 'engine ps' --set "policy $start_policy" --set steps=60 --log=log.csv "$@" tiny.job >out 2>err &
	pid=$!
	until_trains log.csv
	server=$(child $pid 'server 0')
	worker=$(child $pid 'rank 1')
}
