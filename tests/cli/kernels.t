# run --bench kernels and machine, run --kernels: layers that are measured, and what a cost model makes of them.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

mkdir sheets
status 0 "a data sheet" "$BIN/run" --bench machine -o sheets/this.json
holds sheets/this.json '"CPU": 1,' "... of a CPU"
holds sheets/this.json '"Num_Sm": 1,' "... of one thread"
holds sheets/this.json '"SingleFLOPs": [1-9]' "... it computes"
holds sheets/this.json '"Mem_Bw": [0-9]' "... it moves bytes"

status 0 "layers of networks" "$BIN/run" -q --bench kernels --networks 6 --iterations 3 -O csv -o kernels.csv
check "the columns" test "$(head -n 1 kernels.csv)" = op,network,device,batch,m,n,k,rows,columns,in,size,kernel,stride,padding,time_ns,least_ns
check "each network has an optimiser and a loss" test "$(grep -c '^update' kernels.csv)" = 6 -a "$(grep -c '^loss.forward' kernels.csv)" = 6
for op in 'dense\.forward' 'dense\.backward' 'conv\.forward' 'conv\.backward_end' 'attention\.backward' 'layernorm\.forward' \
	'embedding\.forward' 'update\.sgd' 'update\.adamw'; do
	check "there is $op" grep -q "^$op," kernels.csv
done
check "the time is a median: not below the shortest" awk -F , 'NR > 1 && !($16 > 0 && $15 >= $16) { exit 1 }' kernels.csv
check "a product makes its rows and columns" awk -F , '/^dense/ && !($4 == 1 && $5 == $8 && $6 == $9) { exit 1 }' kernels.csv
"$BIN/run" -q --bench kernels --networks 6 --iterations 1 -O csv | cut -d , -f 1-14 >again
check "a seed means the same networks" sh -c 'cut -d , -f 1-14 kernels.csv | grep "^dense" >one && grep "^dense" again | cmp -s - one'
"$BIN/run" -q --bench kernels --networks 6 --iterations 1 --seed 2 -O csv | cut -d , -f 1-14 >other
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
status 2 "a job is not measured" "$BIN/run" --bench kernels my.job
status 2 "networks" "$BIN/run" --bench kernels --networks 0
says 'networks: from 1 to 1000000' "... are 1 or more"
status 2 "nothing else" "$BIN/run" --bench everything
says 'there are: comm, kernels, machine' "... is measured"
status 2 "csv of a job" "$BIN/run" -O csv my.job
says '\-\-bench, --layers and --kernels' "... is not a table"
check "any call may fail" "$SRC/tests/fault/torture" -n 60 "$BIN/run" --kernels -O csv my.job
done_testing
