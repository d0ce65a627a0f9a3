# replay -m, plan -m: what-ifs whose operations get their times from a cost model of kernels.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

# sheet NAME GFLOPS GB/S
sheet() {
	echo "{ \"Device\": \"$1\", \"Dev_Mem\": 16, \"Mem_Bw\": $3, \"CPU\": 1, \"Num_Sm\": 1, \"SingleFLOPs\": $2, \"L2Cache\": 8 }"
}
mkdir sheets more
sheet one 50 20 >sheets/one.json
sheet two 100 40 >sheets/two.json
sheet new 100 40 >more/new.json

# measured DEVICE HOW: layers of run; constant: 20 us whatever the sizes; root: by the root of the operations
measured() {
	awk -v device="$1" -v how="$2" '
	function row(op, m, n, k, rows, columns, work,    ns) {
		ns = (how == "root" ? 20 * sqrt(work) : 20000) * (1 + 0.01 * (rand() + rand() - 1))
		if (device == "two")
			ns /= 2
		printf "%s,%d,%s,%d,%d,%d,%d,%d,%d,0,0,0,0,0,%d\n", op, i, device, 1, m, n, k, rows, columns, ns
	}
	function pick(low, high) { return int(low * exp(rand() * log(high / low)) + 0.5) }
	BEGIN {
		srand(3)
		print "op,network,device,batch,m,n,k,rows,columns,in,size,kernel,stride,padding,time_ns"
		for (i = 0; i < 150; i++) {
			m = pick(4, 1024); n = pick(8, 512); k = pick(8, 512)
			row("dense.forward", m, n, k, m, n, m * n * k)
			row("dense.backward", m, n, k, m, n, 2 * m * n * k)
			row("dense.backward_end", m, n, k, m, n, m * n * k)
			row("relu.forward", 0, 0, 0, m, n, m * n)
			row("relu.backward", 0, 0, 0, m, n, m * n)
			row("loss.forward", 0, 0, 0, m, n, m * n)
			row("update.sgd", 0, 0, 0, 1, m * n, m * n)
		}
	}'
}
train() {
	"$BIN/predict" -q --train --schema=run --devices=sheets --no-provenance "$@"
}
measured one constant >constant.csv
measured one root >root.csv
measured two root >two.csv
train constant.csv -o constant.model
train root.csv two.csv -o both.model
grep -v dense root.csv >moves.csv
train moves.csv -o moves.model

cat >job <<'END'
paceline-job 1
model mlp:64-128-128-10
data synthetic:samples=2048,dims=64,classes=10
batch 16
steps 12
END
status 0 "a job is recorded" timeout 50 "$BIN/run" -q -t trace job
"$BIN/graph" -q -o job.graph trace
"$BIN/graph" -q -O text job.graph >job.text
check "the graph has the names by which models know layers" grep -q '^work.*dense\.backward_end$' job.text
"$BIN/graph" -q -o again.graph job.graph
"$BIN/graph" -q -O text again.graph >again.text
check "... which a graph made of it keeps" grep -q '^work.*dense\.backward_end$' again.text

