# transport mpi with memory of a device: one that stands in for a real one, and an MPI that lets Open MPI's and MPICH's
# take it (tests/emu). The bits are those of processors, through the host or not; what goes wrong.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"
. "$SRC/tests/cli/mpi.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
PL_CUDA_PLUGIN=$BUILD/emu/device_plugin.so
AWARE_LOG=$TMP/there
export TMPDIR PL_CUDA_PLUGIN AWARE_LOG
tiny_job 20
sed 's/^model .*/model mlp:16-192-128-4/' tiny.job >wide.job
for n in 2 3; do
	"$run" -q -n $n --transport=tcp --checkpoint=wide.$n wide.job >out || exit 1
done

# messages_there NONE|SOME RANKS: what the ranks of aware_mpi.c say at their end
messages_there() {
	awk -v none="$1" -v ranks="$2" '{ if ((none == "NONE") != ($1 == 0)) bad = 1 } END { exit bad || NR != ranks }' there
}

# with_device NAME MPIRUN LIBRARY: memory of a device, which MPI takes, or which passes through the host's
with_device() {
	if ! command -v "$2" >/dev/null 2>&1; then
		skip "$1: memory of a device" "no $2"
		return
	fi
	file=libmpi.so.40
	like=
	if [ "$3" = mpich ]; then
		file=libmpich.so.12
		like=-DLIKE_MPICH
	fi
	if ! ${CC:-cc} -D_GNU_SOURCE $like -DREAL="\"$file\"" -O1 -shared -fPIC -o aware.so "$SRC/tests/emu/aware_mpi.c" \
		-Wl,--no-as-needed "-l:$file" 2>cc.err; then
		skip "$1: memory of a device" "cannot link with $file"
		return
	fi
	export PACELINE_MPI="$TMP/aware.so"
	for n in 1 2 4; do
		rm -f there
		status 0 "$1: every operation in memory of a device, $n ranks" timeout 100 "$2" -n $n "$GEN/devrank" 16384
		[ $n = 1 ] || check "... which messages lie in" messages_there SOME $n
	done
	status 0 "$1: what is begun later holds nothing up" timeout 100 "$2" -n 2 "$GEN/devrank" 16384 late
	status 0 "$1: messages longer than a segment of the host" timeout 100 "$2" -n 2 "$GEN/devrank" 0 large
	rm -f there
	status 0 "$1: the same through memory of the host" env PACELINE_MPI_GPU=0 timeout 100 "$2" -n 2 "$GEN/devrank"
	check "... which messages lie in" messages_there NONE 2
	for n in 2 3; do
		rm -f there got.$n
		status 0 "$1: $n ranks train on a device" timeout 60 "$2" -n $n "$run" -v --device=cuda --transport=mpi \
			--checkpoint=got.$n wide.job
		says 'memory of GPUs is sent and received as it is' "... say how"
		check "... without the host" messages_there SOME $n
		check "... have the bits of processors over TCP" cmp got.$n wide.$n
	done
	rm -f there got.2
	status 0 "$1: one rank's MPI does not take it" timeout 60 "$2" -n 1 "$run" -v --device=cuda --transport=mpi \
		--checkpoint=got.2 wide.job : -n 1 env PACELINE_MPI_GPU=0 "$run" --device=cuda --transport=mpi wide.job
	says 'memory of GPUs passes through memory of the host' "... all do without"
	check "... in all messages" messages_there NONE 2
	check "... to the same bits" cmp got.2 wide.2
	for at in 1 9; do
		timeout 40 "$2" -n 3 env AWARE_DIE=1:$at "$run" -q --device=cuda --transport=mpi --timeout=1s wide.job \
			>dead.out 2>dead.err
		got=$?
		check "$1: death of a rank in its message $at: mpirun fails" ended_badly $got
		[ "$3" = mpich ] || check "... rank 1 is named" grep -q 'run: rank [02]: .*rank 1 ' dead.err
	done
	# nobody else is to say anything: mpirun need not wait for that
	export OMPI_MCA_odls_base_sigkill_timeout=0
	for at in 2 20 60 120; do
		timeout 40 "$2" -n 3 env AWARE_DIE=1:$at "$GEN/devrank" 16384 >dead.out 2>dead.err
		got=$?
		check "$1: death of a rank in message $at of all operations: mpirun fails" ended_badly $got
	done
	timeout 40 "$2" -n 1 "$run" -q --device=cuda --transport=mpi --timeout=600ms wide.job : \
		-n 1 env FAKE_DEVICE_HANG=5 "$run" -q --device=cuda --transport=mpi --timeout=600ms wide.job >dead.out 2>dead.err
	got=$?
	check "$1: a device that hangs in a sum: mpirun fails" ended_badly $got
	check "... which is said" grep -q 'run: rank [01]: .*rank 1 waited .* s for its device' dead.err
	timeout 40 "$2" -n 1 "$GEN/devrank" 16384 hang : -n 1 env FAKE_DEVICE_HANG=1 "$GEN/devrank" 16384 hang \
		>dead.out 2>dead.err
	got=$?
	check "... in a copy: mpirun fails" ended_badly $got
	check "... which is said, too" grep -q 'devrank: .*rank 1 waited .* s for its device' dead.err
	hung=
	for n in 210 250 290 330; do
		timeout 60 "$2" -n 1 "$GEN/devrank" : -n 1 env PL_FAIL=$n "$GEN/devrank" >out 2>err
		[ $? != 124 ] || hung="$hung $n"
	done
	check "$1: memory runs out, and nothing hangs$hung" [ -z "$hung" ]
	unset PACELINE_MPI OMPI_MCA_odls_base_sigkill_timeout
	[ -f "$BUILD/emu-cuda.so" ] || return
	# the CUDA backend on an emulated device, whose memory is the host's
	for gpu in 0 1; do
		status 0 "$1: every operation of the emulated device, PACELINE_MPI_GPU=$gpu" env PACELINE_MPI_GPU=$gpu \
			PL_CUDA_PLUGIN="$BUILD/emu-cuda.so" timeout 100 "$2" -n 2 "$GEN/devrank" 16384 cuda
		status 0 "... training" env PACELINE_MPI_GPU=$gpu PL_CUDA_PLUGIN="$BUILD/emu-cuda.so" timeout 100 "$2" -n 2 \
			"$run" -q --device=cuda --transport=mpi --checkpoint=emu.$gpu wide.job
	done
	check "... to the same bits" cmp emu.0 emu.1
}
with_device "Open MPI" "$openmpi" openmpi
# under a sanitizer one: to this library they differ in a table of names
sanitized any || with_device MPICH "$mpich" mpich
done_testing
