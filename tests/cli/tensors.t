# graph: the gradients that the communication of a trace carries.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# grads: the tensors of $TMP/text as NAME:BYTES:CONSUMED:ESTIMATED, in order
grads() {
	awk -F '\t' '$1 == "tensor" { printf "%s%s:%s:%s:%s", n++ ? " " : "", $3, $6, $9 != "-", $10 }' "$TMP/text"
}

is() {
	check "$1" test "$(grads)" = "$2"
	[ "$(grads)" = "$2" ] || echo "# got  $(grads)"
}

# ---- a recorded job -----------------------------------------------------------------------------
check "the sample" sh -c "'$BIN/trace' -q '$SRC'/samples/ddp-gloo/rank*.json.gz | '$BIN/merge' -q |
	'$BIN/graph' -q -o '$TMP/gloo'"
"$BIN/graph" -O text "$TMP/gloo" >"$TMP/text"
check "each bucket's gradients add up to its payload, none is left over or estimated" awk -F '\t' '
	$1 == "shape" { shape = $2 }
	$1 == "node" && $4 == "arrive" { bytes[shape, $2] = $11 }
	$1 == "tensor" { if ($5 != "gradient" || $8 == "-" || $9 == "-" || $10 != "-") bad = 1; sum[$7, $9] += $6; n++ }
	END { for (k in sum) { m++; if (sum[k] != bytes[k]) bad = 1 }
		exit bad || n != 288 || m != 48 }' "$TMP/text"
check "the same names on all ranks and in all steps" \
	test "$(awk -F '\t' '$1 == "tensor" { print $3 }' "$TMP/text" | sort | uniq -c | awk '{ print $1 }' | sort -u)" = 12
check "a gradient is ready before the communication arrives" \
	awk -F '\t' '$1 == "tensor" && $8 >= $9 { exit 1 }' "$TMP/text"

# ---- the same without shapes --------------------------------------------------------------------
for r in 0 1; do
	gzip -dc "$SRC"/samples/ddp-gloo/rank$r.json.gz | sed 's/"Input Dims"/"No Dims"/; s/"Input type"/"No type"/' >"$TMP/rank$r.json"
done
status 2 "buckets by MiB of a recording without sizes" "$BIN/replay" --what-if 'bucket-mb 25' "$TMP"/rank[01].json
says 'where a bucket of 25 MiB ends: record with record_shapes=True' "... are refused with the remedy"
status 0 "a plan of it" "$BIN/plan" -O text "$TMP"/rank[01].json
says 'warning: no other buckets are proposed: the recording has the sizes of neither' "... says why it has no other buckets"
check "... and has none" no grep -qE '^(fuse-tensors|partition-tensor|order)' "$TMP/out"
few=
! sanitized any || few='--evaluations 300' # later ones run the same code
# shellcheck disable=SC2086 # an option and its value
status 0 "the best plan of it" "$BIN/plan" -q --any $few -O text "$TMP"/rank[01].json
check "... has some" grep -q '^fuse-tensors' "$TMP/out"

# ---- one rank by hand ---------------------------------------------------------------------------
# grad AT DIMS; reduce TID AT ELEMENTS TYPE [TIME]: an all-reduce by the main thread (1), or issued by it and done by
# another; rank: the file
grad() {
	printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"torch::autograd::AccumulateGrad","ts":%s,"dur":5%s},\n' \
		"$1" "${2:+,$(printf '"args":{"Input type":["float"],"Input Dims":[%s]}' "$2")}"
}
reduce() {
	[ "$1" = 1 ] ||
		printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"c10d::allreduce_","ts":%s,"dur":1,"args":{"Record function id":%s}},\n' \
			"$2" "$2"
	printf '{"ph":"X","cat":"user_annotation","pid":1,"tid":%s,"name":"gloo:all_reduce","ts":%s,"dur":%s,%s},\n' \
		"$1" "$(($2 + 2))" "${5:-20}" "\"args\":{\"Record function id\":$(($2 + 1)),\"Input type\":[\"$4\"],\"Input Dims\":[[$3]]}"
}
rank() {
	{
		echo '{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":0,"world_size":2},"traceEvents":['
		cat
		echo '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::add_","ts":1000,"dur":5}]}'
	} >"$TMP/rank.json"
	"$BIN/trace" -q "$TMP/rank.json" | "$BIN/graph" -q -O text >"$TMP/text"
}

