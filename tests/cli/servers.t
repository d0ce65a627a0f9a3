# Parameter servers: against data parallelism and one rank, every policy; comparisons.
# runner: waits, threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/servers.sh"

# ---- what is right whoever waits ------------------------------------------------------------------
for n in 1 3; do
	"$run" -q -n $n --export=dp.st tiny.job >out 2>err
	ps bsp $n -q --export=ps.st
	# each of 32 commits rounds weights below 1 a few times
	check "bsp, workers: $n: the weights of data parallelism" close 8e-6 dp.st ps.st
done
"$run" -q -n 1 --export=one.st tiny.job
# (the outer momentum of diloco and dylu makes of one worker another optimizer)
for policy in ssp asp local fixed-adacomm adacomm adsp batchtune; do
	ps $policy 1 -q --export=ps.st
	check "$policy, one worker: the weights of one rank" close 2e-5 one.st ps.st
done
"$run" -q --set steps=0 --export=begin.st tiny.job >out
floats begin.st >begin.txt
for policy in bsp 'ssp staleness=2' asp 'local local-steps=4' fixed-adacomm adacomm adsp adsp++ batchtune 'diloco local-steps=4' dylu; do
	rm -f ps.st
	check "${policy%% *}, four workers: trains" ps "$policy" 4 -O json --export=ps.st
	floats ps.st >a
	check "... all weights are others" [ "$(paste a begin.txt | awk '$1 != $2 { n++ } END { print (n > 2000) }')" = 1 ]
	# shellcheck disable=SC2016  # fields of awk
	check "... and better" awk -F '[:,]' '/"eval_loss"/ { loss = $2 } END { exit !(loss > 0 && loss < 1.42) }' out
	check "... and reports its name" grep -q "\"policy\": \"${policy%% *}\"" out
	check "... with the result of each worker" [ "$(grep -c '"rank"' out)" = 4 ]
done
ps batchtune 2 --set accumulate=4
check "batchtune with microbatches: other batches are cut, too" [ $? = 0 ]
ps batchtune 2 -q --set accumulate=4 --set 'optimizer sgd lr=0' --speeds=100,200 --log=micro.csv
check "... and losses are the means of their samples" sh -c "awk -F , 'NR > 1 && \$4 != \"\" { n++; if (\$4 < 0.9) bad = 1 }
	END { exit bad || n < 30 }' micro.csv"
status 3 "a policy of servers without them" "$run" -n 2 --set 'policy ssp' tiny.job
says 'policy ssp needs servers; write: engine ps' "... is refused with a remedy"
status 3 "a policy without servers, with them" "$run" -n 2 --set 'engine ps' --set 'policy local-sgd' tiny.job
says 'with engine ps the same is: policy local' "... is refused with a remedy"
status 3 "a target without held-out samples" "$run" --set 'engine ps' --set split=1 --target-loss=0.5 tiny.job
says 'nothing is held out' "... is refused"
status 3 "training that diverges" ps bsp 2 --set 'optimizer sgd lr=9e5'
holds err 'training diverged' "... says so"

# ---- the log, a checkpoint, an evaluation ----------------------------------------------------------
ps bsp 2 -q --log=log.csv --set eval-every=8 --checkpoint=half.st --set steps=16
check "a row a commit" [ "$(losses log.csv | wc -l)" = 32 ]
check "evaluations of held-out samples" [ "$(awk -F , 'NR > 1 && $5 != ""' log.csv | wc -l)" -ge 2 ]
ps bsp 2 -q --resume=half.st --export=resumed.st
ps bsp 2 -q --export=whole.st
check "resumed: the weights of training without an interruption" close 8e-6 whole.st resumed.st
status 0 "a checkpoint is evaluated" "$run" --eval --resume=half.st --set 'engine ps' --set 'policy asp' tiny.job

# a log of decisions: adsp says the rate of commits when all speeds are known
ps adsp 2 -q --log=notes.csv --speeds=50,100 --set steps=40 -t notes.trace
check "the policy's decisions are in the log" grep -q ',"\{0,1\}adsp: [0-9]* commits in each check period' notes.csv
# shellcheck disable=SC2016  # fields of awk
check "... and the measured heterogeneity" awk -F , 'NR > 8 && $9 > 1.3 && $9 < 1.7 { found = 1 } END { exit !found }' notes.csv
check "... and decisions in the trace" sh -c "'$BIN/trace' -q -O text notes.trace.0 | grep -q 'adsp: [0-9]* commits'"
rm -f "each.st"
ps asp 1 -q --speeds=20 --set steps=100000 --checkpoint=each.st --set checkpoint-every=4 --log=each.csv &
until_trains each.csv
check "a checkpoint is written while training goes on" [ -s each.st ]
kill -TERM "$(pgrep -P $!)"
wait $!

