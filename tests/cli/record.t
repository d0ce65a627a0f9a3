# trace -- COMMAND, replay -- COMMAND: streams, signals and statuses of the command; what the hook of Python records.
. "$SRC/tests/cli/tap.sh"

cd "$TMP" || exit 1
trace=$BIN/trace
n=0
outputs() { # outputs OUT ERR: what the last command wrote, ERR first of all
	test "$(cat out)" = "$1" && head -n 1 err | grep -qx "$2"
}

# --- the command is what it would be without trace
status 7 "the exit status is the command's" "$trace" -- sh -c 'echo out; echo err >&2; exit 7'
check "its output stays apart" outputs out err
echo in | "$trace" -q -- cat >copy
check "standard input is the command's" grep -qx in copy
"$trace" -q -- printf '%s\n' --light -- x >words
check "options behind -- are the command's" sh -c "printf '%s\n' --light -- x | cmp - words"
status 143 "a signal that ends the command: 128+n" "$trace" -- sh -c 'kill -TERM $$'
status 127 "a command that is not there" "$trace" -- ./not-there
says 'not-there.*cannot be executed' "and its name"
: >plain
status 126 "a file that cannot be executed" "$trace" -- ./plain
check "no folder stays" sh -c '! ls -d paceline-* 2>/dev/null'
mkfifo ready
"$trace" -q -- sh -c 'sleep 1000 & trap "kill $!; exit 9" TERM; : >ready; wait' &
pid=$!
: <ready
kill -TERM $pid
wait $pid
got=$?
check "a signal is passed on" test $got = 9

# --- mistakes
status 2 "-- without a command" "$trace" --
status 2 "a file and a command" "$trace" plain -- true
says 'never a file' "which says what stands behind --"
status 2 "an option for files" "$trace" --rank=0 -- true
status 2 "--light without a command" "$trace" --light plain
status 2 "no steps" "$trace" --record-steps=0 -- true
status 2 "--keep without a command" "$BIN/replay" --keep=x plain
status 4 "a folder that cannot be made" "$trace" -o no/where -- true
mkdir old
: >old/x
status 2 "a folder with files" "$trace" -o old -- true
says 'older recording' "is not written to"
check "and stays as it is" test "$(ls -A old)" = x

status 2 "a folder with a colon" "$trace" -o job:1 -- true
says 'in which colons divide names' "cannot be in PYTHONPATH"
check "... and does not stay" no test -e job:1

# --- libraries beside the program
mkdir bin2
cp "$trace" bin2/trace
: >bin2/libpaceline-nccl.so
: >bin2/libpaceline-cuda.so
vars="echo \$NCCL_PROFILER_PLUGIN \$CUDA_INJECTION64_PATH \$PACELINE_NCCL_NEXT"
check "full mode: NCCL's" test "$(bin2/trace -q -- sh -c "$vars")" = "$TMP/bin2/libpaceline-nccl.so"
check "light mode: CUDA's too, and the user's plugin is the next one" test \
	"$(NCCL_PROFILER_PLUGIN=other bin2/trace -q --light -- sh -c "$vars")" = \
	"$TMP/bin2/libpaceline-nccl.so $TMP/bin2/libpaceline-cuda.so other"
# that of MPI: not before a sanitizer's, and not where the user leaves it out
echo 'int x;' >asan.c
echo '#include <stdio.h>
#include <stdlib.h>
int main(void) { char *s = getenv("LD_PRELOAD"); puts(s ? s : "none"); return 0; }' >preload.c
${CC:-cc} -shared -fPIC -Wl,-soname,libasan.so.8 -o libasan.so.8 asan.c
${CC:-cc} -o without preload.c
${CC:-cc} -Wl,--no-as-needed -Wl,-rpath,"$TMP" -o with preload.c -L. -l:libasan.so.8
: >bin2/libpaceline-mpi.so
if ! sanitized any; then
	check "MPI's library is loaded into a program" test \
		"$(env -u LD_PRELOAD bin2/trace -q -- ./without 2>/dev/null)" = \
		"$TMP/bin2/libpaceline-mpi.so"
fi
mkdir 'bin 3'
cp "$trace" 'bin 3/trace'
cp bin2/libpaceline-mpi.so 'bin 3/'
if ! sanitized any; then
	status 0 "a folder whose name LD_PRELOAD cannot hold" env -u LD_PRELOAD 'bin 3/trace' -- ./without
	says 'blanks and colons divide the names in LD_PRELOAD' "is said"
	holds out '^none$' "... and nothing is loaded from it"