{ grad 10 '[10, 10]' && grad 20 '[50]' && reduce 2 30 150 float && grad 60 '[20]' && reduce 2 70 20 float; } | rank
is "sizes that add up" "grad 0 10x10:400:1:- grad 1 50:200:1:- grad 2 20:80:1:-"
{ grad 10 '[2, 2, 2, 2, 2, 2, 2]' && grad 20 '[3, 3]' && reduce 2 30 137 float; } | rank
is "a gradient of many dimensions" "grad 0 2x2x2x2x2x2x2:512:1:- grad 1 3x3:36:1:-"
{ grad 10 '[10, 10]' && grad 20 '[50]' && reduce 2 30 100 float && grad 60 '[20]' && reduce 2 70 70 float; } | rank
is "a bucket with the first only, the other waits for the next" "grad 0 10x10:400:1:- grad 1 50:200:1:- grad 2 20:80:1:-"
check "... which is another" test "$(awk -F '\t' '$1 == "tensor" { print $9 }' "$TMP/text" | uniq -c |
	awk '{ printf "%s ", $1 }')" = "1 2 "
{ grad 10 '[100]' && grad 20 '[50]' && reduce 2 30 166 float; } | rank
is "a gap behind a tensor: sizes as recorded" "grad 0 100:400:1:- grad 1 50:200:1:-"
{ grad 10 '[100]' && grad 20 '[50]' && grad 25 '[70]' && reduce 2 30 166 float && grad 60 '[20]' && reduce 2 70 96 float; } | rank
is "... and the others wait for the next" "grad 0 100:400:1:- grad 1 50:200:1:- grad 2 70:280:1:- grad 3 20:80:1:-"
{ grad 10 '[100]' && grad 20 '[50]' && reduce 2 30 182 float; } | rank
is "... 64 bytes behind each are a gap" "grad 0 100:400:1:- grad 1 50:200:1:-"
{ grad 10 '[100]' && grad 20 '[50]' && reduce 2 30 183 float; } | rank
is "... more are none: scaled" "grad 0 100:488:1:estimated grad 1 50:244:1:estimated"
{ grad 10 '[5]' && reduce 2 30 11 float; } | rank
is "... nor is more than the gradient itself" "grad 0 5:20:0:-"
{ grad 10 '[100]' && grad 20 '[50]' && grad 25 '[20]' && reduce 2 30 170 c10::Half; } | rank
is "sent with half the precision: scaled" "grad 0 100:200:1:estimated grad 1 50:100:1:estimated grad 2 20:40:1:estimated"
{ grad 10 '[100]' && grad 20 '[50]' && grad 25 '[70]' && reduce 2 30 150 c10::Half && grad 60 '[20]' && reduce 2 70 90 c10::Half; } | rank
is "... and the others wait for the next" "grad 0 100:200:1:estimated grad 1 50:100:1:estimated grad 2 70:140:1:estimated grad 3 20:40:1:estimated"
"$BIN/trace" -q "$TMP/rank.json" | "$BIN/graph" -q | "$BIN/plan" --preset none -O text >"$TMP/plan.txt" 2>"$TMP/err"
check "a plan of it says that other sizes are sent" grep -q 'are estimated, because what is sent has other sizes' "$TMP/err"
{ grad 10 '[100]' && reduce 2 30 1 float; } | rank
is "a number is no gradient" "grad 0 100:400:0:-"
{ grad 10 '[100]' && reduce 2 30 100 float; } | sed 's/torch::autograd/struct &/' | rank
is "where MSVC compiled PyTorch" "grad 0 100:400:1:-"
{ grad 10 '' && grad 20 '' && reduce 2 30 401 float && grad 60 ''; } | rank
is "without shapes: equal parts" "grad 0:802:1:estimated grad 1:802:1:estimated grad 2:-:0:-"
for to in text ddp; do
	{ grad 10 '' && grad 20 '' && reduce 2 30 400 float && grad 60 '' && reduce 2 70 400 float; } | rank
	"$BIN/trace" -q "$TMP/rank.json" | "$BIN/graph" -q | "$BIN/plan" --preset none -O $to >"$TMP/$to" 2>"$TMP/err"
	check "plan -O $to: a warning that sizes are estimated" grep -q \
		'warning: the sizes of 3 of 3 gradients are estimated, .*: record with record_shapes=True$' "$TMP/err"
