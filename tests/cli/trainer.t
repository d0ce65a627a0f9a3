# What a trainer must have: early stopping, the best weights, logs, checkpoints that stay, a validation file, lr 0.
# runner: waits, threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
tiny_job 30

# column NAME FILE: a column of a log, without the rows where it is empty
column() {
	awk -F , -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } $c != "" { print $c }' "$2"
}
# member NAME FILE: a number of a report
member() {
	sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" "$2"
}

# ---- early stopping, the best weights -------------------------------------------------------------
# judge LOG COLUMN SIGN PATIENCE DELTA: the last step and the best one, as the evaluations of a log say
judge() {
	awk -F , -v c="$2" -v sign="$3" -v patience="$4" -v delta="$5" '
		NR > 1 && $5 != "" { v = sign * $c
			if (best == "" || v < best) { best = v; at = $2 }
			if (beat == "" || v < beat - delta) { beat = v; waited = 0 } else waited++
			if (waited >= patience && !end) end = $2 }
		END { print end, at }' "$1"
}
printf '%s\n' 'model mlp:16-48-32-4' 'data synthetic:samples=400,dims=16,classes=4,noise=3' 'split 0.5' 'batch 20' \
	'optimizer adamw lr=0.005' 'patience 3' 'eval-every 5' >stop.job
for how in 'loss 5 1 3 0' 'loss 5 1 2 0.05' 'accuracy 6 -1 4 0'; do
	# shellcheck disable=SC2086  # five words
	set -- $how
	for n in 1 3; do
		status 0 "patience, $how, $n ranks" timeout 60 "$run" -n $n --set monitor="$1" --set "patience $4 delta=$5" --log=stop.csv \
			--report=stop.json --checkpoint-best=best.st stop.job
		check "... ends the job" grep -q "^stopped early: no better evaluation in $4" out
		check "... after the step that the log says, and has the best one" [ "$(judge stop.csv "$2" "$3" "$4" "$5")" = \
			"$(column step stop.csv | tail -n 1) $(member best_step stop.json)" ]
		check "... not before its time" [ "$(member best_step stop.json)" -lt "$(column step stop.csv | tail -n 1)" ]
		"$run" -q -n 1 --eval --resume=best.st --report=best.json stop.job >out 2>err
		check "... whose weights are kept" awk -v a="$(member best stop.json)" -v b="$(member "${how%% *}" best.json)$(
			test "$1" = accuracy || member eval_loss best.json)" 'BEGIN { d = a - b; exit !(a != "" && d < 1e-6 && d > -1e-6) }'
	done
done
"$run" -q --checkpoint-best=best.st --report=a.json stop.job >out
check "the report of a job that stopped says so" [ "$(member stopped_early a.json)" = true ]
"$run" -q --set patience=1000 --set steps=20 --report=b.json stop.job >out
check "... that of another one does not" [ "$(member stopped_early b.json)" = false ]
status 0 "the best weights as weights alone" "$run" -q --set steps=0 --import=best.st --export=best.weights --report=b.json stop.job
check "... evaluate as they did" [ "$(member best a.json)" = "$(member eval_loss b.json)" ]
for n in 1 2; do
	"$run" -q -n $n --checkpoint=whole.st --checkpoint-best=a.st --log=a.csv stop.job >out 2>err
	# interrupted while it waits, before the last evaluation
	half=$(($(column step a.csv | tail -n 1) - 5))
	"$run" -q -n $n --set steps=$half --checkpoint=half.st --checkpoint-best=b.st stop.job >out 2>err
	"$run" -q -n $n --resume=half.st --checkpoint=again.st --checkpoint-best=b.st stop.job >out 2>err
	check "$n ranks: resumed, it waits as long, to the same bits" cmp whole.st again.st
	check "... and has the same best weights" cmp a.st b.st
