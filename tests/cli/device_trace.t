# Traces of devices that run writes, from a scripted device through the real recorder: graph finds the dependencies that
# were told, none is inferred, the step is explained, and a prediction is what a device with that change does.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

# told KEY: what the script says of itself
told() {
	sed -n "s/^$1=//p" "$TMP/truth"
}
# device [KEY=VALUE]...: a trace of that job, and its graph
device() {
	rm -f "$TMP"/job.trace*
	"$GEN/devtrace" "$TMP/job.trace" "$@" >"$TMP/truth" &&
		"$BIN/merge" -q "$TMP"/job.trace* | "$BIN/graph" -q -o "$TMP/job.graph"
}
# waits RECORDED: so many in the graph, and none inferred
waits() {
	"$BIN/graph" "$TMP/job.graph" -O stat | awk -v n="$1" '
		$1 == "waits" { print "# " $0; good = $2 == n && $4 == 0 }
		/^given up/ && !/ 0 edges, 0 comm/ { print "# " $0; bad = 1 } END { exit !good || bad }'
}
# step WHICH [OPTION]...: ns that a step is recorded, predicted with (mean)
step() {
	which=$1
	shift
	"$BIN/replay" -q -O json "$@" "$TMP/job.graph" | sed 's/[{,]/\n/g' |
		awk -F : -v k="\"${which}_ns\"" '$1 == k { sum += $2; n++ } END { printf "%.0f", sum / n }'
}
near() {
	awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { d = a / b - 1; printf "# %d and %d ns: %+.2f %%\n", a, b, 100 * d
		exit !(d < p && d > -p) }'
}

for how in ranks=1 ranks=2 'ranks=2 order=mixed' 'ranks=2 order=late' 'ranks=2 order=late instances=0' \
	'ranks=2 order=mixed instances=0 launches=0' 'ranks=4 poll=1' 'ranks=1 poll=1 instances=0 order=mixed'; do
	# shellcheck disable=SC2086 # several words
	check "$how: a graph" device $how
	check "$how: the dependencies that were told, and no others" waits $(($(told waits) + $(told syncs)))
	check "$how: the step is explained" explained "$TMP/job.graph"
done

device ranks=2
"$BIN/merge" -q -o "$TMP/merged" "$TMP"/job.trace.*
check "each collective has its group and size" test "$(told collectives)" -eq \
	"$("$BIN/trace" -O jsonl "$TMP/merged" | grep '"kind":"collective"' | grep '"group":"world"' | grep -c '"bytes":1048576')"
slow=$(step predicted --what-if 'scale kind=collective by 10')
fast=$(step predicted --what-if 'scale kind=collective by 0.1')
device ranks=2 comm=700
check "ten times as slow collectives: as predicted" near "$slow" "$(step recorded)" 0.01
device ranks=2 comm=7
check "and ten times as fast" near "$fast" "$(step recorded)" 0.01

# the host has layers, the device has them from who launched
device ranks=2
half=$(step predicted --what-if 'scale layer=3 by 0.5')
own=$(step predicted --what-if 'scale layer=3,kind=kernel by 0.5')
device ranks=2 half=3
check "a layer in half the time: as predicted" near "$half" "$(step recorded)" 0.01
check "by its kernels" near "$own" "$(step recorded)" 0.01
device ranks=2
check "which is another than it was" test "$half" -lt $(($(step recorded) * 97 / 100))

# another thread launches the collectives: it waits for their issue, and who waits for them for their launch
check "launches by a thread of their own" device ranks=2 thread=1 call=60000
check "its waits, and those for it, are recorded" waits \
	$(($(told waits) + $(told syncs) + 2 * $(told collectives)))
check "the step is explained" explained "$TMP/job.graph"
fast=$(step predicted --what-if 'scale name=cudaLaunchKernel by 0.5')
device ranks=2 thread=1 call=30000
check "what it launches follows the thread that issues" near "$fast" "$(step recorded)" 0.01

# what is not told must not be made up: it stays unexplained
check "events that are lost" device ranks=2 lost=1
check "no dependency is invented for them" waits $(($(told waits) + $(told syncs) - $(told collectives)))
# run itself, on an emulated device
PL_CUDA_PLUGIN=$BUILD/emu-cuda.so
PACELINE_CUPTI=$BUILD/emu/fake_cupti.so
export PL_CUDA_PLUGIN PACELINE_CUPTI
if [ ! -f "$PL_CUDA_PLUGIN" ]; then
	skip "a trace of run on an emulated device" "not built: no C++ compiler, or one that cannot have it"
	done_testing
	exit
fi
cd "$TMP" || exit 1
tiny_job 5
status 0 "run traces its device" "$BIN/run" -q --device=cuda -t run.trace tiny.job
# shellcheck disable=SC2016  # for the inner shell
check "the trace says by what" sh -c '"$BIN/trace" -O jsonl run.trace | grep -q "\"device_trace\":\"cupti\""'

