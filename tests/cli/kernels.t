# run --bench kernels and machine, run --kernels: layers that are measured, and what a cost model makes of them.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

mkdir sheets
status 0 "a data sheet" "$BIN/run" --bench machine -o sheets/this.json
holds sheets/this.json '"CPU": 1,' "... of a CPU"
holds sheets/this.json '"Num_Sm": 1,' "... of one thread"
holds sheets/this.json '"SingleFLOPs": [1-9]' "... it computes"
holds sheets/this.json '"Mem_Bw": [0-9]' "... it moves bytes"

status 0 "layers of networks" "$BIN/run" -q --bench kernels --networks 12 --iterations 3 -O csv -o kernels.csv
check "the columns" test "$(head -n 1 kernels.csv)" = op,network,device,batch,m,n,k,rows,columns,in,size,kernel,stride,padding,time_ns,least_ns
# layers of less than 200 ns are not in the table: small networks may lack some
check "each network has an optimiser and a loss" test "$(grep -c '^update' kernels.csv)" -ge 9 -a "$(grep -c '^loss.forward' kernels.csv)" -ge 9
check "the time is a median: not below the shortest" awk -F , 'NR > 1 && !($16 > 0 && $15 >= $16) { exit 1 }' kernels.csv
check "a product makes its rows and columns" awk -F , '/^dense/ && !($4 == 1 && $5 == $8 && $6 == $9) { exit 1 }' kernels.csv
"$BIN/run" -q --bench kernels --networks 12 --iterations 1 -O csv | cut -d , -f 1-14 >again
check "a seed means the same networks" sh -c 'cut -d , -f 1-14 kernels.csv | grep "^dense" >one && grep "^dense" again | cmp -s - one'
"$BIN/run" -q --bench kernels --networks 12 --iterations 1 --seed 2 -O csv | cut -d , -f 1-14 >other
check "... another one others" sh -c '! cmp -s again other'

status 0 "a model of them" "$BIN/predict" -q --train --schema=run --devices=sheets -o this.model kernels.csv
cat >my.job <<'END'
paceline-job 1
model mlp:64-128-10
data synthetic:samples=1000,dims=64,classes=10
batch 32
optimizer adamw lr=1e-3
steps 5
END
status 0 "what a job computes" "$BIN/run" --kernels -O csv -o queries.csv my.job
check "... no data are read, no time passes" awk -F , 'NR > 1 && ($15 != "" || $16 != "") { exit 1 } END { exit NR != 7 }' queries.csv
check "... its first layer ends the backward pass, and has the activation" grep -q '^dense.backward_end,0,.*,1,32,128,64,32,128,0,0,0,0,0,,$' queries.csv
check "... its optimiser has all parameters" grep -q '^update.adamw,.*,1,96[0-9][0-9],0,0,0,0,0,,$' queries.csv
status 0 "how long they take" "$BIN/predict" -q -m this.model --devices=sheets queries.csv
check "... each has a time" awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "latency_ns") at = i; next }
	!($at > 0) { exit 1 }' "$TMP/out"

# the graph of its step: names are in column 8 of its text, the phase in 16, the module in 17
status 0 "the graph of a job" "$BIN/graph" -q -o my.graph my.job
"$BIN/graph" -O text my.graph >my.text
# nodes FILE NAME [PHASE]: how many there are
nodes() {
	awk -F '\t' -v name="$2" -v phase="${3:-}" '$1 == "node" && $8 == name && (phase == "" || $16 == phase)' "$1" | wc -l
}
awk -F '\t' '$1 == "node" && $4 == "compute" && $8 != "nothing" { print $8 }' my.text | sort >nodes
check "... has the kernels that run lists" sh -c 'cut -d , -f 1 queries.csv | sed 1d | sort | cmp -s - nodes'
check "... with phase and module" awk -F '\t' '$8 == "dense.forward" && $16 == "forward" && $17 == "0" { found = 1 } END { exit !found }' my.text
check "... and work" grep -qx "$(printf 'work\t0\tmatmul\tfloat32\t\[\[32,64\],\[64,128\]\]\t524288\t57344\t-')" my.text
# a name is known if 20 layers that have it were measured
"$BIN/run" -q --bench kernels --networks 75 --iterations 1 -O csv -o more.csv
for op in 'dense\.forward' 'dense\.backward' 'conv\.forward' 'conv\.backward_end' 'attention\.backward' 'layernorm\.forward' \
	'embedding\.forward' 'update\.sgd' 'update\.adamw'; do
	check "there is $op" grep -q "^$op," more.csv
