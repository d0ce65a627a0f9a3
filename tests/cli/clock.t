# Clocks against the truth: kgen writes the files of a job whose hosts have wrong clocks that we know; merge
# must find every offset within 25 us and every drift of a long recording within 0.5 ppm, and the
# replay of the merged job must not suffer.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# clocks REPORT: "HOST OFFSET DRIFT" of each clock
clocks() {
	tr -d ' \n' <"$1" | tr '{' '\n' | sed -n \
		's/^"clock":[0-9]*,"host":"\{0,1\}\([^",]*\)"\{0,1\},.*"offset_ns":\([-0-9]*\),.*"drift_ppm":\([-0-9.e+]*\),.*/\1 \2 \3/p'
}

# found REPORT OFFSET_LIMIT DRIFT_LIMIT "OFFSET DRIFT"...: the truth of the clocks after the first
found() {
	report=$1
	offset=$2
	drift=$3
	shift 3
	printf '%s\n' "0 0" "$@" >"$TMP/true"
	clocks "$report" | paste -d ' ' - "$TMP/true" | awk -v offset="$offset" -v drift="$drift" -v n=$# '
		{ o = $2 - $4; d = $3 - $5
		  printf "# %s: offset %d ns, true %d; drift %g ppm, true %g\n", $1, $2, $4, $3, $5 >"/dev/stderr"
		  if (NF != 5 || o > offset || o < -offset || d > drift || d < -drift) bad = 1 }
		END { exit bad || NR != n + 1 }' 2>"$TMP/shown" || { cat "$TMP/shown"; return 1; }
}

# merged DIR: trace and merge; the report in $TMP/report, the stream in $TMP/merged
merged() {
	"$BIN/trace" -q -u "$1"/rank*.json | "$BIN/merge" -q -u --report="$TMP/report" >"$TMP/merged"
}

# near LIMIT: are the recorded and the replayed steps those of the truth in $TMP/job?
near() {
	"$BIN/graph" -q -u "$TMP/merged" | "$BIN/replay" -q -O csv --table=steps |
		awk -F , 'NR > 1 { print $2, $4 }' >"$TMP/steps"
	sed -n 's/.*"recorded_ns": \([0-9]*\).*/\1/p' "$TMP/job/truth.json" | paste -d ' ' "$TMP/steps" - |
		awk -v limit="$1" '
		{ a = $1 / $3 - 1; b = $2 / $1 - 1
		  printf "# recorded %d, replayed %d, true %d\n", $1, $2, $3 >"/dev/stderr"
		  if (NF != 3 || a > limit || a < -limit || b > limit || b < -limit) bad = 1 }
		END { exit bad || !NR }' 2>"$TMP/shown" || { cat "$TMP/shown"; return 1; }
}

# job OPTION...
job() {
	rm -rf "$TMP/job"
	"$GEN/kgen" -o "$TMP/job" "$@" >/dev/null
}

job --ranks=4 --hosts=2 --steps=3 --layers=2
check "right clocks: merges" merged "$TMP/job"
check "right clocks stay right" found "$TMP/report" 25000 5 "0 0"
check "right clocks: the steps" near 0.005

job --ranks=4 --hosts=2 --steps=6 --layers=2 --clock-offset=host:1:-870000000 --clock-drift=host:1:50
check "a host late and fast: merges" merged "$TMP/job"
check "a host late and fast: its offset" found "$TMP/report" 25000 100 "-870000000 50"
check "a host late and fast: the steps" near 0.005

# as the profilers of old wrote: whole microseconds, no host; so a clock a rank
job --ranks=4 --hosts=4 --steps=6 --layers=2 --integer-us --no-host-name --clock-offset=host:1:1000000000 \
	--clock-offset=host:2:-3000000 --clock-drift=host:2:-50 --clock-offset=host:3:777 --clock-drift=host:3:30
check "four clocks, whole microseconds: merges" merged "$TMP/job"
check "four clocks, whole microseconds: offsets" found "$TMP/report" 25000 100 \
	"1000000000 0" "-3000000 -50" "777 30"
check "four clocks, whole microseconds: the steps" near 0.005

job --ranks=8 --hosts=4 --steps=4 --layers=2 --step-gap-ms=200000 --clock-offset=host:1:-300000000 \
	--clock-drift=host:1:20 --clock-drift=host:2:-37.5 --clock-offset=host:3:5000000 --clock-drift=host:3:0.8
check "ten minutes: merges" merged "$TMP/job"
check "ten minutes: offsets, and drifts within 0.5 ppm" found "$TMP/report" 25000 0.5 \
	"-300000000 20" "0 -37.5" "5000000 0.8"
check "ten minutes: the steps" near 0.005

# what is declared to be one clock is one
job --ranks=2 --hosts=2 --steps=2 --layers=2
"$BIN/trace" -q -u "$TMP"/job/rank*.json >"$TMP/job.trace"
"$BIN/merge" -q -u --clock=one --report="$TMP/report" "$TMP/job.trace" >"$TMP/merged"
check "--clock=one: one clock" test "$(clocks "$TMP/report" | wc -l)" -eq 1
done_testing
