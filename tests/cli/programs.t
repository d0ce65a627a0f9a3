# predict --measure: tensor programs of operations, compiled, compared and timed.
# runner: threads
# shellcheck disable=SC2016  # scripts of sh -c are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1
# other tests run at the same time: threads that wait leave them the processors
export OMP_PROC_BIND=false OMP_WAIT_POLICY=passive

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
# other tests may slow the machine down, which is said
check "... each has the result of the first" no grep -q 'left out' "$TMP/err"
check "... six of each operation" sh -c 'test "$(grep -c "^program .* op=conv$" small.tprog)" = 6'
check "... with the model" sh -c 'test "$(grep -c "^program .* model=small " small.tprog)" = 42'
check "... and a time on the device" awk '$1 == "measured" { n++; split($4, l, "="); if ($2 != "box" || $3 < l[2] || l[2] <= 0) exit 1 }
	END { exit n != 42 }' small.tprog
check "... that differ" sh -c 'test "$(grep -vE "^(program|measured)" small.tprog | sort -u | wc -l)" -gt 80'
check "no file stays" test -z "$(ls scratch)"
# longer than names of files usually are
long=$PWD/scratch/$(awk 'BEGIN { for (i = 0; i < 12; i++) printf "a-folder-of-twenty-0/" }')
mkdir -p "$long"
printf 'dense m=4 n=4 k=4\n' >one.tasks
status 0 "a long TMPDIR" env TMPDIR="$long" "$BIN/predict" --measure one.tasks --programs 1
check "... no file stays there, either" test -z "$(ls "$long")"
rm -r scratch/a-folder-of-twenty-0
sed 's/model=small/model=other/' small.tprog >other.tprog
status 0 "programs of a model that was not seen" "$BIN/predict" --cross model --schema=tprog -O csv small.tprog other.tprog
check "... has a prediction each" awk -F , '$1 == "all" && $3 == 84 && $4 > 0 { found = 1 } END { exit !found }' "$TMP/out"
status 0 "the nearest program" "$BIN/predict" --cross model --schema=tprog --learner nearest -O csv small.tprog other.tprog
check "... is the same one, in the median" awk -F , '$1 == "all" && $5 < 0.000001 { found = 1 } END { exit !found }' "$TMP/out"
status 0 "a network" "$BIN/predict" --cross model --schema=tprog --learner net -O csv small.tprog other.tprog
check "... has a prediction each" awk -F , '$1 == "all" && $3 == 84 && $4 > 0 && $4 < 100 { found = 1 } END { exit !found }' "$TMP/out"
status 3 "one model only" "$BIN/predict" --cross model --schema=tprog small.tprog
says 'nothing is left to learn from' "... is too few"
# a model of programs, as a file
status 0 "a model of programs" "$BIN/predict" -q --train --schema=tprog small.tprog other.tprog -o small.model
status 0 "... again" "$BIN/predict" -q --train --schema=tprog small.tprog other.tprog -o again.model
status 0 "what is in it" "$BIN/predict" small.model
holds "$TMP/out" 'trees, from 84 programs' "... learner and programs"
holds "$TMP/out" 'conv  .* 12 ' "... operations"
cp "$TMP/out" shown
status 0 "... of the second" "$BIN/predict" --schema=tprog --explain -m again.model
check "... is the same" cmp -s shown "$TMP/out"
status 0 "predictions" "$BIN/predict" -m small.model small.tprog
check "... are a row for each program, in its interval" awk -F , 'NR == 1 { if ($0 != "row,program,model,op,latency_ns,lo_ns,hi_ns,flag") exit 1; next }
	!($5 >= $6 && $5 <= $7 && $6 > 0 && $8 == "in-range") { exit 1 } END { exit NR != 43 }' "$TMP/out"
status 0 "what makes their times" "$BIN/predict" -m small.model --explain small.tprog
check "... the factors of each make its time of a unit" awk '/ on box: / { n++ } / units of work, / { want = $(NF - 2); got = 1 }
	/^    x / { got *= $2; lines++; if (/all other entries$/ && !(got > 0.5 * want && got < 2 * want)) exit 1 }
	END { print "# " n " programs, " lines " factors"; exit !(n == 42 && lines > 200) }' "$TMP/out"
