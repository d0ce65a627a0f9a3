# predict: cost models of operations, learned from tables of measurements that this test makes.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

# ---- devices, and kernels that take a floor and the greater of two bounds --------------------------

mkdir sheets
# sheet NAME GFLOPS GB/S SMS
sheet() {
	cat >"sheets/$1.json" <<END
{ "Device": "Test $1", "Dev_Mem": 16, "Mem_Bw": $3, "Num_Sm": $4, "Core_Per_SM": 64, "Freq": 1400,
  "SingleFLOPs": $2, "HalfTensorFLOPs": $(($2 * 4)), "L2Cache": 6 }
END
}
sheet one 8000 400 40
sheet two 12000 700 64
sheet three 16000 900 80
sheet four 20000 1500 108
sheet five 32000 2400 132

# measured DEVICE SEED COUNT: a table in the form of the schema neusight, latencies in ms; relu
# takes 1.3 times its bound, softmax 1.8 times, products 1.1 times; 2 % of noise
measured() {
	awk -v name="$1" -v seed="$2" -v count="$3" '
	function number(key,    s) { s = sheet; sub(".*\"" key "\": ", "", s); return s + 0 }
	function pick(low, high) { return int(low * exp(rand() * log(high / low)) + 0.5) }
	function ceil(x) { return x == int(x) ? x : int(x) + 1 }
	function row(op, ns, B, M, N, K, H) {
		ns *= 1 + 0.02 * (rand() + rand() - 1)
		printf "%s,%.7f,Test %s,%s,%s,%s,%s,%s\n", op, ns / 1e6, name, B, M, N, K, H
	}
	BEGIN {
		while ((getline line < ("sheets/" name ".json")) > 0)
			sheet = sheet " " line
		flops = number("SingleFLOPs"); bw = number("Mem_Bw"); sms = number("Num_Sm")
		srand(seed)
		print "OPName,Latency,Device,B,M,N,K,H"
		for (i = 0; i < count; i++) {
			b = pick(1, 64); m = pick(16, 2048); k = pick(32, 2048); n = pick(16, 2048)
			compute = ceil(ceil(n / 128) * ceil(m / 128) * b / sms) * 2 * 128 * 128 * k / (flops / sms)
			memory = 4 * b * (m * k + k * n + m * n) / bw
			row("bmm", 20000 + 1.1 * (compute > memory ? compute : memory), b, m, k, n, "")
			r = pick(64, 65536); h = pick(16, 4096)
			row(i % 2 ? "relu" : "tanh", 15000 + 1.3 * 8 * r * h / bw, r, "", "", "", h)
			r = pick(64, 65536); h = pick(16, 4096)
			row("softmax", 18000 + 1.8 * 8 * r * h / bw, r, "", "", "", h)
		}
	}'
}
rows=240
if sanitized any; then rows=80; fi # the same code in a quarter of the time
for d in one two three four; do
	measured $d 1 $rows >$d.csv
done
measured five 7 200 >five.csv
awk -F , 'BEGIN { OFS = "," } NR > 1 { $2 = "" } { print }' five.csv >five.queries

p() {
	"$BIN/predict" -q --devices=sheets "$@"
}
# error FILE [OP]: mean error of latency_ns against the measurements of five.csv, percent
error() {
	paste -d , five.csv "$1" | awk -F , -v op="$2" 'NR > 1 && (op == "" || $1 == op) {
		e = $17 / ($2 * 1e6) - 1; sum += e < 0 ? -e : e; n++ } END { printf "%.1f\n", 100 * sum / n }'
}
below() {
	awk -v a="$1" -v b="$2" 'BEGIN { print "# " a " < " b; exit !(a < b) }'
}

# ---- an operation of few measurements ----------------------------------------------------------------
# gelu takes three times as long as relu, of which there are many
gelu() { awk -F , -v every="$1" 'BEGIN { OFS = "," } NR == 1 { print } $1 == "relu" && !(n++ % every) { $1 = "gelu"; $2 *= 3; print }' "$2"; }
for d in one two three four; do
	gelu $((rows / 10)) $d.csv >few.$d.csv
done
gelu 1 five.csv >gelu.csv
status 0 "some measurements of an operation that is unlike its family" \
	p --train --no-intervals --schema=neusight one.csv two.csv three.csv four.csv few.*.csv -o few.model
status 0 "... are enough" p --eval -m few.model --schema=neusight -O csv gelu.csv
check "... for its level" awk -F , '$1 == "all" { print "# " $4; good = $4 < 0.25 } END { exit !good }' out
status 0 "... without them" p --train --no-intervals --schema=neusight one.csv two.csv three.csv four.csv -o none.model
p --eval -m none.model --schema=neusight -O csv gelu.csv >out
check "... it is its family's" awk -F , '$1 == "all" { print "# " $4; good = $4 > 0.5 } END { exit !good }' out