done
status 0 "local SGD, too" "$run" -n 2 --set 'policy local-sgd local-steps=5' --checkpoint-best=best.st --report=a.json stop.job
check "... stops early" [ "$(member stopped_early a.json)" = true ]
"$run" -q --eval --import=best.st --report=b.json stop.job >out
check "... with the best weights" awk -v a="$(member best a.json)" -v b="$(member eval_loss b.json)" \
	'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
for servers in 1 2; do
	rm -f best.st
	status 0 "servers: $servers" timeout 60 "$run" -n 2 --set "engine ps servers=$servers" --set 'policy asp' --set steps=100000 --log=ps.csv \
		--checkpoint-best=best.st --report=a.json stop.job
	"$run" -q --eval --import=best.st --report=b.json stop.job >out
	check "... keep the best weights" awk -v a="$(member best a.json)" -v b="$(member eval_loss b.json)" \
		'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 && d > -1e-6) }'
	check "... which those at the end are not" awk -v a="$(member best a.json)" -v b="$(member eval_loss a.json)" 'BEGIN { exit !(a < b) }'
done
check "... stops early" [ "$(member stopped_early a.json)" = true ]
check "... with a learning rate in its log, and no norm of gradients" [ "$(column lr ps.csv | sort -u) $(column grad_norm ps.csv)" = '0.005 ' ]
status 0 "the last evaluation" "$run" --set patience=99 --set steps=12 --set eval-every=10 --checkpoint-best=best.st --report=a.json stop.job
check "... may be the best" [ "$(member best_step a.json)" = 12 ]
printf '%s\n' 'input 4' 'dense 2' 'loss squared' >squared.model
status 3 "the accuracy of targets" "$run" --set model=squared.model --set data=synthetic:samples=100,dims=4,targets=2 --set monitor=accuracy stop.job
says 'monitor accuracy, but these data have no classes' "... is refused"
status 3 "patience without evaluations" "$run" --set patience=2 tiny.job
says 'patience judges evaluations; write: eval-every' "... is refused"

# ---- logs -----------------------------------------------------------------------------------------
schedule='schedule cosine steps=30'
"$run" -q --set "$schedule" --set warmup=5 --log=lr.csv tiny.job >out
column lr lr.csv | awk '{ step = NR - 1; want = step < 5 ? 0.05 * (step + 1) / 5 : 0.05 * (1 + cos(3.14159265358979 * (step - 5) / 25)) / 2
	d = $1 - want; if (d > 1e-8 || d < -1e-8) bad = 1 } END { exit bad || NR != 30 }'
check "a log has the learning rate of each step" [ $? = 0 ]
# with a learning rate of 1 a step of plain SGD subtracts the gradients
plain='optimizer sgd lr=1'
"$run" -q --set "$plain" --set steps=0 --export=before.st tiny.job >out
"$run" -q --set "$plain" --set steps=1 --export=after.st --log=one.csv tiny.job >out
floats before.st >before
floats after.st >after
check "... the norm of the gradients" sh -c "paste before after | awk -v norm=$(column grad_norm one.csv) '
	{ d = \$1 - \$2; sum += d * d } END { e = sqrt(sum) / norm - 1; exit !(NR > 2000 && e < 1e-4 && e > -1e-4) }'"
"$run" -q --set "$plain clip=0.01" --set steps=1 --log=clip.csv tiny.job >out
check "... before clipping" [ "$(column grad_norm one.csv)" = "$(column grad_norm clip.csv)" ]
"$run" -q -n 1 --set batch=96 --log=one.csv tiny.job >out
"$run" -q -n 3 --log=three.csv tiny.job >out
column grad_norm one.csv >one
column grad_norm three.csv >three
check "... of all ranks together" alike 1e-4 one three
for set in "$plain" 'optimizer adamw clip=0.1'; do
	"$run" -q -n 2 --set "$set" --checkpoint=without.st tiny.job >out
	"$run" -q -n 2 --set "$set" --checkpoint=with.st --log=with.csv tiny.job >out
	check "a log changes no bit: $set" cmp without.st with.st