fi
status 0 "--no-mpi" env -u LD_PRELOAD bin2/trace -v --no-mpi -- ./without
holds out '^none$' "leaves it out"
says 'MPI are not recorded, as --no-mpi says' "which is said"
status 0 "a program with the address sanitizer" env -u LD_PRELOAD PATH="$TMP:$PATH" bin2/trace -- with
holds out '^none$' "gets it not"
says 'with is linked with libasan.so.8, .* calls of MPI are not recorded' "and the reason is said"
status 2 "--no-mpi without a command" "$trace" --no-mpi plain

CUDA_INJECTION64_PATH=theirs status 0 "another tool" bin2/trace --light -- sh -c "$vars"
says 'CUDA_INJECTION64_PATH is theirs' "is named"
holds out ' theirs$' "and stays"

# --- Python
if ! command -v python3 >/dev/null; then
	skip "the hook of Python" "no python3"
	done_testing
	exit
fi
PYTHONPATH=$SRC/tests/emu
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE
unset RANK OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID
job() { # job WANT HOW STEPS [OPTION]...: a job of tests/emu/record_job.py, recorded in $dir
	n=$((n + 1))
	dir=$TMP/job$n
	want=$1
	how=$2
	steps=$3
	shift 3
	status "$want" "$how" "$trace" "$@" -o "$dir" -- python3 "$SRC/tests/emu/record_job.py" "$how" "$steps"
}
recorded() { # recorded STEP...: just these steps are in the file of rank 0
	"$trace" -q -O csv --kind=step "$dir/rank0.pt.trace.json" 2>/dev/null | sed -n 's/.*ProfilerStep#\([0-9]*\).*/\1/p' |
		paste -s -d ' ' | grep -qx "$*"
}
job 0 plain 16 -v
says 'recorded 1 rank, steps 5 to 7, 1 file .* in .*; next: replay' "what was recorded, and what to do"
says 'recording took .* of a step\|what recording took cannot be told: steps take .* ms with it' "what it took, or that this cannot be told"
check "three steps" recorded 5 6 7
check "nothing else stays" test "$(ls -A "$dir")" = rank0.pt.trace.json
status 0 "replay reads the folder" "$BIN/replay" -q --no-worth "$dir"
for mode in '' --light; do
	# shellcheck disable=SC2086  # an option or none
	job 0 pauses 12 --record-steps=4 -v $mode
	says 'recording took cannot be told: .* and differ by' "steps of unlike length do not say what recording took"
	for name in 'garbage collection' torch.save; do
		for step in 5 6 7 8; do
			"$trace" -q -O jsonl --step=$step --name="$name" "$dir" 2>/dev/null | grep -c '"type":"event"'
		done | paste -s -d ' ' >pauses
		check "what stops the script, in its steps: $name${mode:+, in light mode}" grep -qx '0 1 0 1' pauses
	done
done
job 0 two 12 --record-steps=2 --skip-steps=3
check "two optimizers are one step" recorded 3 4
for many in 'two 2' 'three 3'; do
	job 0 "${many% *}" 310 --record-steps=2 --skip-steps=300
	check "... also after many steps" recorded 300 301
	check "... with the step of each" test "$("$trace" -q -O jsonl --step=300 --name=Optimizer.step "$dir" 2>/dev/null |
		grep -c '"type":"event"')" = "${many#* }"
done
job 0 seldom 15 --record-steps=1
check "the optimizer that steps most seldom counts" recorded 5
check "its step has two of the other" test "$("$trace" -q -O jsonl --step=5 --name=Optimizer.step "$dir" 2>/dev/null |
	grep -c '"type":"event"')" = 3
job 0 hooks 12 --record-steps=2
check "optimizers that hooks of the backward pass call are one, which steps behind it" recorded 5 6
check "... with both" test "$("$trace" -q -O jsonl --step=5 --name=Optimizer.step "$dir" 2>/dev/null | grep -c '"type":"event"')" = 2
job 0 scaler 12
check "steps that a scaler leaves out count" recorded 5 6 7
job 0 scaler 12 --steps-by=calls
check "... where something else tells the steps" grep -q 'job is done' "$TMP/out"
job 0 asks 12
check "a script that asks whether there is torch before it imports it" recorded 5 6 7
job 0 loader 12
check "without an optimizer: batches" recorded 5 6 7
job 0 said 12
check "without a loader: what the script says" recorded 5 6 7
job 0 plain 12 --steps-by=profiler
says 'no step was found' "no other way of telling steps where one is chosen"
says 'of inference, count calls of the model: --steps-by=calls' "... with the remedy"
status 0 "... beside what a library has written" "$trace" --steps-by=profiler -o "$TMP/beside" -- sh -c "mkdir '$TMP/beside/.nccl'
	ln -s 0 '$TMP/beside/.nccl/0123456789abcdef.0'
	echo >'$TMP/beside/rank0.mpi.trace'
	exec python3 '$SRC/tests/emu/record_job.py' plain 12"