# ---- learning and asking ---------------------------------------------------------------------------

status 0 "a model is learned" p --train --schema=neusight one.csv two.csv three.csv four.csv --no-provenance -o k.model
for t in 1 2; do
	p --train --no-intervals --schema=neusight one.csv two.csv three.csv --no-provenance -@ $t -o same.$t
done
check "the same tables and seed make the same bytes, with one thread and two" cmp same.1 same.2
status 0 "it is asked" p -m k.model five.queries -o five.out
head -n 1 five.out >head.out
holds head.out '^OPName,Latency,Device,B,M,N,K,H,latency_ns,lo_ns,hi_ns,flag$' "columns are added"
cut -d , -f 1-8 five.out >five.kept
check "the rows are as they came" same five.kept five.queries
check "a device that was not measured: the mean error is below 8 %" below "$(error five.out)" 8
awk -F , 'NR > 1 && !($10 < $9 && $9 < $11)' five.out >odd
check "each interval holds its prediction" no test -s odd
holds five.out 'extrapolated$' "a faster device than all that were measured is out of range"
p -m k.model three.csv >three.out
check "a device that was measured: most operations are in range" \
	test "$(grep -c in-range three.out)" -gt $((rows * 5 / 2))
p -m k.model --device=four three.csv >four.out
check "--device overrides the column" sh -c 'cut -d , -f 9 three.out >a; cut -d , -f 9 four.out >b; ! cmp -s a b'
p -m k.model --device=four three.csv --device=three three.csv >both.out
tail -n +2 three.out >after
tail -n "$(wc -l <after)" both.out >last
check "--device holds for the tables after it" same last after
p -m k.model five.out >again.out
check "columns of predictions that the table has already are replaced" same again.out five.out
awk -F , 'BEGIN { OFS = "," } { x = NR == 1 ? "lo_ns" : "7"; print x, $0, NR == 1 ? "flag" : "old" }' five.queries >mixed.queries
p -m k.model mixed.queries five.out >again.out
{ cat five.out; tail -n +2 five.out; } >twice.out
check "... wherever they stand, beside tables without them" same again.out twice.out
gzip -k five.queries
p -m k.model five.queries.gz >gz.out
check "compressed tables are read" same gz.out five.out
p -m k.model <five.queries >std.out
check "standard input is read" same std.out five.out
p -m k.model --device=four <three.csv >std.out
check "... as of the device that --device names" same std.out four.out
mkdir three
sed 's/$/,/' three.csv >three/more.csv
status 3 "tables with other columns are refused" p -m k.model three.csv three/more.csv
says 'three/more.csv: line 1: its columns differ' "... with the line"

cat >wide.schema <<'END'
paceline-schema 1
latency ns.*.median unit=ns
device from=folder
type float32
op act family=elementwise elements=tokens*1024
op proj family=gemm m=tokens k=1024 n=1024
END
for t in 64 640 6400 16 160 1600 8 80 800 32 320 3200; do
	echo "$t,$((t * 10 + 20000)),$((t * 170 + 30000))"
done | sed '1i tokens,ns.act.median,ns.proj.median' >three/wide.csv
p --train --schema=wide.schema --no-intervals three/wide.csv -o wide.model
p -m wide.model three/wide.csv >wide.out
head -n 1 wide.out >head.out
holds head.out '^row,op,latency_ns,lo_ns,hi_ns,flag$' "operations in columns: a row for each"
check "all of them are answered" sh -c '[ "$(grep -cE "^[0-9]+,(act|proj),[0-9]+" wide.out)" = 24 ]'
sed '1s/$/,flag/; 2,$s/$/,7/' three/wide.csv >three/flag.csv
"$BIN/predict" --devices=sheets -m wide.model three/flag.csv >flag.out 2>err
check "a column of the table that the output does not have" same flag.out wide.out
check "... is not replaced" no grep -q 'replaces' err

# ---- errors and protocols --------------------------------------------------------------------------