# ---- which policy: plan JOB --------------------------------------------------------------------------
status 0 "a policy for unequal workers" "$BIN/plan" --speeds=20,20,40,80 tiny.job
holds "$TMP/out" '^recommended: adsp$' "... is one under which nobody waits"
holds "$TMP/out" 'try it: run --policies=bsp,adsp' "... and how to try it"
check "... which the simulation of replay shows, too" sh -c "'$BIN/plan' -O json --speeds=20,20,40,80 tiny.job |
	awk '/\"policy\": \"adsp\"/ { on = 1 } on && /samples_per_s/ { exit !(\$2 + 0 > 0.9 * 160 * $(sed -n 's/^batch //p' tiny.job)) }'"
printf 'ranks 2\npace 0 speed=1\npace 1 ms=500\n' | cat tiny.job - >paced.job
"$BIN/plan" -q --speeds=20,20,40,80 tiny.job >wanted
"$BIN/plan" -q --speeds=20,20,40,80 paced.job | sed 's/paced.job/tiny.job/' >said
check "... in place of the paces of the job" cmp wanted said
status 0 "... for equal ones" "$BIN/plan" --speeds=20,20,20,20 tiny.job
holds "$TMP/out" '^recommended: all-reduce$' "... an all-reduce"
status 3 "... without speeds" "$BIN/plan" tiny.job
says 'plan --speeds LIST' "... is refused with a remedy"
status 2 "settings of a framework for a job" "$BIN/plan" -O ddp --speeds=1,2 tiny.job

# ---- links and launchers ---------------------------------------------------------------------------
ps asp 2 -q --set steps=20 --speeds=100,100 --set 'link latency=300ms from=0' -O json
check "a link of rank 0 is that of worker 0" [ "$(awk -F '[:,]' '/"commits"/ { print $2 + 0 }' out | tail -2 | tr '\n' ' ' |
	awk '{ print $1 < $2 }')" = 1 ]
mkdir meet
sed 's/lr=0.05/lr=0.01/' tiny.job >other.job
for rank in 0 1 2; do
	job=tiny.job
	[ $rank = 2 ] && job=other.job
	RANK=$rank WORLD_SIZE=3 PACELINE_TOKEN=0123456789abcdef "$run" -q --meet "dir:$TMP/meet" --timeout 500ms --speeds=100,100 \
		--set 'engine ps' $job >out.$rank 2>err.$rank &
	pids="$pids $!"
done
for pid in $pids; do
	wait "$pid"
	codes="$codes $?"
done
check "a worker with another job is refused, and the others say that it never came" [ "$codes" = ' 4 4 3' ]
holds err.0 'these workers never came: 1' "... the server too"

