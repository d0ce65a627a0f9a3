# verdict: planted causes, each the first one that replay names, with the place; mean periods; --per.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# graph NAME: the graph of $TMP/NAME/rank*.json
graph() {
	"$BIN/trace" -qu "$TMP/$1"/rank*.json | "$BIN/merge" -qu | "$BIN/graph" -qu -o "$TMP/$1.graph"
}

right=0
# first NAME CAUSE WHERE: the first cause of the job NAME; WHERE is a pattern
first() {
	graph "$1"
	"$BIN/replay" -q --no-worth -O json "$TMP/$1.graph" >"$TMP/out"
	got=$(sed 's/.*"verdict":\[//; s/},{.*//; s/}\].*//' "$TMP/out")
	if echo "$got" | grep -qE "^\{\"cause\":\"$2\",\"share\":[0-9.e-]+,\"where\":\"[^\"]*$3"; then
		right=$((right + 1))
		check "$1: $2, $3" true
	else
		check "$1: $2, $3" false
		echo "# $got"
	fi
}

# kgen NAME CAUSE WHERE OPTION...
kgen() {
	name=$1
	cause=$2
	where=$3
	shift 3
	"$GEN/kgen" -o "$TMP/$name" "$@" >/dev/null
	first "$name" "$cause" "$where"
}

# plant NAME CAUSE WHERE VARIABLE=VALUE...
plant() {
	name=$1
	cause=$2
	where=$3
	shift 3
	mkdir "$TMP/$name"
	for v in "$@"; do
		set -- "$@" -v "$v"
		shift
	done
	awk -v dir="$TMP/$name" "$@" -f "$SRC/tests/gen/planted.awk"
	first "$name" "$cause" "$where"
}

kgen compute compute gemm --comm-scale=0.05
kgen alone compute gemm --ranks=1
kgen network exposed-communication allreduce --comm-scale=3
# advice NAME: of the job in the folder NAME, on one line
advice() { "$BIN/replay" -q "$TMP/$1" | tr -s ' \n' ' ' >"$TMP/out"; }
# wide NAME: the job NAME in numbers of 32 bits
wide() {
	mkdir "$TMP/$1-wide"
	for f in "$TMP/$1"/rank*.json; do
		sed 's/BFloat16/Float/g; s/bfloat16/float/g; s/bf16/f32/g; s/_s16816gemm//g' "$f" >"$TMP/$1-wide/${f##*/}"
	done
}
wide network
advice network-wide
holds "$TMP/out" 'half the bytes: gradients in bfloat16' "gradients get advice of their own"
advice network
check "... those in bfloat16 already another one" no grep -q 'bf16_compress_hook' "$TMP/out"
holds "$TMP/out" 'half the communication: gradients, which have 16 bits already, in every second step (DDP: no_sync()), or' "... that helps them"
kgen sharded exposed-communication allgather --kind=fsdp --ranks=2 --steps=2 --comm-scale=8
"$BIN/replay" -q "$TMP/sharded.graph" >"$TMP/out"
holds "$TMP/out" 'bfloat16 for what is sent (FSDP:' "... and so do shards"
# rank 0 alone computes, most of it in few operations: no other rank shows that it is slow
mkdir "$TMP/chief"
awk -v dir="$TMP/chief" '
	function put(r, cat, name, from, dur, args) {
		printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{%s}}",
			(n[r]++ ? "," : "{\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":" r ",\"world_size\":2},\"traceEvents\":["),
			cat, name, 100 + r, from, dur, args >(dir "/rank" r ".json")
	}
	BEGIN {
		for (s = 0; s < 4; s++)
			for (r = 0; r < 2; r++) {
				at = begin = 1000 + 30000 * s
				put(r, "user_annotation", "ProfilerStep#" s, begin, 29000, "")
				for (i = 0; i < 100 && !r; i++) {
					dur = i % 50 == 7 ? 10000 : 1
					put(r, "cpu_op", "aten::addmm", at, dur, "")
					at += dur
				}
				put(r, "collective", "allreduce", at, begin + 26000 - at, "\"Process Group Name\":\"dp\",\"Seq\":" s ",\"bytes\":4000000")
			}
		print "]}" >(dir "/rank0.json")
		print "]}" >(dir "/rank1.json")
	}'