# what the table of errors says of relu, computed from the predictions
p -m k.model five.csv | awk -F , '
	NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
	$1 == "relu" {
		want = $2 * 1e6; e = $at["latency_ns"] / want - 1; a = e < 0 ? -e : e
		n++; sum += a; bias += e; near += a <= 0.1
		for (k = n; k > 1 && v[k - 1] > a; k--) v[k] = v[k - 1]
		v[k] = a
		in90 += $at["lo_ns"] <= want && want <= $at["hi_ns"]; with += $at["lo_ns"] != ""
	}
	END {
		p = 0.9 * n; p = p == int(p) ? p : int(p) + 1
		printf "%d %.4f %.4f %.4f %.4f %.4f %.4f\n", n, sum / n, (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2, v[p], near / n, bias / n, in90 / with
	}' >relu.want
p --eval -m k.model -O csv five.csv >errors.csv
awk -F , '$1 == "op" && $2 == "relu" { printf "%d %.4f %.4f %.4f %.4f %.4f %.4f\n", $3, $4, $5, $6, $7, $8, $9 }' errors.csv >relu.got
check "errors: n, mean, median, 90th percentile, within 10 %, bias, coverage" awk '
	NR == FNR { for (i = 1; i <= 7; i++) want[i] = $i; next }
	{ print "# " $0; for (i = 1; i <= 7; i++) { d = $i - want[i]; bad += d > 2e-4 || d < -2e-4 } }
	END { exit bad || FNR != 1 || want[1] < 10 }' relu.want relu.got
check "... by all, operation, device and size" test "$(sed 1d errors.csv | cut -d , -f 1 | uniq | tr '\n' ' ')" = "all op device shape "
check "... the same in text" awk 'NR == FNR { w = $0; next } $1 == "op" && $2 == "relu" {
	split(w, x, " "); for (i = 2; i <= 7; i++) { d = $(i + 2) - 100 * x[i]; bad += d > 0.06 || d < -0.06 }; n++ } END { exit bad || n != 1 }' relu.got - <<END
$(p --eval -m k.model five.csv)
END
status 0 "--eval" p --eval -m k.model -O json five.csv
check "JSON is valid" python3 -c 'import json, sys; e = json.load(open(sys.argv[1]))
assert e["schema"] == "paceline.eval/1"
by = {g["by"] for g in e["groups"]}
assert {"all", "op", "device", "shape"} <= by, by
figures = {"n", "mean_ape", "median_ape", "p90_ape", "within10", "bias", "coverage90"}
assert all(figures < set(g) and None not in [g[f] for f in figures] for g in e["groups"])
a = e["groups"][0]
assert a["by"] == "all" and a["n"] == 600 and a["mean_ape"] < 0.08, a
assert a["median_ape"] <= a["mean_ape"] * 2 and abs(a["bias"]) <= a["mean_ape"]' out
for d in one two three four; do
	grep -v '^softmax\|^tanh' $d.csv >$d.part.csv
done
status 0 "--cross device" p --cross device --schema=neusight -O csv one.part.csv two.part.csv three.part.csv four.part.csv
mv out cross.csv
status 0 "--cross device, bounds alone" p --cross device --learner=roofline --no-intervals --schema=neusight -O csv one.part.csv two.part.csv three.part.csv four.part.csv
mv out roof.csv
mean() {
	awk -F , -v col="${2:-4}" '$1 == "all" { print 100 * $col }' "$1"
}
check "what is learned beats the bounds alone" below "$(mean cross.csv)" "$(mean roof.csv)"
check "on devices that were left out: the mean error is below 8 %" below "$(mean cross.csv)" 8
check "intervals hold most of them" below 80 "$(mean cross.csv 9)"
status 0 "--cross shape" p --cross shape --no-intervals --schema=neusight one.csv
status 0 "--cross op" p --cross op --no-intervals --schema=neusight one.csv
holds out "$((2 * rows)) measurements of unknown operations have no prediction" "relu says how long tanh takes, but nothing bmm"
cat >models.schema <<'END'
paceline-schema 1
operation op
latency ms unit=us
device from=file
model column=net
op relu family=elementwise elements=n
END
awk 'BEGIN { print "op,ms,net,n"; for (i = 0; i < 500; i++) printf "relu,%.3f,net%d,%d\n", 10 + i / 5, i % 25, 1000 * (i + 1) }' >one_models.csv
mkdir -p models && mv one_models.csv models/one.csv
status 0 "more models than are left out one by one" p --cross model --no-intervals --schema=models.schema -O csv models/one.csv
check "... each of them is predicted" [ "$(grep -c '^model,net[0-9]*,20,' "$TMP/out")" = 25 ]
sed 's/^op relu/op */' models.schema >any.schema
p --train --no-intervals --schema=any.schema models/one.csv -o any.model
mkdir names
awk 'BEGIN { print "op,ms,net,n"; for (i = 0; i < 20000; i++) printf "op%d,,net%d,%d\n", i, i, 1000 * (1 + 70 * (i % 7)) }' >names/one.csv
p -m any.model names/one.csv >out
check "more names than are kept: sizes decide" awk -F , 'NR > 1 { bad += $4 in ns && ns[$4] != $5; ns[$4] = $5; n++ }
	END { exit bad || n != 20000 || ns[1000] == "" || ns[1000] == ns[421000] }' out
long=$(printf '%0200d' 0)
printf 'op,ms,net,n\n%s1,10,a,5000\n%s2,10,a,5000\n' "$long" "$long" >names/one.csv
p --eval -m any.model --unit=us -O csv names/one.csv >out
check "long names are whole in the table of errors" [ "$(grep -c "^op,${long}[12],1," "$TMP/out")" = 2 ]
{ grep '^OPName\|^relu' one.csv; sed -n 's/^relu/zzz/p' one.csv | head -n 1; } >zzz.csv
status 3 "--cross op of one operation, beside one that the schema does not know" p --cross op --no-intervals --schema=neusight zzz.csv
says 'all operations are of one name: nothing is left to learn from' "... says so"
status 3 "--cross model without models" p --cross model --no-intervals --schema=neusight one.csv
says 'all operations are of one model' "it says so"