done
status 0 "logs in three forms" "$run" -q --set eval-every=10 --log=a.csv --log a.jsonl --log=runs/a/ tiny.job
check "... as many lines of JSON" [ "$(wc -l <a.jsonl)" = $(($(wc -l <a.csv) - 1)) ]
awk -F , 'NR > 1 { print $4 $5 }' a.csv >a
sed -n 's/.*"loss":\([^,]*\),.*/\1/p; s/.*"eval_loss":\([^,]*\),.*/\1/p' a.jsonl >b
check "... with the same numbers" alike 1e-6 a b
check "... and one file of events" [ "$(find runs/a -name 'events.out.tfevents.*' | wc -l)" = 1 ]
if python3 -c 'import tensorboard' 2>/dev/null; then
	python3 - >read.csv 2>err <<-'END'
	from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
	a = EventAccumulator("runs/a")
	a.Reload()
	for tag in ("train/loss", "train/lr", "train/grad_norm", "eval/loss", "eval/accuracy"):
	    for s in a.Scalars(tag):
	        print(tag, s.step, "%.5g" % s.value)
	END
	check "TensorBoard reads it" [ "$(wc -l <read.csv)" = $((3 * 30 + 2 * 3)) ]
	check "... as it was" grep -q "^eval/loss 30 $(column eval_loss a.csv | tail -n 1 | awk '{ printf "%.5g", $1 }')$" read.csv
else
	skip "TensorBoard reads it" "there is no tensorboard"
fi
status 0 "a picture of logs of both texts" "$run" -O svg -o both.svg a.csv a.jsonl
sed -n 's/^<path class="l".* d="\(M[^"]*L[^"]*\)".*/\1/p' both.svg | tail -n 2 >curves
check "... has two equal curves over steps" [ "$(wc -l <curves) $(sort -u curves | wc -l)" = '2 1' ]
status 4 "a log that cannot be written" "$run" --log=none/a.jsonl tiny.job
"$run" -q --checkpoint=whole.st --log=stays.csv --log=stays.jsonl tiny.job >out
cat stays.csv stays.jsonl >before
head -c 5000 whole.st >cut.st
for how in resume import; do
	status 3 "a job that is refused, --$how" "$run" --$how=cut.st --log=stays.csv --log=stays.jsonl --log=new.csv tiny.job
	check "... leaves the logs of the job before it" sh -c 'cat stays.csv stays.jsonl | cmp - before'
	check "... and makes none" test ! -e new.csv
done

# ---- other numbers of ranks -----------------------------------------------------------------------
# With a learning rate of 0 the loss of a step tells which samples it took.
still() {
	"$run" --set 'optimizer sgd lr=0' --set batch=64 "$@" tiny.job >out 2>err
}
still --set steps=40 --log=whole.csv
still --set steps=10 --checkpoint=one.st
still -n 2 --set steps=15 --resume=one.st --log=two.csv --checkpoint=two.st
check "other ranks: a warning says that steps are larger" grep -q 'took 64 samples each, from sample 640 on they take 128 (batch 64, 2 ranks); with --set batch=32' err
still -n 3 --set steps=20 --resume=two.st --log=three.csv --checkpoint=three.st
check "... and again" grep -q 'took 128 samples each, from sample 1280 on they take 192' err
still -n 1 --set steps=25 --resume=three.st --log=four.csv
column loss whole.csv | awk 'NR > 10 && NR <= 20 { s += $1; if (NR % 2 == 0) { printf "%.9g\n", s / 2; s = 0 } }
	NR > 20 && NR <= 35 { s += $1; if ((NR - 20) % 3 == 0) { printf "%.9g\n", s / 3; s = 0 } } NR > 35' >want
for log in two three four; do
	column loss $log.csv
