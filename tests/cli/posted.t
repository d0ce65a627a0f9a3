# Sends and receives that threads post and wait for later (gloo, as PyTorch records it): partners, the replay,
# and predictions against generated jobs that really have the change.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# job NAME OPTION...: trace, merged trace and graph of a generated job in $TMP/NAME
job() {
	d=$TMP/$1
	shift
	rm -rf "$d"
	mkdir -p "$d"
	awk -v dir="$d" "$@" -f "$SRC/tests/gen/posted.awk" && "$BIN/trace" -q "$d"/rank*.json -o "$d/trace" &&
		"$BIN/merge" -q --report="$d/report" "$d/trace" -o "$d/merged" && "$BIN/graph" -q "$d/merged" -o "$d/graph"
}

# steps N GRAPH OPTION...: column N of the table of steps
steps() {
	n=$1
	shift
	"$BIN/replay" -q -O csv --table=steps "$@" | awk -F , -v n="$n" 'NR > 1 { print $n }'
}

# changed NAME OPTION CHANGE...: of the job base, whose options are $options
changed() {
	name=$1
	option=$2
	shift 2
	# shellcheck disable=SC2086  # options are words
	job changed $options $option
	steps 4 "$TMP/changed/graph" >"$TMP/true"
	printf '%s\n' "$@" >"$TMP/changes"
	steps 6 --what-if-file="$TMP/changes" "$TMP/base/graph" >"$TMP/predicted"
	check "$name: each step within 1 % of the job that has it" alike 0.01 "$TMP/predicted" "$TMP/true"
}

# A sanitizer gets each schedule and each shape once: every fourth pair, one later for each schedule.
turn=0
for schedule in gpipe 1f1b ahead ring; do
	turn=$((turn + 3))
	for shape in "n=2" "n=2 -v shapes=0" "n=4" "n=2 -v copies=2" "n=4 -v shapes=0 -v call=3000000" "n=2 -v copies=2 -v shapes=0"; do
		turn=$((turn + 1))
		[ $((turn % 4)) = 0 ] || ! sanitized any || continue
		options="-v schedule=$schedule -v $shape"
		kind="$schedule, $shape"
		case $shape in
		*copies*) slow="rank=2|3" ;;
		*) slow="rank=1" ;;
		esac
		# shellcheck disable=SC2086
		check "$kind: a graph" job base $options
		check "... all sends and receives have partners" grep -q '"unmatched_sends": *0' "$TMP/base/report"
		"$BIN/replay" --no-worth "$TMP/base/graph" >"$TMP/out"
		check "... the replay is exact and explained" sh -c "head -1 '$TMP/out' | grep -q '(+0.00 %), [24] ranks, 0.0 % unexplained'"
		"$BIN/graph" -O stat "$TMP/base/graph" | awk '$1 == "send" || $1 == "recv" { print $2 }' >"$TMP/sides"
		check "... as many receives as sends, whichever began first" sh -c "[ \$(wc -l <'$TMP/sides') = 2 ] && [ \$(sort -u '$TMP/sides' | wc -l) = 1 ]"
		check "... all its operations are compared" grep -q '^starts of [0-9]* operations' "$TMP/out"
		"$BIN/replay" -q -O csv --table=ranks "$TMP/base/graph" | awk -F , 'NR == 2 { print int($2 / 4) }' >"$TMP/span"
		check "... and as long as the job" same "$TMP/base/truth" "$TMP/span"
		changed "$kind, no communication" "-v transfer=0" "remove kind=comm"
		changed "$kind, transfers take 5 ms" "-v transfer=5000000" "scale kind=comm by 25"
		# a ring that never waits does not show how long its transfers take
		[ "$schedule" = ring ] || changed "$kind, transfers take 20 ms" "-v transfer=20000000" "scale kind=comm by 100"
		changed "$kind, half the forward pass" "-v forward=4000000" "scale name=aten::linear by 0.5"
		[ "$schedule" = ahead ] || changed "$kind, backward pass twice as long" "-v backward=34000000" "scale name=*Addmm* by 2"
		[ "$schedule" = ahead ] || set -- "scale $slow,name=*Addmm* by 1.5" # it has no backward pass
		changed "$kind, a slow stage" "-v slow=1" "scale $slow,name=aten::linear by 1.5" "$@"
		set --
	done
done

# ---- the bubble is a wait ------------------------------------------------------------------------
# 4 steps of 8 transfers of 1 ms; each rank waits while the other one computes
check "gpipe, transfers of 1 ms" job slow -v transfer=1000000
"$BIN/replay" -q -O csv --table=ranks "$TMP/slow/graph" >"$TMP/ranks"
check "... are communication, the bubble is a wait" awk -F , 'NR > 1 && !($4 + $5 <= 33e6 && $9 > 80e6) { bad = 1 }
	END { exit bad || NR != 3 }' "$TMP/ranks"
"$BIN/replay" -q --no-worth "$TMP/slow/graph" >"$TMP/out"
check "... the path goes through the computation of both ranks" sh -c "grep -q ' 0  .*Addmm' '$TMP/out' && grep -q ' 1  aten::linear' '$TMP/out'"

# ---- no partners ---------------------------------------------------------------------------------
check "three ranks of three hosts, no peers" job none -v n=3 -v shapes=0 -v apart=1
status 0 "merge says so" "$BIN/merge" "$TMP/none/trace" -o "$TMP/merged"
says "128 of 128 sends and receives have no partner.*record_shapes" "... and what helps"
status 0 "graph says so" "$BIN/graph" "$TMP/merged" -o "$TMP/graph"
says "128 sends, receives and collectives have no partner" "... with their number"
check "... which the graph keeps" sh -c "'$BIN/graph' -O json '$TMP/graph' | grep -q '\"unmatched_comm\": *128'"

done_testing