# ---- a comparison --------------------------------------------------------------------------------
status 0 "a comparison" "$run" --policies=bsp,ssp:4,adsp --speeds=40,40,80,160 --target-loss=1.2 --seeds=2 -O csv tiny.job
check "... a row for each policy and seed" [ "$(wc -l <"$TMP/out")" = 7 ]
holds out '^policy,seed,h_nominal,h_measured,workers,lr,reached,seconds_to_target,samples_to_target,samples_per_s,steps,commits,bytes_sent,compute_share,wait_share,comm_share,staleness_mean,staleness_max,final_loss$' "... with its columns"
# column POLICY NUMBER: the mean
column() {
	awk -F , -v p="$1" -v c="$2" '$1 == p { s += $c; n++ } END { printf "%.0f\n", 100 * s / n }' out
}
check "... H of the speeds is 2" [ "$(column adsp 3)" = 200 ]
check "... without waiting, workers make more than 1.5 times the samples" [ "$(column adsp 10)" -gt $(($(column bsp 10) * 3 / 2)) ]
check "... fast workers wait under bsp" [ "$(column bsp 15)" -gt 15 ]
check "... and under adsp nobody does" [ "$(column adsp 15)" -lt 2 ]
cp "$TMP/out" table.csv
status 0 "... as a picture" "$run" -O svg -o table.svg table.csv
check "... with a line for each policy" [ "$(grep -c '<path class="l"' table.svg)" = 9 ]
check "... and the trainings as dots" [ "$(grep -c '<circle' table.svg)" -ge 6 ]
check "... a single H in the middle of its panel" grep -q 'cx="956.0" cy=' table.svg
check "... and names of policies above the panels" grep -q 'y="24">adsp<' table.svg
grep -o '<rect.*fill="#[^"]*"' table.svg | sed 's/.*fill=//' | sort -u >shares
grep -o 'stroke="#[^"]*"' table.svg | sed 's/stroke=//' | sort -u >policies
check "... shares have other colours than policies" [ "$(wc -l <shares) $(comm -12 shares policies)" = "3 " ]
sed 's/,wait_share,/,other,/' table.csv >other.csv
status 3 "a table without a column" "$run" -O svg other.csv
says 'line 1: a table of --policies has a column wait_share' "... names it"
status 2 "an unknown policy" "$run" --policies=bsp,aspp tiny.job
says 'asp' "... names the nearest"
status 2 "a speed that is none" "$run" --policies=bsp --speeds=1,0 tiny.job
status 0 "learning rates" "$run" --policies=asp --speeds=200,200 --lr=0.05,0.01 -O csv tiny.job
check "... a row each" [ "$(wc -l <"$TMP/out")" = 3 ]
status 0 "one that diverges" "$run" --policies=asp --speeds=200,200 --lr=0.05,900000 -O csv tiny.job
check "... has a row without measurements" grep -q ',900000,0,,,,,,,,,,,,$' "$TMP/out"
says 'asp, seed 1, lr 900000: training diverged' "... and a warning with policy, seed and learning rate"
status 3 "a training that fails for another reason" "$run" --policies=bsp --speeds=200,200 --resume=tiny.job -O csv tiny.job
says 'run: bsp, seed 1, lr 0.05: ' "... is an error that names it"
check "... and no row" [ ! -s "$TMP/out" ]
status 0 "a learning rate of 0" "$run" --policies=asp --speeds=200,200 --lr=0 --set steps=4 -O csv tiny.job
status 0 "workers without a step" "$run" --speeds=0.05,200 --set 'engine ps' --set 'policy asp' --set steps=4 -O json tiny.job
check "... do not count for the heterogeneity" grep -q '"heterogeneity": 1,' "$TMP/out"
printf '%s\n' policy,h_nominal,lr,seconds_to_target,samples_per_s,compute_share,wait_share,comm_share \
	bsp,2,0.1,10,100,0.5,0.5,0 bsp,2,0.1,30,100,0.7,0.3,0 bsp,3,0.1,40,100,0.5,0.5,0 >two.csv
"$run" -O svg -o two.svg two.csv
sed 's/,10,100,/,20,100,/; s/,30,100,/,20,100,/' two.csv >mean.csv
"$run" -O svg -o mean.svg mean.csv
check "a table whose target was reached: its panel has no words" [ "$(grep -c 'no training reached a target' two.svg)" = 0 ]
sed 's/,10,100,/,,100,/; s/,[34]0,100,/,,100,/' two.csv >never.csv
"$run" -O svg -o never.svg never.csv
check "... and if it never was" grep -q 'no training reached a target' never.svg
# the border is at 600
check "several H: the last one is not on the border" [ "$(grep -o 'cx="6[0-9][0-9]\.' two.svg | wc -l)" = 0 ]
check "the median of two seeds is between them" [ "$(grep 'class="l"' two.svg)" = "$(grep 'class="l"' mean.svg)" ]

"$run" -v --policies=bsp --speeds=100,100 --set steps=40 --seeds=1000 -O csv tiny.job >out 2>err &
pid=$!
turn=0
until grep -q '^run: .*3 of 1000' err || [ $turn = 200 ]; do
	sleep 0.1
	turn=$((turn + 1))
done
kill -TERM $pid
wait $pid
check "a signal ends a comparison" [ $? = 143 ]
check "... after the table of what was measured" [ "$(grep -c '^bsp,' out)" -ge 2 ]
holds err 'the table has [0-9]* of 1000 trainings' "... which says so"
done_testing