printf 'paceline-job 1\nmodel mlp:8-8-2\ndata synthetic:samples=64,dims=8,classes=2\n' >tiny.job
"$BIN/graph" -q -o tiny.graph tiny.job
status 3 "it is no model of kernels, for a what-if" "$BIN/replay" -m small.model --what-if 'batch by=2' tiny.graph
says 'no cost model of kernels' "... and the message says so"
status 0 "its errors" "$BIN/predict" --schema=tprog --eval -m small.model -O csv small.tprog
check "... of all programs" awk -F , '$1 == "all" && $3 == 42 && $4 > 0 && $9 > 0 { found = 1 } END { exit !found }' "$TMP/out"
sed 's/^measured box \([0-9]*\).*/measured box \1000/' small.tprog >far.tprog
status 3 "times in another unit" "$BIN/predict" --schema=tprog --eval -m small.model far.tprog
says 'far.tprog: half of the times on box are above .*another unit than ns' "... are refused"
status 3 "... to adapt, too" "$BIN/predict" --schema=tprog --adapt far.tprog -m small.model -o no.model
status 0 "... unless --unit says so" "$BIN/predict" --schema=tprog --eval --unit=ns -m small.model far.tprog
status 2 "... of another unit" "$BIN/predict" --schema=tprog --eval --unit=us -m small.model far.tprog
sed 's/^measured box \([0-9]*\).*/measured slow \1000/' small.tprog >slow.tprog
status 2 "the weight of a term of networks, for trees" "$BIN/predict" --adapt slow.tprog -m small.model --discrepancy 2 -o no.model
says 'discrepancy is for the network of a model, and small.model has none' "... is refused"
status 2 "... the programs of that term, too" "$BIN/predict" --adapt slow.tprog -m small.model --target slow.tprog -o no.model
status 0 "a device that is a thousand times slower" "$BIN/predict" --schema=tprog --adapt slow.tprog -m small.model -o slow.model
status 0 "... of which some programs are measured" "$BIN/predict" --schema=tprog --eval -m slow.model -O csv slow.tprog
check "... has the errors of the first" awk -F , '$1 == "all" && $3 == 42 && $5 < 0.9 && $5 > 0 { found = 1 } END { exit !found }' "$TMP/out"
awk '/^program/ { n++ } n <= 18' slow.tprog >eighteen.tprog
awk '/^program/ { n++ } n <= 19' slow.tprog >nineteen.tprog
status 0 "adapted to 18 programs" "$BIN/predict" --schema=tprog --adapt eighteen.tprog -m small.model -o few.model
says 'eighteen.tprog has 18 programs of slow; fewer than 19 do not show' "... warns of its intervals"
status 0 "... and to 19" "$BIN/predict" --schema=tprog --adapt nineteen.tprog -m small.model -o few.model
check "... does not" test ! -s "$TMP/err"
status 0 "what is in it" "$BIN/predict" few.model
holds "$TMP/out" 'Errors on the 19 programs of the adaptation, left out in turn: 5 % are below' "... errors of the adaptation"
# programs of two networks in turn
for n in 18 19; do
	awk -v most=$n '/^program/ { n++; sub(/model=[^ ]*/, "model=n" n % 2) } n <= most' small.tprog >some.tprog
	"$BIN/predict" -q --train --schema=tprog some.tprog -o some.model
	"$BIN/predict" -m some.model some.tprog >some.$n