# step COLUMN OPTION...: of the table of steps: 6, the prediction; the median, ns
step() {
	column=$1
	shift
	"$BIN/replay" -q --no-worth -O csv --table=steps "$@" job.graph 2>/dev/null |
		awk -F , -v c="$column" 'NR > 1 { print $c }' | sort -n |
		awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
below() {
	awk -v a="$1" -v b="$2" 'BEGIN { print "# " a " < " b; exit !(a > 0 && a < b) }'
}
recorded=$(step 6 --what-if 'batch by=1')
rule=$(step 6 --what-if 'batch by=16')
constant=$(step 6 -m constant.model --what-if 'batch by=16')
root=$(step 6 -m both.model --device=one --what-if 'batch by=16')
check "by the rule 16 times the samples take longer" below "$recorded" "$rule"
check "a model that knows four times as long: less than by the rule" below "$root" "$rule"
check "a model that knows no longer time: less than that" below "$constant" "$root"
check "by 1 changes nothing" test "$(step 6 -m both.model --device=one --what-if 'batch by=1')" = "$recorded"
status 0 "a model that knows nearly all" "$BIN/replay" --no-worth -m constant.model --what-if 'batch by=16' job.graph
check "... says nothing of rules" no grep -q 'follow rules' "$TMP/err"
status 0 "a model that does not know products" "$BIN/replay" --no-worth -m moves.model --what-if 'batch by=16' job.graph
says 'the cost model knows operations of .* the others follow rules' "... says how much it knows"

# ---- other devices ---------------------------------------------------------------------------------
two=$(step 6 -m both.model --device=one --what-if 'device two')
check "a device that is twice as fast: a shorter step" below "$two" "$recorded"
check "... not half, because there is more than layers" below "$((recorded / 2))" "$two"
check "from the faster one to the slower one: a longer step" below "$recorded" "$(step 6 -m both.model --device=two --what-if 'device one')"
new=$(step 6 -m both.model --device=one --devices=more --what-if 'device new')
check "a device that was not measured, with a data sheet like it" below "$new" "$recorded"
# a third device, on which all takes twice as long as on the first one although its data sheet is that of the second
sed 's/"two"/"three"/' sheets/two.json >sheets/three.json
sed 's/,one,/,three,/' root.csv | awk -F , -v OFS=, 'NR > 1 { $NF *= 2 } { print }' >three.csv
train root.csv two.csv three.csv -o unsure.model
"$BIN/replay" -q --no-worth -O json -m unsure.model --device=one --devices=more --what-if 'device new' job.graph 2>/dev/null >unsure.json
rm sheets/three.json
check "... if measured devices with such a sheet differ, it may be slower, too: the interval says so" awk '
	function figure(key) { return match($0, "\"" key "\": *[0-9.]*") ? substr($0, RSTART + length(key) + 3) + 0 : -1 }
	{ was = figure("replayed_mean_ns"); is = figure("predicted_mean_ns"); high = figure("predicted_high_ns")
	  print "# " was, is, high; exit !(is > 0 && high > 1.05 * is && high > 1.05 * was) }' unsure.json
printf 'paceline-plan 1\ndevice two\n' >device.plan
check "as a plan" test "$(step 6 -m both.model --device=one -p device.plan)" = "$two"

# ---- refusals --------------------------------------------------------------------------------------
r() {
	"$BIN/replay" -q --no-worth "$@" job.graph
}
status 2 "a device without a data sheet" r -m both.model --device=three --what-if 'batch by=2'
says 'no data sheet of "three"; there are one, two' "... with those that there are"
status 2 "several devices, and none is named" r -m both.model --what-if 'batch by=2'
says 'measured on 2 devices; --device=NAME' "... asks for one"
status "2 3" "a device to compute on without a data sheet" r -m both.model --device=one --what-if 'device three'
says 'no data sheet of "three"' "... says so"
status "2 3" "a device to compute on without a model" r --what-if 'device two'
says 'needs a cost model' "... says so"
status 2 "a model without a change" r -m both.model
status 2 "a device without a model" r --device=one --what-if 'batch by=2'
status 4 "a model that is not there" r -m none.model --what-if 'batch by=2'
status 3 "a model that is none" r -m job.graph --what-if 'batch by=2'
cat >layers.csv <<'END'
layer,forward_ns,backward_ns,param_bytes,activation_bytes
a,10000,20000,4096,4096
b,10000,20000,4096,4096
END
"$BIN/graph" -q -f layers -o layers.graph layers.csv
status 2 "a graph without sizes" "$BIN/replay" -q --no-worth -m constant.model --what-if 'batch by=2' layers.graph
says 'has sizes' "... says so"

# ---- plan ------------------------------------------------------------------------------------------
status 0 "plan takes a model" "$BIN/plan" -q -m constant.model --evaluations=10 -O text job.graph
status 2 "... and refuses a device that it does not know" "$BIN/plan" -q -m both.model --device=three job.graph
status 2 "... and a device without a model" "$BIN/plan" -q --device=one job.graph

# another device and another batch are searched: times by the model, with its errors in that of the plan
"$BIN/graph" -q --step=8 -o eight.graph job.graph
value() { sed -n "s/^$1 //p" "$2"; }
status 0 "the best device" "$BIN/plan" -q -m both.model --device=one --devices=more --allow=device -O text -o fast.plan eight.graph
check "... is proposed" grep -Eq '^device (two|new) ' fast.plan
"$BIN/replay" -q --no-worth -O csv --table=steps -m both.model --device=one --devices=more -p fast.plan eight.graph >eight.csv
check "... with the time that replay predicts" awk -F , -v plan="$(value predicted fast.plan)" '
	NR == 2 { print "# " plan, $6; exit !(plan > 0.99 * $6 && plan < 1.01 * $6) }' eight.csv
status 0 "a batch, where the model knows no longer time for it" "$BIN/plan" -q --any -m constant.model --allow=batch -O text -o large.plan eight.graph
check "... is the largest one" grep -q '^batch by=8 ' large.plan
check "... and the baseline is eight recorded steps" awk -v base="$(value baseline large.plan)" -v one="$(value baseline fast.plan)" \
	-v then="$(value predicted large.plan)" 'BEGIN { print "# " base, 8 * one, then; exit !(base > 7.99 * one && base < 8.01 * one && then < 0.7 * base) }'
"$BIN/plan" -q -m constant.model --allow=order -O text -o none.plan eight.graph
check "... nothing of it without --allow" no grep -Eq '^(batch|device) ' none.plan
status 0 "a batch under a limit of memory" "$BIN/plan" -m constant.model --allow=batch --memory=1G -O text job.graph
says 'no other batch is tried under --memory' "... stays"
status 2 "a device without a model" "$BIN/plan" -q --allow=device job.graph
says 'needs a cost model' "... is refused"
done_testing