done
check "... and settings say it before the first number" sh -c "sed -n 2p '$TMP/ddp' |
	grep -q '^# the sizes of all 3 tensors are estimated: every number of bytes below is a guess; record with '"
"$BIN/trace" -q "$TMP/rank.json" | "$BIN/graph" -q -o "$TMP/shares"
status 0 "buckets by MiB of sizes that are shares of a known payload" "$BIN/replay" --no-worth --what-if 'bucket-mb 0.001' "$TMP/shares"
tr -s ' \n' ' ' <"$TMP/out" >"$TMP/line"
holds "$TMP/line" 'the sizes of 3 of 3 gradients are estimated' "... are not sure"
{ grad 10 '[100]' && reduce 1 30 100 float && grad 60 '[50]' && grad 70 '[50]' && reduce 2 80 200 float; } | rank
is "what the backward pass waits for belongs to the model" "grad 0 100:400:1:- grad 1 50:200:1:- grad 2 50:200:1:-"
check "... though its size would fit" test "$(awk -F '\t' '$1 == "tensor" { print $9 }' "$TMP/text" | uniq | wc -l)" -eq 1
# two models in turn: an update and a forward pass of the second between the gradients
op() { # op NAME AT
	printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"%s","ts":%s,"dur":5},\n' "$1" "$2"
}
{ grad 10 '[100]' && grad 20 '[50]' && reduce 1 30 150 float && op 'Optimizer.step#Adam.step' 60 && op aten::linear 70 &&
	grad 80 '[60]' && grad 90 '[40]' && reduce 1 100 100 float; } | rank
is "a step that trains two models: the optimizer of the first waits" \
	"grad 0 100:400:1:- grad 1 50:200:1:- grad 2 60:240:1:- grad 3 40:160:1:-"
"$BIN/trace" -q "$TMP/rank.json" | "$BIN/graph" -q -o "$TMP/models"
status 2 "gradients of both" "$BIN/replay" --no-worth --what-if 'fuse-tensors "grad 1 50" "grad 2 60"' "$TMP/models"
says 'parameters are updated between "grad 1 50" and "grad 2 60"' "... cannot travel together"
status 0 "buckets of any size" "$BIN/plan" -q --any -O text "$TMP/models"
check "... have gradients of one model" no grep -q '^fuse-tensors.*"grad 1 50".*"grad 2 60"' "$TMP/out"
{ grad 10 '[100]' && grad 20 '[50]' && reduce 1 30 150 float && op aten::linear 70 && grad 80 '[60]' && grad 90 '[40]' &&
	reduce 1 100 250 float; } | rank
is "... without an update: one backward pass" "grad 0 100:400:1:- grad 1 50:200:1:- grad 2 60:240:1:- grad 3 40:160:1:-"
# one all-reduce for each gradient, in the order of the parameters
{ grad 10 '[20]' && grad 20 '[50]' && grad 30 '[10, 10]' && grad 40 '[20]' && reduce 2 60 20 float && reduce 2 90 100 float &&
	reduce 2 120 50 float && reduce 2 150 20 float; } | rank
is "gradients reduced one by one" "grad 0 20:80:1:- grad 1 50:200:1:- grad 2 10x10:400:1:- grad 3 20:80:1:-"
check "... each by the communication of its size, the last gradient first" test "$(awk -F '\t' '$1 == "tensor" { print $9 }' "$TMP/text" |
	sort -un | wc -l)" = 4 -a "$(awk -F '\t' '$1 == "tensor" { print $9 }' "$TMP/text" | sort -n | head -n 1)" = \
	"$(awk -F '\t' '$1 == "tensor" { last = $9 } END { print last }' "$TMP/text")"
{ grad 10 '[20]' && grad 20 '[50]' && grad 30 '[10, 10]' && reduce 2 60 1 float && reduce 2 90 100 float &&
	reduce 2 120 50 float && reduce 2 150 20 float && reduce 2 180 1 float; } | rank
is "... behind a loss, and before a norm" "grad 0 20:80:1:- grad 1 50:200:1:- grad 2 10x10:400:1:-"
{ grad 10 '[200]' && grad 20 '[200]' && reduce 2 60 1 float && reduce 2 90 200 float && reduce 2 120 200 float; } | rank
check "... in the order in which they are ready" test "$(awk -F '\t' '$1 == "tensor" { if ($9 <= last) bad = 1; last = $9 }
	END { print bad + 0, (last > 0) }' "$TMP/text")" = "0 1"
{ grad 10 '[20]' && grad 20 '[50]' && grad 30 '[10, 10]' && reduce 2 60 20 float && reduce 2 90 1000 float; } | rank
is "one of few bytes that fits by chance: none" "grad 0 20:80:0:- grad 1 50:200:0:- grad 2 10x10:400:0:-"
{ reduce 2 5 100 float && grad 30 '[100]'; } | rank
is "what was issued before a gradient does not carry it" "grad 0 100:400:0:-"