says 'no step of PyTorch was recorded: no step was found' "... that is said, too"
check "... and links of killed ranks are removed" test "$(ls -A "$TMP/beside")" = rank0.mpi.trace
job 0 infer 16 --steps-by=calls
check "inference: calls of the model" recorded 5 6 7
check "... which nothing sees any more afterwards" grep -qx 'as before' "$TMP/out"
job 0 infer 16 --steps-by=calls --light
check "... nor in light mode" grep -qx 'as before' "$TMP/out"
check "... in light mode" recorded 5 6 7
"$trace" -q -O jsonl --step=6 --name='nn.Module: *' "$dir" 2>/dev/null >light
check "... each a step of one call" test "$(grep -c '"name":"nn.Module: Linear' light)" -ge 1
status 2 "what tells no steps" "$trace" --steps-by=time -- true
status 2 "without a command" "$trace" --steps-by=calls "$SRC/samples/ddp-gloo/rank0.json.gz"
says 'are for a command' "... is a mistake"
job 0 fork 12
check "the child of a fork" recorded 5 6 7
job 0 plain 12 --light
check "light mode" recorded 5 6 7
says 'lacks a part' "says what this PyTorch does not have"
"$trace" -q -O jsonl --step=6 "$dir" 2>/dev/null >light
holds light '"name":"nn.Module: inner"' "with the calls of modules"
holds light '"name":"nn.Module: inner.0"' "... in a list, which is not called: with its name"
holds light '"name":"Linear.forward".*"Input Dims":\[\[4, *8\], *\[4, *8\]\]' "... and their sizes"
holds light '"kind":"host_op","name":"Optimizer.step"' "and the steps of optimizers"
cat >product.py <<'EOF'
import light, sys
for rows, weight, back in ([64, 100], (100, 512), True), ([64, 100], (100, 512), False), ([8, 4, 9, 9], (4, 3, 3, 3), True):
    args = {"Input Dims": [rows], "Input type": ["float"]}
    light.Light.put_product(None, args, weight, back)
    print(args.get("flops"), args["Input Dims"], len(args["Input type"]))
EOF
PYTHONPATH=$SRC/lib/record status 0 "what nodes of the backward pass multiply" python3 product.py
holds out '^13107200 \[\[64, 100\], \[64, 512\], (512, 100)\] 3$' "the gradients of parameters and input"
holds out '^6553600 \[\[64, 100\], \[64, 512\]\] 2$' "of parameters alone, where nobody needs that of the input"
holds out '^None \[\[8, 4, 9, 9\], (4, 3, 3, 3)\] 2$' "no layer of matrices"
job 0 own 12
says 'profiler of its own' "the script's profiler goes first"
check "and nothing is recorded" no test -e "$dir"
job 0 late 12
says 'profiler of its own' "also while the first step is recorded"
job 0 refuses 12
says 'could not be ended: RuntimeError: the profiler refuses' "a failure of the hook's profiler there is said"
holds "$TMP/out" 'job is done' "... and is not the script's"
job 0 late 12
check "... which is no crash" no grep -q 'ended while recording' "$TMP/err"
job 0 full 12
says 'recording failed: OSError: .*No space left on device' "a file that cannot be written"
check "... is no crash" no grep -q 'ended while recording' "$TMP/err"
job 0 early 12 --steps-by=calls --light
check "nothing stays in its place where the script's profiler comes first" grep -qx 'as before' "$TMP/out"
check "... and the begin of a step is no recording" no test -e "$dir"

job 0 thread 12
check "steps that another thread makes" recorded 5 6 7
job 0 thread 7
says 'had made 2 of 3 steps when another thread ended the script' "... if the main thread ends the script before"
check "... nothing is kept" no test -e "$dir"
job 0 threads 12
says 'several threads make the steps in turn' "steps of two threads"
check "... are not recorded" no test -e "$dir"

# --- the child of a fork that ends by exit() has the library, too
if sanitized any || [ ! -e "$BIN/libpaceline-nccl.so" ]; then
	skip "NCCL's library in the child of a fork" "no such library for this program"
else
	mkdir forked
	cat >forks.py <<'EOF'
import ctypes, os, sys

plugin = ctypes.CDLL(sys.argv[1])


class Table(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p)] + [
        (call, ctypes.c_void_p) for call in ("init", "start", "stop", "state", "end")]


table = Table.in_dll(plugin, "ncclProfiler_v5")
init = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.POINTER(ctypes.c_int),
                        ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(table.init)