# what the backend really asks for, of a device that takes time and tells of it
# paced US [OPTION]...: a trace with kernels that take so long, and its graph
paced() {
	us=$1
	shift
	rm -f run.trace*
	EMU_DEVICE=pace=$us FAKE_CUPTI=per=4000 "$BIN/run" -q --device=cuda --set split=1 --set steps=4 --set batch=8 \
		--set 'optimizer adamw' "$@" -t run.trace tiny.job >out && "$BIN/merge" -q run.trace* |
		"$BIN/graph" -q -o job.graph
}
# as_predicted SHARE CHANGE BEFORE AFTER: what CHANGE makes of a trace, which paced BEFORE leaves, is what paced AFTER
# takes. Either may be disturbed: one pair of three is to be right.
as_predicted() {
	for _ in 1 2 3; do
		# shellcheck disable=SC2086 # several words
		paced $3 || return
		want=$(step predicted --what-if "$2")
		# shellcheck disable=SC2086 # several words
		paced $4 || return
		near "$want" "$(step recorded)" "$1" && return
	done
	return 1
}
# recorded COUNT: so many waits at least, and none inferred
recorded() {
	"$BIN/graph" -O stat job.graph | awk -v n="$1" '
		$1 == "waits" { print "# " $0; ok = $2 >= n && $4 == 0 } END { exit !ok }'
}
# path KIND SHARE: at least so much of the critical path
path() {
	"$BIN/replay" -q -O tsv --table=path job.graph | awk -F '\t' -v kind="$1" -v want="$2" '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ all += $at["ns"]; if ($at["kind"] == kind) it += $at["ns"] }
		END { print "# " it / all; exit !(it >= want * all) }'
}
# many NAME COUNT: rows of the listed graph that have it
many() {
	"$BIN/graph" -O text job.graph | awk -v name="$1" -v want="$2" '
		index($0, "\t" name "\t") { n++ } END { print "# " n " of " name; exit n < want }'
}
check "a step as it is asked for" paced 16000
check "... has its kernels" many kernel 40
check "... recorded waits alone" recorded 20
check "... is explained" explained job.graph
first=$(step predicted --what-if 'scale layer=0 by 0.5')
was=$(step recorded)
check "... and a layer of it is by its kernels" [ "$first" -lt $((was * 97 / 100)) ]
check "kernels in half the time: as predicted" as_predicted 0.05 'scale kind=kernel by 0.5' 16000 8000

# undisturbed OPTION...: paced, again if other processes kept the ranks from the processors; at most three times
undisturbed() {
	for _ in 1 2 3; do
		paced "$@" || return
		explained job.graph && path kernel 0.7 && return
	done
}
# gradients go through the host: what is sent follows the copy from the device, and the copy to it what came
for how in shm 'tcp --link=rate=2Mbit'; do
	# shellcheck disable=SC2086 # several words
	check "two ranks over $how" undisturbed 8000 -n 2 --transport=$how
	check "... recorded waits alone" recorded 100
	check "... is explained" explained job.graph
	check "... by the device, which is the slowest" path kernel 0.7
done
two='-n 2 --transport=tcp --link=rate=2Mbit'
check "kernels in half the time: as predicted" as_predicted 0.1 'scale kind=kernel by 0.5' "8000 $two" "4000 $two"
check "no slow link: as predicted" as_predicted 0.1 'bandwidth by 100' "8000 $two" "8000 ${two%2Mbit}200Mbit"

# events around layers, where CUPTI is absent: of a driver, which the emulated device is, too
mkdir driver && ln -s "$PL_CUDA_PLUGIN" driver/libcuda.so.1
LD_LIBRARY_PATH=$TMP/driver
PACELINE_CUPTI=$TMP/none
export LD_LIBRARY_PATH
while read -r want how; do
	# shellcheck disable=SC2086 # several words
	check "events around layers, $how" paced 8000 $how 2>err
	check "... the waits for the device are recorded alone" recorded "$want"
	# shellcheck disable=SC2016 # for the inner shell
	check "... the optimizer is work of the device" sh -c '"$BIN/graph" -O text job.graph | grep -q "	kernel	.*	optimizer	"'
	check "... is explained" explained job.graph
	check "... kernels in half the time: as predicted" \
		as_predicted 0.1 'scale kind=kernel by 0.5' "8000 $how" "4000 $how" 2>err
done <<-END
	4 -n 1
	30 -n 2 --transport=shm
	30 -n 2 --transport=tcp
END
unset LD_LIBRARY_PATH
PACELINE_CUPTI=$TMP/none status 0 "a device that cannot be traced ends no job" \
	"$BIN/run" --device=cuda -t run.trace tiny.job
if [ ! -e /dev/nvidia0 ]; then
	says 'the trace lacks the device' "it is said"
fi
done_testing