# ---- operations that were not measured -----------------------------------------------------------------
# six operations that move bytes, each with a factor of its own: one tells of another no more than that
elementwise() {
	awk 'BEGIN {
		srand(5); n = split("mul add div relu gelu pow", op, " "); split("1 1.1 1.3 0.9 1.2 1.05", by, " ")
		print "OPName,Latency,Device,B,M,N,K,H"
		for (i = 0; i < 70; i++) for (k = 1; k <= n; k++) {
			r = int(64 * exp(7 * rand())); inputs = k < 4 || k == 6 ? 2 : 1
			ns = 15000 + by[k] * 4 * (inputs + 1) * r * 512 / 700
			printf "%s,%.7f,Test two,%d,,,,512\n", op[k], ns * (1 + 0.02 * (rand() + rand() - 1)) / 1e6, r
		} }'
}
elementwise >kinds.csv
status 0 "--cross op: each operation by the others of its family" p --cross op --schema=neusight -O csv kinds.csv
check "... most are within their intervals" awk -F , '$1 == "all" { print "# " $9; exit !($3 == 420 && $9 > 0.9) }' out
check "... which hold five of six operations, or all" awk -F , '$1 == "op" { n++; most += $9 >= 0.9 } END { exit !(n == 6 && most >= 5) }' out
grep -v '^div' kinds.csv >kinds.known
grep '^OPName\|^div\|^add' kinds.csv >kinds.asked
p --train --schema=neusight -o kinds.model kinds.known
printf 'paceline-job 1\nmodel mlp:8-8-8\ndata synthetic:samples=100,dims=8,classes=8\n' >tiny.job
"$BIN/graph" -q -o tiny.graph tiny.job
status 3 "a graph where a table should be" p -m kinds.model tiny.graph
says 'no table in CSV, but binary data' "... says so"
status 3 "a table where a graph should be" p -m kinds.model --device=alpha -O graph kinds.asked
says 'kinds.asked: not a graph, which -O graph needs' "... says so"
status 3 "a job where a graph should be" p -m kinds.model --device=alpha -O graph tiny.job
awk 'NR == 2 { sub(/[0-9]+$/, "") } 1' kinds.asked >hole.asked
status 3 "an empty cell" p -m kinds.model hole.asked
says 'line 2, column [0-9]* (.*): the cell is empty, and operation' "... is named"
status 0 "an operation of which nothing was measured" p -m kinds.model kinds.asked
check "... has an interval, and is flagged" awk -F , 'NR > 1 && $1 == "div" { n++; bad += !($10 < $9 && $9 < $11 && $NF == "unknown") } END { exit bad || n != 70 }' out
check "... which is wider than that of one that was measured" awk -F , '
	NR > 1 { width[$1] += log($11 / $10) } END { print "# " width["div"] / 70, width["add"] / 70; exit !(width["div"] > 1.5 * width["add"]) }' out
check "... and holds most of the times" awk -F , '$1 == "div" { n++; in90 += $10 <= $2 * 1e6 && $2 * 1e6 <= $11 } END { exit !(in90 > 0.85 * n) }' out
cp out kinds.out
p -m kinds.model --device=four kinds.asked >out
check "... wider still on a device that was not measured" awk -F , 'NR > 1 && $1 == "div" { w[FILENAME] += log($11 / $10) } END { exit !(w["out"] > 1.2 * w["kinds.out"]) }' kinds.out out
grep '^OPName\|^gelu' kinds.csv >kinds.one
p --train --schema=neusight -o one.model kinds.one
p -m one.model kinds.asked >out
check "a family of one operation: the factor of three that is guessed" awk -F , 'NR > 1 { n++; bad += !($11 > 2.9 * $9 && $10 < $9 / 2.9) } END { exit bad || n != 140 }' out

# ---- adapting ----------------------------------------------------------------------------------------

