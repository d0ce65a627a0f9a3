# predict --import=autotvm: tensor programs of tuning logs. predict -O c, -O cuda: sources of tensor programs, compiled
# and compared with the programs; those for GPUs on the emulated device, which finds races, and by nvcc where it is.
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1
# other tests run at the same time: threads that wait leave them the processors
export OMP_PROC_BIND=false OMP_WAIT_POLICY=passive

# line TASK SHAPE-A SHAPE-B MORE-ARGUMENTS TILES ERROR: a measurement as TVM writes it
line() {
	echo "{\"input\": [\"cuda -keys=cuda,gpu -arch=sm_70 -model=v100\", \"$1\", [[\"TENSOR\", [$2], \"float32\"], [\"TENSOR\", [$3], \"float32\"], $4], {}]," \
		"\"config\": {\"index\": 12, \"code_hash\": null, \"entity\": [$5]}," \
		"\"result\": [[0.0021, 0.0019, 0.0020], $6, 1.7, 1607000000.25], \"version\": 0.2, \"tvm_version\": \"0.9.0\"}"
}
# tile NAME SIZES
tile() {
	echo "[\"$1\", \"sp\", [$2]]"
}
dense='null, "float32"'
bmm='[2, 16, 24], "float32", false, true'
unroll='["auto_unroll_max_step", "ot", 16], ["unroll_explicit", "ot", 1]'
mkdir logs
{
	line dense_large_batch.cuda '16, 12' '24, 12' "$dense" \
		"$(tile tile_x '-1, 2, 2, 2'), $(tile tile_y '2, 1, 4, 3'), $(tile tile_k '-1, 3, 2')" 0
	line dense_large_batch.gpu '16, 12' '24, 12' "$dense" \
		"$(tile tile_x '1, 1, 8, 2'), $(tile tile_y '3, 2, 2, 2'), $(tile tile_k '3, 1, 4')" 0
	line dense_small_batch.gpu '3, 42' '5, 42' "$dense" "$(tile tile_k '-1, 7')" 0
	line dense_small_batch.cuda '3, 42' '5, 42' "$dense" "$(tile tile_k '1, 42')" 0
	line batch_matmul.cuda '2, 16, 20' '2, 24, 20' "$bmm" \
		"$(tile tile_y '2, 4, 2'), $(tile tile_x '-1, 3, 4'), $(tile tile_k '4, 5'), $unroll" 0
	line batch_matmul.cuda '2, 16, 20' '1, 24, 20' "$bmm" \
		"$(tile tile_y '1, 2, 8'), $(tile tile_x '1, 8, 3'), $(tile tile_k '2, 10'), $unroll" 0
	line batch_matmul.cuda '2, 16, 20' '2, 24, 20' "$bmm" \
		"$(tile tile_y '1, 2, 8'), $(tile tile_x '1, 8, 3'), $(tile tile_k '2, 10'), $unroll" 4
	line conv2d_nchw.cuda '1, 3, 8, 8' '4, 3, 3, 3' '[1, 1], [1, 1]' '' 0
	echo '{"input": ["cuda", "dense_small'
} >logs/my-net.log
status 0 "a tuning log" "$BIN/predict" --import=autotvm logs/my-net.log -o gpu.tprog
check "... has a program for each measurement" test "$(grep -c '^program .* model=my_net ' gpu.tprog)" = 6
check "... of two operations" test "$(grep -c 'op=dense$' gpu.tprog) $(grep -c 'op=bmm$' gpu.tprog)" = "4 2"
check "... and its time, on the device of the target" test "$(grep -c '^measured v100 2000000 least=1900000 runs=3$' gpu.tprog)" = 6
says 'logs/my-net.log: left out: measurements that failed (1)' "what failed is counted"
says 'are not known (1); the first: line 8: the template "conv2d_nchw.cuda"' "... other templates, too"
says 'no measurements (1); the first: line 9: not a measurement' "... and what is no measurement"
status 3 "the same, strictly" "$BIN/predict" --import=autotvm --strict logs/my-net.log -o none.tprog
says 'logs/my-net.log: line 8: the template "conv2d_nchw.cuda"' "... names the first line"
check "... and writes nothing" test ! -e none.tprog
gzip -c logs/my-net.log >two.log.gz
status 0 "two logs, one compressed, and a device" "$BIN/predict" -q --import=autotvm --device=box logs/my-net.log two.log.gz -o two.tprog
check "... have the programs of both" test "$(grep -c 'model=my_net' two.tprog) $(grep -c 'model=two' two.tprog)" = "6 6"
check "... on that device" test "$(grep -c '^measured box ' two.tprog)" = 12
status 0 "standard input" sh -c "\"$BIN/predict\" -q --import=autotvm <logs/my-net.log"
check "... is of no network" sh -c "grep -q '^program o0.p1 op=dense' '$TMP/out'"
status 0 "what models see of the programs" "$BIN/predict" -q --cross model --schema=tprog --learner nearest -O csv two.tprog
check "... of all" grep -q '^all,all,12,' "$TMP/out"
tail -n 1 logs/my-net.log >bad.log
status 3 "a log without a program" "$BIN/predict" -q --import=autotvm bad.log
says 'no program in these logs' "... is refused"
status 4 "no log" "$BIN/predict" --import=autotvm none.log
status 2 "a log and a model" "$BIN/predict" --import=autotvm -m x bad.log
status 2 "a log as C" "$BIN/predict" --import=autotvm -O c bad.log
status 2 "strictly, but no log" "$BIN/predict" --strict -O c gpu.tprog
status 2 "a name that no device can have" "$BIN/predict" --import=autotvm --device=a-b bad.log
status 3 "programs of GPUs are not measured" "$BIN/predict" --measure gpu.tprog
says 'program o0.p1, which line 2 begins: its loops are bound' "... with a word"

