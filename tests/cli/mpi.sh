# shellcheck shell=sh
# shellcheck disable=SC2034  # openmpi and mpich are for others
# For tests under an mpirun: a clean environment, the names of two ($openmpi, $mpich), and
#
# ended_badly STATUS      it failed, and did not hang

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PACELINE_TOKEN PACELINE_MEET PACELINE_MPI \
	PACELINE_MPI_GPU
mpirun_anywhere
# MPI leaves memory behind at its end, and sanitizers do not see what it does to memory
LSAN_OPTIONS=detect_leaks=0
ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # those of MPI
TSAN_OPTIONS=ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}
export LSAN_OPTIONS ASAN_OPTIONS TSAN_OPTIONS
openmpi=mpirun
command -v mpirun.openmpi >/dev/null 2>&1 && openmpi=mpirun.openmpi
mpich=mpiexec.mpich
command -v $mpich >/dev/null 2>&1 || mpich=mpiexec.hydra

ended_badly() {
	[ "$1" != 0 ] && [ "$1" != 124 ]
}