# a device half as fast as its sheet says
awk -F , 'BEGIN { OFS = "," } NR > 1 { $2 = 2 * $2 } { print }' five.csv >slow.csv
awk 'NR == 1 || NR % 31 == 2' slow.csv >few.csv
grep '^OPName\|^bmm' few.csv >few.bmm
status 0 "adapted to a few measurements" p --adapt few.csv -m k.model -o adapted.model
p --eval -m k.model -O csv slow.csv >before.csv
p --eval -m adapted.model -O csv slow.csv >after.csv
check "the mean error was above 40 %" below 40 "$(mean before.csv)"
check "and is below 10 %" below "$(mean after.csv)" 10
p --adapt few.bmm -m k.model -o bmm.model
p --eval -m bmm.model -O csv slow.csv >bmm.csv
check "one operation says half for the others" sh -c "awk -F , '\$1 == \"op\" && \$2 == \"softmax\" { exit !(\$4 > 0.2 && \$4 < 0.4) }' bmm.csv"
check "intervals hold most of them" below 75 "$(mean after.csv 9)"
p -m adapted.model three.csv >adapted.out
check "other devices are as before" same adapted.out three.out
p --adapt few.csv -m k.model --no-provenance -o once.model
p --adapt few.csv -m once.model --no-provenance -o twice.model
check "adapted again to the same measurements: the same model" cmp once.model twice.model
awk 'NR == 1 || NR % 30 == 7' five.csv >other.few
p --adapt other.few -m k.model --no-provenance -o other.model
p --adapt few.csv -m other.model --no-provenance -o twice.model
check "... and after others" cmp once.model twice.model
awk 'NR == 1 || NR % 30 == 7' four.csv >other.few
p --adapt other.few -m twice.model -o twice.model
p -m twice.model slow.csv >twice.out
p -m once.model slow.csv >once.out
check "... and to another device: the first adaptation stays" same twice.out once.out
# intervals of rows that are known: a model of noisy rows, adapted to the same rows
noisy() {
	awk -F , -v seed="$1" 'BEGIN { OFS = ","; srand(seed) } NR > 1 { $2 *= exp(0.4 * (rand() + rand() + rand() - 1.5)) } { print }' "$2"
}
noisy 1 four.csv >noisy.csv
measured four 9 $((rows / 2)) >fresh.exact
noisy 2 fresh.exact >fresh.csv
p --train --schema=neusight noisy.csv -o noisy.model
status 0 "adapted to what it was trained with" p --adapt noisy.csv -m noisy.model -o seen.model
p --eval -m seen.model -O csv fresh.csv >seen.csv
check "... intervals hold nine of ten new rows" below 85 "$(mean seen.csv 9)"
p -m noisy.model fresh.csv >noisy.out
p -m seen.model fresh.csv >seen.out
# a floor that changed may put a time into another range
check "... and are not narrower than before, in the mean" awk -F , 'FNR > 1 { w[FILENAME] += log($11 / $10); n++ }
	END { print "# " w["seen.out"] / n, w["noisy.out"] / n; exit !(n > 100 && w["seen.out"] > 0.99 * w["noisy.out"]) }' noisy.out seen.out
cat few.csv >two.devices
tail -n 3 one.csv >>two.devices
status 2 "each --adapt takes one table" p --adapt few.csv -m k.model few.csv -o no.model
says 'write --adapt few.csv' "... says what to write"
cut -d , -f 1-7 few.bmm >less.bmm # without a column that products do not need
grep -v '^bmm' few.csv >few.rest
status 0 "two tables of a device" p --adapt less.bmm --adapt few.rest -m k.model -o two.model
p --eval -m two.model -O csv slow.csv >two.csv.out
check "... are as one of all their rows" same two.csv.out after.csv
status 3 "measurements of two devices adapt nothing" p --adapt two.devices -m k.model -o no.model
says 'two devices' "it says so"

# ---- explaining --------------------------------------------------------------------------------------

status 0 "--explain of a model" "$BIN/predict" --explain -m k.model
mv out explained
"$BIN/predict" k.model >out
check "a model alone: the same" same out explained
holds out "bmm (gemm) in float32: $((4 * rows)) measurements, floor" "it shows the parts"
sed -n '1p;2p' five.queries >one.query
status 0 "--explain of an operation" p --explain -m k.model one.query
holds out '^  floor .* computing .* memory' "it shows the bounds"
holds out 'tile [0-9]* x [0-9]*$' "and the tile"
awk 'NR > 1 { row[NR - 2] = $0; next } { print } END { for (i = 0; i < 5000; i++) print row[i % (NR - 1)] }' five.queries >many.queries
status 0 "... of more than a block of rows" p --explain -m k.model many.queries
check "... each is explained, with a blank line between" sh -c "[ \$(grep -c ' on five: ' out) = 5000 ] && [ \$(grep -c '^\$' out) = 4999 ]"
awk '/^$/ { n++ } n >= 600 && n < 1200' out >second
awk '/^$/ { n++ } n >= 4200 && n < 4800' out >last
check "... the same operations in another block alike" same second last
sed 2q gelu.csv >one.query
status 0 "... of few measurements, on a device that was not measured" p --explain -m few.model one.query
holds out '^    x [23]\.[0-9]*  this operation, of few measurements$' "its own offset"
check "... and none of the device" no grep -q 'this device' out

# ---- data sheets ---------------------------------------------------------------------------------------

