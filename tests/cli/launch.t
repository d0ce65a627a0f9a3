# Ranks that somebody else starts: mpirun, and what srun, torchrun and others put into the environment.
# runner: waits, threads
# shellcheck disable=SC2016  # the shell of the rank expands it
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR run
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PACELINE_TOKEN PACELINE_MEET
tiny_job 30
for n in 2 4; do
	"$run" -q -n $n --checkpoint=forked.$n tiny.job >out || exit 1
done

# variables RANK VARIABLE=VALUE...: with the number of the rank for %r
variables() {
	r=$1
	shift
	echo "$@" | sed "s/%r/$r/g"
}

# all N VARIABLE=VALUE... -- ARGUMENT...: starts ranks 0 .. N - 1, the last first, as a launcher does:
# from one process. Their statuses go to `ended`.
all() {
	n=$1
	shift
	vars=
	while [ "$1" != -- ]; do
		vars="$vars $1"
		shift
	done
	shift
	pids=
	i=$n
	while [ "$i" -gt 0 ]; do
		i=$((i - 1))
		# shellcheck disable=SC2046,SC2086  # variables are words
		env $(variables $i $vars) timeout 40 "$@" >rank.$i 2>rank.$i.err &
		pids="$pids $!"
	done
	for i in $pids; do
		wait "$i"
		echo $?
	done >ended
}

# ended STATUS: all ranks ended so
ended() {
	awk -v want="$1" -v n="$n" '$1 != want { bad = 1 } END { exit bad || NR != n }' ended && return
	cat ended rank.*.err
	return 1
}

# nothing said but what the launcher says
try() {
	name=$1
	n=$2
	shift 2
	rm -f got
	all "$n" "$@" -- "$run" -q --checkpoint=got tiny.job
	check "$name: all $n ranks end well" ended 0
	check "... with the bits of forked ones" cmp got "forked.$n"
	check "... and leave no folder" sh -c '! ls -d paceline-* 2>/dev/null'
}

# ---- environments ---------------------------------------------------------------------------------
slurm='SLURM_PROCID=%r SLURM_NTASKS=2 SLURM_LOCALID=%r SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1'
# shellcheck disable=SC2086  # variables are words
{
	try "srun" 2 $slurm SLURM_JOB_ID=11
	try "srun with PMIx" 2 $slurm SLURM_JOB_ID=11 PMIX_RANK=%r PMIX_NAMESPACE=slurm.pmix.11.0
}
try "torchrun" 2 RANK=%r WORLD_SIZE=2 LOCAL_RANK=%r LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 \
	TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True
try "MPICH's mpiexec" 4 PMI_RANK=%r PMI_SIZE=4 MPI_LOCALRANKID=%r MPI_LOCALNRANKS=4
all 2 PMI_RANK=%r PMI_SIZE=2 -- sh -c '"$run" -q --checkpoint=got tiny.job; exit $?'
check "... and its ranks behind scripts" cmp got forked.2

# ---- what can go wrong ------------------------------------------------------------------------------
token=PACELINE_TOKEN=0123456789abcdef.
# shellcheck disable=SC2046,SC2086
{
	status 4 "rank 0 never comes" env $(variables 1 $slurm) SLURM_JOB_ID=12 timeout 20 "$run" --timeout=300ms tiny.job
	says 'rank 0 never came.*PACELINE_MEET' "... is missed, with a remedy"
	status 4 "rank 1 never comes" env $(variables 0 $slurm) SLURM_JOB_ID=12 timeout 20 "$run" --timeout=300ms tiny.job
	says '^run: rank 0: .*rank 1 never came' "... is missed"
	status 2 "several hosts" env $(variables 1 $slurm) SLURM_STEP_NUM_NODES=2 "$run" tiny.job
	says 'PACELINE_MEET.*PACELINE_TOKEN' "... need a place and a token"
	status 2 "several hosts of torchrun" env RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 "$run" tiny.job
	says 'set PACELINE_TOKEN' "... a token"
	status 2 "no MASTER_ADDR" env RANK=0 WORLD_SIZE=2 timeout 5 "$run" tiny.job
	says 'MASTER_ADDR and MASTER_PORT.*--meet' "... is refused at once"
	status 2 "-n against the launcher" env $(variables 1 $slurm) "$run" -n 3 tiny.job
	status 2 "a token too short" env $(variables 1 $slurm) PACELINE_TOKEN=short "$run" tiny.job
	all 2 $slurm SLURM_JOB_ID=13 PACELINE_MEET=dir:$TMP $token%r -- "$run" --timeout=500ms tiny.job
	check "ranks with unlike tokens do not meet" ended 4

	# a rank 0 that dies while it waits leaves its token behind
	env $(variables 0 $slurm) SLURM_JOB_ID=14 "$run" --timeout=60s tiny.job 2>err &
	pid=$!
	i=0
	until ls paceline-*/token >out 2>&1 || [ $i = 100 ]; do
		sleep 0.1
		i=$((i + 1))
	done
	kill -KILL $pid
	wait $pid 2>err
	check "a token is left behind" ls paceline-*/token
	try "the next job" 2 $slurm SLURM_JOB_ID=14

	# two jobs at once
	(all 2 $slurm SLURM_JOB_ID=15 -- "$run" -q --checkpoint=one --set steps=300 tiny.job) >out &
	mkdir other
	(cd other && all 2 $slurm SLURM_JOB_ID=16 -- "$run" -q --checkpoint=two --set steps=300 --seed=5 ../tiny.job) >out2
	wait
}
"$run" -q -n 2 --checkpoint=one.forked --set steps=300 tiny.job >out
"$run" -q -n 2 --checkpoint=two.forked --set steps=300 --seed=5 tiny.job >out
check "two jobs at once" cmp one one.forked
check "... do not mix" cmp other/two two.forked

