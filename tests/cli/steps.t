# PyTorch recordings whose program does not call prof.step(): the calls of the optimizer show the steps. What stands between
# the optimizer and the next forward pass.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# job NAME [-v KEY=VALUE]...: 5 iterations of 100 ms on one rank; each fetches, and has products, a backward pass and the optimizer.
# zero: when zero_grad() is called: 0 never, 1 before the forward pass, 2 after the optimizer. evals: every second
# iteration evaluates for 40 ms more; early: before it fetches. optimizers: so many step. marked: prof.step() is called. pause: no fetch, and 20 ms of
# nothing behind the optimizer; barrier: and then a barrier. stall: before iteration 3 nothing happens for 600 ms. once: an
# optimizer that steps once, before.
job() {
	name=$1
	shift
	awk "$@" 'function put(cat, name, dur) {
		printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":7,\"tid\":7,\"ts\":%d,\"dur\":%d}", n++ ? ",\n" : "", cat, name, at, dur
		at += dur + 10
	}
	BEGIN {
		printf "{\"schemaVersion\":1,\"distributedInfo\":{\"rank\":0,\"world_size\":1},\"traceEvents\":[\n"
		if (once)
			put("user_annotation", "Optimizer.step#Adam.step", 5000)
		for (s = 0; s < 5; s++) {
			if (stall && s == 3)
				at += 600000
			if (marked) {
				put("user_annotation", "ProfilerStep#" s, 100000 + (early && s % 2 ? 40020 : 0))
				at -= 100010 + (early && s % 2 ? 40020 : 0)
			}
			begin = at
			if (early && s % 2) {
				put("cpu_op", "aten::mm", 30000)
				put("cpu_op", "aten::mean", 10000)
				begin = at
			}
			if (!pause)
				put("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5000)
			if (zero == 1)
				put("user_annotation", "Optimizer.zero_grad#SGD.zero_grad", 500)
			put("cpu_op", "aten::mm", 30000)
			put("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 40000)
			for (k = 0; k < (optimizers ? optimizers : 1); k++) {
				put("user_annotation", "Optimizer.step#SGD.step", 5000)
				at -= 5000
				put("cpu_op", "aten::add_", 4980)
			}
			if (zero == 2)
				put("user_annotation", "Optimizer.zero_grad#SGD.zero_grad", 500)
			if (evals && s % 2) {
				put("cpu_op", "aten::mm", 40000)
				begin += 40000
			}
			if (pause)
				at += 20000
			if (barrier)
				put("cpu_op", "c10d::barrier", 300)
			at = begin + 100000
		}
		print "\n]}"
	}' >"$TMP/$name.json"
}
# starts NAME WANT WHAT: the starts of the steps, in ms
starts() {
	"$BIN/trace" -q -O csv --kind=step "$TMP/$1.json" >"$TMP/got"
	got=$(awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "start_ns") n = i } NR > 1 { printf "%s%d", (NR > 2 ? " " : ""), $n / 1000000 }' "$TMP/got")
	check "$3: $2" test "$got" = "$2"
}

job marked -v marked=1 -v zero=1
starts marked "0 100 200 300 400" "prof.step() comes first"
job before -v zero=1
starts before "100 200 300" "a step begins with the batch that is fetched before zero_grad()"
status 0 "the report" "$BIN/replay" "$TMP/before.json"
says "the program marks no steps (prof.step()); the calls of the optimizer show 3" "... says where its steps are from"
holds "$TMP/out" '^step 100.0 ms (mean of 3)' "... and has their length"
job never
starts never "80 180 280 380" "without zero_grad(), with the end of step()"
job after -v zero=2
starts after "80 180 280 380" "zero_grad() may follow step() at once"
job two -v zero=1 -v optimizers=2
starts two "100 200 300" "two optimizers of a class step together"
job stall -v zero=1 -v stall=1
starts stall "100 200 900" "a pause between two steps does not join the others"
job stall -v stall=1
starts stall "80 180 280 980" "... without zero_grad()"
job stall -v optimizers=3 -v stall=1
starts stall "90 190 290 990" "... of several optimizers, whose calls are one step"
job stall -v zero=1 -v optimizers=3 -v stall=1
starts stall "100 200 900" "... with zero_grad()"
job once -v zero=1 -v once=1
starts once "105 205 305" "an optimizer that steps once shows no steps"
job evals -v zero=1 -v evals=1
"$BIN/replay" -q -O json "$TMP/evals.json" >"$TMP/out"
holds "$TMP/out" '"cause":"evaluation"' "products behind the optimizer are an evaluation"

job early -v marked=1 -v early=1
"$BIN/replay" -q -O json "$TMP/early.json" >"$TMP/out"
holds "$TMP/out" '"cause":"evaluation"' "so are products that have no backward pass, before the next batch is fetched"
check "... with all that comes until then" awk '{ match($0, /"cause":"evaluation","share":[0-9.]+/); s = substr($0, RSTART + 29) + 0
	exit !(s > 0.135 && s < 0.145) }' "$TMP/out"
"$BIN/replay" -q --no-worth "$TMP/marked.json" >"$TMP/out"
check "... but not those of a job without evaluation" no grep -q evaluation "$TMP/out"

# ---- input or not -------------------------------------------------------------------------------------------------
job pause -v marked=1 -v pause=1
"$BIN/replay" -q --no-worth "$TMP/pause.json" >"$TMP/out"
holds "$TMP/out" 'waiting for input' "a pause before the next forward pass waits for samples, if nothing else is known"
job barrier -v marked=1 -v pause=1 -v barrier=1
"$BIN/replay" -q "$TMP/barrier.json" >"$TMP/out"
check "... but not before a barrier" no grep -q 'waiting for input\|DataLoader' "$TMP/out"
holds "$TMP/out" '(logs, *$\|metrics): less often' "... there it is something else that the program does"
holds "$TMP/out" "scale phase=other by" "... with the change that asks what it costs"
done_testing