mkdir changed
sed 's/"Mem_Bw": 400/"Mem_Bw": 4000/' sheets/one.json >changed/one.json
sed 's/ "L2Cache"/ "CPU": 0, "L2Cache"/' sheets/five.json >changed/five.json
sed 2q five.queries | sed 's/Test five/Test one/' >one.query
p -m k.model one.query >own.out
"$BIN/predict" -m k.model --devices=changed one.query >changed.out 2>err
check "another data sheet of a device that was measured: the model's counts" same changed.out own.out
check "... a warning says so, once" test "$(grep -c 'changed/one.json: its Mem_Bw is not that of' err)" = 1
"$BIN/predict" -m k.model --devices=sheets one.query >changed.out 2>err
check "... not of the same data sheet" no test -s err
"$BIN/predict" -m k.model --devices=changed --device=five five.queries >zero.out 2>/dev/null
check "CPU: 0 is no CPU" same zero.out five.out
mkdir spelled titled
sed 's/"Mem_Bw": 400/"Mem_Bw": 4000/' sheets/one.json >spelled/ONE.json
"$BIN/predict" -m k.model --devices=spelled one.query >changed.out 2>err
check "a name in other letters is the same device" same changed.out own.out
check "... and the warning is there" test "$(grep -c 'spelled/ONE.json: its Mem_Bw is not that of' err)" = 1
cp spelled/ONE.json titled/big.json
"$BIN/predict" -q -m k.model --devices=titled one.query >changed.out
check "a table's name of a device that was measured, which another sheet has, too" same changed.out own.out
"$BIN/predict" -q -m k.model --devices=titled --device=big one.query >changed.out
check "... which is another device by its own name" sh -c '! cmp -s changed.out own.out'
mkdir x y
cp sheets/five.json x/my_gpu.json
cp sheets/five.json y/my_gpu.json
p -m k.model --devices=x --devices=y --device=gpu five.queries >gpu.out
check "the same data sheet in two folders is one" same gpu.out five.out

