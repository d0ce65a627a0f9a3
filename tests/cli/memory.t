# Memory of traced jobs: recorded allocations, peaks, plans that fit.
. "$SRC/tests/cli/tap.sh"

# op NAME AT TIME [ARGS]; mark NAME AT TIME; mem AT BYTES ADDRESS: $total follows
op() {
	printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"%s","ts":%s,"dur":%s%s},\n' "$1" "$2" "$3" "${4:+,\"args\":{$4}}"
}
mark() {
	printf '{"ph":"X","cat":"user_annotation","pid":1,"tid":1,"name":"%s","ts":%s,"dur":%s},\n' "$1" "$2" "$3"
}
mem() {
	total=$((total + $2))
	printf '{"ph":"i","cat":"cpu_instant_event","s":"t","pid":1,"tid":1,"name":"[memory]","ts":%s,"args":{"Total Reserved":0,"Total Allocated":%s,"Bytes":%s,"Device Id":%s,"Device Type":%s%s}},\n' \
		"$1" "$total" "$2" "$((device - 1))" "$device" "${3:+,\"Addr\":$3}"
}
# A step from AT on: two blocks that keep 1000 + 500 and 800 + 300 bytes, whose outputs are the last
# of each; 700 more for a moment; a gradient of 400; 600 for the optimiser. Highest: 3300 in "tanh".
step() {
	mark "ProfilerStep#$2" "$1" 1000
	mark block0 $(($1 + 100)) 60
	op aten::mm $(($1 + 110)) 10 && mem $(($1 + 112)) 1000 $((a + 1))
	op aten::relu $(($1 + 130)) 10 && mem $(($1 + 132)) 500 $((a + 2))
	mark block1 $(($1 + 200)) 60
	op aten::addmm $(($1 + 210)) 10 && mem $(($1 + 212)) 800 $((a + 3))
	op aten::tanh $(($1 + 230)) 10 && mem $(($1 + 232)) 700 $((a + 4)) && mem $(($1 + 233)) -700 $((a + 4)) &&
		mem $(($1 + 234)) 300 $((a + 5))
	op "autograd::engine::evaluate_function: TanhBackward0" $(($1 + 300)) 40
	op aten::tanh_backward $(($1 + 310)) 10
	mem $(($1 + 325)) -300 $((a + 5)) && mem $(($1 + 326)) -800 $((a + 3))
	op "autograd::engine::evaluate_function: MmBackward0" $(($1 + 350)) 40
	op aten::mm $(($1 + 360)) 10 && mem $(($1 + 362)) 400 $((a + 6))
	mem $(($1 + 375)) -500 $((a + 2)) && mem $(($1 + 376)) -1000 $((a + 1))
	op "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad" $(($1 + 400)) 40
	op torch::autograd::AccumulateGrad $(($1 + 410)) 10 '"Input type":["float"],"Input Dims":[[100]]'
	op aten::add_ $(($1 + 500)) 20 && mem $(($1 + 505)) 600 $((a + 7)) && mem $(($1 + 510)) -600 $((a + 7))
	mem $(($1 + 700)) -400 $((a + 6))
	op aten::zero_ $(($1 + 900)) 20
}
# job BEFORE DEVICE: two steps, with BEFORE bytes there when recording began
job() {
	total=$1 device=$2 a=${3:-1000}
	{
		echo '{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":0,"world_size":1},"traceEvents":['
		step 10000 1
		[ -z "${4:-}" ] || mem 11000 "$4" 77
		step 11001 2
		echo '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::end","ts":12500,"dur":1}]}'
	} >"$TMP/job.json"
	"$BIN/trace" -q "$TMP/job.json" | "$BIN/graph" -q -o "$TMP/job.graph"
}
# peak [OPTION...]: rank, peak, parameters, gradients, optimiser, activations, temporaries, buffers,
# estimated, where
peak() {
	"$BIN/replay" -q --table memory -O csv "$@" "$TMP/job.graph" | sed 1d | tr -d '\r'
}
# is NAME WANT GOT
is() {
	check "$1" test "$3" = "$2"
	[ "$3" = "$2" ] || echo "# got  $3"
}
planned() {
	printf 'paceline-plan 1\n%s\n' "$1" >"$TMP/plan"
	peak -p "$TMP/plan"
}

