# predict --measure: tensor programs of operations, compiled, compared and timed.
# runner: threads
# shellcheck disable=SC2016  # scripts of sh -c are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

if sanitized thread; then
	skip "programs are compiled and timed" "the threads are those of OpenMP, which the sanitizer does not know"
	done_testing
	exit
fi
cat >small.tasks <<'END'
paceline-tasks 1
model small
dense m=16 n=24 k=12 then=relu
conv in=3 out=8 size=8 kernel=3 pad=1 then=gelu
depthwise channels=8 size=8 kernel=3 stride=2 pad=1 then=bias
pool channels=8 size=8 kernel=2 stride=2
softmax rows=16 columns=24
layernorm rows=16 columns=24
chain elements=96 length=4
END
if ! echo 'int main(void) { return 0; }' | ${CC:-cc} -fopenmp -x c -o /dev/null - 2>/dev/null; then
	skip "programs are compiled and timed" "no compiler with OpenMP"
	done_testing
	exit
fi
mkdir scratch
TMPDIR=$PWD/scratch
export TMPDIR
status 0 "programs are compiled and timed" "$BIN/predict" --measure small.tasks --programs 6 --device=box -o small.tprog
check "... each has the result of the first" test ! -s "$TMP/err"
check "... six of each operation" sh -c 'test "$(grep -c "^program .* op=conv$" small.tprog)" = 6'
check "... with the model" sh -c 'test "$(grep -c "^program .* model=small " small.tprog)" = 42'
check "... and a time on the device" awk '$1 == "measured" { n++; split($4, l, "="); if ($2 != "box" || $3 < l[2] || l[2] <= 0) exit 1 }
	END { exit n != 42 }' small.tprog
check "... that differ" sh -c 'test "$(grep -vE "^(program|measured)" small.tprog | sort -u | wc -l)" -gt 80'
check "no file stays" test -z "$(ls scratch)"
sed 's/model=small/model=other/' small.tprog >other.tprog
status 0 "programs of a model that was not seen" "$BIN/predict" --cross model --schema=tprog -O csv small.tprog other.tprog
check "... has a prediction each" awk -F , '$1 == "all" && $3 == 84 && $4 > 0 { found = 1 } END { exit !found }' "$TMP/out"
status 0 "the nearest program" "$BIN/predict" --cross model --schema=tprog --learner nearest -O csv small.tprog other.tprog
check "... is the same one, in the median" awk -F , '$1 == "all" && $5 < 0.000001 { found = 1 } END { exit !found }' "$TMP/out"
status 0 "a network" "$BIN/predict" --cross model --schema=tprog --learner net -O csv small.tprog other.tprog
check "... has a prediction each" awk -F , '$1 == "all" && $3 == 84 && $4 > 0 && $4 < 100 { found = 1 } END { exit !found }' "$TMP/out"
status 3 "one model only" "$BIN/predict" --cross model --schema=tprog small.tprog
says 'nothing is left to learn from' "... is too few"
status 2 "programs have no other model yet" "$BIN/predict" --train --schema=tprog small.tprog
printf 'conv in=1 out=1 size=3 kernel=5\n' >bad.tasks
status 3 "a kernel larger than its image" "$BIN/predict" --measure bad.tasks
says 'bad.tasks: line 1' "... is named with file and line"
printf 'dence m=1 n=1 k=1\n' >bad.tasks
status 3 "a word that is no operation" "$BIN/predict" --measure bad.tasks
says 'dense' "... and one that is near"
CC=no-such-compiler status 6 "no compiler" "$BIN/predict" --measure small.tasks --programs 2
says 'a compiler of C is needed' "... is said"
status 2 "a table as well" "$BIN/predict" --measure small.tasks table.csv
status 2 "programs" "$BIN/predict" --measure small.tasks --programs 0
done_testing