# noted BYTES: a sheet of so many bytes
noted() {
	mkdir -p noted
	awk -v most="$1" '{ text = text $0 "\n" } END { text = substr(text, 1, length(text) - 3) ", \"note\": \"\" }\n"
		room = most - length(text); while (length(room_text) < room) room_text = room_text "................................................................"
		sub(/"note": "/, "&" substr(room_text, 1, room), text); printf "%s", text }' sheets/one.json >noted/noted.json
}
noted 65535
check "a data sheet of 65535 bytes" [ "$(wc -c <noted/noted.json)" = 65535 ]
status 0 "... is read" "$BIN/predict" -m k.model --devices=noted one.query
noted 65536
status 3 "a larger one" "$BIN/predict" -m k.model --devices=noted one.query
says 'noted/noted.json: larger than 65535 bytes' "... is refused"

# ---- bad input -----------------------------------------------------------------------------------------

# refused NAME STATUS TEXT ARGUMENT...
refused() {
	name=$1
	want=$2
	text=$3
	shift 3
	status "$want" "$name" p "$@"
	says "$text" "$name: the message"
}
edit() {
	awk -F , -v col="$1" -v text="$2" 'BEGIN { OFS = "," } NR == 5 { $col = text } { print }' one.csv >bad.csv
}
train="--train --schema=neusight --no-intervals -o bad.model"
# shellcheck disable=SC2086
{
	edit 2 nan
	refused "a latency that is no number" 3 'bad.csv: line 5, column 2 (Latency).*"nan"' $train bad.csv
	edit 2 -1
	refused "a negative latency" 3 'line 5, column 2 (Latency)' $train bad.csv
	edit 2 ''
	refused "no latency" 3 'line 5, column 2 (Latency): the latency is missing' $train bad.csv
	edit 3 nobody
	refused "a device without a data sheet" 3 'line 5.*no data sheet of "nobody"' $train bad.csv
	edit 4 0
	refused "a dimension that is 0" 3 'line 5, column 4 (B): operation "bmm": batch .*"0"' $train bad.csv
	edit 4 many
	refused "a dimension that is no number" 3 'line 5, column 4 (B): operation "bmm": batch .*"many"' $train bad.csv
	refused "... of a query" 3 'line 5, column 4 (B): operation "bmm": batch .*"many"' -m k.model bad.csv
	edit 4 1e300
	refused "a dimension that is too large" 3 'line 5, column 4 (B).*must be at most 1e18' -m k.model bad.csv
	edit 8 1,2
	refused "a cell too many" 3 'line 5: 9 cells, and the header has 8' $train bad.csv
	cut -d , -f 1,3- one.csv >bad.csv
	refused "no column of latencies" 3 'no column "Latency"' $train bad.csv
	cut -d , -f 1-4,6- one.csv >bad.csv
	refused "no column of a dimension" 3 'operation "bmm".*"M"' $train bad.csv
	awk -F , 'BEGIN { OFS = "," } NR > 1 { $2 *= 1000 } { print }' one.csv >bad.csv
	refused "latencies in another unit" 3 'bad.csv: from line 2 on, column 2: .*another unit.*--unit=' $train bad.csv
	status 0 "--unit says which" p $train --unit=us bad.csv
	# spoilt BY CONDITION: the latencies of these rows, of one.csv
	spoilt() {
		awk -F , -v by="$1" 'BEGIN { OFS = "," } NR > 1 && ('"$2"') { $2 *= by } { print }' one.csv >bad.csv
	}
	for by in 1000 0.001 1000000; do
		spoilt $by 'NR % 9 < 3'
		refused "a third of them times $by" 3 'bad.csv: line [0-9]*, column 2: .*among.* on .*mix units.*--unit=' $train bad.csv
		check "... the message names one of them" awk -v line="$(sed -n 's/.*bad.csv: line \([0-9]*\),.*/\1/p' "$TMP/err")" \
			'BEGIN { exit !(line > 1 && line % 9 < 3) }'
	done
	status 0 "--unit says that they have one" p $train --unit=ms bad.csv
	spoilt 1000 'NR % 9 < 3 && $1 == "softmax"'
	refused "a third of an operation" 3 'is the first of [0-9]* among [0-9]* of "softmax" on .* about 1000 times' $train bad.csv
	spoilt 0.001 '$1 == "softmax"'
	refused "an operation" 3 'is the first of all [0-9]* of "softmax" on .* about a thousandth' $train bad.csv
	sed 1d two.csv | awk -F , 'BEGIN { OFS = "," } { $2 /= 1000; print }' | cat one.csv - >bad.csv
	refused "one device of two" 3 'bad.csv: from line [0-9]* on, column 2: .*another unit' $train bad.csv
	spoilt 1000 'NR == 7'
	status 0 "one slow measurement is no other unit" p $train bad.csv
	spoilt 100 'NR % 9 < 3'
	status 0 "a third that is 100 times as slow is none" p $train bad.csv
	# 0.1 to 133 GB/s are no other unit
	mkdir one
	for rate in 0.1 133; do
		awk -v rate="$rate" 'BEGIN { print "time_stats.all_reduce.median,size,num_workers,devices_per_node"
			for (i = 0; i < 70; i++) { n = int(1e6 * exp(i / 10)); printf "%.6f,%d,4,4\n", (20000 + n / rate) / 1e6, n } }' >one/all_reduce.csv
		status 0 "collectives at $rate GB/s" p --train --schema=vidur --no-intervals -o links.model one/all_reduce.csv
	done
	: >bad.csv
	refused "an empty table" 3 'bad.csv: the table is empty' $train bad.csv
	sed 1q one.csv >bad.csv
	refused "a header alone" 3 'bad.csv holds no measurement' $train bad.csv
	edit 4 inf
	refused "an infinite dimension" 3 'batch of gemm is not known, and must be a number; the cell holds "inf"' -m k.model bad.csv
	edit 4 2.5
	refused "a fraction of a product" 3 'line 5, column 4 (B): operation "bmm": batch of gemm must be whole; the cell holds "2.5"' $train bad.csv
	refused "no table of that name" 4 'none.csv' $train none.csv
	refused "no schema" 2 'schema=neusight' --train one.csv -o bad.model
	refused "a schema that is not there" 4 'built in' --train --schema=none one.csv -o bad.model
	printf 'paceline-schema 1\nlatency t*\n\000op a family=softmax rows=1 columns=1\n' >nul.schema
	refused "a schema with a byte 0" 3 'nul.schema: not a schema, but binary data' --train --schema=nul.schema one.csv -o bad.model
	refused "no model" 2 '-m FILE' one.csv two.csv
	status 3 "a table in place of a model" "$BIN/predict" one.csv
	says 'not a cost model' "... the message"
	status 2 "a device, to show a model" "$BIN/predict" --device=one k.model
	says 'leave out --device' "... the message"
	status 2 "a schema, to show a model" "$BIN/predict" --schema=neusight k.model
	says 'leave out --schema' "... the message"
	refused "two things at once" 2 'exclude each other' --train --eval --schema=neusight one.csv
	refused "--device behind the tables" 2 'behind the last table' -m k.model three.csv --device=four
	refused "a unit, where no latency is read" 2 'reads no latency' -m k.model --unit=us one.csv
	refused "a learner, where nothing is learned" 2 'nothing is learned' -m k.model --learner=raw one.csv
	refused "a number of programs, where none is measured" 2 'goes with --measure' -m k.model --programs=3 one.csv
	refused "... even as many as usual" 2 'goes with --measure' -m k.model --programs=100 one.csv
	refused "no intervals, where none is found" 2 'goes with --train, --tune and --cross' -m k.model --no-intervals one.csv
	refused "... to compare" 2 'goes with --train, --tune and --cross' --eval -m k.model --no-intervals one.csv
	refused "the weight of a network, for tables" 2 'adapt of tensor programs' -m k.model --discrepancy=5 --adapt few.csv -o bad.model
	refused "a schema, for a graph" 2 'leave it out' -m k.model --schema=run --device=four -O graph tiny.graph
	refused "data sheets, to show a model" 2 'leave out --devices' k.model
	refused "... to explain it" 2 'leave out --devices, or name' --explain -m k.model
	refused "two --device in a row" 2 'holds for no table' -m k.model --device=one --device=four three.csv
	refused "... to adapt" 2 'holds for no table' -m k.model --device=one --adapt three.csv --device=four -o bad.model
	refused "a unit that is none" 2 '"hours"' -m k.model --eval --unit=hours one.csv
}
refused "a table as the model" 3 'not a cost model' -m one.csv one.csv
# a block of another version, packed anew: the members of the container are those of gzip, with their sizes
cat >older.py <<'END'
import struct, sys, zlib
data, out, at = open(sys.argv[1], "rb").read(), b"", 0
while at < len(data):
    (n,) = struct.unpack("<I", data[at + 20:at + 24])
    raw = bytearray(zlib.decompress(data[at:at + n], 31))
    packed = data[at + 28:at + n - 8]
    if raw[:4] == b"HEAD":
        packed = packed.replace(bytes(raw[:5]), b"HEAD\x02")
        raw[4] = 2
    out += data[at:at + 28] + packed + struct.pack("<II", zlib.crc32(bytes(raw)), len(raw))
    at += n