done >got
check "... each takes the samples that come next, once" alike 1e-5 want got
check "... all" [ "$(wc -l <got)" = 15 ]
check "... as the log counts them" [ "$(column samples four.csv | tail -n 1)" = $((640 + 640 + 960 + 320)) ]
sed '/^steps/d' tiny.job >epochs.job
echo 'epochs 2' >>epochs.job
"$run" -q --set batch=64 --set 'schedule linear' --set steps=20 --checkpoint=half.st epochs.job >out
"$run" -q -n 2 --set batch=64 --set 'schedule linear' --resume=half.st --log=rest.csv epochs.job >out 2>err
check "epochs end with the same sample: 20 steps of 64, 15 of 128" [ "$(tail -n 1 rest.csv | cut -d , -f 2,3)" = 35,3200 ]
column lr rest.csv | tail -n 1 | awk '{ d = $1 - 0.05 / 35; exit !(d < 1e-8 && d > -1e-8) }'
check "... and so does their schedule" [ $? = 0 ]
"$run" -q -n 2 --set batch=64 --set 'schedule linear' --resume=half.st --checkpoint=a.st epochs.job >out 2>err
"$run" -q -n 2 --set batch=64 --set 'schedule linear steps=35' --set steps=35 --resume=half.st --checkpoint=b.st tiny.job >out 2>err
check "... in the optimiser, too" cmp a.st b.st
"$run" -n 2 --set batch=32 --set 'schedule linear' --resume=half.st --checkpoint=a.st epochs.job >out 2>err
check "the same samples in a step: no warning" test ! -s err

# ---- checkpoints that stay ------------------------------------------------------------------------
kept() {
	find . -name 'keep.st*' | sed 's/.*keep.st//' | sort | tr '\n' ' '
}
every='--checkpoint=keep.st --set checkpoint-every=4 --set checkpoint-keep=3'
# shellcheck disable=SC2086  # several words
"$run" -q -n 2 --set steps=22 $every tiny.job >out
check "the last three checkpoints stay" [ "$(kept)" = ' .16 .20 .22 ' ]
check "... the last one by two names" cmp keep.st keep.st.22
echo mine >keep.st.mine
echo mine >keep.st.30
# shellcheck disable=SC2086  # several words
"$run" -q -n 2 --resume=keep.st.20 $every tiny.job >out
check "a job that continues counts those before it, and no later ones" [ "$(kept)" = ' .24 .28 .30 .mine ' ]
"$run" -q -n 2 --checkpoint=whole.st tiny.job >out
check "... and ends as one that was not interrupted" cmp whole.st keep.st.30
# shellcheck disable=SC2086  # several words
"$run" -q -n 2 --set steps=8 $every tiny.job >out
check "a new job leaves those of others alone" [ "$(kept)" = ' .24 .28 .30 .4 .8 .mine ' ]
mkdir store
cp whole.st store/real.st
ln -s store/real.st linked.st
"$run" -q --checkpoint=linked.st --set checkpoint-every=10 --set checkpoint-keep=2 tiny.job >out
check "a file by a symbolic link: the earlier checkpoint stays" [ "$(find . -name 'linked.st.*' -type f | sort | tr '\n' ' ')" = \
	'./linked.st.20 ./linked.st.30 ' ]
check "... with what it was" no cmp -s linked.st.20 linked.st.30
check "... and the last one by two names" sh -c 'cmp linked.st linked.st.30 && test -L linked.st'
status 3 "checkpoint-keep without checkpoints on the way" "$run" --checkpoint=a.st --set checkpoint-keep=3 tiny.job

# ---- a file to evaluate on ------------------------------------------------------------------------
awk 'BEGIN { OFS = ","; print "a,b,c,kind"; srand(1); split("cow ant bee", w, " ")
	for (i = 0; i < 1000; i++) { k = int(3 * rand()); print k + rand(), rand(), 2 * rand() - k, w[k + 1] } }' >all.csv
