# libpaceline-mpi.so in front of Open MPI and of MPICH: each call is in the trace, sends and receives find each other,
# the replay explains the steps; a killed rank leaves what can be read.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"
. "$SRC/tests/cli/mpi.sh"

cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
lib=$BIN/libpaceline-mpi.so
sanitized any || check "the library shows functions of MPI alone" no grep -vq ' MPI_' <<-END
	$(nm -D --defined-only "$lib")
END

# recorded LAUNCHER LIBRARY FOLDER ARGUMENT...
recorded() {
	launcher=$1
	file=$2
	folder=$3
	shift 3
	mkdir -p "$folder"
	timeout 50 "$launcher" -n 3 env LD_PRELOAD="$lib" PACELINE_RECORD_DIR="$TMP/$folder" "$GEN/mpijob" "$file" "$@"
}

# counts FOLDER: as mpijob says them
counts() {
	for rank in 0 1 2; do
		"$BIN/trace" -q -O text "$1/rank$rank.mpi.trace" | awk -v rank=$rank '/^event / { n[$3]++ }
			END { printf "rank %d: %d collectives, %d sends, %d receives\n", rank, n["collective"], n["send"], n["recv"] }'
	done
}

# one LAUNCHER LIBRARY NAME
one() {
	if ! command -v "$1" >/dev/null 2>&1 || ! "$1" -n 1 "$GEN/mpijob" "$2" 0 >/dev/null 2>&1; then
		skip "MPI programs under $3" "no $3"
		return
	fi
	recorded "$1" "$2" "$3" 3 >said 2>err
	check "$3: a program is recorded" test $? = 0
	counts "$3" >counted
	sort said >expected
	check "$3: each call is there, and none to nobody" same expected counted
	"$BIN/trace" -q "$3" | "$BIN/merge" -v >"$3.merged" 2>"$3.err"
	holds "$3.err" '18 collectives and 33 transfers matched, 0 incomplete; 0 collectives, 0 sends, 0 receives alone' \
		"$3: all of them find their other ends"
	"$BIN/graph" -q "$3.merged" >"$3.graph"
	check "$3: the replay explains the steps" explained "$3.graph"
	first=$3/rank0.mpi.trace
	"$BIN/trace" -q -O text "$first" >received
	check "$3: a receive from any rank says which" grep -q 'recv .*"MPI_Recv" seq=[0-9]* peer=[12] bytes=1200 .*"tag"=[89]' received
	check "$3: a rank of another communicator is that of the job" \
		grep -q 'recv .*"MPI_Irecv" .*peer=1 bytes=8 group="comm .*" ranks="\[2, 1, 0\]"' received
	check "$3: a message that a probe matched has its size" test "$(grep -c 'name="MPI_Mrecv" .* bytes=[89]0 ' received)" = 2
	grep -c -E '(host_op .*MPI_Iallreduce|collective .*MPI_Iallreduce|wait ).*corr=4398046511104( |$)' received >joined
	holds joined '^3$' "$3: a collective with a request, its call and the wait for it are joined"
	recorded "$1" "$2" "$3.killed" 2 kill >/dev/null 2>&1
	check "$3: a job is killed" ended_badly $?
	status 3 "$3: the trace of the killed rank has no end" "$BIN/trace" -O text "$3.killed/rank1.mpi.trace"
	says 'trace --salvage' "... and it says what to do"
	status 0 "$3: what was written of it is read" "$BIN/trace" --salvage -O text "$3.killed/rank1.mpi.trace"
	check "... with its events" grep -q 'MPI_Allreduce' out
}

one "$openmpi" libmpi.so.40 openmpi
one "$mpich" libmpich.so.12 mpich
"$GEN/mpijob" libmpich.so.12 1 >alone 2>err
alone=$?
LD_PRELOAD=$lib "$GEN/mpijob" libmpich.so.12 1 >preloaded 2>err
check "without a folder nothing changes" test "$alone" = $?
done_testing
