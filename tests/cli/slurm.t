# Ranks under Slurm: its own daemons as three nodes on this machine, in a folder of this test. srun as it is and with
# PMI2 and PMIx, parameter servers, the sample scripts through sbatch, a step cancelled or asked to end, a rank killed, a node lost.
# runner: waits, threads
# shellcheck disable=SC2016,SC2086  # the shell of the rank expands it; srun and its options are words
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

PATH=$PATH:/usr/sbin:/sbin
RUN=$BIN/run
export RUN
for need in munged slurmctld slurmd srun sbatch; do
	command -v $need >/dev/null 2>&1 || {
		skip "Slurm" "no $need"
		done_testing
		exit
	}
done
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT PACELINE_TOKEN PACELINE_MEET PACELINE_MPI
# MPI leaves memory behind at its end, and sanitizers do not see what it does to memory
ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # those of MPI
TSAN_OPTIONS=ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}
export ASAN_OPTIONS TSAN_OPTIONS

# ---- three nodes ------------------------------------------------------------------------------------
# The first has the name of this machine, for the name of the first is where ranks meet.
host=$(hostname -s)
port=$((12000 + $$ % 7990)) # below those that the system gives away
nodes="$host $host-2 $host-3"

end_slurm() {
	scancel --quiet --full -s KILL -u "$(id -un)" 2>/dev/null
	for pidfile in ./*.pid; do
		[ -s "$pidfile" ] && kill -KILL "$(cat "$pidfile")" 2>/dev/null
	done
	[ ! -s rank.pids ] || xargs kill -KILL <rank.pids 2>/dev/null
}
trap end_slurm EXIT
trap 'exit 130' INT TERM

mkdir state spool munge && chmod 755 munge || exit 1
head -c 128 /dev/urandom >munge/key && chmod 600 munge/key || exit 1
cat >slurm.conf <<END
ClusterName=paceline
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$TMP/munge/socket
CredType=cred/munge
StateSaveLocation=$TMP/state
SlurmdSpoolDir=$TMP/spool/%n
SlurmctldPidFile=$TMP/slurmctld.pid
SlurmdPidFile=$TMP/%n.pid
SlurmctldLogFile=$TMP/slurmctld.log
SlurmdLogFile=$TMP/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=4
KillWait=5
ReturnToService=2
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
END
i=0
for node in $nodes; do
	i=$((i + 1))
	mkdir "spool/$node"
	echo "NodeName=$node NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=4" >>slurm.conf
done
echo "PartitionName=all Nodes=ALL Default=YES State=UP" >>slurm.conf
SLURM_CONF=$TMP/slurm.conf
export SLURM_CONF
munged --force --socket="$TMP/munge/socket" --key-file="$TMP/munge/key" --pid-file="$TMP/munged.pid" \
	--log-file="$TMP/munge/log" --seed-file="$TMP/munge/seed" --num-threads=2 2>start.err &&
	slurmctld -f slurm.conf 2>>start.err || i=0
for node in $nodes; do
	slurmd -f slurm.conf -N "$node" 2>>start.err || i=0
done
end=$(($(date +%s) + 15))
until [ $i = 0 ] || [ "$(timeout 5 sinfo -h -N -t idle -o %N 2>>start.err | wc -l)" = 3 ]; do
	sleep 0.1
	[ "$(date +%s)" -lt $end ] || i=0
done
if [ $i = 0 ]; then
	skip "Slurm" "its daemons do not start here: $(cat start.err slurmctld.log 2>&1 | grep -i fatal | tail -n 1 | tr '#' ' ')"
	done_testing
	exit
fi

tiny_job 30
for n in 2 3; do
	"$RUN" -q -n $n --checkpoint=shm.$n tiny.job >out && "$RUN" -q -n $n --transport=tcp --checkpoint=tcp.$n tiny.job >out || exit 1
done

# ---- srun -------------------------------------------------------------------------------------------
# Always with the node whose name says where it is, and every rank left alive to say what it has to say: Slurm would
# kill the others of one that fails, and answer with their signal.
srun="timeout 40 srun --quiet --kill-on-bad-exit=0 --nodelist=$host"
status 0 "srun on one node" $srun -N 1 -n 2 "$RUN" -q --checkpoint=got tiny.job
check "... the bits of forked ranks" cmp got shm.2
status 2 "on two nodes" $srun -N 2 -n 2 "$RUN" -q tiny.job
says 'slurm started 2 ranks on several hosts.*set PACELINE_TOKEN' "... a secret is needed"
PACELINE_TOKEN=the.secret.of.this.test
export PACELINE_TOKEN
status 0 "... with it" $srun -N 2 -n 2 "$RUN" -q --checkpoint=got tiny.job
check "... the bits of forked ranks" cmp got shm.2
status 0 "three nodes over TCP" $srun -N 3 -n 3 "$RUN" -q --bind='*' --transport=tcp --checkpoint=got tiny.job
check "... the bits of forked ranks" cmp got tcp.3
status 0 "one node with the secret" $srun -N 1 -n 3 "$RUN" -q --checkpoint=got tiny.job
check "... the bits of forked ranks" cmp got shm.3
status 0 "communication measured" $srun -N 2 -n 2 "$RUN" --bench=comm --op=allreduce --max-size=8K -O csv

# ---- parameter servers ------------------------------------------------------------------------------
sed 's/^optimizer.*/optimizer sgd lr=0.05/' tiny.job >ps.job
echo 'engine ps' >>ps.job
echo 'policy bsp' >>ps.job
# like FILE FILE: weights that differ by rounding alone
like() {
	floats "$1" >a
	floats "$2" >b
	paste a b | awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) bad = 1 } END { exit bad || NR < 2000 }'
}
"$RUN" -q -n 2 --export=forked.st ps.job >out || exit 1
status 0 "a server and two workers on one node" $srun -N 1 -n 3 "$RUN" -q --export=got ps.job
check "... the weights of forked ranks" like got forked.st
status 0 "on three nodes" $srun -N 3 -n 3 "$RUN" -q --bind='*' --transport=tcp --export=got ps.job
check "... the weights of forked ranks" like got forked.st
status 0 "two servers" $srun -N 2 -n 4 "$RUN" -q --set 'engine ps servers=2' --export=got ps.job
check "... the weights of forked ranks" like got forked.st
status 0 "hosts as workers" $srun -N 2 -n 5 "$RUN" -q --set 'engine ps group=host' ps.job
rm -f worker.pid long.csv
$srun -N 3 -n 4 sh -c '[ $SLURM_PROCID != 2 ] || echo $$ >worker.pid; echo $$ >>rank.pids
	exec "$RUN" --timeout=1s --set "policy asp" --set "pace any speed=25" --set steps=60 --log=long.csv ps.job' >out 2>err &
