# shellcheck shell=sh
# What tests of parameter servers share; they use the job of job.sh.
#
# close LIMIT FILE FILE       the weights of two files differ by no more
# ps POLICY RANKS OPTION...   trains tiny.job with a server; its output goes to ./out and ./err
# start POLICY OPTION...      a long training with three workers in the background: $pid, its $server, $worker 1

# the floats at the end of a file of weights: those of all tensors of the tiny model
floats() {
	tail -c $((4 * (16 * 48 + 48 + 48 * 32 + 32 + 32 * 4 + 4))) "$1" | od -An -v -tf4 -w4
}

# close LIMIT FILE FILE: the weights differ by no more
close() {
	floats "$2" >a
	floats "$3" >b
	paste a b | awk -v limit="$1" '{ d = $1 - $2; if (d > limit || d < -limit) bad = 1 } END { exit bad || NR < 2000 }'
}

# ps POLICY RANKS OPTION...
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
	# shellcheck disable=SC2046
	set -- $(pgrep -P $pid | sort -n)
	server=$1
	worker=$3
}