done
check "18 errors show no interval" awk -F , 'NR > 1 && ($5 == "" || $6 != "" || $7 != "") { exit 1 } END { exit NR != 19 }' some.18
check "... but 19 do" awk -F , 'NR > 1 && !($6 <= $5 && $5 <= $7 && $6 < $7) { exit 1 } END { exit NR != 20 }' some.19
cat small.tprog >both.tprog
sed 1d slow.tprog >>both.tprog
status 3 "a model of two devices" "$BIN/predict" --train --schema=tprog both.tprog -o none.model
says 'is of one device' "... is refused"
check "... and not written" test ! -e none.model
status 0 "... but of one of them" "$BIN/predict" -q --train --no-intervals --schema=tprog --device=slow both.tprog -o none.model
status 0 "a model without intervals" "$BIN/predict" --schema=tprog -m none.model small.tprog
check "... has none" awk -F , 'NR > 1 && ($6 != "" || $7 != "") { exit 1 }' "$TMP/out"
status 3 "programs of no such device" "$BIN/predict" --train --schema=tprog --device=none small.tprog
says 'measured on none' "... is said"
status 0 "a network and trees" "$BIN/predict" -q --train --schema=tprog --learner=both --no-intervals small.tprog -o net.model
status 0 "... predict" "$BIN/predict" --schema=tprog -m net.model small.tprog
cp "$TMP/out" one
status 0 "... the same each time" "$BIN/predict" --schema=tprog -m net.model small.tprog
check "... to the digit" cmp -s one "$TMP/out"
printf 'op,m\n' >table.csv
status 3 "a model of programs for tables" "$BIN/predict" -m small.model table.csv
says 'table.csv' "... is told"
status 3 "... and of another schema" "$BIN/predict" -m small.model --schema=neusight table.csv
says 'leave out --schema=neusight' "... says how it is read"
status 0 "a model from a pipe" sh -c 'cat small.model | "$0" -m /dev/stdin small.tprog' "$BIN/predict"
check "... predicts the same" test "$(cut -d , -f 5 "$TMP/out" | cksum)" = "$("$BIN/predict" -m small.model small.tprog | cut -d , -f 5 | cksum)"
status 0 "... is shown" sh -c 'cat small.model | "$0" -' "$BIN/predict"
status 2 "--device twice" "$BIN/predict" --train --schema=tprog --device=box --device=slow both.tprog -o none.model
says 'one device' "... is refused"
status 2 "... of the machine, too" "$BIN/predict" --measure small.tprog --device=box --device=slow
status 2 "... for predictions, which are for the device of the model" "$BIN/predict" -m small.model --device=other small.tprog
status 2 "data sheets" "$BIN/predict" --train --schema=tprog --devices=. small.tprog
head -c 3000 small.model >cut.model
status 3 "a model that is cut off" "$BIN/predict" --schema=tprog --explain -m cut.model
status 2 "trees or a network" "$BIN/predict" --train --schema=tprog --learner=nearest small.tprog
status 0 "programs that stand for all" "$BIN/predict" --schema=tprog --choose 9 small.tprog -o few.tprog
check "... are nine" test "$(grep -c '^program' few.tprog) $(grep -c '^measured' few.tprog)" = "9 0"
status 2 "... all of them, not so many" "$BIN/predict" --measure few.tprog --programs 3
says 'leave out --programs' "... it says so"
status 0 "... are measured" "$BIN/predict" --measure few.tprog --device=here -o few.measured
check "... each" test "$(grep -c '^measured here' few.measured)" = 9
check "... and are the same programs" sh -c 'grep -v "^measured" few.measured | cmp -s - few.tprog'
status 3 "programs of one device" "$BIN/predict" --cross device --schema=tprog small.tprog
says 'all programs are of one device' "... say nothing of another one"
status 3 "more than there are" "$BIN/predict" --schema=tprog --choose 900 small.tprog
status 2 "of tables" "$BIN/predict" --choose 9 small.tprog
status 2 "none" "$BIN/predict" --schema=tprog --choose 0 small.tprog
status 2 "and another verb" "$BIN/predict" --schema=tprog --choose 9 --adapt few.measured -o x small.tprog
status 2 "of a pipe, which cannot be read twice" "$BIN/predict" --schema=tprog --choose 9
status 2 "a name that programs cannot have" "$BIN/predict" --measure few.tprog --device=a-b
printf 'paceline-tprog 1\nprogram a\nalloc t float32 4\nt[0] = 1.0\nend\n' >none.tprog
status 3 "a program without parameters" "$BIN/predict" --measure none.tprog
says 'no parameters' "... is named"
printf 'paceline-tprog 1\nprogram a\nbuffer A float32 4\nbuffer B float32 4\nfor i 4\nB[i] = log(A[i] - 2.0) + 1.0 / (A[i] * 0.0)\nend\n' >none.tprog
status 0 "results that are no numbers" "$BIN/predict" --measure none.tprog
check "... are right, if those of the first program are none" grep -q '^measured this' "$TMP/out"
printf 'paceline-tprog 1\nprogram a\nbuffer A float32 8\nfor i 8\nA[i] = 1.0\nend\nprogram b\nbuffer A float32 8\nfor i 8\nA[i + 1000000] = 1.0\nend\n' >outside.tprog
status 3 "a program that writes outside of its buffer" "$BIN/predict" --measure outside.tprog
says 'outside.tprog: program b, which line 7 begins: index 1 of A is 1000000, and there are 8' "... is refused, and not run"
printf 'paceline-tprog 1\nprogram a\nbuffer A float32 8\nfor i 8\nA[8 / i %% 8] = 1.0\nend\n' >outside.tprog
status 3 "a division by 0" "$BIN/predict" --measure outside.tprog
says 'a whole number is divided by 0' "... too"
# arrays of threads are of the heap where no stack has room for them
cat >large.tprog <<'END'
paceline-tprog 1
program large
buffer A float32 4
for i 4 parallel
  alloc t float32 5000000
    for k 5000000
      t[k] = 1.0
    end
    for k 5000000
      t[k] += t[4999999 - k]
    end
    A[i] = t[17] + t[i]
  end
