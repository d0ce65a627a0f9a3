# verdict: causes that are easily taken for others: what the report says of them, and what it does not.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# Functions of the programs below; all times in us. `at`: of the host; `free`: when the device has done what it has to do.
functions='
	function put(r, cat, name, tid, from, dur, args) {
		printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}",
			(n[r]++ ? ",\n" : "{\"distributedInfo\":{\"backend\":\"" backend "\",\"rank\":" r ",\"world_size\":" ranks "},\"traceEvents\":[\n"),
			cat, name, cat ~ /^(kernel|gpu)/ ? r : 100 + r, tid, from, dur, args >(dir "/rank" r ".json")
	}
	function mark(r, from, until) { put(r, "user_annotation", "ProfilerStep#" s, 1, from, until - from, "") }
	function op(name, dur) {
		put(0, "cpu_op", name, 1, at, dur, "")
		at += dur
	}
	function reduce(r, group, seq, tid, from, dur) {
		put(r, "collective", "allreduce", tid, from, dur, "\"Process Group Name\":\"" group "\",\"Seq\":" seq ",\"bytes\":2000000")
	}
	# a host operation that launches a kernel or a copy
	function launch(r, host, name, from, dur, args) {
		corr++
		put(r, "cpu_op", host, 1, at, 9, "")
		put(r, "cuda_runtime", name ~ /^Memcpy/ ? "cudaMemcpyAsync" : "cudaLaunchKernel", 1, at + 1, 7, "\"correlation\":" corr)
		put(r, name ~ /^Memcpy/ ? "gpu_memcpy" : "kernel", name, 7, from, dur, "\"device\":" r ",\"stream\":7,\"correlation\":" corr args)
		at += 10
	}
	function queue(host, name, dur) {
		launch(0, host, name, free, dur, "")
		free += dur + 2
	}
	function wait(name) {
		put(0, "cuda_runtime", name, 1, at, free + 10 - at, "")
		at = free + 10
	}
	# from rank 0 to rank 1
	function message(r, from, until) {
		put(r, "cpu_op", r ? "c10d::recv_" : "c10d::send", 1, from, 100,
			"\"Input Dims\":[[[64,64]],[],[],[]],\"Concrete Inputs\":[\"\",\"\",\"" (1 - r) "\",\"0\"]")
		put(r, "user_annotation", r ? "gloo:recv" : "gloo:send", 1, from + 99, until - from - 99, "\"Input Dims\":[[64,64]],\"Input type\":[\"float\"]")
	}'

# job NAME RANKS BACKEND PROGRAM [PAUSES]: $TMP/NAME/rank*.json
job() {
	mkdir "$TMP/$1"
	awk -v dir="$TMP/$1" -v ranks="$2" -v backend="$3" -v pauses="$5" \
		"$functions BEGIN { $4; for (r = 0; r < ranks; r++) print \"\\n]}\" >(dir \"/rank\" r \".json\") }"
}
# report NAME: in $TMP/out on one line, and in $TMP/json
report() {
	"$BIN/replay" -q "$TMP/$1" | tr -s ' \n' ' ' >"$TMP/out"
	echo >>"$TMP/out"
	"$BIN/replay" -q --no-worth -O json "$TMP/$1" >"$TMP/json"
	echo >>"$TMP/json"
}
# cause NAME CAUSE LOW HIGH: the share of the cause in the last report, in %; 0 without a row
cause() {
	tap_share=$(sed 's/"computation":.*//' "$TMP/json" | sed -n "s/.*\"cause\":\"$2\",\"share\":\([0-9.e-]*\).*/\1/p")
	check "$1: ${tap_share:-no} $2" awk -v share="${tap_share:-0}" -v low="$3" -v high="$4" 'BEGIN { exit !(100 * share >= low && 100 * share <= high) }'
}

# ---- calls that wait for the device -----------------------------------------------------------------
# 20 short waits; behind one of another kind the host does something else for long
job waits 1 nccl '
	at = 1000
	for (s = 0; s < 5; s++) {
		begin = at
		for (i = 0; i < 21; i++) {
			free = at + 15
			queue("aten::mm", "gemm", 2000)
			wait(i < 20 ? "cudaStreamSynchronize" : "cudaDeviceSynchronize")
			at += i < 20 ? 500 : 0
		}
		op("aten::sort", 5000)
		mark(0, begin, at)
	}'
report waits
cause "calls that wait" host-synchronisation 15 20
holds "$TMP/json" '"cause":"host-synchronisation","share":[0-9.]*,"where":"cudaStreamSynchronize' "... the one with most time behind all its calls is named"

# ---- communication of gradients, and of the model ------------------------------------------------------
# pairs of ranks on a host reduce activations over slow links and wait for them; gradients travel beside the backward pass
"$GEN/kgen" -o "$TMP/model" --ranks=4 --hosts=2 --tp=2 --intra-gbps=60 --gbps=4000 >/dev/null
report model
check "a job whose gradients are known" sh -c "'$BIN/graph' -q '$TMP/model' | '$BIN/graph' -q -O json | grep -q '\"role\":\"gradient\"[^}]*\"consumers\":\[[0-9]'"
cause "its model communicates" exposed-communication 40 50
holds "$TMP/out" 'exposed communication [0-9]* %: allreduce' "... it is not called communication of gradients"
check "... nor has it their advice" no grep -qE 'bf16_compress_hook|no_sync|: gradients' "$TMP/out"