init(ctypes.byref(ctypes.c_void_p()), 0xabc, ctypes.byref(ctypes.c_int()), b"sub", 1, 2, 1, None)
before = os.listdir("forked/.nccl")
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(before and os.listdir("forked/.nccl") == before)
EOF
	# the library's thread, which writes, is none of these programs'
	RANK=5 WORLD_SIZE=8 PACELINE_RECORD_DIR=$TMP/forked env -u LD_PRELOAD python3 forks.py "$BIN/libpaceline-nccl.so" >said
	check "the child of a fork leaves the ranks that its parent has said" grep -qx True said
	check "... which the parent takes away" test ! -e forked/.nccl
fi

# --- early ends
for how in raise:1 exit:3 term:143; do
	job "${how#*:}" "${how%:*}" 8
	check "the steps so far are kept" recorded 5 6
	says 'after 2 of 3 steps' "which is said"
done
job 3 exit 6
says 'after 0 of 3 steps' "an end in the first step that is recorded"
check "... which is kept, and no step" sh -c "test -s '$dir/rank0.pt.trace.json' && ! grep -q 'ProfilerStep' '$dir/rank0.pt.trace.json'"
job 3 exit 8 --light
says 'lacks a part here' "all reasons of a process are said"
says 'after 2 of 3 steps' "... each once"
check "... and not taken for those of others" no grep -q 'in other processes' "$TMP/err"
job 137 kill 8
says 'ended while recording' "killed while recording"
job 0 plain 4
says 'made 4 steps, and the first 5 are left out' "too few steps"
job 0 plain 0
says 'no step was found' "no step"
status 0 "no torch" "$trace" -- python3 -c 'print(1)'
says 'did not import torch' "is said"
status 0 "python -E" "$trace" -- python3 -bE -c 'print(1)'
says 'python -bE does not load' "is named"
status 0 "hidden in a shell" "$trace" -- sh -c 'python3 -I -c "print(1)"'
says 'no process of the command is a Python that loads the hook' "is guessed"

# --- several processes, the sitecustomize of the user, replay in one go
mkdir site
echo 'import os; os.environ["SITE"] = "mine"' >site/sitecustomize.py
PYTHONPATH=site:$PYTHONPATH "$trace" -q -- python3 -c 'import os, sys; print(os.environ["SITE"], ".hook" in str(sys.path))' >said
check "a sitecustomize that is hidden runs, and the path is the user's" grep -qx 'mine False' said
older=$(getconf GNU_LIBC_VERSION | awk '{ split($2, v, "."); print v[1] == 2 && v[2] < 39 }')
cache=${older#0}
cache=${cache:+glibc.malloc.tcache_count=0}
check "glibc keeps no pieces of memory for a thread, in its versions before 2.39" \
	sh -c "test \"\$(env -u GLIBC_TUNABLES '$trace' -q -o cache1 -- printenv GLIBC_TUNABLES)\" = '$cache'"
check "what the user has set is kept" \
	sh -c "GLIBC_TUNABLES=glibc.malloc.perturb=0 '$trace' -q -o cache2 -- printenv GLIBC_TUNABLES | grep -qx '${cache:+$cache:}glibc.malloc.perturb=0'"
check "and so is its own size of that cache" \
	sh -c "GLIBC_TUNABLES=glibc.malloc.tcache_count=3 '$trace' -q -o cache3 -- printenv GLIBC_TUNABLES | grep -qx glibc.malloc.tcache_count=3"
check "the light mode needs none of this" \
	sh -c "! env -u GLIBC_TUNABLES '$trace' -q --light -o cache4 -- printenv GLIBC_TUNABLES"
status 0 "two ranks, and one process that has the rank of another" "$trace" -o ranks -- sh -c \
	"for r in 0 1 1; do RANK=\$r python3 $SRC/tests/emu/record_job.py plain 9 || exit; done"
says 'recorded 2 ranks' "are two recordings"
says 'another process has recorded rank 1' "and a word"
mkdir tmp
TMPDIR=$TMP/tmp
export TMPDIR
status 0 "replay -- COMMAND" "$BIN/replay" -q --no-worth -- python3 "$SRC/tests/emu/record_job.py" plain 9
check "first the command's output, then the report" sh -c 'head -n 1 out | grep -q "job is done" && grep -q "^step .*replayed" out'
check "the folder is gone" test -z "$(ls tmp)"
status 1 "a command that fails, kept" "$BIN/replay" --keep=kept --no-worth -- python3 "$SRC/tests/emu/record_job.py" raise 8
check "its report" grep -q "^step .*replayed" out
check "its recording" test -s kept/rank0.pt.trace.json
status 1 "a command that fails" "$BIN/replay" --no-worth -- python3 "$SRC/tests/emu/record_job.py" raise 8
says 'the recording stays in' "loses nothing"
status 3 "nothing to replay" "$BIN/replay" -- python3 "$SRC/tests/emu/record_job.py" plain 0
check "and no folder" sh -c 'set -- tmp/*; test $# = 1'
done_testing