end
END
status 0 "arrays of 20 MB in threads" "$BIN/predict" --measure large.tprog
check "... are measured" grep -q '^measured this' "$TMP/out"
printf 'paceline-tprog 1\nprogram a\nfor i 2\nend\n' >none.tprog
status 3 "a program that computes nothing" "$BIN/predict" -m small.model none.tprog
says 'computes nothing' "... is named"
sed '$d' few.tprog >torn.tprog
printf 'program b\nx\n' >>torn.tprog
status 3 "a file that ends in the middle of a program" "$BIN/predict" --measure torn.tprog
status 3 "... is refused before anything is compiled" env CC=no-such-compiler "$BIN/predict" --measure torn.tprog
says 'torn.tprog: line' "... by file and line"
{ echo 'paceline-tprog 1'; echo 'program huge'; echo 'buffer A float32 1'; awk 'BEGIN { for (i = 0; i < 40; i++) print "for i" i " 2147483648" }'
	echo 'A[0] = 1.0'; awk 'BEGIN { for (i = 0; i < 40; i++) print "end" }'; } >huge.tprog
status 3 "a program of endless work" "$BIN/predict" -m small.model huge.tprog
says 'huge.tprog: line 2: program "huge" has more work' "... is named, with file and line"
printf 'paceline-tprog 1\nprogram a\nbuffer A float32 4\nA[0] = 1.0\n\0program b\nbuffer A float32 4\nA[1] = 1.0\n' >zero.tprog
status 3 "a byte 0" "$BIN/predict" -m small.model zero.tprog
says 'zero.tprog: line 5, column 1: a byte 0' "... does not end the file without a word"
awk 'BEGIN { print "paceline-tprog 1\nprogram deep\nbuffer A float32 4"; printf "A[0] = 1.0"; for (i = 0; i < 30000; i++) printf " + 1.0"; print "" }' >deep.tprog
status 3 "thirty thousand operations in one another" "$BIN/predict" -m small.model deep.tprog
says 'deep.tprog: line 4, column .*: more than 2048 operations' "... are too many"
awk 'BEGIN { print "paceline-tprog 1\nprogram wide"; for (i = 0; i < 30000; i++) print "buffer A" i " float32 4"; print "A0[0] = 1.0" }' >wide.tprog
status 3 "thirty thousand buffers" "$BIN/predict" -m small.model wide.tprog
says 'wide.tprog: line 1027, column .*: more than 1024 buffers' "... are too many"
printf 'conv in=1 out=1 size=3 kernel=5\n' >bad.tasks
status 3 "a kernel larger than its image" "$BIN/predict" --measure bad.tasks
says 'bad.tasks: line 1' "... is named with file and line"
printf 'chain elements=96 length=9\n' >bad.tasks
status 3 "a chain of nine operations" "$BIN/predict" --measure bad.tasks
says 'bad.tasks: line 1.*length must be at least 1 and at most 8' "... is too long, not cut"
printf 'bmm batch=9 m=9 n=9 k=9\nbmm batch=16777216 m=16777216 n=1 k=1\n' >bad.tasks
status 3 "a matrix that no program may have" env CC=no-such-compiler "$BIN/predict" --programs=1 --measure bad.tasks
says 'bad.tasks: operation 2, bmm: ' "... is named with file and place"
printf 'dence m=1 n=1 k=1\n' >bad.tasks
status 3 "a word that is no operation" "$BIN/predict" --measure bad.tasks
says 'dense' "... and one that is near"
CC=no-such-compiler status 6 "no compiler" "$BIN/predict" --measure small.tasks --programs 2
says 'a compiler of C is needed' "... is said"
status 2 "a table as well" "$BIN/predict" --measure small.tasks table.csv
status 2 "programs" "$BIN/predict" --measure small.tasks --programs 0
done_testing
