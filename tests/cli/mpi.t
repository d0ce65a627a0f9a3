# transport mpi under the mpirun of Open MPI and that of MPICH: the bits of other transports, every operation, and
# what goes wrong.
# runner: waits, threads
# shellcheck disable=SC2016  # the shell of the rank expands it
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"
. "$SRC/tests/cli/mpi.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR run
tiny_job 30
for n in 2 3; do
	"$run" -q -n $n --transport=tcp --checkpoint=tcp.$n tiny.job >out || exit 1
done

# ---- a library that is no good ----------------------------------------------------------------------
# MPICH's binary interface with ranks of their own: INIT is what MPI_Init_thread does
bad_library() {
	cat >bad.c <<-END
	#include <string.h>
	#include <unistd.h>
	int MPI_Initialized(int *f) { return *f = 0; }
	int MPI_Finalized(int *f) { return *f = 0; }
	int MPI_Init_thread(int *c, char ***v, int want, int *got) { $1; return 0; }
	int MPI_Finalize(void) { return 0; }
	int MPI_Comm_rank(int c, int *r) { return *r = 0; }
	int MPI_Comm_size(int c, int *n) { *n = 7; return 0; }
	int MPI_Comm_group(int c, int *o) { return *o = 0; }
	int MPI_Group_incl(int g, int n, const int *r, int *o) { return *o = 0; }
	int MPI_Comm_create_group(int c, int g, int tag, int *o) { return *o = 0; }
	int MPI_Comm_set_errhandler(int c, int e) { return 0; }
	int MPI_Isend(void) { return 0; }
	int MPI_Irecv(void) { return 0; }
	int MPI_Test(void) { return 0; }
	int MPI_Error_string(int c, char *s, int *n) { strcpy(s, "no ship today"); *n = 13; return 0; }
	int MPI_Get_library_version(char *s, int *n) { strcpy(s, "Bad MPI 1"); *n = 9; return 0; }
	END
	${CC:-cc} -w -shared -fPIC -o bad.so bad.c
}
export PACELINE_MPI="$TMP/bad.so"
bad_library '*got = 3'
status 2 "ranks that no launcher of MPI started" timeout 40 "$run" -n 2 --transport=mpi tiny.job
says 'no launcher of MPI started this process: start it by the mpirun' "... are told before MPI begins"
export PMI_VERSION=1 # as if one had
bad_library 'for (;;) pause()' || exit 1
mv bad.so hangs.so
PACELINE_MPI=$TMP/hangs.so timeout 40 "$run" -n 2 --transport=mpi --timeout=150ms tiny.job >hangs.out 2>hangs.err &
hangs=$!
bad_library 'return 5'
status 4 "a start that fails" timeout 40 "$run" -n 2 --transport=mpi tiny.job
says 'MPI_Init_thread of Bad MPI 1: no ship today' "... says why"
bad_library '*got = 0'
status 6 "a library without threads" timeout 40 "$run" -n 2 --transport=mpi tiny.job
bad_library '*got = 3'
status 2 "other ranks than the job's" timeout 40 "$run" -n 2 --transport=mpi tiny.job
says 'Bad MPI 1 sees 7 ranks where the job has 2: start it by the mpirun' "... are counted"
PACELINE_MPI=$TMP/nothing.so
status 6 "no library" timeout 40 "$run" -n 2 --transport=mpi tiny.job
says 'PACELINE_MPI names .*nothing.so' "... is named"
PACELINE_MPI=libz.so.1
status 6 "another library" timeout 40 "$run" -n 2 --transport=mpi tiny.job
says 'libz.so.1 has no MPI_' "... is told from one of MPI"
unset PACELINE_MPI PMI_VERSION
status 2 "links of MPI cannot be slowed down" timeout 40 "$run" -n 2 --transport=mpi --link rate=1Gbit tiny.job
bad_library '*got = 0'

# ---- the real ones ----------------------------------------------------------------------------------

# kill_one SIGNAL: rank 1 of three gets it; the status of mpirun is in $got
kill_one() {
	rm -f pid.? kill.csv
	timeout 40 "$mpirun" -n 3 sh -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
		exec "$run" -q --transport=mpi --timeout=1s --set steps=100000000 --log=kill.csv tiny.job' >dead.out 2>dead.err &
	until_trains kill.csv
	kill -"$1" "$(cat pid.1)"
	wait $!
	got=$?
}

