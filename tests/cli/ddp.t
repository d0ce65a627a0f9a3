# replay -p on a job whose gradients other threads carry: every step, and the threads of the next one, follow the change.
# runner: threads
. "$SRC/tests/cli/tap.sh"

# event TID AT DUR CAT NAME ARGS
event() {
	printf '{"ph":"X","pid":1,"tid":%s,"ts":%s,"dur":%s,"cat":"%s","name":"%s","args":{%s}},\n' "$@"
}
# rank N END...: its file; the all-reduce of step k ends at END of k us after the step's begin, and the host goes on at 800
rank() {
	n=$1
	k=0
	shift
	{
		echo '{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":'"$n"',"world_size":2},"traceEvents":['
		for end; do
			t=$((100 + k * 1000))
			event 1 $t 998 user_annotation "ProfilerStep#$k" ''
			event 1 $((t + 1)) 300 cpu_op aten::linear ''
			event 1 $((t + 301)) 90 cpu_op aten::mm ''
			event 1 $((t + 395)) 5 cpu_op torch::autograd::AccumulateGrad '"Input Dims":[[1000]],"Input type":["float"]'
			event 1 $((t + 400)) 1 cpu_op c10d::allreduce_ "\"Record function id\":$((k * 10 + 1))"
			event 2 $((t + 405)) $((end - 405)) user_annotation gloo:all_reduce \
				"\"Record function id\":$((k * 10 + 2)),\"Input type\":[\"float\"],\"Input Dims\":[[1000]]"
			event 1 $((t + 800)) 190 cpu_op aten::add_ ''
			k=$((k + 1))
		done
		echo '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::zero_","ts":10000,"dur":5}]}'
	} >"$TMP/rank$n.json"
}
# predicted: change of each step in whole percent, with links 1000 times as fast
predicted() {
	"$BIN/trace" -q "$TMP"/rank[01].json | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/job.graph" &&
		printf 'paceline-plan 1\nbandwidth * x 1000\nlatency * x 0.001\n' >"$TMP/fast.plan" &&
		"$BIN/replay" -q -p "$TMP/fast.plan" "$TMP/job.graph" |
		awk '$1 == "step" { on = NF > 4 && $2 == "recorded"; next } on && NF { printf "%s%.0f", n++ ? " " : "", $(NF - 1) } !NF { on = 0 }'
}

rank 0 790 790 790 790
rank 1 790 790 790 790
check "waits that the recording shows" test "$(predicted)" = "-39 -39 -39 -39"
rank 0 790 830 790 840
rank 1 830 790 790 870
# merge takes unlike ends for clocks that differ by some microseconds
check "the host goes on before the thread that woke it" \
	test "$(predicted | tr ' ' '\n' | awk '$1 >= -41 && $1 <= -36' | wc -l)" -eq 4
rank 0 690 690 690 690
rank 1 690 690 690 690
check "the host gets a processor late: that stays" test "$(predicted)" = "-29 -29 -29 -29"
done_testing