first chief imbalance 'rank 0'
# a thread of both ranks issues communication while another one computes: they compute all the same, and equally long
mkdir "$TMP/beside"
awk -v dir="$TMP/beside" '
	function put(r, cat, name, tid, from, dur, args) {
		printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{%s}}",
			(n[r]++ ? "," : "{\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":" r ",\"world_size\":2},\"traceEvents\":["),
			cat, name, 100 + r, tid, from, dur, args >(dir "/rank" r ".json")
	}
	BEGIN {
		for (s = 0; s < 4; s++)
			for (r = 0; r < 2; r++) {
				at = 1000 + 130000 * s
				put(r, "user_annotation", "ProfilerStep#" s, 1, at, 120000, "")
				for (i = 0; i < 3; i++)
					put(r, "cpu_op", "c10d::allreduce_", 2, at + 30000 * i + 100, 29000, "")
				for (i = 0; i < 20; i++)
					put(r, "cpu_op", "aten::addmm", 1, at + 5000 * i, 4900, "")
				put(r, "collective", "allreduce", 1, at + 100000, 20000, "\"Process Group Name\":\"dp\",\"Seq\":" s ",\"bytes\":4000000")
			}
		print "]}" >(dir "/rank0.json")
		print "]}" >(dir "/rank1.json")
	}'
first beside exposed-communication 'allreduce'
check "... their work is not uneven" no grep -q '"cause":"imbalance"' "$TMP/out"
# operations in a range that is a cause of its own are no more work of their rank
plant stacking input 'rank 1, aten::stack' cause=input ms=60 who=1 inside=aten::stack
check "... it has no more work" no grep -qE '"cause":"(imbalance|slow-rank)"' "$TMP/out"
plant unpacking compilation 'rank 1' cause=compilation ms=60 who=1 inside=aten::addmm shapes=1
check "... nor operations that take longer" no grep -qE '"cause":"(imbalance|slow-rank)"' "$TMP/out"
# 60 ms of computation in a step; the device of rank 1 evaluates for 30 ms more
mkdir "$TMP/device"
awk -v dir="$TMP/device" '
	function put(r, cat, name, tid, from, dur, args) {
		printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{%s}}",
			(n[r]++ ? "," : "{\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":" r ",\"world_size\":2},\"traceEvents\":["),
			cat, name, cat == "kernel" ? r : 100 + r, tid, from, dur, args >(dir "/rank" r ".json")
	}
	function kernel(r, name, from, dur, args) {
		corr++
		put(r, "cpu_op", "aten::mm", 1, at, 9, "")
		put(r, "cuda_runtime", "cudaLaunchKernel", 1, at + 1, 7, "\"correlation\":" corr)
		put(r, "kernel", name, 7, from, dur, "\"device\":" r ",\"stream\":7,\"correlation\":" corr args)
		at += 10
	}
	BEGIN {
		for (s = 0; s < 4; s++)
			for (r = 0; r < 2; r++) {
				at = begin = 1000 + 110000 * s
				put(r, "user_annotation", "ProfilerStep#" s, 1, begin, 109000, "")
				for (i = 0; i < 20; i++)
					kernel(r, "gemm", begin + 100 + 3000 * i, 3000, "")
				if (r) {
					put(r, "user_annotation", "validation", 1, at, 500, "")
					for (i = 0; i < 10; i++)
						kernel(r, "gemm_small", begin + 60100 + 3000 * i, 3000, "")
					at += 500
				}
				kernel(r, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin + (r ? 90100 : 60100), r ? 10000 : 40000,
					",\"Collective name\":\"allreduce\",\"In msg nelems\":1000000,\"dtype\":\"Float\"")
				put(r, "cuda_runtime", "cudaDeviceSynchronize", 1, at, begin + 100200 - at, "")
			}
		print "]}" >(dir "/rank0.json")
		print "]}" >(dir "/rank1.json")
	}'