# with_mpi NAME MPIRUN LIBRARY OTHER: MPIRUN is that of LIBRARY; OTHER is that of the other kind
with_mpi() {
	mpirun=$2
	if ! command -v "$2" >/dev/null 2>&1; then
		skip "$1" "no $2"
		return
	fi
	for n in 2 3; do
		rm -f got.$n
		status 0 "$1: $n ranks" timeout 60 "$2" -n $n "$run" -q --set transport=mpi --checkpoint=got.$n tiny.job
		check "... have the bits of those over TCP" cmp got.$n tcp.$n
	done
	# ranks that wait keep their processors busy: three of them on two take long where each is slow
	most=1M
	! sanitized any || most=16K
	status 0 "$1: every operation" timeout 100 "$2" -n 3 "$run" --transport=mpi --bench=comm --min-size=16 --max-size=$most \
		--iterations=3 -O csv
	check "... with nothing wrong" awk -F , 'NR > 1 { n++; bad += $NF != 0 } END { exit bad || n < 50 }' out
	status 0 "$1: traced" timeout 60 "$2" -n 2 "$run" -q --transport=mpi -t trace tiny.job
	status 0 "... with its messages" sh -c '"$BIN/merge" -q trace.? | "$BIN/graph" -q - | "$BIN/replay" -O json -'
	check "... and replayed" grep -q '"replayed_ns"' out
	rm -f asked.st asked.csv
	OMPI_MCA_odls_base_sigkill_timeout=4 timeout --foreground 40 "$2" -n 3 "$run" -q --transport=mpi --set steps=100000000 \
		--log=asked.csv --checkpoint=asked.st tiny.job >asked.out 2>asked.err &
	asked=$!
	until_trains asked.csv
	kill -TERM $asked # Open MPI's sleeps for all of these 4 s
	# mpirun ends as the first rank that it saw end: the one without, or one that was told of that
	status "4 6" "$1: one rank without the library" timeout 60 "$2" -n 1 "$run" --transport=mpi tiny.job : \
		-n 1 env PACELINE_MPI=/nothing "$run" --transport=mpi tiny.job
	says 'rank 1: transport mpi: PACELINE_MPI names /nothing' "... is named"
	status 6 "$1: the library of another" env PACELINE_MPI="$TMP/bad.so" timeout 60 "$2" -n 2 "$run" --transport=mpi tiny.job
	[ "$3" = mpich ] || says 'is Bad MPI 1, but the launcher of Open MPI started' "... is told apart"
	# MPICH's mpirun ends with the bits of all ranks' statuses
	status "1 2 4 6" "$1: two programs in one mpirun" timeout 60 "$2" -n 2 sh -c \
		'"$run" -q --transport=mpi tiny.job && "$run" -q --transport=mpi tiny.job'
	[ "$3" != mpich ] || says 'the launcher does not listen any more' "... are one too many"
	for signal in KILL STOP; do
		kill_one $signal
		check "$1: SIG$signal for a rank: mpirun fails" ended_badly $got
		# MPICH's mpirun may end the others before they can speak
		[ "$3$signal" = mpichKILL ] || check "... rank 1 is named" grep -q 'run: rank [02]: .*rank 1 ' dead.err
		check "... nobody is left" sh -c \
			'! cat "/proc/$(cat pid.0)/cmdline" "/proc/$(cat pid.2)/cmdline" 2>/dev/null | grep -q .'
		kill -KILL "$(cat pid.1)" 2>/dev/null
	done
	wait $asked
	check "$1: mpirun is asked to end: ranks leave a checkpoint" test -s asked.st
	check "... without a word" no grep -q '^run: ' asked.err
}
with_mpi "Open MPI" "$openmpi" openmpi
with_mpi MPICH "$mpich" mpich
wait $hangs
check "a start that hangs: status 4" [ $? = 4 ]
holds hangs.err 'rank [01]: mpi has not returned for 3.* s from its start' "... ends"
done_testing