done
"$BIN/predict" -q --train --no-intervals --schema=run --devices=sheets -o more.model more.csv
status 0 "... and times, by the model" "$BIN/predict" -q -m more.model --devices=sheets --device=this -O graph -o timed.graph my.graph
"$BIN/predict" -q -m more.model --devices=sheets queries.csv >times.csv
"$BIN/replay" -q --no-worth -O json timed.graph >report.json
check "... as the table has them" awk -F , 'NR == FNR { if (match($0, /"replayed_ns":[0-9]+/) && !step) step = substr($0, RSTART + 14, RLENGTH - 14); next }
	FNR == 1 { for (i = 1; i <= NF; i++) if ($i == "latency_ns") at = i; next }
	{ sum += $at } END { print "# " step ", " sum; exit !(step > 0.999 * sum && step < 1.001 * sum) }' report.json times.csv
"$BIN/graph" -q --ranks 4 -O text my.job >four.text
check "four ranks reduce gradients, of all layers together" test "$(nodes four.text 'allreduce bucket 0')" = 9
sed 's/^batch.*/batch 32\naccumulate 2/' my.job >twice.job
"$BIN/graph" -q -O text twice.job >twice.text
check "a batch in two parts has two passes" test "$(nodes twice.text dense.forward)" = 4
sed 's/^batch.*/batch 10\naccumulate 4/' my.job >uneven.job
status 3 "a batch of 10 in four parts" "$BIN/graph" -o uneven.graph uneven.job
says "uneven.job: a batch of 10 cannot be cut into 4 microbatches of one size" "... is refused, as run refuses it"
"$BIN/graph" -q --operators -O text my.job >operators.text
check "kernels of libraries: two products in the backward pass, one at its end" test \
	"$(nodes operators.text linear input-gradient) $(nodes operators.text linear weight-gradient)" = "1 2"
check "... and the activation that run fuses" test "$(nodes operators.text relu)" = 2
# a recording of the job has the operators and sizes of its graph, so that what another batch changes is known
status 0 "a recording" "$BIN/run" -q -t my.trace my.job
"$BIN/graph" -q -O text my.trace >recorded.text
awk -F '\t' '$1 == "work" && $6 > 0 { print $3, $5, $6, $7 }' my.text | sort -u >wanted
awk -F '\t' '$1 == "work" && $6 > 0 { print $3, $5, $6, $7 }' recorded.text | sort -u >found
check "... has the sizes and the work of its layers" sh -c 'test -s wanted && comm -23 wanted found | grep -qv update; test $? = 1'
status 0 "... says what twice the batch takes" sh -c '"$BIN/graph" -q my.trace | "$BIN/replay" --no-worth --what-if "batch 64"'
holds "$TMP/out" 'the recording has 32 samples a rank and step' "... from those that it has"
# what a sanitizer adds to each call does not grow with the batch
least=3
! sanitized any || least=0
check "... longer" awk -v least=$least '/^step .* predicted/ { for (i = 1; i <= NF; i++) if ($i ~ /^\(\+/) v = substr($i, 3) + 0 }
	END { print "# +" v " %"; exit !(v > least) }' "$TMP/out"
"$BIN/trace" -q -O chrome -o my.json my.trace
"$BIN/trace" -q my.json | "$BIN/graph" -q -O text | awk -F '\t' '$1 == "work" && $6 > 0 { print $3, $5, $6, $7 }' | sort -u >again
check "... and stays in Chrome's JSON" cmp -s found again
for model in cnn:3x16x16,classes=10 gpt:layers=2,heads=2,width=64,context=32,vocab=64; do
	sed "s/^model.*/model $model/" my.job >more.job
	status 0 "$model" sh -c '"$BIN/graph" -q more.job | "$BIN/predict" -m this.model --devices=sheets --device=this -O graph -o more.graph -'
	check "... no operation is without a time" no grep -q "have no time" "$TMP/err"
	status 0 "... nor of its kernels, here by their family" sh -c '"$BIN/graph" -q --operators more.job |
		"$BIN/predict" -m this.model --devices=sheets --device=this -O graph -o more.graph -'
	check "... has a time" no grep -q "have no time" "$TMP/err"
