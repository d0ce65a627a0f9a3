# Jobs on GPUs of many kinds: kgen makes each one before and after a change that we know; replay predicts the second from
# the first within 2 %, without recorded groups and waits, and names the first cause (bench/kinds).
# runner: long
. "$SRC/tests/cli/tap.sh"
not_under thread "its programs have one thread each"

# rows WHAT NUMBER VARIABLE=VALUE... [KIND...]: a check for each row of the table; so many rows
rows() {
	what=$1
	number=$2
	shift 2
	env STEPS=2 SEED=7 RECORDED=little "$@" >"$TMP/table" 2>"$TMP/err"
	check "$what: no errors" test ! -s "$TMP/err"
	sed '1,2d' "$TMP/table" | grep -E ' (ok|MISSED|failed)$' >"$TMP/rows"
	check "$what: $number rows" [ "$(wc -l <"$TMP/rows")" = "$number" ]
	while read -r row; do
		case $row in
		*" ok") check "$what: ${row% ok}" true ;;
		*) check "$what: $row" false ;;
		esac
	done <"$TMP/rows"
}

if sanitized any; then # every module that takes part
	rows "5 kinds" $((5 * 5)) ROWS='x 3|x 0.5|no' "$SRC/bench/kinds" fsdp-limit zero-bubble experts captured contention
	done_testing
	exit
fi
rows "17 kinds, three with a change of their own" $((17 * 5 + 3)) ROWS='x 3|x 0.5|no' "$SRC/bench/kinds"
rows "a slow network" 4 ROWS='x 3|kernels' JOB=--intra-gbps=250 CAUSES=0 "$SRC/bench/kinds" fsdp fsdp-limit
done_testing