first device evaluation 'rank 1'
check "... nor has its device" no grep -qE '"cause":"(imbalance|slow-rank)"' "$TMP/out"
plant exchange exposed-communication allreduce cause=communication ms=40
# its backward pass accumulates gradients that nothing sends
sed -i 's/"name": "autograd::engine::evaluate_function: MmBackward0",\(.*\)"args": {}/"name": "torch::autograd::AccumulateGrad",\1"args": {"Input Dims": [[10, 10]], "Input type": ["float"]}/' \
	"$TMP"/exchange/*.json
graph exchange
"$BIN/replay" -q "$TMP/exchange.graph" >"$TMP/out"
holds "$TMP/out" 'exposed communication .*allreduce' "communication is that of gradients only if it takes some"
holds "$TMP/out" 'half the bytes: bfloat16 for what is sent' "... and the advice speaks of what is sent"
kgen pipeline pipeline-bubble 'stage [0-3], rank' --pp=4 --tp=1 --microbatches=8 --layers=16
kgen stages pipeline-bubble 'stage [01], rank' --pp=2 --tp=1 --ranks=4 --microbatches=4 --layers=8 --record-groups
kgen loader input DataLoader --data-us=60000
plant generator input loop cause=input ms=50 named=0
plant reader input 'rank 1' cause=input ms=60 who=1
kgen launches launch-bound backward --host-bound
check "taking a batch costs the same in each step: no worker is too slow" sh -c \
	"! '$BIN/graph' -q -O text '$TMP/launches.graph' | grep -q 'loader workers'"
plant launching launch-bound aten::addmm cause=launch ms=0.7
kgen slow slow-rank 'rank 3' --slow-rank=3:1.3
plant hot slow-rank 'rank 2' cause=slow ms=40 who=2 n=4
plant fever slow-rank 'rank 1' cause=slow ms=60 who=1 steps=8 lost=10 shapes=1
plant link slow-link 'ranks 2,3' cause=link ms=30 who=2 n=8
plant cable slow-link 'ranks 0,1' cause=link ms=25 who=0 n=4
# transfers of 2000 sizes in two groups: each group is compared once, not once for each of its sizes. That takes a tenth of a
# second; the limit is far above it
mkdir "$TMP/sizes"
awk -v dir="$TMP/sizes" '
	BEGIN {
		for (r = 0; r < 4; r++) {
			file = dir "/rank" r ".json"
			printf "{\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":%d,\"world_size\":4},\"traceEvents\":[", r >file
			for (s = at = 0; s < 3; s++) {
				begin = at
				for (i = 0; i < 2000; i++) {
					dur = r < 2 ? 10 : 30
					printf "{\"ph\":\"X\",\"cat\":\"collective\",\"name\":\"allreduce\",\"pid\":%d,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{\"Process Group Name\":\"p%d\",\"Seq\":%d,\"bytes\":%d}},",
						r, at, dur, r / 2, s * 2000 + i, 1000 + 4 * i >file
					at += dur
				}
				printf "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":%d,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{}}%s",
					s, r, begin, at - begin, s < 2 ? "," : "]}\n" >file
			}
		}
	}'
graph sizes
status 0 "links are compared soon" sh -c "ulimit -t 4; exec '$BIN/replay' -q --no-worth '$TMP/sizes.graph'"
holds "$TMP/out" '^bound by: a slow link [0-9]* %: transfers of ranks 2,3 ' "... and the slow one is found"
plant uneven imbalance 'all ranks' cause=uneven ms=60 n=4 steps=8
plant lengths imbalance 'all ranks' cause=uneven ms=80 n=3 steps=9
check "... is uneven work, as far as is known" grep -q 'uneven work [0-9]* %: the rank that computes longest changes' "$TMP/out"
plant speed imbalance 'all ranks' cause=uneven ms=60 n=4 steps=8 shapes=1
check "... of equal operations is unlike speed" grep -q 'unlike speed [0-9]* %: equal operations' "$TMP/out"
plant turns imbalance 'all ranks' cause=uneven ms=0 larger=60 n=4 steps=8 shapes=1
check "... of larger operations is uneven work" grep -q 'uneven work [0-9]* %: the rank that computes longest changes' "$TMP/out"
plant layers imbalance 'rank 1' cause=compute more=10 who=1
plant crowd imbalance 'rank 1' cause=compute more=10 who=1 steps=8 lost=20 shapes=1
plant wide imbalance 'rank 2' cause=compute larger=50 who=2 n=4 shapes=1
plant both slow-rank 'rank 1' cause=slow ms=60 more=4 who=1 shapes=1
check "... and so is what it has more of" grep -q '"cause":"imbalance","share":[0-9.]*,"where":"rank 1"' "$TMP/out"
share() { # CAUSE: of the verdict of the last job
	sed -n "s/.*\"cause\":\"$1\",\"share\":\([0-9.]*\).*/\1/p" "$TMP/out"
}
check "... in proportion: 0.6 of 14 operations to 4" awk -v slow="$(share slow-rank)" -v more="$(share imbalance)" \
	'BEGIN { r = slow / more; exit !(r > 1.7 && r < 2.5) }'