# ---- waits --------------------------------------------------------------------------------------
# waits: how many waits for communication were inferred
waits() {
	awk -F '\t' '$1 == "edge" && $4 == "wait?" { n++ } END { print n + 0 }' "$TMP/text"
}
{ grad 10 '[100]' && reduce 2 20 100 float && grad 400 '[50]' && reduce 2 450 50 float 400; } | rank
check "a pause before the last gradient was no wait, the one behind it was" test "$(waits)" -eq 1
is "... and the bucket carries its gradient" "grad 0 100:400:1:- grad 1 50:200:1:-"
{ grad 10 '[100]' && reduce 2 20 70 float && grad 400 '[50]' && reduce 2 450 50 float 400; } | rank
check "what does not add up may have been waited for" test "$(waits)" -eq 2
{ grad 10 '[100]' && reduce 2 20 100 float 1100; } | rank
check "who is woken may go on before the thread that communicates" test "$(waits)" -eq 1
check "... which ended then" awk -F '\t' '$1 == "node" && $4 == "transfer" { id = $2 }
	$1 == "time" && id && $2 == id { ended = $3 + $4 == 1000000 - 10000 } END { exit !ended }' "$TMP/text"
{ grad 10 '[100]' && reduce 2 20 100 float 1300; } | rank
check "but not long before" test "$(waits)" -eq 0

# steps STEP...: without sizes, two buckets a step. In a step "busy" a product lies between the first and the last gradient;
# in a step "idle" there is a pause, and in a step "piece" a piece of an operation, that ends after the first bucket. The
# second bucket ends in a product.
steps() {
	echo "$@" | tr ' ' '\n' | awk '
		function op(name, at, ns, tid, id) {
			printf "{\"ph\":\"X\",\"cat\":\"%s\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"ts\":%d,\"dur\":%d%s},\n",
				name ~ /^(gloo|Prof)/ ? "user_annotation" : "cpu_op", tid, name, at, ns,
				id ? ",\"args\":{\"Record function id\":" id "}" : ""
		}
		function reduce(at, ns) {
			op("c10d::allreduce_", at, 1, 1, at)
			op("gloo:all_reduce", at + 2, ns, 2, at + 1)
		}
		BEGIN {
			print "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":0,\"world_size\":2},\"traceEvents\":["
		}
		{
			op("ProfilerStep#" NR - 1, t, 3999, 1)
			op("torch::autograd::AccumulateGrad", t + 10, 5, 1)
			reduce(t + 20, 600)
			if ($1 != "idle")
				op($1 == "busy" ? "aten::mm" : "MyHook", t + 25, 770, 1)
			if ($1 == "piece")
				op("aten::empty", t + 26, 1, 1)
			op("torch::autograd::AccumulateGrad", t + 800, 5, 1)
			reduce(t + 850, 1000)
			op("aten::mm", t + 852, 1500 + 7 * NR, 1)
			op("aten::add_", t + 3000, 5, 1)
			t += 4000
		}
		END { print "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"pid\":1,\"tid\":1,\"name\":\"aten::zero_\",\"ts\":40000,\"dur\":5}]}" }
	' >"$TMP/rank.json"
	"$BIN/trace" -q "$TMP/rank.json" | "$BIN/graph" -q -o "$TMP/steps.graph" &&
		"$BIN/graph" -O text "$TMP/steps.graph" >"$TMP/text"
}
# carriers: how many communications carry the gradients of each step
carriers() {
	awk -F '\t' '$1 == "tensor" && !seen[$7, $9]++ { n[$7]++ } END { for (s in n) print n[s] }' "$TMP/text" | sort -u
}
steps busy busy idle busy
check "without sizes other steps say that a pause was no wait" test "$(waits) $(carriers)" = "0 2"
steps busy busy piece busy
check "... nor was a piece of an operation" test "$(waits) $(carriers)" = "0 2"
check "... which is as long as before" sh -c "'$BIN/replay' --no-worth '$TMP/steps.graph' | grep -q ' 0.0 % unexplained'"
steps idle idle busy idle
check "... or that most were waits" test "$(waits)" = 5