open(sys.argv[2], "wb").write(out)
END
if command -v python3 >/dev/null; then
	"$BIN/predict" -q --devices=sheets --train --no-intervals --schema=neusight -u one.csv -o plain.model
	check "a block of another version" python3 older.py plain.model older.model
	refused "a model of another version" 3 'older.model: block 0 .*version 2, and this program reads [0-9]*: train it again' -m older.model one.csv
fi
head -c 3000 k.model >cut.model
refused "a model that is cut short" 3 'cut.model' -m cut.model one.csv
status 2 "no data sheets" "$BIN/predict" -q --train --schema=neusight one.csv
sed '2,$s/^relu/swish/' five.queries >other
p -m k.model other >other.out
check "an operation that the schema does not know has no time" grep -q '^swish,.*,,,,unknown$' other.out
"$BIN/predict" --eval -m k.model --devices=sheets -O csv five.csv >/dev/null 2>err
check "nothing is said where nothing is wrong" no test -s err
sed 's/^relu/swish/' five.csv >other.csv
"$BIN/predict" --eval -m k.model --devices=sheets -O csv other.csv >out 2>err
holds err '100 measurements of operations that the schema neusight does not know are left out: 100 "swish", from line 6 on$' "what is left out is said"

mkdir older
for d in one two three four; do
	sed 's/ "HalfTensorFLOPs": [0-9]*,//' sheets/$d.json >older/$d.json
done
sed 's/float32/float16/' wide.schema >half.schema
status 3 "a data sheet without the rate of tensor cores" "$BIN/predict" -q --devices=older --train --schema=half.schema \
	--no-intervals three/wide.csv -o bad.model
says 'data sheet of three .*HalfTensorFLOPs' "it says so"
p --train --no-intervals --schema=half.schema three/wide.csv -o half.model
sed 's/three/four/' older/three.json >older/other.json
status 3 "... and of a device that is asked for" "$BIN/predict" -q --devices=older -m half.model --device=four three/wide.csv
says 'wide.csv: line 2: older/four.json: the data sheet of four .*float16 (HalfTensorFLOPs)' "... names the row and the sheet"
echo 'relu,1e300,Test one,100,,,,100' | sed '1i OPName,Latency,Device,B,M,N,K,H' >bad.csv
refused "a latency that no number can hold" 3 'line 2, column 2 (Latency): a latency of 1e+306 ns is out of range' --adapt bad.csv -m k.model -o bad.model
awk 'NR < 4' one.csv | awk -F , 'BEGIN { OFS = "," } NR > 1 { $2 *= 1000 } { print }' >bad.csv
refused "two latencies in another unit" 3 'another unit' --adapt bad.csv -m k.model -o bad.model

# ---- memory that runs out, and calls that fail ---------------------------------------------------------

. "$SRC/tests/cli/tiny.sh"
check "a tiny model" tiny_model .
calls=100
! sanitized thread || calls=10
check "learning: any call may fail" "$SRC/tests/fault/torture" -n $calls "$BIN/predict" -q --train --schema=neusight \
	--devices=sheets --unit=us k.csv
check "asking: any call may fail" "$SRC/tests/fault/torture" -n $calls "$BIN/predict" -q -m k.model k.csv
check "comparing: any call may fail" "$SRC/tests/fault/torture" -n $calls "$BIN/predict" -q --eval --unit=us -m k.model k.csv
check "adapting: any call may fail" "$SRC/tests/fault/torture" -n $calls "$BIN/predict" -q --adapt k.csv --unit=us -m k.model

done_testing