# ---- sources ----
# What logs do not have: loops and an array of the host around kernels, one of whose loops is parallel; statements of
# the first thread; arrays of a block that its threads keep or, as each reads those of others, share; fewer threads.
cat >more.tprog <<'END'
paceline-tprog 1
program host.loops
buffer A float32 3 4 8
buffer C float32 3 4
for b 3
  alloc T float32 4 8
    for i 4 parallel
      for k 8
        T[i, k] = exp(A[b, i, k])
      end
    end
    for i 4 block.x
      C[b, i] = 0.0
      for k 8 reduce
        C[b, i] += T[i, k]
      end
    end
  end
end
program mixed
buffer A float32 5 8
buffer C float32 5 8
for i 5 block.y
  alloc mine float32 8 2
    alloc turned float32 2 8
      alloc sum float32 1
        for t 8 thread.x
          mine[t, 0] = A[i, t] * 2.0
          mine[t, 1] = tanh(A[i, t])
          for s 2 vthread
            turned[s, t] = A[i, t] + 1.0
          end
        end
        sum[0] = -100.0
        for t 8
          sum[0] max= turned[1, t]
        end
        for t 4 thread.x
          C[i, t] = mine[t, 1] + turned[0, 7 - t] + sum[0]
        end
        for t 8 thread.x
          C[i, t] = select(t < 4, C[i, t], mine[t, 0] - sum[0])
        end
      end
    end
  end
end
program steps
buffer A float32 6 4 3
buffer C float32 4 3
for y 4 thread.y
  for x 3 thread.x
    C[y, x] = 0.0
  end
end
for i 1 block.x
  alloc S float32 4 3 shared
    for k 6 reduce
      for y 4 thread.y
        for x 3 thread.x
          S[y, x] = A[k, y, x]
        end
      end
      for y 4 thread.y
        for x 3 thread.x
          C[y, x] += S[3 - y, 2 - x] * 0.5
        end
      end
    end
  end