plant cores contention MmBackward cause=contention ms=50
plant thread contention MmBackward cause=contention ms=80 n=4
"$BIN/replay" -q "$TMP/thread.graph" >"$TMP/out"
holds "$TMP/out" 'communication that leaves more of the processors: cores of their' "threads that communicate get advice for processors"
check "... and none for NCCL" no grep -q NCCL "$TMP/out"
plant item host-synchronisation cudaStreamSynchronize cause=sync ms=1
plant print host-synchronisation cudaStreamSynchronize cause=sync ms=0.6 seed=5
plant malloc memory-stall 'cuda(Free|Malloc)' cause=memory ms=2
plant pageable memory-stall 'Memcpy HtoD' cause=memory ms=1.5 named=0
# the same on a device of AMD, whose copies name their direction in other words
mkdir "$TMP/hip" "$TMP/copies"
sed 's/"name": "cuda/"name": "hip/' "$TMP/malloc/rank0.json" >"$TMP/hip/rank0.json"
first hip memory-stall 'hip(Free|Malloc)'
for way in DEVICE_TO_HOST:memory-stall HOST_TO_DEVICE:memory-stall; do
	sed 's/"name": "cuda/"name": "hip/; s/"Memcpy HtoD [^"]*"/"MEMORY_COPY_'${way%:*}'"/' "$TMP/pageable/rank0.json" >"$TMP/copies/rank0.json"
	first copies ${way#*:} "MEMORY_COPY_${way%:*}"
done
plant save checkpoint '' cause=checkpoint ms=120
plant saving checkpoint 'rank 1' cause=checkpoint ms=120 who=1
check "... a name on the rank that writes says so" grep -qE '"text":"writing checkpoints [0-9]+ %: rank 1[^"()]*"' "$TMP/out"
plant writing checkpoint 'rank 1' cause=checkpoint ms=150 who=1 named=0
check "... without a name it is a guess" grep -qE '"text":"long work behind some steps, perhaps checkpoints, [0-9]+ %: rank 1 [^"]*\(inferred\)"' "$TMP/out"
plant collect garbage-collection 'rank 1' cause=garbage ms=60 who=1
plant pauses garbage-collection 'rank 0' cause=garbage ms=80 who=0 named=0
# a job that evaluates and does nothing else is bound by what it evaluates; one that also trains is not
mkdir "$TMP/judged" "$TMP/taught"
awk -v dir="$TMP/judged" -f - <<'END'
function put(cat, name, from, dur) {
	printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d}", n++ ? ",\n" : "[", cat, name, from, dur >(dir "/rank0.json")
}
BEGIN {
	put("python_function", "lm_eval/evaluator.py(52): evaluate", 0, 60000)
	for (s = 0; s < 6; s++) {
		put("user_annotation", "ProfilerStep#" s, 10000 * s, 9990)
		put("cpu_op", "aten::mm", 10000 * s + 10, 6000)
		put("cpu_op", "aten::softmax", 10000 * s + 6020, 3960)
	}
	print "]" >(dir "/rank0.json")
}
END
sed 's/aten::softmax/SoftmaxBackward0/' "$TMP/judged/rank0.json" >"$TMP/taught/rank0.json"
first judged compute aten::mm
check "... evaluation is no cause of it" no grep -q '"cause":"evaluation"' "$TMP/out"
first taught evaluation ''
plant validation evaluation '' cause=evaluation ms=80
check "... a recorded name says so; it is a part of the steps" grep -qE '"text":"evaluation [0-9]+ %: [^"()]*"' "$TMP/out"
plant epochs evaluation '' cause=evaluation ms=80 outside=1
check "... between the steps, as none of them has it" grep -qE '"text":"evaluation between the steps [0-9]+ %: [^"()]*"' "$TMP/out"
plant scoring evaluation 'rank 1' cause=evaluation ms=80 who=1
check "... named on the rank that does it" grep -qE '"text":"evaluation [0-9]+ %: rank 1[^"()]*"' "$TMP/out"
plant testing evaluation '' cause=evaluation ms=80 named=0
check "... no name says so" grep -qE '"text":"evaluation [0-9]+ %: [^"]*\(inferred\)"' "$TMP/out"
status 0 "... what-ifs select it" "$BIN/replay" --no-worth -O json --what-if 'remove phase=evaluation' "$TMP/testing.graph"
check "... and take it away" awk -v p="$(sed -n 's/.*"predicted_mean_ns":\([0-9.]*\).*/\1/p' "$TMP/out")" \
	-v r="$(sed -n 's/.*"replayed_mean_ns":\([0-9.]*\).*/\1/p' "$TMP/out")" 'BEGIN { exit !(r - p > 30e6 && r - p < 81e6) }'

# a pause that comes once may be anything
for cause in input garbage; do
	mkdir "$TMP/once-$cause"
	awk -v dir="$TMP/once-$cause" -v cause=$cause -v ms=200 -v named=0 -v once=1 -v n=2 -v steps=8 -f "$SRC/tests/gen/planted.awk"
	"$BIN/replay" -q --no-worth -O json "$TMP/once-$cause" >"$TMP/out"
	check "a single long pause has no cause ($cause)" no grep -qE '"cause": *"(input|garbage-collection)"' "$TMP/out"
	check "... it is between recorded operations" grep -q 'between recorded operations [0-9]* %' "$TMP/out"
done

# pauses that are as long as what operations lose to another program are no checkpoint and no collection of garbage
for seed in 991 1982 2973 3964; do
	rm -rf "$TMP/busy"
	mkdir "$TMP/busy"
	awk -v dir="$TMP/busy" -v cause=compute -v n=2 -v steps=8 -v lost=40 -v seed=$seed -f "$SRC/tests/gen/planted.awk"
	"$BIN/replay" -q --no-worth -O json "$TMP/busy" >"$TMP/busy.json"
	check "a busy machine writes no checkpoints (seed $seed)" no grep -qE '"cause": *"(checkpoint|garbage-collection)"' "$TMP/busy.json"
done
plant compiler compilation '' cause=compilation ms=50
plant recompiling compilation 'rank 0' cause=compilation ms=70 who=0
echo "# $right right"

# ---- on hosts: activations that are made again; a convolution without a kernel -------------------------------
# host NAME OPERATION...: a process of PyTorch with three steps; OPERATION: name, us, and its number in PyTorch if it has one, of the
# backward pass
host() {
	mkdir "$TMP/$1"
	name=$1
	shift
	printf '%s\n' "$@" | awk '
		function put(name, dur, args) {
			printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{%s}}", comma, cat, name, at, dur, args
			comma = ",\n"
		}
		{ op[++n] = $1; us[n] = $2; number[n] = $3; all += $2 }
		END {
			print "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"gloo\",\"rank\":0,\"world_size\":1},\"traceEvents\":["
			for (step = 1; step <= 3; step++) {
				cat = "user_annotation"; put("ProfilerStep#" step, all + 21000, "")
				cat = "cpu_op"; at += 100; put("aten::linear", 19000, "\"Sequence number\":1")
				at += 20000; put("autograd::engine::evaluate_function: ReluBackward0", all + 400, "\"Sequence number\":1,\"Fwd thread id\":1")
				at += 100
				for (i = 1; i <= n; i++) { put(op[i], us[i], number[i] ? "\"Sequence number\":" number[i] : ""); at += us[i] }
				at += 800
			}
			print "]}"
		}' >"$TMP/$name/rank0.json"
}
host again 'aten::linear 15000 7' 'aten::relu 5000 8' 'aten::threshold_backward 20000' 'aten::mm 20000'
first again recomputation aten::linear
"$BIN/replay" -q "$TMP/again" | tr -s ' \n' ' ' >"$TMP/out"
holds "$TMP/out" 'recomputation 2[0-9] %: activations that the backward pass makes again, most of it aten::linear' "... it says what"
holds "$TMP/out" "would help: -2[0-9.]* % ([^)]*): activations kept, .* (--what-if 'scale phase=recomputation by 0')" "... and what it costs"
host twice 'aten::linear 15000 7' 'aten::relu 5000 8' 'aten::threshold_backward 20000 9' 'aten::mm 20000'
"$BIN/replay" -q --no-worth -O json "$TMP/twice" >"$TMP/out"
check "gradients that are differentiated are no recomputation" no grep -q recomputation "$TMP/out"
host fallback 'aten::_slow_conv2d_backward 90000'
"$BIN/replay" -q "$TMP/fallback" | tr -s ' \n' ' ' >"$TMP/out"
holds "$TMP/out" 'this processor has no fast kernel for these convolutions' "a convolution without a kernel is told"

