# Workers of a loader, of recordings without any: in sequence and apart, with steps left out.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# reads STEPS MS: a job that reads a batch for so long and computes for 20 ms, both up to 3 % longer or shorter
reads() {
	awk -v steps="$1" -v ms="$2" '
		function vary(us) { seed = (seed * 16807) % 2147483647; return int(us * (0.97 + 0.06 * seed / 2147483647)) }
		function x(cat, name, from, dur) {
			printf "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":%d,\"args\":{}}", s++ ? ",\n" : "\n", cat, name, from, dur
		}
		BEGIN {
			seed = 7
			printf "{\"schemaVersion\":1,\"traceEvents\":["
			for (k = 1; k <= steps; k++) {
				read = vary(ms * 1000)
				compute = vary(20000)
				x("user_annotation", "ProfilerStep#" k, t, read + compute)
				x("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, read)
				x("cpu_op", "aten::mm", t + read, compute)
				t += read + compute
			}
			print "\n]}"
		}' >"$TMP/job.json"
}
number() {
	sed -n "s/^$1 //p" "$2"
}
# near A B: less than 5 % apart
near() {
	awk -v a="$1" -v b="$2" 'BEGIN { print "# " a, b; exit !(a > 0.95 * b && a < 1.05 * b) }'
}
mean() {
	"$BIN/replay" -q --no-worth -O json --what-if "$1" "$TMP/job.json" | sed 's/.*"predicted_mean_ns":\([0-9.]*\).*/\1/'
}

# ---- how many workers ----------------------------------------------------------------------------
# 4 workers read a batch of 80 ms in 20 ms; 2 workers one of 46 ms in 23 ms
for job in "12 80" "12 46" "32 80" "32 46" "50 46"; do
	# shellcheck disable=SC2086  # two words
	reads $job
	status 0 "plan of steps and ms of reading: $job" "$BIN/plan" -q -O text "$TMP/job.json"
	check "... four workers" grep -q '^loader-workers 4 ' "$TMP/out"
	check "... by what replay predicts of the recording" near "$(number predicted "$TMP/out")" "$(mean 'loader-workers 4')"
done
status 0 "steps apart, each third of them" "$BIN/plan" -q -O text --fold none --step 1,4,7,10,13,16,19,22,25,28,31 "$TMP/job.json"
check "... four workers, too" grep -q '^loader-workers 4 ' "$TMP/out"
check "... with the same step" near "$(number predicted "$TMP/out")" "$(mean 'loader-workers 4')"

# ---- in a plan -----------------------------------------------------------------------------------
printf 'paceline-plan 1\nloader-workers 4\n' >"$TMP/workers.plan"
for how in --what-if=loader-workers\ 4 "--plan=$TMP/workers.plan"; do
	status 0 "${how%%=*}: workers" "$BIN/replay" -q --no-worth "$how" "$TMP/job.json"
	check "... need processors, says the trust" sh -c "tr -s ' \n' ' ' <'$TMP/out' | grep -q 'the workers of the loader need processors'"
done

# ---- beside other lines --------------------------------------------------------------------------
# precision is tried, and saves too little; nor do other buckets save more than the prediction may err by
"$GEN/kgen" -o "$TMP/device" --ranks=2 --tp=1 --layers=2 --compute-us=300 --data-us=60000 --steps=4 --record-groups >/dev/null
status 0 "precision, workers and buckets" "$BIN/plan" -O text --allow=precision,loader-workers,fuse-tensors "$TMP/device"
says 'precision bf16 is not proposed' "... precision is left out"
check "... and so are buckets" test "$(grep -E '^(fuse|loader|precision)' "$TMP/out" | cut -d ' ' -f 1)" = loader-workers

# ---- the chain of batches ------------------------------------------------------------------------
reads 3 80
"$BIN/replay" -q --no-worth -O csv --table events --what-if 'loader-workers 1' "$TMP/job.json" >"$TMP/path"
check "with one worker the batches of all steps are critical" awk -F, '
	/loader workers/ { n[$6]++; sum += $2 } { all += $2 }
	END { print "# " sum / all; exit !(n[1] && n[2] && n[3] && sum > 0.9 * all) }' "$TMP/path"
status 0 "what is worth most then" "$BIN/replay" -q --what-if 'loader-workers 1' "$TMP/job.json"
check "... is a batch in half the time" grep -qE '^[0-9.]+ ms +(49|50)\.[0-9]% .*scale kind=data by 0.5' "$TMP/out"
check "... and no rank is late" no grep -q 'later than on other ranks' "$TMP/out"
done_testing