# ---- links -------------------------------------------------------------------------------------------
# one stage of three: what it receives from the last one, which is slow, includes the wait for it
mkdir "$TMP/stage"
awk -v dir="$TMP/stage" -v n=3 -v m=8 -v schedule=gpipe -v slow=2 -v forward=3000000 -v backward=6000000 -f "$SRC/tests/gen/posted.awk"
rm "$TMP/stage/rank0.json" "$TMP/stage/rank2.json" "$TMP/stage/truth"
report stage
holds "$TMP/json" '"cause":"exposed-communication"' "messages of one stage alone"
cause "... show no slow link" slow-link 0 0

# ---- pipelines -----------------------------------------------------------------------------------------
# two stages without a backward pass: one only sends, the other only receives
job request 2 gloo '
	for (s = 0; s < 4; s++) {
		at = 1000 + 31200 * s
		for (i = 0; i < 2; i++) {
			put(0, "cpu_op", "aten::linear", 1, at + 10300 * i, 10000, "")
			message(0, at + 10300 * i + 10010, at + 10300 * i + 10280)
			message(1, at + 10300 * i, at + 10300 * i + 10280)
			put(1, "cpu_op", "aten::linear", 1, at + 10300 * (i + 1), 10000, "")
		}
		reduce(0, "all", s, 1, at + 20600, 10500)
		reduce(1, "all", s, 1, at + 30900, 200)
		mark(0, at, at + 31150)
		mark(1, at, at + 31150)
	}'
report request
cause "two stages that only infer" pipeline-bubble 25 40
holds "$TMP/json" '"text":"pipeline bubble [0-9]* %: 2 microbatches on 2 stages' "... their messages count the microbatches"

# ---- equal ranks ----------------------------------------------------------------------------------------
# short kernels with 1.5 us between them, launched ahead: what lies between kernels is no work
job even 2 nccl '
	for (s = 0; s < 3; s++)
		for (r = 0; r < 2; r++) {
			at = begin = 1000 + 13000 * s
			for (i = 0; i < 500; i++)
				launch(r, "aten::mul", "vectorized_elementwise_kernel", begin + 100 + 21.5 * i, 20, "")
			launch(r, "nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin + 10852, 2000,
				",\"Collective name\":\"allreduce\",\"In msg nelems\":1000000,\"dtype\":\"Float\"")
			put(r, "cuda_runtime", "cudaDeviceSynchronize", 1, at, begin + 12860 - at, "")
			mark(r, begin, begin + 12900)
		}'
report even
cause "equal ranks" exposed-communication 10 20
cause "... have no uneven work" imbalance 0 0