# the device computes for 60 ms while the host waits for 80 ms
mkdir "$TMP/both-long"
awk 'function put(cat, name, tid, at, dur, args) {
		printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"args\":{%s}}", comma, cat, name, tid == 7 ? 0 : 1, tid, at, dur, args
		comma = ",\n"
	}
	BEGIN {
		print "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":0,\"world_size\":1},\"traceEvents\":["
		for (step = 1; step <= 5; step++) {
			at = 100000 * step
			put("user_annotation", "ProfilerStep#" step, 1, at, 81000, "")
			put("cpu_op", "aten::linear", 1, at + 80000, 500, "")
			put("cuda_runtime", "cudaLaunchKernel", 1, at + 80100, 100, "\"correlation\":" step)
			put("kernel", "gemm", 7, at + 80250, 60000, "\"device\":0,\"stream\":7,\"correlation\":" step)
		}
		print "]}"
	}' >"$TMP/both-long/rank0.json"
"$BIN/replay" -q --no-worth "$TMP/both-long" | tr -s ' \n' ' ' >"$TMP/out"
holds "$TMP/out" 'most of it gemm[^;]*; during [3-7][0-9] % the host takes as long' "computation beside a host that takes as long is told"

# ---- steps that overlap: a host that runs ahead ---------------------------------------------------
number() {
	sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" "$2"
}
"$GEN/kgen" -o "$TMP/ahead" --no-item --steps=6 >/dev/null
graph ahead
"$BIN/replay" -q --no-worth -O json --what-if 'scale kind=kernel by 0.5' "$TMP/ahead.graph" >"$TMP/ahead.json"
"$BIN/replay" -q --no-worth -O json "$TMP/network.graph" >"$TMP/in_step.json"
check "the mean period is what a step takes, not from its first start to its last end" \
	awk -v p="$(number recorded_period_mean_ns "$TMP/ahead.json")" -v m="$(number recorded_mean_ns "$TMP/ahead.json")" \
	'BEGIN { exit !(p > 90e6 && p < 97e6 && m > 2 * p) }'