# ---- recorded -----------------------------------------------------------------------------------
job 5000 1
is "of a device: what there was before, and the highest use within an operation" 0,8000,400,0,4600,2600,400,0,no,aten::tanh "$(peak)"
"$BIN/graph" -O text "$TMP/job.graph" >"$TMP/text"
# layers NAME: bytes of activations of that name, in shape 0
layers() {
	awk -F '\t' -v n="$1" '$1 == "tensor" && $3 == n && $5 == "activation" && $7 == 0 { s += $6 } END { print s + 0 }' "$TMP/text"
}
check "activations have the name of the range that makes them, but for its output" \
	test "$(layers block0),$(layers "output of block0"),$(layers block1),$(layers "output of block1")" = 1000,500,800,300
status 0 "stat" "$BIN/graph" -O stat-json --step 1 "$TMP/job.graph"
check "... counts a gradient's bytes once" grep -q '"bytes": *400,' "$TMP/out"
job 0 0
is "of a host: parameters are as many as gradients" 0,3400,400,0,0,2600,400,0,yes,aten::tanh "$(peak --optimizer sgd)"
is "... and the optimiser is Adam" 0,4200,400,0,800,2600,400,0,yes,aten::tanh "$(peak)"
job 0 0 1000 900
is "state that was made between the steps is the optimiser's" 0,4300,400,0,900,2600,400,0,yes,aten::tanh "$(peak)"
job 5000 1 1000 900
"$BIN/graph" --step 2 -o "$TMP/two.graph" "$TMP/job.graph" && mv "$TMP/two.graph" "$TMP/job.graph"
is "... where all is known too" 0,8900,400,0,5500,2600,400,0,no,aten::tanh "$(peak)"
# larger than any device: an error of the recording
job 5000 1 1000 $((12 << 40))
is "BYTES_MAX: an allocation of 12 TiB between the steps counts" 0,13194139541312,400,0,13194139537912,2600,400,0,no,aten::tanh "$(peak)"
job 5000 1 1000 $((24 << 40))
is "BYTES_MAX: one of 24 TiB does not" 0,8000,400,0,4600,2600,400,0,no,aten::tanh "$(peak)"
job 5000 1 1000 900
sed 's/,"Addr":[0-9]*//' "$TMP/job.json" >"$TMP/other.json"
"$BIN/trace" -q "$TMP/other.json" | "$BIN/graph" -q --step 2 -o "$TMP/job.graph"
is "without addresses sizes tell what is freed" 0,8900,400,0,5500,2600,400,0,no,aten::tanh "$(peak)"

# what is freed within a collective is not carried by it
coll() {
	printf '{"ph":"X","cat":"collective","pid":1,"tid":1,"name":"allreduce","ts":%s,"dur":%s,"args":{"bytes":50000}},\n' "$1" "$2"
}
job 5000 1
{
	sed 1q "$TMP/job.json"
	for t in 10000 11001; do
		coll $((t + 320)) 10 # two activations
		coll $((t + 600)) 200 # a gradient
	done
	sed 1d "$TMP/job.json"
} >"$TMP/other.json"
"$BIN/trace" -q "$TMP/other.json" | "$BIN/graph" -q -o "$TMP/job.graph"
is "what is freed within a collective needs no buffer" 0,8000,400,0,4600,2600,400,0,no,aten::tanh "$(peak)"
check "... and is no gradient that ranks synchronise" sh -c "! '$BIN/plan' -q --preset none -O text '$TMP/job.graph' | grep '^tensor'"

# ---- changed ------------------------------------------------------------------------------------
job 5000 1
# halves of 2600 kept and 400 more for a moment, and the gradient of the other half
is "half of a batch at a time" 0,6900,400,400,4600,1300,200,0,no,aten::tanh "$(planned 'accumulate 2')"
# block0's 1000 are gone from their making on, and come back for MmBackward
is "a range made again" 0,7000,400,0,4600,1600,400,0,no,aten::tanh "$(planned 'recompute block0')"
# then the most is in the backward pass: 1000 that came back, the output of 500, the gradient
is "both" 0,6900,400,400,4600,1500,0,0,no,aten::mm "$(planned 'recompute block0 block1')"
check "recomputation takes the forward time of its range" sh -c "printf 'paceline-plan 1\nrecompute block1\n' >'$TMP/plan'
	'$BIN/replay' -q -O json -p '$TMP/plan' '$TMP/job.graph' | tr ',' '\n' | awk -F: '/replayed_ns/ { r = \$2 } /\"predicted_ns/ { exit !(\$2 - r == 30000) }'"
