# shellcheck shell=sh
# A job of two ranks and two steps, small enough to be cut at every byte:
#
# tiny_trace RANK     its profiler file (Kineto JSON) to standard output
# tiny_streams DIR    rank0.json rank1.json, and from them job.trace, job.merged, job.graph; k.model
# one_run PROGRAM DIR sets `input` to the file that PROGRAM reads; false if there is none

tiny_trace() {
	awk -v rank="$1" '
	function event(cat, name, tid, ts, dur, args) {
		printf "%s\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%s,\"tid\":%d,", \
			comma, cat, name, cat == "kernel" ? rank : 100 + rank, tid
		printf "\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}", ts, dur, args
		comma = ","
	}
	function launch(name, ts, tid, at, dur, more) {
		corr++
		event("cuda_runtime", "cudaLaunchKernel", 100 + rank, ts, 4, "\"correlation\":" corr)
		event("kernel", name, tid, at, dur, "\"device\":" rank ",\"stream\":" tid \
			",\"correlation\":" corr more)
	}
	BEGIN {
		printf "{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":%d,", rank
		printf "\"world_size\":2},\"traceEvents\":["
		for (s = 0; s < 2; s++) {
			t = 1000 + 500 * s
			event("user_annotation", "ProfilerStep#" s, 100 + rank, t, 480, "")
			event("cpu_op", "aten::mm", 100 + rank, t + 10, 20, "\"External id\":" corr + 1)
			launch("gemm", t + 15, 7, t + 30 + rank, 150 + 10 * rank, "")
			event("cpu_op", "record_param_comms", 100 + rank, t + 40, 30, "")
			launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", t + 50, 13, t + 200 - 5 * rank, \
				100 + 5 * rank, ",\"Collective name\":\"allreduce\",\"In msg nelems\":1024," \
				"\"dtype\":\"Float\",\"Group size\":2,\"Process Group Name\":\"0\"")
			launch("adam", t + 80, 7, t + 310, 60, "")
		}
		print "\n]}"
	}'
}

# A cost model of one operation on one device.
tiny_model() {
	mkdir -p "$1/sheets"
	cat >"$1/sheets/dev.json" <<-END
	{"Device":"Dev","Dev_Mem":16,"Mem_Bw":400,"Num_Sm":40,"Core_Per_SM":64,"Freq":1400,"SingleFLOPs":8000}
	END
	for b in 1 2 4 8 16 32 64 128; do
		echo "relu,$((20 + b * 2)),Dev,$b,65536"
	done | sed '1i OPName,Latency,Device,B,H' >"$1/k.csv"
	"$BIN/predict" -q --no-provenance --train --schema=neusight --devices="$1/sheets" --unit=us -o "$1/k.model" "$1/k.csv"
}

tiny_streams() {
	tiny_trace 0 >"$1/rank0.json"
	tiny_trace 1 >"$1/rank1.json"
	"$BIN/trace" --no-provenance -o "$1/job.trace" "$1/rank0.json" "$1/rank1.json" &&
		"$BIN/merge" -q --no-provenance -o "$1/job.merged" "$1/job.trace" &&
		"$BIN/graph" -q --no-provenance -o "$1/job.graph" "$1/job.merged" &&
		tiny_model "$1"
}

# shellcheck disable=SC2034  # for whoever includes this
one_run() {
	case $1 in
	trace) input=$2/rank0.json ;;
	merge) input=$2/job.trace ;;
	graph) input=$2/job.merged ;;
	replay) input=$2/job.graph ;;
	plan) input=$2/job.graph ;;
	predict) input=$2/k.model ;;
	*) return 1 ;;
	esac
}
