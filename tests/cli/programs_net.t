# predict: the network of the cost models of tensor programs, its adaptation and its settings.
# runner: threads
# shellcheck disable=SC2016  # scripts of sh -c are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1
# other tests run at the same time: threads that wait leave them the processors
export OMP_PROC_BIND=false OMP_WAIT_POLICY=passive

if sanitized thread; then
	skip "networks of tensor programs" "the threads are those of OpenMP, which the sanitizer does not know"
	done_testing
	exit
fi
if ! echo 'int main(void) { return 0; }' | ${CC:-cc} -fopenmp -x c -o /dev/null - 2>/dev/null; then
	skip "networks of tensor programs" "no compiler with OpenMP"
	done_testing
	exit
fi
cat >small.tasks <<'END'
paceline-tasks 1
model small
dense m=16 n=24 k=12 then=relu
conv in=3 out=8 size=8 kernel=3 pad=1 then=gelu
softmax rows=16 columns=24
chain elements=96 length=4
END
status 0 "programs" "$BIN/predict" --measure small.tasks --programs 3 --device=box -o small.tprog
sed 's/model=small/model=other/' small.tprog >other.tprog
sed 's/^measured box \([0-9]*\).*/measured slow \1000/' small.tprog >slow.tprog
status 0 "a network and trees" "$BIN/predict" -q --train --schema=tprog --learner=both --no-intervals small.tprog -o net.model
# Adaptation of a network, with programs that were not measured. With a sanitizer it has too few to learn on: the network
# of tests/unit/tprog_cost_test, which does, is smaller.
awk -v most="$(if sanitized any; then echo 11; else echo 12; fi)" '/^program/ { n++ } n <= most' slow.tprog >few.tprog
status 0 "a network is adapted" "$BIN/predict" --no-provenance -v --schema=tprog --adapt few.tprog --target small.tprog -m net.model -o slow.net
says 'discrepancy of the latent vectors' "... and says how far the target is"
status 0 "... which predicts" "$BIN/predict" --schema=tprog --eval -m slow.net -O csv slow.tprog
check "... the other device" awk -F , '$1 == "all" && $3 == 12 && $5 < 0.9 && $5 > 0 { found = 1 } END { exit !found }' "$TMP/out"
# without a sanitizer only: the same code again
if ! sanitized any; then
	status 0 "without the term, from the adapted one" "$BIN/predict" --no-provenance --schema=tprog --adapt slow.tprog --discrepancy 0 -m slow.net -o again.net
	status 0 "... as from the first one" "$BIN/predict" --no-provenance --schema=tprog --adapt slow.tprog --discrepancy 0 -m net.model -o first.net
	check "... to the same bytes" cmp -s again.net first.net
fi
status 2 "a target without an adaptation" "$BIN/predict" --schema=tprog --target small.tprog -m net.model small.tprog
status 2 "a weight below 0" "$BIN/predict" --schema=tprog --adapt slow.tprog --discrepancy=-1 -m net.model
# settings of the network
status 0 "settings of a network are tried" "$BIN/predict" -q --tune=3 --schema=tprog --learner=net -O csv small.tprog other.tprog
check "... a row each, one of them in all rungs" awk -F , 'NR == 1 { if ($1 != "trial" || $12 != "error_all") exit 1; next }
	{ n++; all += $12 != ""; first += $10 > 0 } END { exit !(n == 3 && all == 1 && first == 3) }' "$TMP/out"
cp "$TMP/out" trials
status 0 "... by more threads" "$BIN/predict" -q -@ 3 --tune=3 --schema=tprog --learner=net small.tprog other.tprog
check "... the same" cmp -s trials "$TMP/out"
status 0 "... and the best are taken" "$BIN/predict" -q -v --train --tune=2 --no-intervals --schema=tprog --learner=net small.tprog other.tprog -o tuned.model
says 'trial 1: layers=' "... after a line each"
check "... they are in the file" sh -c 'gzip -dc tuned.model | grep -a -q "tuned: layers=[1-9] heads="'
status 0 "... and shown" "$BIN/predict" tuned.model
holds "$TMP/out" 'The network: layers=[1-9] heads=' "... in words"
status 3 "one model cannot be left out" "$BIN/predict" --tune=2 --schema=tprog --learner=net small.tprog
status 2 "settings of trees" "$BIN/predict" --train --tune=2 --schema=tprog small.tprog
status 2 "of no network" "$BIN/predict" --train --tune=2 --schema=neusight small.tprog
done_testing