long=$!
until_trains long.csv
kill -KILL "$(cat worker.pid)"
wait $long
holds out '3 ranks, 60 steps' "a worker is killed, and training goes on to its end"
says 'worker 1 is lost' "... it is named"
rm -f worker.pid long.csv
$srun -N 2 -n 3 sh -c '[ $SLURM_PROCID != 0 ] || echo $$ >worker.pid; echo $$ >>rank.pids
	exec "$RUN" --timeout=300ms --set "pace any speed=25" --set steps=100000 --log=long.csv ps.job' >out 2>err &
long=$!
until_trains long.csv
kill -KILL "$(cat worker.pid)"
wait $long
check "the server is killed, which nobody starts again: all end" [ $? != 124 ]
says 'rank [01] (SLURM_PROCID=[12]): server 0 is lost, and did not come back' "... and name it"

# with_pmi KIND LIBRARY NODES
with_pmi() {
	if ! srun --mpi=list 2>&1 | grep -q "$1" || ! ldconfig -p 2>/dev/null | grep -q "$2"; then
		skip "srun --mpi=$1" "no $2, or Slurm has no $1"
		return
	fi
	# shellcheck disable=SC2086
	if $srun --mpi="$1" -N 1 -n 1 true 2>&1 | grep -q 'can not load PMIx'; then
		skip "srun --mpi=$1" "Slurm finds no libpmix.so (package libpmix-dev)"
		return
	fi
	status 0 "srun --mpi=$1, $2" $srun --mpi="$1" -N "$3" -n 2 "$RUN" -q --transport=mpi --checkpoint=got tiny.job
	check "... the bits of TCP" cmp got tcp.2
}
with_pmi pmi2 libmpich.so.12 2
# one node: Slurm's plugin does not let two of one machine be
with_pmi pmix libmpi.so.40 1
status 2 "MPI without PMI" $srun -N 1 -n 2 "$RUN" -q --transport=mpi tiny.job
says 'srun does not connect MPI processes: use srun --mpi=pmix' "... is told"
unset PACELINE_TOKEN