end
END
sed 1d more.tprog | cat gpu.tprog - >all.tprog
status 0 "programs as C" "$BIN/predict" -O c all.tprog -o all.c
check "... are nine functions" test "$(grep -c '^void p[0-9]*(' all.c)" = 9
status 0 "programs as CUDA" "$BIN/predict" -O cuda gpu.tprog more.tprog -o all.cu
check "... are nine, and their kernels" test "$(grep -c '^extern "C" int p[0-9]*(' all.cu) $(grep -c '__global__' all.cu)" = "9 11"
check "... with shared memory" test "$(grep -c '__shared__ float b_AA' all.cu)" = 4
check "... what threads keep is in them" grep -q '^ *float b_mine_2\[2\];' all.cu
check "... what they share is not" grep -q '__shared__ float b_turned_3\[16\];' all.cu
cp all.cu once.cu
status 0 "again" "$BIN/predict" -O cuda gpu.tprog more.tprog -o all.cu
check "... the same" cmp -s once.cu all.cu
if [ -n "$GEN" ] && [ -x "$GEN/tprogrun" ] && ! sanitized any; then
	status 0 "the C source is compiled" "${CC:-cc}" -O1 -w -fPIC -shared -o all.so all.c -lm
	status 0 "... and computes what the programs do" "$GEN/tprogrun" all.tprog ./all.so
else
	skip "the C source is compiled" "a sanitizer, or no helper"
fi
# two programs whose arrays of the host have the same name
awk '/^program mixed/ { exit } { print }' more.tprog >host.tprog
{ cat host.tprog; sed '1d; s/host.loops/host.again/; s/exp(/tanh(/' host.tprog; } >twice.tprog
status 0 "arrays of the host" "$BIN/predict" -O cuda twice.tprog -o twice.cu
check "... are apart for each program" test "$(grep -c '^namespace p[01]_parts {' twice.cu)" = 2
# max and min in one another, whose operands would double the source with each level
{
	printf 'paceline-tprog 1\nprogram nested\nbuffer A float32 8\nbuffer C float32 8\nfor i 8 block.x\n  C[i] = '
	awk 'BEGIN { for (k = 0; k < 20; k++) printf k % 2 ? "max(" : "min("; printf "A[max(min(max(min(i * 3, 9), 1), 7), 0)]"
		for (k = 0; k < 20; k++) printf ", A[%d] + 0.%d)", k % 8, k; print "\nend" }'
} >nested.tprog
status 0 "twenty max and min in one another" "$BIN/predict" -O c nested.tprog -o nested.c
check "... are no long source" test "$(wc -c <nested.c)" -lt 8000
status 0 "... as CUDA, too" "$BIN/predict" -O cuda nested.tprog -o nested.cu
check "... are none" test "$(wc -c <nested.cu)" -lt 8000
if [ -n "$GEN" ] && [ -x "$GEN/tprogrun" ] && ! sanitized any; then
	status 0 "... which is compiled" "${CC:-cc}" -O1 -w -fPIC -shared -o nested.so nested.c -lm
	status 0 "... and computes what the program does" "$GEN/tprogrun" nested.tprog ./nested.so
fi

# on_emulated SOURCE NAME: a library of kernels for the emulated device, whose compiler tells it what they touch
on_emulated() {
	sed -E -e 's/^( *)__shared__ float ([A-Za-z0-9_]+)\[([0-9]+)\];/\1PL_SHARED(\2, float[\3]);/' \
		-e 's/^( *)([A-Za-z0-9_]+)<<<(.*), 0, stream>>>\((.*)\);/\1PL_LAUNCH(\2, \3, 0, stream, \4);/' \
		-e 's/^#include <cuda_runtime.h>/#include "tensor\/cuda\/device.cuh"\n#include "emu_runtime.h"/' "$1" >"$2.cpp"
	echo 'extern "C" void seed(unsigned long n) { emu_seed(n); }' >>"$2.cpp"
	"${CXX:-c++}" -std=c++17 -O1 -w -fPIC -fsanitize=thread -I"$SRC/lib" -I"$BUILD" -I"$SRC/tests/emu" \
		-include "$SRC/tests/emu/cuda_emu.h" -c -o "$2.o" "$2.cpp" &&
		"${CXX:-c++}" -shared -o "$2.so" "$2.o" "$BUILD/libemu.a"
}
if [ ! -f "$BUILD/libemu.a" ] || [ ! -x "$GEN/tprogrun" ] || sanitized any; then
	skip "kernels on an emulated device" "not built, or a sanitizer"
