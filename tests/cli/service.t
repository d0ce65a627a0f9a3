# Collectives of service threads (gloo): who issued them, and where the program waits for them, which nobody recorded.
# A sharded job of two ranks is predicted with changes, and simulated with the same changes.
. "$SRC/tests/cli/tap.sh"

# job NAME SETTINGS...: the files of a job
job() {
	mkdir -p "$TMP/$1" && name=$1 && shift &&
		awk -v dir="$TMP/$name" "$@" -f "$SRC/tests/gen/service.awk"
}
# derive NAME: its graph
derive() {
	"$BIN/trace" -q "$TMP/$1"/rank[01].json | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/$1/graph" &&
		"$BIN/graph" -O text "$TMP/$1/graph" >"$TMP/$1/text"
}
# predict NAME CHANGE...: the steps of the job with the changes, in ns; without changes as replayed
predict() {
	name=$1
	shift
	for change; do
		set -- "$@" --what-if "$change"
		shift
	done
	"$BIN/replay" -q -O json --no-worth "$@" "$TMP/$name/graph" | tr , '\n' |
		sed -n "s/^ *\"$([ $# = 0 ] && echo replayed || echo predicted)_ns\": *\([0-9]*\).*/\1/p"
}
# right LIMIT WHAT BASE SETTINGS CHANGE...: is the predicted job the simulated one?
right() {
	limit=$1 what=$2 base=$3 settings=$4
	shift 4
	# shellcheck disable=SC2086 # several settings
	job changed $settings
	predict "$base" "$@" >"$TMP/got"
	check "$what" alike "$limit" "$TMP/got" "$TMP/changed/truth"
}

linear="scale name=aten::linear by" mm="scale name=aten::mm by"
for shapes in 1 0; do
	how=$([ $shapes = 1 ] && echo "with sizes" || echo "without sizes")
	job base -v shapes=$shapes
	derive base
	right 0.0001 "$how: the job itself" base "-v shapes=$shapes"
	right 0.015 "... half the computation" base "-v forward=0.5 -v backward=0.5" "$linear 0.5" "$mm 0.5"
	right 0.015 "... half the phases: gathering and reducing parameters is none of them" base \
		"-v forward=0.5 -v backward=0.5" "scale phase=forward by 0.5" "scale phase=backward by 0.5"
	right 0.01 "... communication that takes no time, and no operators that issue it" base "-v comm=0" \
		"set kind=comm to 0"
	right 0.01 "... no communication, for which no rank waits" base "-v comm=0 -v apart=1" "remove kind=comm"
	right 0.015 "... communication twice as long" base "-v comm=2" "scale kind=comm by 2"
	right 0.01 "... a slow rank" base "-v slow=1.5" \
		"scale rank=1,name=aten::linear by 1.5" "scale rank=1,name=aten::mm by 1.5"
	# 1,000 numbers of four bytes from each of two ranks
	awk -F '\t' '$1 == "comm" && $3 == "allgather" { print $NF }' "$TMP/base/text" | sort -u >"$TMP/sizes"
	check "... the size of an all-gather is that of what all give" test "$(cat "$TMP/sizes")" = "$([ $shapes = 1 ] && echo 8000 || echo -)"
	# an idle service thread does nothing; operators inside a collective are no nodes
	check "... service threads only communicate" test "$(awk -F '\t' '$1 == "resource" && $8 ~ /thread [23]/ { service[$2] }
		$1 == "node" && ($7 in service) && $3 != "entry" && $4 !~ /arrive|transfer/' "$TMP/base/text" | wc -l)" -eq 0
	awk -F '\t' '$1 == "shape" { shape = $2 } $1 == "node" { name[$2] = $8 }
		$1 == "node" && $4 == "transfer" { all[$8]++ }
		$1 == "edge" && $4 ~ /wait/ && !seen[shape, $2]++ { awaited[name[$2]]++ }
		$1 == "edge" && $4 ~ /early/ { print name[$2], name[$3] }' "$TMP/base/text" | sort | uniq -c |
		awk '{ print $2, $3 }' >"$TMP/issued"
	printf '%s\n' "c10d::_allgather_base_ gloo:all_gather" "c10d::_reduce_scatter_base_ gloo:all_reduce" \
		"c10d::allreduce_ gloo:all_reduce" >"$TMP/want"
	check "... each is issued by the operator that hands it over" cmp "$TMP/issued" "$TMP/want"
done
check "the verdict calls communication that carries no gradient by its name alone" sh -c \
	"'$BIN/replay' -q --no-worth '$TMP/base/graph' | grep -q ': exposed communication'"
job base -v steps=1
derive base
right 0.03 "one step: half the computation" base "-v steps=1 -v forward=0.5 -v backward=0.5" "$linear 0.5" "$mm 0.5"
# ---- an operator that copies for long before it hands over, and records nothing inside (the light mode of trace)
reduce="scale name=c10d::_reduce_scatter_base_ by"
job base -v pack=3000000
derive base
right 0.0001 "long operators that issue: the job itself" base "-v pack=3000000"
right 0.01 "... half as long" base "-v pack=1500000" "$reduce 0.5"
right 0.01 "... twice as long" base "-v pack=6000000" "$reduce 2"
"$BIN/replay" -q -O json --no-worth "$TMP/base/graph" | grep -o '"unexplained_share":[-0-9.e+]*' |
	awk -F : '{ print $2 < 0.005 }' >"$TMP/small"
check "... nothing of it is unexplained" test "$(cat "$TMP/small")" = 1
# ---- too few processors -----------------------------------------------------------------------------
# While a rank communicates, its computation has half a processor, or three quarters of one.
for steal in 0.25 0.5; do
	job base -v steal=$steal
	derive base
	right 0.0001 "computation that loses $steal of a processor: the job itself" base "-v steal=$steal"
	right 0.02 "... communication that takes no time" base "-v steal=$steal -v comm=0" "set kind=comm to 0"
	right 0.01 "... half as long" base "-v steal=$steal -v comm=0.5" "scale kind=comm by 0.5"
done
right 0.015 "... twice as long" base "-v steal=0.5 -v comm=2" "scale kind=comm by 2"
right 0.01 "... half the computation" base "-v steal=0.5 -v forward=0.5 -v backward=0.5" "$linear 0.5" "$mm 0.5"
done_testing