check "a change is computed on it" \
	awk -v p="$(number replayed_period_mean_ns "$TMP/ahead.json")" -v q="$(number predicted_period_mean_ns "$TMP/ahead.json")" \
	'BEGIN { exit !(q > 0.45 * p && q < 0.65 * p) }'
check "without overlap there is none" no grep -q period_mean "$TMP/in_step.json"
status 0 "in words" "$BIN/replay" -q "$TMP/ahead.graph"
check "... the first line" sh -c "head -n 1 '$TMP/out' | grep -q '^step 9[0-9.]* ms (mean period of 6), replayed '"
check "... and the second" sh -c "sed -n 2p '$TMP/out' | grep -qx 'a step takes [0-9.]* ms from its first start to its last end'"

"$BIN/replay" --no-worth "$TMP/pipeline.graph" >"$TMP/out"
holds "$TMP/out" '^bound by: pipeline bubble [0-9]* %: 8 microbatches on 4 stages; stage ' "a bubble has microbatches and stages"
"$GEN/kgen" -o "$TMP/interleaved" --kind=interleaved >/dev/null
"$BIN/replay" -q --no-worth "$TMP"/interleaved >"$TMP/out"
holds "$TMP/out" '^bound by: pipeline bubble [0-9]* %: stages on 4 ranks; rank ' \
	"where each rank has several stages, sends do not count microbatches"

# posted NAME VARIABLE=VALUE...: the report of ranks that pass messages on
posted() {
	name=$1
	shift
	mkdir "$TMP/$name"
	for v in "$@"; do
		set -- "$@" -v "$v"
		shift
	done
	awk -v dir="$TMP/$name" -v n=3 -v m=6 -v steps=4 -v forward=3000000 -v backward=6000000 "$@" -f "$SRC/tests/gen/posted.awk"
	"$BIN/replay" -q "$TMP/$name" >"$TMP/out"
}
for schedule in gpipe 1f1b; do
	posted $schedule schedule=$schedule transfer=200000
	holds "$TMP/out" '^bound by: pipeline bubble [0-9]* %: 6 microbatches on 3 stages; stage 0, rank 0 ' "$schedule on hosts"
done
posted ring schedule=ring transfer=9000000
holds "$TMP/out" 'exposed communication [0-9]* %: messages (gloo:send)$' "ranks of a ring exchange: they are no stages"
check "... with no bubble, and no advice about it" no grep -qE 'bubble|microbatches' "$TMP/out"

# ---- the text -----------------------------------------------------------------------------------
status 0 "the report" "$BIN/replay" "$TMP/slow.graph"
holds "$TMP/out" '^bound by: rank 3 is slow in backward: [0-9]* %$' "... begins with the verdict"
check "... and what would help: rank 3 like the others, by simulation" awk '/^would help: -/ { n++ }
	/that rank as fast as the others/ { match($0, /-[0-9.]* %/); r = -substr($0, RSTART, RLENGTH - 2) }
	END { exit !(n == 1 && r > 15 && r < 25) }' "$TMP/out"

# ---- what would help ------------------------------------------------------------------------------
"$BIN/replay" -q "$TMP/generator" >"$TMP/out"
tr '\n' ' ' <"$TMP/out" | tr -s ' ' >"$TMP/line"
holds "$TMP/out" '^bound by: waiting for input [0-9]* %: the loop of the program (inferred)$' "no name says that the loop waits for input"
holds "$TMP/line" "would help: -4[0-9.]* % (-[0-9.]* to -[0-9.]* %): if the program reads its input there: batches that are read beside the job, on idle.*" \
	"what helps most is a setting, with its gain and the interval"
check "... as the line predicts that it names" grep -q "DataLoader(num_workers=1) (--what-if 'loader-workers 1')" "$TMP/line"
predicted=$("$BIN/replay" -q --no-worth --what-if 'loader-workers 1' "$TMP/generator" | sed -n '1s/.*predicted [^(]*(\([-0-9.]*\) %.*/\1/p')
check "... $predicted %" awk -v p="$predicted" '/^would help/ { exit !(p < -40 && ($3 - p) ^ 2 < 0.01) }' "$TMP/out"
check "computation that is faster comes last: no setting makes it so" awk '/^error of/ { exit } /half the time/ { last = NR } /^ .*%\):|at most/ { n = NR }
	END { exit !(last && n == last) }' "$TMP/out"
check "bfloat16 is no advice for the computation of hosts" no grep -q autocast "$TMP/out"
# communication beside computation, and a loader that takes 30 ms: a graph without the loader has as much of both
mkdir "$TMP/reads"
sed 's/if (cause == "input" .*{$/if (here(r)) {/; s/__next__", vary(ms \* 1000000)/__next__", vary(30000000)/' \
	"$SRC/tests/gen/planted.awk" >"$TMP/reads.awk"