# ---- several hosts out of one -----------------------------------------------------------------------
status 0 "two hosts" "$run" -q -n 4 --set hosts=2 --report=hosts.json -t hosts.trace --checkpoint=hosts.st tiny.job
status 0 "... and their traces" sh -c '"$BIN/merge" -q hosts.trace.? | "$BIN/trace" -O text -'
check "... name them" sh -c 'grep -q host0 out && grep -q host1 out && ! grep -q host2 out'
# shellcheck disable=SC2086
all 4 PMI_RANK=%r PMI_SIZE=4 PACELINE_MEET=tcp:127.0.0.1:$((20000 + $$ % 10000)) -- \
	"$run" -q --set hosts=2 --checkpoint=got tiny.job
check "... by TCP, launched" cmp got hosts.st
status 0 "... measured" "$run" --bench=comm -n 4 --set hosts=2 --op=allreduce --max-size=16K --iterations=2 -O csv
check "... nothing wrong" awk -F , 'NR > 1 { n++; bad += $NF != 0 } END { exit bad || n != 3 }' out
status 2 "... measured with three ranks" "$run" --bench=comm -n 3 --set hosts=2
status 2 "--bench takes no batch" "$run" --bench=comm --set batch=3
status 3 "three ranks on two hosts" "$run" -n 3 --set hosts=2 tiny.job

# ---- a real mpirun ----------------------------------------------------------------------------------
if ! command -v mpirun >/dev/null 2>&1; then
	skip "mpirun" "no mpirun"
	done_testing
	exit
fi
mpirun_anywhere
for n in 2 4; do
	rm -f got
	status 0 "mpirun -n $n" timeout 40 mpirun -n $n "$run" -q --checkpoint=got tiny.job
	check "... the bits of forked ones" cmp got forked.$n
	check "... rank 0 alone says what" [ "$(grep -c '^mlp' out)" = 1 ]
done
check "... no folder is left" sh -c '! ls -d paceline-* 2>/dev/null'
status 0 "one after the other in one mpirun" timeout 40 mpirun -n 2 sh -c \
	'"$run" -q --checkpoint=first tiny.job && "$run" -q --resume=first --set steps=40 --checkpoint=got tiny.job'
"$run" -q -n 2 --set steps=40 --checkpoint=forty tiny.job >out
check "... go on from one another" cmp got forty
status 0 "communication measured" timeout 40 mpirun -n 2 "$run" --bench=comm --op=allreduce --max-size=8K -O csv
# Two mpirun that make one folder of sessions at the same moment refuse it: it exists. Each has its own here.
mkdir sessions.one sessions.two
(OMPI_MCA_orte_tmpdir_base=$TMP/sessions.one timeout 40 mpirun -n 2 "$run" -q --checkpoint=one --set steps=300 \
	tiny.job >one.out 2>&1) &
(OMPI_MCA_orte_tmpdir_base=$TMP/sessions.two timeout 40 mpirun -n 2 "$run" -q --checkpoint=two --set steps=300 \
	--seed=5 tiny.job >two.out 2>&1) &
wait
check "two mpirun at once" sh -c 'cmp one one.forked || { cat one.out; false; }'
check "... do not mix" sh -c 'cmp two two.forked || { cat two.out; false; }'
status 4 "ranks with unlike tokens" timeout 40 mpirun \
	-n 1 env PACELINE_TOKEN=0123456789abcdef.0 PACELINE_MEET="dir:$TMP" "$run" --timeout=300ms tiny.job : \
	-n 1 env PACELINE_TOKEN=0123456789abcdef.1 PACELINE_MEET="dir:$TMP" "$run" --timeout=300ms tiny.job
says 'rank [01] never came' "... do not meet"
status 4 "a rank without the token" timeout 40 mpirun \
	-n 1 env PACELINE_TOKEN=0123456789abcdef.0 PACELINE_MEET="dir:$TMP" "$run" --timeout=300ms tiny.job : \
	-n 1 "$run" --timeout=300ms tiny.job
says 'rank [01] never came' "... does not meet the one with it"
status 2 "-n against mpirun" timeout 40 mpirun -n 2 "$run" -n 3 tiny.job

# kill_one SIGNAL: rank 1 of three gets it; the status of mpirun is in $got
kill_one() {
	rm -f pid.?
	timeout 40 mpirun -n 3 sh -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
		exec "$run" -q --timeout=1s --set steps=100000000 --log=kill.csv tiny.job' >dead.out 2>dead.err &
	until_trains kill.csv
	kill -"$1" "$(cat pid.1)"
	wait $!
	got=$?
	rm -f kill.csv
}
for signal in KILL STOP; do
	kill_one $signal
	check "SIG$signal for a rank: mpirun fails" [ $got != 0 ] && [ $got != 124 ]
	check "... rank 1 is named" grep -q 'rank 1 ' dead.err
	check "... nobody is left" sh -c '! cat "/proc/$(cat pid.0)/cmdline" "/proc/$(cat pid.2)/cmdline" 2>/dev/null | grep -q .'
	kill -KILL "$(cat pid.1)" 2>/dev/null
done
done_testing