printf 'paceline-plan 1\nrecompute block7\n' >"$TMP/plan"
status 3 "a range that there is not" "$BIN/replay" -p "$TMP/plan" "$TMP/job.graph"
says 'line 2.*block7' "... is named with its line"
printf 'paceline-plan 1\nrecompute block1\nrecompute block1\n' >"$TMP/plan"
status 3 "a range twice" "$BIN/replay" -p "$TMP/plan" "$TMP/job.graph"
says 'line 3.*already' "... is refused"

# an operation of block0 within another, with no pause between them: fused, they cannot be made again apart
sed 's/"ts":10110,"dur":10/"ts":10110,"dur":40/; s/"ts":11111,"dur":10/"ts":11111,"dur":40/' "$TMP/job.json" >"$TMP/other.json"
"$BIN/trace" -q "$TMP/other.json" | "$BIN/graph" -q -o "$TMP/fused.graph"
printf 'paceline-plan 1\nrecompute block0\nfuse-ops aten::mm aten::relu\n' >"$TMP/plan"
status 0 "a range made again, then fused" "$BIN/replay" -q -p "$TMP/plan" "$TMP/fused.graph"
printf 'paceline-plan 1\nfuse-ops aten::mm aten::relu\nrecompute block0\n' >"$TMP/plan"
status 3 "fused, then made again" "$BIN/replay" -q -p "$TMP/plan" "$TMP/fused.graph"
says 'line 3.*block0.*fused with others' "... is refused"

# ---- found --------------------------------------------------------------------------------------
status 0 "a plan that needs nothing" "$BIN/plan" -q -O json "$TMP/job.graph"
check "... says the peak" grep -q '"peak_bytes": *8000' "$TMP/out"
status 0 "a plan for less" "$BIN/plan" -q -O json --memory 7000 --forbid accumulate "$TMP/job.graph"
check "... recomputes one range" sh -c "grep -q '\"peak_bytes\": *7000' '$TMP/out' && [ \$(grep -c block '$TMP/out') = 1 ] && grep -q block0 '$TMP/out'"
status 0 "or with a batch in parts" "$BIN/plan" -q -O text --memory 7000 --forbid recompute "$TMP/job.graph"
check "... of two" grep -q '^accumulate 2 ' "$TMP/out"
status 1 "too little for any" "$BIN/plan" -q -O json --memory 5000 "$TMP/job.graph"
says 'rank 0 needs' "... says which rank, how much and where"

# ---- damaged ------------------------------------------------------------------------------------
sed 's/"Bytes":-1000,/"Bytes":-9223372036854775807,/; s/"Total Allocated":[0-9]*/"Total Allocated":9223372036854775807/; s/"Bytes":800/"Bytes":9223372036854775807/' \
	"$TMP/job.json" >"$TMP/other.json"
"$BIN/trace" -q "$TMP/other.json" >"$TMP/other.trace"
status "0 3" "sizes that no memory has" "$BIN/graph" -q -o "$TMP/job.graph" "$TMP/other.trace"
status "0 1 3" "... and a plan with them" "$BIN/plan" -q -O json --memory 1G "$TMP/job.graph"
# Two passes that add to one gradient: it is there once, whatever else the report reads of the graph.
pass() {
	op aten::mm $(($1 + 10)) 50 && mem $(($1 + 20)) 1000 1
	op "autograd::engine::evaluate_function: MmBackward0" $(($1 + 100)) 40
	mem $(($1 + 120)) -1000 1
	op torch::autograd::AccumulateGrad $(($1 + 150)) 10 '"Input type":["float"],"Input Dims":[[100]]'
}
total=0 device=0
{
	echo '{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":0,"world_size":1},"traceEvents":['
	mark "ProfilerStep#1" 1000 600
	pass 1000
	pass 1300
	echo '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::end","ts":1700,"dur":1}]}'
} >"$TMP/job.json"
"$BIN/trace" -q "$TMP/job.json" | "$BIN/graph" -q -o "$TMP/job.graph"
is "two passes: parameters and gradients once" 400,400 "$(peak | cut -d , -f 3,4)"
is "... and with a change" 400,400 "$(peak --what-if 'scale kind=gap by 1' | cut -d , -f 3,4)"

done_testing