done
# all parameters are there, those of positions included; of each, Adam reads 4 numbers and writes 3
printf 'paceline-job 1\nmodel gpt2\ndata synthetic:tokens=100000,vocab=50257\nbatch 1\noptimizer adam\n' >gpt2.job
for option in --no-operators --operators; do
	"$BIN/graph" -q $option --ranks=1 -O json gpt2.job >gpt2.json
	check "$option: the graph has the parameters of GPT-2" test "$(tr '{' '\n' <gpt2.json | sed -n '/"role":"parameter"/s/.*"bytes":\([0-9]*\).*/\1/p' |
		awk '{ s += $1 } END { printf "%.0f", s / 4 }')" = 124439808
	check "... and the bytes of its optimiser" sh -c "tr '{' '\n' <gpt2.json | grep '\[\[124439808\]\]' | grep -q '\"bytes\":3484314624'"
	check "... each has the gradient of its positions" grep -q '"name":"grad transformer.wpe"' gpt2.json
done
status 0 "a pipeline" "$BIN/graph" -q --program "pipeline schedule=1f1b stages=2 microbatches=4" -O stat more.job
status 2 "operators" "$BIN/graph" --operators my.graph
says 'is for jobs' "... are those of jobs"
sed 1d my.job >bare.job
status 0 "a job without its first line" "$BIN/graph" -q -O stat bare.job
sed '/^model/d' my.job >none.job
status 3 "a job without a model" "$BIN/graph" none.job
says 'no statement "model"' "... says so"
check "any call may fail, of its graph" "$SRC/tests/fault/torture" -n 60 "$BIN/graph" my.job

status 0 "which device to buy" "$SRC/samples/which-gpu" this.model sheets more.job this:3.6
check "... with an interval, and its price for a million samples" awk '
	$1 == "this" && NF == 6 { n++; sound = $3 < $2 && $2 < $4 && $6 > 0.99 * 3.6 / 3600 * 1e6 / $5 && $6 < 1.01 * 3.6 / 3600 * 1e6 / $5 + 0.01 }
	END { exit n != 1 || !sound }' "$TMP/out"
holds "$TMP/out" '^Cheapest for a million samples: this[.]$' "... says which one is the cheapest"
status 2 "... not for a price that is no number" "$SRC/samples/which-gpu" this.model sheets more.job this:cheap
says 'the price of an hour is a number' "... which it says"
status 3 "... nor without a data sheet" "$SRC/samples/which-gpu" this.model sheets more.job that
says 'which-gpu: .*no data sheet of "that"; there are this' "... but names those there are"
status 2 "... of none" "$SRC/samples/which-gpu" this.model sheets my.job
if ! sanitized any; then # it measures: the same code, and times that mean nothing
	status 0 "which machine to buy, with data of this one" env NETWORKS=12 "$SRC/samples/which-machine"
	check "... each has a row with its interval" awk '
		NF == 6 && ($1 == "this" || $1 ~ /^twice-/) { n++; sound += $3 <= $2 && $2 <= $4; ms[$1] = $2 }
		END { print "# " ms["this"], ms["twice-both"]; exit !(n == 4 && sound == 4 && ms["twice-both"] < ms["this"]) }' "$TMP/out"
	holds "$TMP/out" '^Measured: a step of the job takes [0-9.]* ms on this machine (median of 30;' "... beside the time that was measured"
fi
status 2 "a job is not measured" "$BIN/run" --bench kernels my.job
status 2 "networks" "$BIN/run" --bench kernels --networks 0
says 'networks: from 1 to 1000000' "... are 1 or more"
status 2 "nothing else" "$BIN/run" --bench everything
says 'there are: comm, kernels, machine' "... is measured"
status 2 "csv of a job" "$BIN/run" -O csv my.job
says '\-\-bench, --layers and --kernels' "... is not a table"
check "any call may fail" "$SRC/tests/fault/torture" -n 60 "$BIN/run" --kernels -O csv my.job
done_testing