awk -v dir="$TMP/reads" -v cause=contention -v ms=80 -v n=4 -v who=-1 -v named=1 -f "$TMP/reads.awk"
"$BIN/replay" -q "$TMP/reads" >"$TMP/reads.txt"
predicted=$("$BIN/replay" -q --no-worth --what-if 'loader-workers 1' "$TMP/reads" | sed -n '1s/.*predicted [^(]*(\([-0-9.]*\) %.*/\1/p')
check "... also beside communication: $predicted %" awk -v p="$predicted" '/^would help.*batches/ { n = 1; exit !(p < -20 && ($3 - p) ^ 2 < 0.01) } END { if (!n) exit 1 }' "$TMP/reads.txt"
# steps that do nothing but read
awk 'BEGIN {
	printf "{\"schemaVersion\":1,\"traceEvents\":["
	for (s = 0; s < 4; s++)
		printf "%s{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":300,\"args\":{}},\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":300,\"args\":{}}",
			s ? ",\n" : "\n", 300 * s, s, 300 * s
	print "\n]}" }' >"$TMP/only.json"
advice only.json
holds "$TMP/out" "DataLoader(num_workers=64) (--what-if 'loader-workers 64')" "no number of workers is enough for steps that only read: the most"
# steps of 100 ms: 50 ms compute, and a fetch of 49.9 ms that begins 20 ms before each of them ends
crossing() {
	awk -v loader="$1" 'BEGIN {
		printf "{\"schemaVersion\":1,\"traceEvents\":["
		for (s = 0; s < 10; s++)
			printf "%s{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":100000},\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":50000},\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"enumerate(DataLoader)#_%sDataLoaderIter.__next__\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":49900}",
				s ? ",\n" : "\n", s, 100000 * s, 100000 * s + 30000, loader, 100000 * s + 80010
		print "\n]}" }' >"$TMP/crossing.json"
}
# predicts LOW HIGH CHANGE: the change of the step, in %
predicts() {
	"$BIN/replay" -q --no-worth --what-if "$3" "$TMP/crossing.json" >"$TMP/out"
	check "... $3: $1 to $2 %" awk -v low="$1" -v high="$2" \
		'NR == 1 { match($0, /\([-+0-9.]+ %/); p = substr($0, RSTART + 1) + 0; exit !(p > low && p < high) }' "$TMP/out"
}
crossing SingleProcess
"$BIN/replay" -q --no-worth "$TMP/crossing.json" >"$TMP/out"
check "a fetch that crosses the border of steps is input, and what comes after it is not" awk '
	/waiting for input/ { input = $6 + 0 } /computation [0-9]+ %/ { rest = $2 + 0 } END { exit !(input > 40 && input < 51 && rest > 48 && rest < 56) }' "$TMP/out"
predicts -48 -42 'loader-workers 100'
crossing MultiProcessing # the job waits for 49.9 ms of each 100: that is what a batch takes from one worker
predicts -48 -45 'loader-workers 100 was=1'
predicts 48 52 'loader-workers 0 was=1'
wide compute
advice compute-wide
holds "$TMP/out" 'bfloat16 (torch.autocast)' "... but for that of devices"
advice compute
check "... whose products have not 16 bits already" no grep -q 'autocast' "$TMP/out"
holds "$TMP/out" 'twice as fast: torch.compile, or another device; most of it has numbers of 16 bits already' "... else there are other ways"
"$BIN/replay" -q "$TMP/compute.graph" >"$TMP/out"
check "what speaks for nothing is no advice: its interval holds zero" awk '/%\): / && match($0, /to [-0-9.]+ %/) {
	if (substr($0, RSTART + 3) + 0 >= 0) bad = 1; n++ } END { exit !(n && !bad) }' "$TMP/out"
"$BIN/replay" -q -O json "$TMP/compute.graph" >"$TMP/json"
holds "$TMP/json" '"computation":{"cause":"compute","share":0\.[0-9]*' "computation has a member of its own"
check "each simulated change has its interval" awk '{ a = gsub(/"change":/, "&"); b = gsub(/"share_lo":|"saves_lo_ns":/, "&") } END { exit !(a && a == b) }' "$TMP/json"
"$BIN/replay" -q --no-worth "$TMP/generator" >"$TMP/out"
check "lost time comes first, then computation" awk '/^bound by: waiting for input/ { a = NR } /^ *computation [0-9]+ %/ { b = NR } END { exit !(a && b > a) }' "$TMP/out"

