# A what-if against the truth: kgen writes a small job before and after a change that we know, with the
# same random draws; replay predicts the second from the first, every step within 2 %. LONG=1 adds
# more kinds of jobs, and jobs of eight ranks.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

LIMIT=0.02

# truth KEY DIR: of each step
truth() {
	sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$2/truth.json"
}

# graph_of DIR: the graph of the job in DIR, to standard output
graph_of() {
	"$BIN/trace" -q -u "$1"/rank*.json | "$BIN/merge" -q -u | "$BIN/graph" -q -u
}

# within FILE: each line "PREDICTED TRUE" of a step; as many as there are steps
within() {
	awk -v limit=$LIMIT -v n="$steps" '
		{ e = $1 / $2 - 1; if (e < 0) e = -e; if (NF != 2 || !($1 > 0) || e > limit) bad = 1
		  printf "# predicted %d, generated %d, error %.4f\n", $1, $2, e >"/dev/stderr" }
		END { exit bad || NR != n }' "$1" 2>"$TMP/shown" || { cat "$TMP/shown"; return 1; }
}

# apart DIR: is that job at least 3 % away from the one before? Or a prediction that says "the same" passes.
apart() {
	{ truth recorded_ns "$TMP/before" | sum && truth recorded_ns "$1" | sum; } |
		awk '{ v[NR] = $1 } END { r = v[2] / v[1]; exit !(r > 1.03 || r < 0.97) }'
}

sum() {
	awk '{ s += $1 } END { printf "%.0f\n", s }'
}

# changed NAME OPTIONS CHANGE...: of the job $job, described by $kind
changed() {
	name=$1
	# shellcheck disable=SC2086
	"$GEN/kgen" -o "$TMP/after" $job $2 >/dev/null
	shift 2
	if [ "$1" = transfers ]; then # by the ratio of the transfer times, as measured on a network
		x=$({ truth transfer_ns "$TMP/before" | sum && truth transfer_ns "$TMP/after" | sum; } |
			awk '{ v[NR] = $1 } END { print v[2] / v[1] }')
		set -- "scale kind=comm by $x"
	fi
	for change in "$@"; do
		echo "$change"
	done >"$TMP/changes"
	"$BIN/replay" -q -O csv --table=steps --what-if-file="$TMP/changes" "$TMP/graph" |
		awk -F , 'NR > 1 { print $6 }' >"$TMP/predicted"
	truth recorded_ns "$TMP/after" | paste -d ' ' "$TMP/predicted" - >"$TMP/pairs"
	check "$kind: $name" within "$TMP/pairs"
	rm -rf "$TMP/after.$name"
	mv "$TMP/after" "$TMP/after.$name"
}

# job_of KIND OPTION...: all changes
job_of() {
	kind=$1
	shift
	job=$*
	steps=3
	rm -rf "$TMP"/before "$TMP"/after*
	"$GEN/kgen" -o "$TMP/before" --steps=$steps "$@" >/dev/null
	job="--steps=$steps $job"
	graph_of "$TMP/before" >"$TMP/graph"
	"$BIN/replay" -q -O csv --table=steps "$TMP/graph" | awk -F , 'NR > 1 { print $4 }' >"$TMP/replayed"
	truth recorded_ns "$TMP/before" | paste -d ' ' "$TMP/replayed" - >"$TMP/pairs"
	check "$kind: replayed unchanged" within "$TMP/pairs"
	changed "network twice as fast" --comm-scale=0.5 "scale kind=comm by 0.5"
	changed "a slow rank" --slow-rank=1:1.3 "scale kind=kernel,rank=1 by 1.3"
	changed "both" "--comm-scale=0.5 --slow-rank=1:1.3" "scale kind=comm by 0.5" \
		"scale kind=kernel,rank=1 by 1.3"
	changed "larger messages" --bytes-scale=2 transfers
}

job_of "data parallel" --ranks=4 --layers=2 --tp=1 --seed=3
job_of "joined at once" --ranks=4 --layers=2 --sync-comm --seed=4
for name in "network twice as fast" "a slow rank" both "larger messages"; do
	check "joined at once: $name: it matters" apart "$TMP/after.$name"
done
job_of "host-bound" --ranks=4 --layers=2 --host-bound
job_of "full launch queue" --ranks=4 --layers=2 --no-item --queue-depth=120 --seed=5
for name in "network twice as fast" "a slow rank" both "larger messages"; do
	check "full launch queue: $name: it matters" apart "$TMP/after.$name"
done
job_of "pipeline" --ranks=4 --pp=2 --microbatches=4 --layers=4
if [ "${LONG:-0}" = 1 ]; then
	job_of "8 ranks" --ranks=8
	job_of "8 ranks, tensor parallel" --ranks=8 --tp=4 --seed=2
	job_of "8 ranks, pipeline of 4" --ranks=8 --pp=4 --tp=1 --microbatches=8 --layers=8
	job_of "8 ranks, groups and events recorded" --ranks=8 --record-groups --cuda-sync
	job_of "8 ranks, full launch queue of each stream" --ranks=8 --no-item --queue-per-stream --queue-depth=100
	job_of "8 ranks, old profiler" --ranks=8 --integer-us --no-host-name
fi
done_testing