# ---- sbatch -----------------------------------------------------------------------------------------
# batch STATE NAME OPTION... SCRIPT ARGUMENT...: ends so; its output in $TMP/NAME.out
batch() {
	state=$1
	name=$2
	shift 2
	id=$(sbatch --parsable --nodelist="$host" --job-name="$name" --output="$TMP/$name.out" "$@" 2>err) || return
	turn=0
	while squeue -h -j "$id" 2>/dev/null | grep -q . && [ $turn -lt 200 ]; do
		sleep 0.1
		turn=$((turn + 1))
	done
	scontrol show job "$id" | grep -q "JobState=$state" && return
	sed 's/^/# /' err "$name.out"
	return 1
}
slurm=$SRC/samples/slurm
check "cpu.sbatch" batch COMPLETED cpu "$slurm/cpu.sbatch" -q --checkpoint="$TMP/got" tiny.job
check "... trains on two nodes" cmp got shm.2
check "... with more tasks and TCP" batch COMPLETED more --nodes=3 "$slurm/cpu.sbatch" -q --transport=tcp --checkpoint="$TMP/got" tiny.job
check "... on three" cmp got tcp.3
CHECKPOINT=$TMP/kept
export CHECKPOINT
check "... half of it, and its state" batch COMPLETED half "$slurm/cpu.sbatch" -q --set steps=15 tiny.job
check "... from which it goes on" batch COMPLETED rest "$slurm/cpu.sbatch" tiny.job
holds rest.out " 15 steps in " "... with what is left"
check "... to the same bits" cmp kept shm.2
unset CHECKPOINT
if ldconfig -p 2>/dev/null | grep -q libmpich.so.12; then
	check "mpi.sbatch" batch COMPLETED mpi "$slurm/mpi.sbatch" -q --checkpoint="$TMP/got" tiny.job
	check "... trains on two nodes" cmp got tcp.2
else
	skip "mpi.sbatch" "no libmpich.so.12"
fi
# there are no GPUs here: what its tasks would be started with
cat >tell <<'END'
#!/bin/sh
cpus=$(scontrol show step "$SLURM_JOB_ID.$SLURM_STEP_ID" | grep -o 'CPUs=[0-9]*')
echo "$SLURM_PROCID of $SLURM_NTASKS, $SLURM_LOCALID on its node, $cpus: $PACELINE_TOKEN $*" >>"$TMPDIR/told"
END
chmod +x tell
RUN=$TMP/tell
check "gpu.sbatch" batch COMPLETED gpu --gpus-per-node=0 --nodes=2 --ntasks-per-node=2 --exclusive --cpus-per-task=1 \
	"$slurm/gpu.sbatch" --seed=3 my.job
RUN=$BIN/run
check "... starts a rank for each GPU, on devices by their place on the node" sh -c '
	[ "$(grep -cE "^[0-3] of 4, [01] on its node, CPUs=4: [0-9a-f]{32} --bind=\* --device=cuda --transport=nccl --seed=3 my.job$" told)" = 4 ] &&
	[ "$(sed "s/.*: \([0-9a-f]*\) .*/\1/" told | sort -u | wc -l)" = 1 ]'
check "a job that fails" batch FAILED bad "$slurm/cpu.sbatch" --set steps=x tiny.job
holds bad.out 'steps' "... says why"

# ---- what can go wrong ------------------------------------------------------------------------------
PACELINE_TOKEN=the.secret.of.this.test
export PACELINE_TOKEN
# begin_long: three ranks on three nodes that would train for long, in the background
begin_long() {
	rm -f pid.? long.csv long.st
	$srun --job-name=long -N 3 -n 3 sh -c 'echo $$ $PPID >pid.$SLURM_PROCID; echo $$ >>rank.pids
		exec "$RUN" -q --timeout=1s --transport=tcp --set steps=100000000 --log=long.csv --checkpoint=long.st tiny.job' >long.out 2>long.err &
	long=$!
	until_trains long.csv
}
nobody_left() {
	for r in "$@"; do
		turn=0
		while kill -0 "$(cut -d ' ' -f 1 "pid.$r")" 2>/dev/null && [ $turn -lt 50 ]; do
			sleep 0.1
			turn=$((turn + 1))
		done
		[ $turn -lt 50 ] || return 1
	done
}
begin_long
scancel --name=long
wait $long
got=$?
check "a step that is cancelled ends" [ $got != 0 ] && [ $got != 124 ]
check "... and nobody is left" nobody_left 0 1 2

# as at its time limit, or where something else is to go first
begin_long
scancel --signal=TERM --name=long
wait $long
check "a step that is asked to end: status 143" [ $? = 143 ]
check "... with a checkpoint" test -s long.st
check "... without a word of ranks" sh -c '! grep -q "^run: " long.err'

begin_long
kill -KILL "$(cut -d ' ' -f 1 pid.1)"
wait $long
got=$?
check "a rank that is killed ends the step" [ $got != 0 ] && [ $got != 124 ]
holds long.err 'run: rank [02]: .*rank 1 is gone' "... and is named"
check "... and nobody is left" nobody_left 0 2

begin_long
# all that the third node runs: its daemon, the one of the step, the rank
kill -STOP "$(cut -d ' ' -f 1 pid.2)"
kill -KILL "$(cat "$host-3.pid")"
# shellcheck disable=SC2046 # two numbers
kill -KILL $(cat pid.2)
# Slurm itself takes longer to find out
check "when a node is lost the others end" nobody_left 0 1
turn=0
until grep -q 'run: rank [01]: .*rank 2 ' long.err || [ $turn = 50 ]; do
	sleep 0.1
	turn=$((turn + 1))
done
check "... and name its rank" [ $turn != 50 ]
scancel --quiet --name=long
kill $long
wait $long 2>err
done_testing