head -n 801 all.csv >train.csv
{
	head -n 1 all.csv
	tail -n 200 all.csv
} >held.csv
printf '%s\n' 'model mlp:3-16-3' 'optimizer sgd lr=0.1' 'steps 40' 'eval-every 20' >file.job
"$run" -q --set data=csv:all.csv --set split=0.8 --log=a.csv file.job >out
status 0 "a file to evaluate on" "$run" -q --set data=csv:train.csv --set eval-data=csv:held.csv --log=b.csv file.job
cut -d , -f 2- a.csv >a
check "... gives what its samples would give as the end of one file" sh -c "cut -d , -f 2- b.csv | cmp - a"
status 0 "... with --eval" "$run" -q -n 2 --set data=csv:train.csv --set eval-data=csv:held.csv --eval file.job
awk 'BEGIN { srand(2); for (i = 0; i < 6000; i++) printf "%c", 97 + int(8 * rand() * rand()) }' >all.txt
head -c 4800 all.txt >train.txt
tail -c 1200 all.txt >held.txt
printf '%s\n' 'model gpt:layers=1,heads=1,width=8,context=8,vocab=8' 'batch 8' 'epochs 1' 'eval-every 20' >text.job
"$run" -q --set data=tokens:all.txt --set split=0.8 --log=a.csv text.job >out
"$run" -q -n 1 --set data=tokens:train.txt --set eval-data=tokens:held.txt --log=b.csv text.job >out
cut -d , -f 2- a.csv >a
check "... of a text, too" sh -c "cut -d , -f 2- b.csv | cmp - a"
sed 's/cow/dog/' held.csv >dog.csv
status 3 "a class that nobody learned" "$run" --set data=csv:train.csv --set eval-data=csv:dog.csv file.job
says 'eval-data: csv:dog.csv has the class "dog", which the data to train on lack' "... is named"
status 2 "eval-data of no kind" "$run" --set data=csv:train.csv --set eval-data=held.csv file.job
echo 'eval-data held.csv' | cat file.job - >wrong.job
status 3 "... in a job" "$run" --set data=csv:train.csv wrong.job
says 'wrong.job: line 5, column 11: eval-data held.csv: "held.csv" is no kind of data' "... is where it stands"
status 3 "eval-data and split" "$run" --set data=csv:all.csv --set split=0.8 --set eval-data=csv:held.csv file.job
says 'split holds samples out, eval-data has others; leave one' "... is one too many"

# ---- what decays ----------------------------------------------------------------------------------
for set in '' ' decay-all' ' no-decay=0.*' ' decay-all no-decay=*.bias'; do
	"$run" -q --set "optimizer adamw lr=0.01 decay=0.5$set" --export="w$set.st" tiny.job >out
done
check "biases decay if asked for" sh -c "! cmp -s w.st 'w decay-all.st'"
check "... a layer does not, if asked for" sh -c "! cmp -s w.st 'w no-decay=0.*.st'"
check "... of which the usual choice is one" cmp w.st 'w decay-all no-decay=*.bias.st'
status 3 "a pattern that no parameter has" "$run" --set 'optimizer adamw no-decay=fc1.*' tiny.job
says 'no-decay=fc1.*: no parameter has such a name; they are called as "0.weight"' "... is named"

# ---- nothing learned ------------------------------------------------------------------------------
status 0 "no steps" "$run" --set steps=0 --set 'schedule cosine' --export=first.st --checkpoint=first.ckpt --log=none.csv tiny.job
check "... train nothing" grep -q 'nothing trained, held out' out
check "... and are evaluated" [ "$(tail -n 1 none.csv | cut -d , -f 2-4)" = 0,0, ]
for set in 'optimizer sgd lr=0 momentum=0.9' 'optimizer adamw lr=0 decay=0.1'; do
	status 0 "${set% *}" "$run" -q -n 2 --set "$set" --export=zero.st tiny.job
	check "... changes nothing" cmp first.st zero.st
done
"$run" -q --set 'schedule cosine' --resume=first.ckpt --checkpoint=a.st tiny.job >out
"$run" -q --set 'schedule cosine' --checkpoint=b.st tiny.job >out
check "a checkpoint of no steps is where a job begins" cmp a.st b.st

done_testing