# ---- copies to the device ---------------------------------------------------------------------------------
# a batch, then in both passes the parameters of each layer but the first, which comes with the batch
job offload 1 nccl '
	for (s = 0; s < 4; s++) {
		at = begin = 1000 + 77500 * s
		free = begin + 50
		queue("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 5000)
		for (i = 0; i < 12; i++) {
			queue("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 3000)
			queue(i < 6 ? "aten::addmm" : "autograd::engine::evaluate_function: AddmmBackward0", "gemm", i < 6 ? 2000 : 4000)
		}
		wait("cudaDeviceSynchronize")
		mark(0, begin, at + 10)
	}'
report offload
cause "copies within passes" memory-stall 38 46
cause "... are no input; those before them are" input 8 13
holds "$TMP/json" '"text":"copies between device and host [0-9]* %: Memcpy HtoD *, as where the host keeps parameters' "... what they may be"
holds "$TMP/out" 'less that the host keeps, if the device holds it' "... and what helps"
check "... pinned memory does not" no grep -q 'pin_memory' "$TMP/out"
# a step of several batches, each with a copy
job batches 1 nccl '
	for (s = 0; s < 4; s++) {
		at = begin = 1000 + 75500 * s
		free = begin + 50
		for (b = 0; b < 3; b++) {
			queue("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 5000)
			for (i = 0; i < 8; i++)
				queue(i < 4 ? "aten::addmm" : "autograd::engine::evaluate_function: AddmmBackward0", "gemm", i < 4 ? 2000 : 3000)
		}
		wait("cudaDeviceSynchronize")
		mark(0, begin, at + 10)
	}'
report batches
cause "copies between the passes of a step" input 17 23
cause "... bring batches" memory-stall 0 0
mkdir "$TMP/amd"
for file in "$TMP/batches"/*; do
	sed 's/"Memcpy HtoD [^"]*"/"MEMORY_COPY_HOST_TO_DEVICE"/; s/"cuda/"hip/' "$file" >"$TMP/amd/${file##*/}"
done
report amd
cause "... in the words of AMD" input 17 23

# ---- a host that records nothing ---------------------------------------------------------------------------------
# serve NAME PAUSE STEPS: two kernels of 20 ms with a pause (ms) between their launches; with or without steps
serve() {
	job "$1" 1 nccl '
		split(pauses, pause, " ")
		at = 1000
		for (s = 0; s < 5; s++) {
			begin = at
			for (i = 0; i < 2; i++) {
				free = at + 20
				queue("aten::mm", "gemm", 20000)
				at += i ? 0 : 1000 * pause[1]
			}
			wait("cudaDeviceSynchronize")
			at += 20
			if (pause[2])
				mark(0, begin, at)
		}' "$2 $3"
	report "$1"
}
for steps in 1 0; do
	serve "serve$steps" 70 $steps
	cause "a host that pauses (steps: $steps)" other 45 65
	holds "$TMP/out" 'bound by: the program records nothing [45][0-9] %: pauses of 1 ms and more' "... the report says so"
	cause "... it does not launch too slowly" launch-bound 0 1
	check "... there is no advice about launches or the interpreter" no grep -qE 'CUDA graphs|time between operations' "$TMP/out"
done
# it launches slowly, too: 30 short kernels, and then a pause of 12 ms
job both 1 nccl '
	at = 1000
	for (s = 0; s < 5; s++) {
		begin = at
		for (i = 0; i < 30; i++) {
			free = at + 20
			queue("aten::mm", "gemm", 100)
			op("aten::reshape", 300)
			at += 5
		}
		at += 12000
		free = at + 20
		queue("aten::mm", "gemm", 100)
		wait("cudaDeviceSynchronize")
		mark(0, begin, at)
	}'
report both
cause "slow launches and a pause" launch-bound 20 40
cause "... have a cause each" other 45 65
holds "$TMP/out" "launches twice as fast[^']*(--what-if 'scale kind=host_op|runtime by 0.5')" "... the advice on launches leaves the pause"

# ---- the rest --------------------------------------------------------------------------------------------------------
# rank 1 enters the first step 20 ms after rank 0; 0.5 ms of each step are not recorded
job late 2 gloo '
	for (s = 0; s < 4; s++)
		for (r = 0; r < 2; r++) {
			at = 21000 + 20000 * s
			begin = s || r ? at : 1000
			put(r, "cpu_op", "aten::mm", 1, begin, 18000, "")
			reduce(r, "dp", s, 1, begin + 18300, at + 19800 - begin - 18300)
			mark(r, begin, at + 20000)
		}'
report late
cause "a rank that is late" other 18 26
holds "$TMP/out" 'a late rank 2[0-9] %: rank 1 enters the first recorded step after the others; between recorded operations [1-4] %' \
	"... is told apart from pauses"
check "... it is not Python" no grep -q 'Python, or work' "$TMP/out"

# the same, where rank 1 has recorded something before: a single pause is no wait for input
job early 2 gloo '
	for (s = 0; s < 4; s++)
		for (r = 0; r < 2; r++) {
			at = 21000 + 20000 * s
			begin = s || r ? at : 1000
			if (!s && r)
				put(1, "cpu_op", "aten::copy_", 1, 500, 100, "")
			put(r, "cpu_op", "aten::mm", 1, begin, 18000, "")
			reduce(r, "dp", s, 1, begin + 18300, at + 19800 - begin - 18300)
			mark(r, begin, at + 20000)
		}'
report early
cause "a pause before the first step of a rank" other 18 26
holds "$TMP/out" "a late rank 2[0-9] %: rank 1 enters the first recorded step after the others" "... the rank is late"
check "... is no input" no grep -q '"cause":"input"' "$TMP/json"

# ---- pauses between steps -----------------------------------------------------------------------------------
# intervals NAME PAUSE...: steps of 100 ms; behind each of them the program logs, and does something else for so many ms
intervals() {
	name=$1
	shift
	job "$name" 1 gloo '
		split(pauses, pause, " ")
		at = 1000
		for (s = 0; s < 10; s++) {
			begin = at
			for (i = 0; i < 9; i++)
				op(i < 5 ? "aten::mm" : "MmBackward0", 10000)
			put(0, "user_annotation", "Optimizer.step#SGD.step", 1, at, 10000, "")
			op("aten::_foreach_add_", 10000)
			mark(0, begin, at)
			at += 20
			op("aten::item", 50)
			at += 1000 * pause[s + 1]
		}' "$*"
	report "$name"
}
intervals some 0.1 0.1 0.1 2000 0.1 0.1 0.1 2000 0.1
cause "long pauses behind two steps" checkpoint 75 85
cause "... are no input" input 0 1
intervals one 0.1 0.1 0.1 2000 0.1 0.1 0.1 0.1 0.1
cause "one long pause" other 60 70
check "... has no cause" no grep -qE '"cause":"(input|checkpoint|garbage-collection)"' "$TMP/json"
intervals all 60 55 65 60 70 60 0.1 60 60
cause "pauses behind most steps" input 25 40

done_testing