# a bucket ends in the same operation in each step, which has pieces
{
	t=0
	while [ $t -lt 8000 ]; do
		printf '{"ph":"X","cat":"user_annotation","pid":1,"tid":1,"name":"ProfilerStep#%s","ts":%s,"dur":1999},\n' $((t / 2000)) $t
		grad $((t + 10)) '[100]' && reduce 2 $((t + 20)) 100 float 300
		printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"%s","ts":%s,"dur":%s},\n' \
			aten::mm $((t + 25)) 370 aten::resolve_conj $((t + 26)) 1
		grad $((t + 400)) '[50]' && reduce 2 $((t + 450)) 50 float 400
		printf '{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::add_","ts":%s,"dur":5},\n' $((t + 1000))
		t=$((t + 2000))
	done
} | rank
check "a product of matrices waits for nothing" test "$(carriers)" = 2

# ---- operations only ----------------------------------------------------------------------------
# table ROW...: RANK,OPTYPE,START,DURATION,BYTES in us, for both of two ranks
table() {
	{
		echo 'rank,optype,start_ts,duration,step,dp_rank,stage,bytes,group'
		for row in "$@"; do
			for r in 0 1; do
				echo "$row" | awk -F , -v r=$r '{ printf "%d,%s,%g,%g,0,%d,0,%d,dp\n", r, $1, $2 / 1e6, $3 / 1e6, r, $4 }'
			done
		done
	} >"$TMP/ops.csv"
	"$BIN/trace" -q --columns=bytes=bytes,group=group "$TMP/ops.csv" | "$BIN/merge" -q | "$BIN/graph" -q -O text >"$TMP/text"
}
table backward-compute,0,1000,0 all-reduce,1000,800,8192 backward-compute,1000,1000,0 all-reduce,2000,800,4096 \
	optimizer,2800,500,0
is "reductions beside the backward pass" "bucket 0:8192:1:- bucket 1:4096:1:- bucket 0:8192:1:- bucket 1:4096:1:-"
table forward-compute,0,1000,0 all-reduce,1000,800,8192 forward-compute,1800,1000,0 all-reduce,2800,800,8192 \
	optimizer,3600,500,0
is "reductions that the next operation waits for are the model's" ""
table backward-compute,0,1000,0 all-reduce,1000,800,64 backward-compute,1000,1000,0 all-reduce,2000,800,64 \
	optimizer,2800,500,0
is "a few bytes are no gradients" ""
table backward-compute,0,1000,0 grads-reduce-scatter,1000,800,4096 optimizer,1800,500,0
is "what a table calls so" "bucket 0:4096:1:- bucket 0:4096:1:-"

# ---- convolutions -------------------------------------------------------------------------------
# An output of 5 x 6 places, 3 samples, a filter of 6 x 2 x 3 x 2: 2 * 3 * 30 * 72 operations.
cat >"$TMP/conv.json" <<'EOF'
{"schemaVersion":1,"distributedInfo":{"rank":0},"traceEvents":[
{"ph":"X","cat":"user_annotation","pid":1,"tid":1,"name":"ProfilerStep#1","ts":0,"dur":100},
{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::conv2d","ts":10,"dur":20,"args":{
	"Concrete Inputs":["","","","[2, 1]","[1, 0]","[1, 2]","2"],
	"Input Dims":[[3,4,9,8],[6,2,3,2],[6],[],[],[],[]],
	"Input type":["float","float","float","ScalarList","ScalarList","ScalarList","Scalar"]}},
{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"name":"aten::convolution_backward","ts":40,"dur":20,"args":{
	"Concrete Inputs":["","","","[6]","[2, 1]","[1, 0]","[1, 2]","False","[0, 0]","2","[True, True, True]"],
	"Input Dims":[[3,6,5,6],[3,4,9,8],[6,2,3,2],[],[],[],[],[],[],[],[]],
	"Input type":["float","float","float","ScalarList","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar",""]}}
]}
EOF
work=$("$BIN/trace" -q "$TMP/conv.json" | "$BIN/graph" -q -O text | awk -F '\t' '$1 == "work" { printf "%s:%s:%s ", $3, $6, $7 }')
check "a convolution and its two gradients: operations and bytes" \
	test "$work" = "convolution:12960:5928 convolution:25920:9648 "

done_testing
