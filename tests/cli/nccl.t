# shellcheck shell=sh
# run --transport=nccl from end to end, with a device and a libnccl that stand in for real ones: the
# bits are those of the CPU, and what can go wrong has its message and its status.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
PL_CUDA_PLUGIN=$BUILD/emu/device_plugin.so
PACELINE_NCCL=$BUILD/emu/fake_nccl.so
export TMPDIR PL_CUDA_PLUGIN PACELINE_NCCL
tiny_job 20

status 0 "two ranks on the CPU" "$run" -q -n 2 --checkpoint=cpu.st --log=cpu.csv tiny.job
for transport in nccl auto tcp; do
	status 0 "on a device, $transport" timeout -k 1 50 "$run" -q -n 2 --device=cuda --transport=$transport \
		--checkpoint=$transport.st --log=$transport.csv --report=$transport.json tiny.job
	check "... leaves the same bits" cmp cpu.st $transport.st
	losses cpu.csv >cpu
	losses $transport.csv >other
	check "... and says the same losses" cmp cpu other
done
# a group of ranks under a server: its ranks use NCCL, and its first rank sends the server memory of the host
status 0 "a group on the CPU" "$run" -q -n 2 --set 'engine ps group=2' --export=group.cpu tiny.job
status 0 "... and on a device, by NCCL" timeout -k 1 50 "$run" -q -n 2 --device=cuda --transport=nccl --set 'engine ps group=2' \
	--export=group.nccl tiny.job
check "... leaves the same bits" cmp group.cpu group.nccl
check "what ranks send by NCCL is counted" grep -q '"bytes_sent": [1-9]' nccl.json
status 0 "half of it" "$run" -q -n 2 --device=cuda --transport=nccl --set steps=9 --checkpoint=half.st tiny.job
status 0 "... gone on with" "$run" -q -n 2 --device=cuda --transport=nccl --resume=half.st --checkpoint=whole.st tiny.job
check "... to the same bits" cmp cpu.st whole.st
status 0 "a trace" "$run" -q -n 2 --device=cuda --transport=nccl -t job.trace tiny.job
check "... has its all-reduces" sh -c "'$BIN/trace' -O csv job.trace.1 | grep -q 'allreduce bucket 0'"
small="-q -n 2 --set bucket-mb=0.004 tiny.job"
# shellcheck disable=SC2086  # several words
{
	status 0 "small buckets on the CPU" "$run" --checkpoint=small.cpu $small
	status 0 "... on a device" "$run" --device=cuda --transport=nccl --checkpoint=small.st -t small.trace $small
}
check "... leave the same bits" cmp small.cpu small.st
"$BIN/trace" -O text small.trace.1 >listed
# of each step the first is on its way when the last layer's backward pass has not begun
# shellcheck disable=SC2016  # the program of awk
check "... travel beside the backward pass" awk '
	{ match($0, /ts=[0-9]+/); at = substr($0, RSTART + 3, RLENGTH - 3) + 0; step = $0; sub(/.* step=/, "", step); step += 0 }
	/name="issue allreduce"/ && !(step in first) { first[step] = at }
	/name="backward 0"/ { last[step] = at }
	END { for (s in last) { n++; if (!(s in first) || first[s] >= last[s]) bad = 1 } exit bad || n != 20 }' listed
status 0 "the benchmark" "$run" --bench comm -n 2 --device=cuda --transport=nccl --min-size=4K --max-size=64K \
	--iterations=2
# shellcheck disable=SC2016  # the program of awk
check "... finds nothing wrong" awk 'NR > 1 && $NF != 0 { bad = 1 } END { exit bad || NR < 20 }' out

# ---- what can go wrong ----
status 2 "no device" "$run" -n 2 --transport=nccl tiny.job
says 'say device cuda' "it says what to write"
status 6 "no library" env PACELINE_NCCL=/nowhere/libnccl.so.2 "$run" -n 2 --device=cuda --transport=nccl tiny.job
says 'rank 0: .*cannot load /nowhere/libnccl.so.2' "it says what is missing"
says 'PACELINE_NCCL=PATH' "and how to say where it is"
status 6 "a library that is another" env PACELINE_NCCL="$PL_CUDA_PLUGIN" "$run" -n 2 --device=cuda \
	--transport=nccl tiny.job
says 'has no ncclGetVersion' "it says why it is none"
# the library that is installed, where all that it can find out is that there is no GPU; what it does and leaves behind is
# nothing for sanitizers
PACELINE_NCCL=libnccl.so.2 ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 timeout -k 1 40 "$run" -n 2 --device=cuda \
	--transport=nccl tiny.job >out 2>err
got=$?
if [ -e /dev/nvidiactl ] || grep -q 'cannot load libnccl' err || [ "${BUILD%-thread}" != "$BUILD" ]; then
	skip "a real library without a GPU" "no library, a GPU, or the thread sanitizer"
else
	check "a real library without a GPU: status 4" [ $got = 4 ]
	holds err 'run: ranks\{0,1\} [01-]*: transport nccl: NCCL failed at connecting the ranks: .*Cuda failure' "... says why"
fi
for at in 0 9; do
	status 4 "an error at operation $at of a rank" env FAKE_NCCL_FAULT=1:$at:error timeout -k 1 20 "$run" -n 2 \
		--device=cuda --transport=nccl tiny.job
	says 'rank 1: .*cuda failure 700' "the rank says it"
	check "... and the other whose it was" [ "$(ranks_say 'rank 1: .*cuda failure 700' err | cut -c 1)" = 0 ]
	status 4 "death at operation $at of a rank" env FAKE_NCCL_FAULT=1:$at:exit timeout -k 1 20 "$run" -n 2 \
		--device=cuda --transport=nccl tiny.job
	says 'run: rank 0: .*rank 1 is gone' "the other names it"
done
status 4 "a library that takes its time to end" env FAKE_NCCL_FAULT=1:9:slow timeout -k 1 20 "$run" -n 2 \
	--device=cuda --transport=nccl tiny.job
check "the rank says why" grep -q '^run: ranks\{0,1\} [0-9,-]*1: .*cuda failure 700' err
check "... and ends by itself" no grep -q 'ended by signal' err
# the operation never ends, nor does what should end it
status 4 "a device that hangs for good" env FAKE_NCCL_FAULT=1:9:deaf timeout -k 1 30 "$run" -n 2 --device=cuda \
	--transport=nccl --timeout=20ms tiny.job
says 'run: rank 1: .*; its device hangs' "ends nevertheless"
says 'run: rank 0: ' "... on both ranks"
done_testing
