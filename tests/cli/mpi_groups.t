# Parameter servers: groups of ranks that use MPI among themselves, under the mpirun of Open MPI and that of MPICH.
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
sed -i 's/^optimizer.*/optimizer sgd lr=0.05/' tiny.job
"$run" -q -n 4 --set 'engine ps group=2' --set transport=tcp --export=two.st tiny.job >out || exit 1
"$run" -q -n 4 --set 'engine ps group=host' --set hosts=3,1 --set transport=tcp --export=hosts.st tiny.job >out || exit 1

# counting_library LIBRARY: counts.so calls it, and each process writes how often into calls.N
counting_library() {
	cat >counts.c <<-END
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <stdint.h>
	#include <stdio.h>
	#include <stdlib.h>
	static int init, groups, sends;
	#define NEXT(name) ((int (*)())dlsym(RTLD_NEXT, name))
	int MPI_Init_thread(void *c, void *v, int want, int *got) { init++; return NEXT("MPI_Init_thread")(c, v, want, got); }
	int MPI_Comm_create_group(uintptr_t c, uintptr_t g, int tag, void *o)
	{
		groups++;
		return NEXT("MPI_Comm_create_group")(c, g, tag, o);
	}
	int MPI_Isend(const void *p, int n, uintptr_t type, int to, int tag, uintptr_t c, void *r)
	{
		sends++;
		return NEXT("MPI_Isend")(p, n, type, to, tag, c, r);
	}
	int MPI_Finalize(void)
	{
		const char *r = getenv("OMPI_COMM_WORLD_RANK");
		char name[64];
		FILE *f;
		snprintf(name, sizeof(name), "calls.%s", r ? r : getenv("PMI_RANK"));
		f = fopen(name, "w");
		fprintf(f, "%d %d %d\n", init, groups, sends > 10);
		fclose(f);
		return NEXT("MPI_Finalize")();
	}
	END
	library=$(ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }')
	[ -n "$library" ] && ${CC:-cc} -w -shared -fPIC -o counts.so counts.c -Wl,--no-as-needed "$library" -ldl
}

# lose_one SIGNAL: rank 2 of four, the first one of the second group, gets it; the status of mpirun is in $got
lose_one() {
	rm -f pid.? lost.csv
	timeout 60 "$mpirun" -n 5 sh -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
		exec "$run" -q --transport=mpi --timeout=1s --set "engine ps group=2" --set "policy asp" --set steps=100000000 \
			--log=lost.csv tiny.job' >lost.out 2>lost.err &
	until_trains lost.csv
	kill -"$1" "$(cat pid.3)"
	wait $!
	got=$?
}

# with_mpi NAME MPIRUN LIBRARY
with_mpi() {
	mpirun=$2
	if ! command -v "$2" >/dev/null 2>&1; then
		skip "$1" "no $2"
		return
	fi
	rm -f got.st
	status 0 "$1: two groups and a server" timeout 60 "$2" -n 5 "$run" -q --transport=mpi --set 'engine ps group=2' --export=got.st tiny.job
	check "... have the bits of groups over TCP" cmp got.st two.st
	for servers in 1 2; do
		rm -f got.st
		status 0 "$1: hosts of three ranks and of one, servers: $servers" timeout 60 "$2" -n $((servers + 4)) "$run" -q --transport=mpi \
			--set "engine ps group=host servers=$servers" --set hosts=3,1 --export=got.st --checkpoint=got.ckpt tiny.job
		check "... the same bits, too" cmp got.st hosts.st
	done
	export PACELINE_TOKEN=0123456789abcdef
	status 0 "$1: met at an address" timeout 60 "$2" -n 5 "$run" -q --meet "tcp:127.0.0.1:$((21000 + ($$ + tap_n) % 9000))" \
		--transport=mpi --set 'engine ps group=2' --export=got.st tiny.job
	check "... the same bits" cmp got.st two.st
	unset PACELINE_TOKEN
	if counting_library "$3"; then
		rm -f calls.?
		status 0 "$1: calls are counted" env PACELINE_MPI="$TMP/counts.so" timeout 60 "$2" -n 6 "$run" -q --transport=mpi \
			--set 'engine ps group=host servers=2' --set hosts=3,1 tiny.job
		check "... servers, and a rank without a group, begin and end MPI alone" [ "$(cat calls.0 calls.1 calls.5 | sort -u)" = '1 0 0' ]
		check "... ranks of a group send through it" [ "$(cat calls.2 calls.3 calls.4 | sort -u)" = '1 2 1' ]
	else
		skip "$1: calls are counted" "no $3"
	fi
	status 0 "$1: an evaluation, which needs no MPI" timeout 60 "$2" -n 5 "$run" -q --transport=mpi --set 'engine ps group=2' --eval \
		--import=got.st tiny.job
	status "1 4 6" "$1: a server without the library" timeout 60 "$2" -n 1 env PACELINE_MPI=/nothing "$run" -q --transport=mpi --timeout=200ms \
		--set 'engine ps group=2' tiny.job : -n 4 "$run" -q --transport=mpi --timeout=200ms --set 'engine ps group=2' tiny.job
	says 'server 0 (.*_RANK=0): transport mpi: PACELINE_MPI names /nothing' "... says so"
	rm -f asked.st asked.csv
	OMPI_MCA_odls_base_sigkill_timeout=4 timeout --foreground 60 "$2" -n 5 "$run" -q --transport=mpi --set 'engine ps group=2' --set 'policy asp' \
		--set steps=100000000 --log=asked.csv --checkpoint=asked.st tiny.job >asked.out 2>asked.err &
	asked=$!
	until_trains asked.csv
	kill -TERM $asked
	for signal in KILL STOP; do
		lose_one $signal
		check "$1: SIG$signal for a rank: mpirun fails" ended_badly $got
		check "... nobody is left" sh -c \
			'! cat "/proc/$(cat pid.0)/cmdline" "/proc/$(cat pid.1)/cmdline" "/proc/$(cat pid.4)/cmdline" 2>/dev/null | grep -q .'
		kill -KILL "$(cat pid.3)" 2>/dev/null
	done
	check "... it was named" grep -q 'rank 2 ' lost.err
	wait $asked
	check "$1: mpirun is asked to end: the server leaves a checkpoint" test -s asked.st
	check "... without a word" no grep -q '^run: ' asked.err
}
with_mpi "Open MPI" "$openmpi" libmpi.so.40
with_mpi MPICH "$mpich" libmpich.so.12
status "2 6" "ranks that no mpirun started" timeout 60 "$run" -n 4 --transport=mpi --set 'engine ps group=2' --timeout=1s tiny.job
done_testing