# steps of 100 ms: 8 operations of 5 ms, each before a pause of `inside` ms, and an update; with logs=1 that takes 10 ms,
# and what comes then ends with a barrier
pauses() {
	awk -v inside="$1" -v logs="$2" 'function ev(name, at, ms) {
			printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d}", n++ ? ",\n" : "\n",
				name ~ /#/ ? "user_annotation" : "cpu_op", name, 1000 * at, 1000 * ms
		}
		BEGIN {
		printf "{\"schemaVersion\":1,\"traceEvents\":["
		for (s = 0; s < 10; s++) {
			ev("ProfilerStep#" s, t = 100 * s, 100)
			for (i = 0; i < 8; i++) {
				ev(i < 4 ? "aten::mm" : "MmBackward0", t, 5)
				t += 5 + inside
			}
			ms = logs ? 10 : 100 * (s + 1) - t
			ev("Optimizer.step#SGD.step", t, ms)
			ev("aten::_foreach_add_", t, ms)
			if (logs)
				ev("c10d::barrier", 100 * s + 95, 5)
		}
		print "\n]}" }' >"$TMP/pauses.json"
	"$BIN/replay" -q "$TMP/pauses.json" >"$TMP/out"
	tr -s '\n ' ' ' <"$TMP/out" >"$TMP/flat"
}
pauses 0 1
check "pauses behind the update: the program does something there" grep -q 'between the optimizer and the next batch' "$TMP/flat"
check "... for 45 % of the step" grep -q 'would help: -45\.[0-9]* % ([-0-9. to]* %): without what the program does' "$TMP/flat"
check "... and nothing is said of pauses inside" no grep -q 'between operations' "$TMP/flat"
pauses 5 0
check "pauses inside: the interpreter between operations" grep -q "if Python took half the time between operations: .*(--what-if 'scale phase=other,kind=gap by 0\.5')" "$TMP/flat"
check "... and not the program behind the update" no grep -q 'between the optimizer and' "$TMP/flat"

# ---- --per --------------------------------------------------------------------------------------
"$GEN/kgen" -o "$TMP/stacks" --python-stacks --ranks=2 --jitter=0 >/dev/null
graph stacks
for key in module layer line operator phase; do
	status 0 "--per=$key" "$BIN/replay" --per="$key" -O csv "$TMP/stacks.graph"
	cp "$TMP/out" "$TMP/$key.csv"
done
check "--per=line names a function of the program" grep -q ',train.py:[0-9]* (' "$TMP/line.csv"
check "--per=module: layers" grep -q ',TransformerLayer_2$' "$TMP/module.csv"
check "--per=phase: a range of input at the start of a step does not give its phase to all of it" \
	awk -F, '$8 == "input" { input = $3 } $8 == "forward" { forward = $3 } END { exit !(forward > 5 * input) }' "$TMP/phase.csv"
check "--per=phase: all phases sum to the same as all operators" test \
	"$(awk -F, 'NR > 1 { s += $7 } END { print s }' "$TMP/phase.csv")" = \
	"$(awk -F, 'NR > 1 { s += $7 } END { print s }' "$TMP/operator.csv")"
status 2 "--per with a table" "$BIN/replay" --per=phase --table=steps "$TMP/stacks.graph"

# ---- advice in the words of the framework -------------------------------------------------------
helps() {
	sed -n '/^would help/,/^[es]/p' "$TMP/out" | tr -s ' \n' ' ' >"$TMP/advice"
}
"$BIN/replay" -q "$TMP/stacks.graph" >"$TMP/out"
helps
check "PyTorch: its settings" grep -q 'torch\.\|DDP' "$TMP/advice"
"$BIN/replay" -q "$SRC/tests/golden/xla/two.xplane.pb.gz" >"$TMP/out"
helps
check "JAX: its settings, and not those of PyTorch" sh -c "grep -q 'jax\.' '$TMP/advice' && ! grep -q 'torch\|DDP\|DataLoader' '$TMP/advice'"
awk 'BEGIN {
	print "["
	for (i = 0; i < 6; i++)
		printf "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#%d\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":990},\n" \
			"{\"ph\":\"X\",\"name\":\"FunctionRun\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":800},\n" \
			"{\"ph\":\"X\",\"name\":\"ExecutorState::Process\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d},\n", \
			i, 1000 * i, 1000 * i + 5, 1000 * i + 10, 700 + i
	print "{}]"
}' >"$TMP/tensorflow.json"
"$BIN/replay" -q "$TMP/tensorflow.json" >"$TMP/out"
helps
check "TensorFlow" sh -c "grep -q 'tf\.function' '$TMP/advice' && ! grep -q 'torch\|DDP' '$TMP/advice'"
sed 's/FunctionRun/solve/; s/ExecutorState::Process/assemble/; s/ProfilerStep#/my step /' "$TMP/tensorflow.json" >"$TMP/own.json"
"$BIN/replay" -q "$TMP/own.json" >"$TMP/out"
helps
check "a program of no framework" sh -c "grep -q 'fused operations may shorten' '$TMP/advice' && ! grep -q 'torch\|tf\.\|jax' '$TMP/advice'"

done_testing
