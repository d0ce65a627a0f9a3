# Buffers that are broadcast back to back (BatchNorm under DDP over gloo): two service threads take them, in an order
# that chance decides on each rank.
. "$SRC/tests/cli/tap.sh"

# event TID AT DUR CAT NAME [ARGS]
event() {
	printf '{"ph":"X","pid":1,"tid":%s,"ts":%s,"dur":%s,"cat":"%s","name":"%s","args":{"Record function id":0,%s}},\n' "$@"
}
# rank N ORDER...: its file; in step k the larger broadcast starts first (l) or the smaller (s)
rank() {
	n=$1
	k=0
	shift
	{
		echo '{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":'"$n"',"world_size":2},"traceEvents":['
		for order; do
			t=$((100 + k * 1000))
			[ "$order" = l ] && large=0 small=9 || large=9 small=0
			event 1 $t 998 user_annotation "ProfilerStep#$k" '"x":0'
			event 1 $((t + 10)) 10 cpu_op c10d::broadcast_ '"Input Dims":[[[800]], [], []]'
			event 1 $((t + 20)) 10 cpu_op c10d::broadcast_ '"Input Dims":[[[7]], [], []]'
			event $((2 + large / 9)) $((t + 40 + large)) $((300 - large)) user_annotation gloo:broadcast \
				'"Input type":["float"],"Input Dims":[[800]]'
			event $((2 + small / 9)) $((t + 40 + small)) $((200 - small)) user_annotation gloo:broadcast \
				'"Input type":["long int"],"Input Dims":[[7]]'
			event 1 $((t + 400)) 500 cpu_op aten::linear '"x":0'
			k=$((k + 1))
		done
		echo '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::zero_","ts":10000,"dur":5}]}'
	} >"$TMP/rank$n.json"
}

rank 0 l l s l
rank 1 s l l l
"$BIN/trace" -q "$TMP"/rank[01].json | "$BIN/merge" --report="$TMP/report" 2>"$TMP/err" >"$TMP/merged"
check "nothing to say of the order" test "$(grep -c 'has "gloo\|one rank only' "$TMP/err")" -eq 0
check "all are matched" grep -q '"unmatched_collectives": 0' "$TMP/report"
check "... two by two" grep -q '"collective_matches": 8' "$TMP/report"
printf '%s\n' "8 1 3200" "8 2 56" >"$TMP/want"
"$BIN/graph" -q -O text "$TMP/merged" >"$TMP/text"
# which broadcast of its rank and step issued what communicates so many bytes
awk -F '\t' '$1 == "shape" { split("", nth) }
	$1 == "node" && $8 ~ /^c10d/ { of[$2] = ++nth[$7] }
	$1 == "node" && $4 == "arrive" { bytes[$2] = $11 }
	$1 == "edge" && $4 == "early?" && bytes[$3] { print of[$2], bytes[$3] }' "$TMP/text" | sort | uniq -c |
	awk '{ print $1, $2, $3 }' >"$TMP/issued"
check "each is launched by what issued it" cmp "$TMP/issued" "$TMP/want"
done_testing