else
	status 0 "the kernels are compiled for an emulated device" on_emulated all.cu emulated
	status 0 "... and compute what the programs do, in any order" "$GEN/tprogrun" all.tprog ./emulated.so 0 1 2 3 4 5
	status 0 "max and min in one another are compiled" on_emulated nested.cu nest
	status 0 "... and compute what the program does" "$GEN/tprogrun" nested.tprog ./nest.so 0
	status 0 "two programs with arrays of the host are compiled" on_emulated twice.cu twice
	status 0 "... and compute what they say" "$GEN/tprogrun" twice.tprog ./twice.so 0 1
	grep -v '__syncthreads' all.cu >wild.cu
	status 0 "the same without barriers" on_emulated wild.cu wild
	status "134 1" "... does not" "$GEN/tprogrun" all.tprog ./wild.so 0
	says 'a race' "... it is a race"
fi
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -x "$nvcc" ]; then
	"$BIN/predict" -O cuda gpu.tprog more.tprog nested.tprog twice.tprog -o every.cu
	status 0 "nvcc compiles the kernels" "$nvcc" -ptx -o every.ptx every.cu
else
	skip "nvcc compiles the kernels" "there is none"
fi

# ---- what cannot be a kernel ----
# refused NAME TEXT: the program of standard input
refused() {
	{ printf 'paceline-tprog 1\nprogram bad\nbuffer A float32 4 4\n' && cat; } >bad.tprog
	status 3 "$1" "$BIN/predict" -O cuda bad.tprog
	says "program bad, which line 2 begins: .*$2" "... is said"
}
refused "a program of a processor" 'no loop is bound' <<'END'
for i 4 parallel
  A[i, 0] = 1.0
end
END
refused "blocks in threads" 'loop b is bound to blocks inside' <<'END'
for t 4 thread.x
  for b 4 block.x
    A[b, t] = 1.0
  end
end
END
refused "blocks beside a statement" 'loop b is bound to blocks inside' <<'END'
for a 4 block.y
  A[a, 0] = 1.0
  for b 4 block.x
    A[a, b] = 1.0
  end
end
END
refused "the same blocks twice" 'loop b is bound to blocks that another' <<'END'
for a 4 block.x
  for b 4 block.x
    A[a, b] = 1.0
  end
end
END
refused "the same threads twice" 'loop b is bound to threads that another' <<'END'
for a 4 thread.x
  for b 4 thread.x
    A[a, b] = 1.0
  end
end
END
refused "statements of some threads" 'loop a has statements' <<'END'
for a 4 thread.y
  A[a, 0] = 1.0
  for b 4 thread.x
    A[a, b] = 1.0
  end
end
END
refused "a sum over threads" 'loop a sums up' <<'END'
for a 4 reduce thread.x
  A[0, 0] += 1.0
end
END
refused "an array that some threads share" 'array x is of some threads' <<'END'
for a 4 thread.x
  alloc x float32 4 shared
    x[0] = 1.0
    A[a, 0] = x[0]
  end
end
END
refused "too much shared memory" 'array x does not fit into 48 KB' <<'END'
for a 4 block.x
  alloc x float32 20000 shared
    for t 4 thread.x
      x[t] = 1.0
    end
    for t 4 thread.x
      A[a, t] = x[3 - t]
    end
  end
end
END
refused "too many threads" 'loop a has more than 1024 threads' <<'END'
for a 64 thread.x
  for b 64 thread.y
    A[a / 16, b / 16] = 1.0
  end
end
END
status 2 "a source for a device" "$BIN/predict" -O cuda --device=box gpu.tprog
says 'the same for all devices' "... is the same as for others"
status 2 "a source with a learner" "$BIN/predict" -O c --learner=net gpu.tprog
status 2 "logs of two devices" "$BIN/predict" --import=autotvm --device=a --device=b bad.log
status 2 "a source and a model" "$BIN/predict" -O cuda -m x gpu.tprog
printf 'op,m\n' >table.csv
status 3 "a table" "$BIN/predict" -O cuda table.csv
says 'table.csv: line 1' "... is named"
done_testing
