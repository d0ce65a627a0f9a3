# graph -f opgraph: the step of a model from a table of its operations; predict -O graph: its times.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"
cd "$TMP" || exit 1
check "a tiny model" tiny_model .

cat >net.csv <<'END'
Name,OpName,FwOps,BwOps,AccOps,Prev,Next,InputShapes,OutputShape
ids,misc,[],[],[],set(),{'emb'},[],"(4, 8)"
size,getitem,"[['MEM', ((1,), (1,))]]",[],[],{'ids'},set(),"[(4, 8)]","(1,)"
emb,EMBEDDING,"[['MEM', ((4, 8), (4, 8, 64))]]","[['MEM', ((100, 64),)]]","[['VECadd', [1, 6400]]]",{'ids'},"{'layer_0_in', 'sum'}","[(4, 8)]","(4, 8, 64)"
layer_0_in,Linear,"[['Linear', (32, 64, 128)]]","[['Linear', (32, 128, 64)], ['Linear', (64, 32, 128)]]",[],{'emb'},{'act'},"[(4, 8, 64)]","(4, 8, 128)"
act,VECrelu,"[['VECrelu', (32, 128)]]","[['VECrelu', (32, 128)]]",[],{'layer_0_in'},{'scale'},"[(4, 8, 128)]","(4, 8, 128)"
scale,VECdiv,"[['VECdiv', (32, 128)]]",[],[],{'act'},{'layer_0_drop'},"[(4, 8, 128), (1,)]","(4, 8, 128)"
layer_0_drop,dropout,"[['MEM', ((4, 8, 128), (4, 8, 128))]]",[],[],{'scale'},{'sum'},"[(4, 8, 128)]","(4, 8, 128)"
sum,VECadd,"[['VECadd', (32, 128)]]",[],[],"{'layer_0_drop', 'scale'}",{'layer_10_out'},"[(4, 8, 128), (4, 8, 128)]","(4, 8, 128)"
layer_10_out,BMM,"[['BMM', (4, 8, 128, 16)]]",[],[],{'sum'},{'end'},"[(4, 8, 128), (4, 128, 16)]","(4, 8, 16)"
end,VECsoftmax,"[['VECsoftmax', (32, 16)]]",[],[],{'layer_10_out'},set(),"[(4, 8, 16)]","(4, 8, 16)"
END

# nodes GRAPH: phase, layer, module, name, inputs, FLOPs and bytes of each computation
nodes() {
	"$BIN/graph" -O json "$1" | python3 -c '
import json, sys
g = json.load(sys.stdin)
for n in g["shapes"][0]["nodes"]:
	if n["role"] != "compute":
		continue
	w = g["work"][n["work"]]
	print(n["phase"], n.get("layer", "-"), n["module"], n["name"], json.dumps(w["dims"], separators=(",", ":")).strip("\""), w["flops"], w["bytes"])'
}
status 0 "a table of operations" "$BIN/graph" -f opgraph -o net.graph net.csv
"$BIN/graph" --no-provenance -f opgraph net.csv >forced.graph
check "... which is known by its header" sh -c '"$BIN/graph" --no-provenance net.csv | cmp - forced.graph'
gzip -c net.csv >net.csv.gz
"$BIN/graph" --no-provenance -f opgraph net.csv.gz >net.gz.graph
check "a compressed one" sh -c "'$BIN/graph' --no-provenance -f opgraph net.csv | cmp -s - net.gz.graph"
status "2 3" "... and is no recording" "$BIN/replay" net.csv
says 'net.csv: this is a table of operations.* graph --mode=train net.csv | predict ' "... which says what to do"
status 0 "is a graph" "$BIN/graph" -O json net.graph
if command -v python3 >/dev/null; then
	nodes net.graph >got
	cat >want <<'END'
forward - emb embedding [[4,8]] 0 16384
forward - layer_0_in linear [[32,64],[64,128]] 524288 57344
forward - act relu [[32,128]] 4096 32768
forward - scale div [[4,8,128]] 4096 32768
forward - sum add [[4,8,128],[4,8,128]] 4096 49152
forward - layer_10_out bmm [[4,8,128],[4,128,16]] 131072 51200
forward - end softmax [[32,16]] 512 4096
END
	check "whose operations have sizes and work" same got want
	"$BIN/graph" -f opgraph --type=float16 net.csv >half.graph
	nodes half.graph >got
	check "... half the bytes in half precision" grep -qx 'forward - act relu \[\[32,128\]\] 4096 16384' got
	"$BIN/graph" -f opgraph --mode=train --repeat=3 --repeat-match='h_0|layer_0' net.csv >train.graph
	nodes train.graph | cut -d ' ' -f 1-4 >got
	cat >want <<'END'
forward - emb embedding
forward 0 layer_0_in linear
forward 0 act relu
forward 0 scale div
forward 0 layer_0_drop copy
forward 0 sum add
forward 1 layer_0_in linear
forward 1 act relu
forward 1 scale div
forward 1 layer_0_drop copy
forward 1 sum add
forward 2 layer_0_in linear
forward 2 act relu
forward 2 scale div
forward 2 layer_0_drop copy
forward 2 sum add
forward - layer_10_out bmm
forward - end softmax
backward 2 act relu
backward 2 layer_0_in linear
backward 2 layer_0_in linear
backward 1 act relu
backward 1 layer_0_in linear
backward 1 layer_0_in linear
backward 0 act relu
backward 0 layer_0_in linear
backward 0 layer_0_in linear
backward - emb copy
backward - emb add
END
	check "training, with a layer that is repeated, its last sum included" same got want
else
	skip "operations of a table" "no python3"
fi

# ---- durations -----------------------------------------------------------------------------------------
# the model knows relu alone: 2 us for each 65,536 numbers, above a floor
cat >relu.csv <<'END'
Name,OpName,FwOps
a,VECrelu,"[['VECrelu', (64, 65536)]]"
b,VECrelu,"[['VECrelu', (64, 65536)]]"
c,MEM,"[['MEM', ((64, 65536), (64, 65536))]]"
d,Linear,"[['Linear', (512, 512, 512)]]"
END
"$BIN/graph" -f opgraph relu.csv >relu.graph
status 0 "durations from a model" "$BIN/predict" --host-us=0 -m k.model --device=dev -O graph relu.graph
says "1 of 4 operations have no time, because the model does not know them (1 \"linear\")" "what it does not know is counted"
cp out filled.graph
cat >alike.csv <<'END'
Name,OpName,FwOps
a,VECrelu,"[['VECrelu', (64, 65536)]]"
b,VECgelu,"[['VECgelu', (64, 64)]]"
c,VECgelu,"[['VECgelu', (64, 64)]]"
d,VECtanh,"[['VECtanh', (640, 65536)]]"
END
"$BIN/graph" -f opgraph alike.csv >alike.graph
status 0 "operations of a family" "$BIN/predict" --host-us=0 -m k.model --device=dev -O graph alike.graph
says '4 of 4 operations have names of which nothing or little was measured (1 "tanh", 1 "relu", 2 "gelu")' "each name is counted, the longest time first"
step() { "$BIN/replay" -q --no-worth -O json "$1" | sed -n 's/.*"replayed_ns":\([0-9]*\).*/\1/p' | head -n 1; }
echo relu,64,65536 | sed '1i OPName,B,H' | "$BIN/predict" -m k.model --device=dev | tail -n 1 | cut -d , -f 4 >one
check "the step is that of three such operations, without most of their floors" \
	awk -v step="$(step filled.graph)" -v one="$(cat one)" 'BEGIN { exit !(step < 3 * one && step > 3 * (one - 22000)) }'
check "without intervals of operations there is none of the step" sh -c "
	'$BIN/replay' -q --no-worth -O json filled.graph >json && ! grep -q replayed_lo json"
# a model of two operations that has intervals: relu within 10 %, tanh within 30 %
{
	echo OPName,Latency,Device,B,H
	awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) for (k = 0; k < 2; k++) {
		b = int(1 + 255 * rand()); spread = k ? 0.3 : 0.1
		printf "%s,%.4f,Dev,%d,65536\n", k ? "tanh" : "relu", (20 + b * 2) * (1 + spread * (2 * rand() - 1)), b } }'
} >two.csv
status 0 "a model with intervals" "$BIN/predict" -q --train --schema=neusight --devices=sheets --unit=us -o two.model two.csv
printf 'Name,OpName,FwOps\n' >both.csv
awk 'BEGIN { for (i = 1; i < 5; i++) printf "r%d,x,\"[[\047VECrelu\047, (128, 65536)], [\047VECtanh\047, (128, 65536)]]\"\n", i }' >>both.csv
"$BIN/graph" -f opgraph both.csv | "$BIN/predict" -q -m two.model --device=dev --host-us=0 -O graph -o both.graph
status 0 "the interval of a step" "$BIN/replay" --no-worth both.graph
holds out 'replayed [0-9.]* ms (.*), 90 % interval [0-9.]* ms to [0-9.]* ms' "... is in the first line"
holds out '^trust: medium: the durations are predictions of one step' "... and the trust says what they are"
"$BIN/replay" -q --no-worth -O csv --table steps both.graph >table
ends() { printf 'OPName,B,H\n%s,128,65536\n' "$1" | "$BIN/predict" -q -m two.model --device=dev | tail -n 1; }
check "equal operations err together, others independently" awk -F , -v relu="$(ends relu)" -v tanh="$(ends tanh)" '
	NR == 2 {
		split(relu, r, ","); split(tanh, t, ",")
		want = sqrt((4 * (r[6] - r[4])) ^ 2 + (4 * (t[6] - t[4])) ^ 2)
		print "# " $7 - $4, want
		right = $7 - $4 > 0.99 * want && $7 - $4 < 1.01 * want && $6 < $4
	}
	END { exit !right }' table
# above the 255 x 65536 numbers that were measured at most
printf 'Name,OpName,FwOps\na,x,"[['"'VECrelu', (2550, 65536)"']]"\nb,x,"[['"'VECrelu', (128, 65536)"']]"\n' >far.csv
"$BIN/graph" -f opgraph far.csv >far.graph
status 0 "an operation outside of what was measured" "$BIN/predict" -m two.model --device=dev --host-us=0 -O graph far.graph
says '1 of 2 operations are outside of what was measured: their times are less sure, and the farther away' "... is counted"
printf 'OPName,B,H\nrelu,255,65536\nrelu,2550,65536\nrelu,25500,65536\n' | "$BIN/predict" -q -m two.model --device=dev >far.out
check "... and its interval is the wider, the farther away it is" awk -F , 'NR > 1 { w = log($6 / $5); print "# " w; if (w < 1.1 * last) exit 1; last = w }' far.out
# most operations take 25 us and more, a few 1 us: less than what others lose of their floor
{
	echo OPName,Latency,Device,B,H
	awk 'BEGIN { for (i = 0; i < 39; i++) printf "relu,1,Dev,1,%d\n", 8 + i
		for (i = 0; i < 2000; i++) printf "relu,%.3f,Dev,%d,4096\n", 25 + i / 50, 1 + i }'
} >short.csv
"$BIN/predict" -q --train --no-intervals --schema=neusight --devices=sheets --unit=us -o short.model short.csv
printf 'Name,OpName,FwOps\na,x,"[['"'VECrelu', (1, 12)"']]"\n' >one.csv
"$BIN/graph" -f opgraph one.csv | "$BIN/predict" -q -m short.model --device=dev --host-us=0 -O graph -o short.graph
check "an operation that is shorter than the floor takes some time" [ "$(step short.graph)" -gt 0 ]

# ---- the host --------------------------------------------------------------------------------------------
# short: 8 operations of a few us; long: of about 270 us
awk 'BEGIN { print "Name,OpName,FwOps"; for (i = 0; i < 8; i++) printf "r%d,x,\"[[\047VECrelu\047, (1, 65536)]]\"\n", i }' >short.csv
awk 'BEGIN { print "Name,OpName,FwOps"; for (i = 0; i < 8; i++) printf "r%d,x,\"[[\047VECrelu\047, (128, 65536)]]\"\n", i }' >long.csv
hosted() { # hosted TABLE OUT OPTION...
	hosted_in=$1 hosted_out=$2
	shift 2
	"$BIN/graph" -f opgraph "$hosted_in" | "$BIN/predict" -q -m two.model --device=dev -O graph -o "$hosted_out" "$@"
}
hosted short.csv short.graph --host-us=100
hosted short.csv free.graph --host-us=0
hosted long.csv long.graph --host-us=100
hosted long.csv alone.graph --host-us=0
"$BIN/replay" -q --no-worth short.graph >out
check "short operations: the step is 8 launches, and the last operation" sh -c "
	test $(step short.graph) -ge 800000 && test $(step short.graph) -lt $((800000 + $(step free.graph)))"
holds out '^bound by: the host launches too slowly for the device [89][0-9] %' "... the report says so"
check "... and does not doubt a host that is known" no grep -q 'is assumed (predict' out
check "long ones: one launch more than their sum" test "$(step long.graph)" = "$(($(step alone.graph) + 100000))"
hosted short.csv assumed.graph
"$BIN/replay" -q --no-worth assumed.graph >out
tr '\n' ' ' <out | tr -s ' ' >line
holds line 'trust: medium: [0-9]* % of the critical path is launches by a host whose time for them is assumed (predict --host-us)' \
	"a host of which nothing is known: the trust line says so"
"$BIN/replay" -q --no-worth -O csv --table=steps assumed.graph >table
check "... half and three times its time are within the interval" \
	awk -F , 'NR == 2 { exit !($7 > 2.8 * $4 && $7 < 3.1 * $4 && $6 < 0.55 * $4) }' table
"$BIN/replay" -q --no-worth --what-if 'scale name=launch by 0.5' assumed.graph >out
holds out 'predicted .* in all [0-9.]* us to [0-9.]* us' "... also after a change"
holds out 'the durations are predictions of one step' "... of what nobody recorded"
"$BIN/replay" -q --no-worth -O csv --table=steps --what-if 'scale name=launch by 0.5' assumed.graph >table
check "... whose interval is that of the prediction" awk -F , 'NR == 2 { exit !($8 > 2.5 * $6) }' table
sed 's/"CPU": *1/"CPU": 0/; s/{/{ "CPU": 1,/' sheets/dev.json >cpu.json
mkdir cpu && mv cpu.json cpu/cpu.json
"$BIN/graph" -f opgraph short.csv | "$BIN/predict" -q -m two.model --devices=cpu --device=cpu -O graph -o cpu.graph
check "a CPU needs no launches" sh -c "'$BIN/graph' -O text short.graph | grep -q 'runtime.*launch' && ! '$BIN/graph' -O text cpu.graph | grep -q 'runtime.*launch'"
status 2 "a host of predictions that are no graph" "$BIN/predict" -m two.model --host-us=10 short.csv
says '--host-us goes with -O graph' "... has no meaning"
status 2 "a host that takes less than nothing" "$BIN/predict" -m two.model --device=dev --host-us=-1 -O graph short.graph
says '--host-us: -1 is not 0 to' "... is refused"
# a host that the data sheet knows: Host_Launch, in us
mkdir hosted
host_sheet() { sed "s/{/{ $1,/" sheets/dev.json >hosted/dev.json; }
host_sheet '"Host_Launch": 100'
hosted short.csv sheet.graph --devices=hosted
check "the data sheet says how long a launch takes" test "$(step sheet.graph)" = "$(step short.graph)"
"$BIN/replay" -q --no-worth sheet.graph >out
check "... which is no guess" no grep -q 'is assumed (predict' out
hosted short.csv over.graph --devices=hosted --host-us=0
check "--host-us overrides it" test "$(step over.graph)" = "$(step free.graph)"
host_sheet '"Host_Launch": 100, "Host_Launch_Low": 50, "Host_Launch_High": 150'
hosted short.csv sheet.graph --devices=hosted
"$BIN/replay" -q --no-worth -O csv --table=steps sheet.graph >table
check "... with its interval" awk -F , 'NR == 2 { exit !($7 > 1.4 * $4 && $7 < 1.6 * $4 && $6 < 0.6 * $4) }' table
"$BIN/predict" -q --train --schema=neusight --devices=hosted --no-intervals --unit=us -o hosted.model two.csv
"$BIN/graph" -f opgraph short.csv | "$BIN/predict" -q -m hosted.model -O graph -o model.graph
"$BIN/replay" -q --no-worth -O csv --table=steps model.graph >model.table
check "... which a model keeps" awk -F , 'FNR == 2 { v[++n] = $7 } END { print "# " v[1], v[2]; exit !(v[1] > 0.95 * v[2] && v[1] < 1.05 * v[2]) }' table model.table
# long operations of that model have no interval, and short launches have one
"$BIN/graph" -f opgraph long.csv | "$BIN/predict" -q -m hosted.model -O graph -o open.graph
"$BIN/replay" -q --no-worth open.graph >out
check "an interval of launches alone is none of the step" no grep -q 'interval [0-9]' out
tr -s ' \n' ' ' <out >line
holds line 'trust: low: [0-9]* % of the predicted time has no interval' "... and the trust says so"
"$BIN/replay" -q --no-worth --what-if 'scale name=* by 0.5' open.graph | tr -s ' \n' ' ' >line
holds line 'trust: low: [0-9]* % of the predicted time has no interval' "... also that of a change"
host_sheet '"Host_Launch_Low": 50'
status 3 "an interval of nothing" "$BIN/predict" -m two.model --devices=hosted --device=dev -O graph short.graph
says 'hosted/dev.json: Host_Launch is missing' "... is refused"
host_sheet '"Host_Launch": 100, "Host_Launch_High": 50'
status 3 "a time outside of its interval" "$BIN/predict" -m two.model --devices=hosted --device=dev -O graph short.graph
says 'Host_Launch 100 is not between' "... is refused"
# collectives are launched too, and an optimizer by several calls
for optimizer in 'sgd lr=1:1' 'sgd lr=1 momentum=0.9:3' 'adam lr=1:8' 'adamw lr=1:9'; do
	printf 'paceline-job 1\nmodel mlp:64-128-10\ndata synthetic:samples=64,dims=64,classes=10\nbatch 8\noptimizer %s\n' \
		"${optimizer%:*}" >hosted.job
	"$BIN/graph" -q --operators --ranks=2 hosted.job |
		"$BIN/predict" -q -m two.model --device=dev --host-us=100 -O graph | "$BIN/graph" -q -O text >launches
	check "${optimizer%:*}: its launch takes as long as ${optimizer#*:}" awk -F '\t' -v calls="${optimizer#*:}" '
		$1 == "node" { name[$2] = $8 }
		$1 == "edge" && $4 == "launch" { of[$2] = name[$3]; seen[name[$3] ~ /^update/ ? "update" : name[$3] ~ /^allreduce/ ? "allreduce" : "other"]++ }
		$1 == "time" && $2 in of { want = 100000 * (of[$2] ~ /^update/ ? calls : 1); n++; bad += $4 != want }
		END { print "# " n, bad, seen["update"], seen["allreduce"]; exit bad || n < 6 || seen["update"] != 2 || seen["allreduce"] != 2 }' launches
done
status 0 "a graph that has hosts" "$BIN/predict" -q -m two.model --device=dev -O graph -o again.graph short.graph
check "... gets no others" test "$("$BIN/graph" -O text again.graph | grep -c 'runtime.*launch')" = 8

status 0 "through pipes" sh -c "'$BIN/graph' -f opgraph relu.csv | '$BIN/predict' -q -m k.model --device=dev -O graph | '$BIN/replay' -q --no-worth"

# ---- what is wrong -------------------------------------------------------------------------------------
# bad NAME CELL PATTERN: a table whose only operation is CELL
bad() {
	printf 'Name,OpName,FwOps\na,x,"%s"\n' "$2" >bad.csv
	status 3 "$1" "$BIN/graph" -f opgraph bad.csv
	says "$3" "... is named"
}
bad "an operation that is not known" "[['FFT', (2, 3)]]" '^graph: bad.csv: line 2, column FwOps: "FFT" with these sizes is not known'
bad "a product of two sizes" "[['Linear', (2, 3)]]" '"Linear" with these sizes is not known'
bad "a size of 0" "[['VECrelu', (2, 0)]]" 'is not a list of operations'
bad "a list that does not end" "[['VECrelu', (2, 3)]" 'is not a list of operations'
bad "a size that is too great" "[['VECrelu', (2, 99999999999)]]" 'is not a list of operations'
bad "brackets without end" "[['MEM', ((((((((((((((" 'is not a list of operations'
bad "brackets that are nested too deeply" "[['Linear', $(awk 'BEGIN { for (i = 0; i < 100000; i++) printf "(" }')" 'is not a list of operations'
bad "more bytes than can be counted" "[['Linear', (2147483647, 2147483647, 2147483647)]]" 'with these sizes is not known'
printf 'Name,OpName,FwOps\nh_0,getitem,[]\nh_0b,getitem,[]\n' >bad.csv
for i in $(seq 100); do echo "h_0.$i,getitem,[]"; done >>bad.csv
status 5 "rows that are repeated too often" timeout 20 "$BIN/graph" -f opgraph --repeat=1048576 --repeat-match=h_0 bad.csv
says 'take a smaller --repeat' "... are refused"
printf 'Name,OpName,FwOps\na,x,[]\na,x,[]\n' >bad.csv
status 3 "two rows of one name" "$BIN/graph" -f opgraph bad.csv
says 'line 3: a second row "a"; names differ' "... are named"
printf 'Name,FwOps\na,[]\n' >bad.csv
status 3 "a column that is missing" "$BIN/graph" -f opgraph bad.csv
says 'no column "OpName"' "... is named"
status 3 "training without a backward pass" "$BIN/graph" -f opgraph --mode=train relu.csv
says 'no column "BwOps"' "... is named"
: >bad.csv
status 3 "an empty table" "$BIN/graph" -f opgraph bad.csv
status 2 "a layer that is not there" "$BIN/graph" -f opgraph --repeat=2 --repeat-match=block_0 net.csv
says 'no name holds "block_0"' "... is named"
status 2 "a repetition of nothing" "$BIN/graph" -f opgraph --repeat=2 net.csv
says 'go together' "... is explained"
status 2 "ranks of a table of operations" "$BIN/graph" -f opgraph --ranks=2 net.csv
status 2 "a mode of a graph" "$BIN/graph" --mode=train net.graph
status 2 "a type that is not known" "$BIN/graph" -f opgraph --type=decimal net.csv
status 0 "what makes its time" "$BIN/predict" -m k.model --device=dev -O graph --explain relu.graph
check "... is said for each name, of all operations" awk '/ operations take / && $1 > 0 && $4 > 0 { all = 1 }
	/^ *[0-9.]+ %  [a-z]+ \([a-z]+\), [0-9]+ times, / { sum += $1 } END { print "# " sum " %"; exit !(all && sum > 99 && sum < 101) }' "$TMP/out"
check "... and no graph is written" no grep -q paceline "$TMP/out"
status 2 "... not while a model is compared" "$BIN/predict" -m k.model --device=dev -O graph --eval relu.graph
"$BIN/predict" --no-provenance -m k.model --device=dev -O graph relu.graph >named.graph
status 0 "the device of a model of one" "$BIN/predict" --no-provenance -m k.model -O graph relu.graph
check "... need not be named" cmp -s named.graph "$TMP/out"
status 3 "a device without a sheet" "$BIN/predict" -m k.model --device=other -O graph relu.graph
status 3 "a table in place of a graph" "$BIN/predict" -m k.model --device=dev -O graph relu.csv
check "any call may fail" "$SRC/tests/fault/torture" -n 60 "$BIN/graph" -f opgraph net.csv
check "... of predict too" "$SRC/tests/fault/torture" -n 60 "$BIN/predict" -m k.model --device=dev -O graph relu.graph
# the table that the manual shows
sed -n '/^Name,OpName/,/^\.Ed/p' "$SRC/man/paceline-graph.1" | sed '/^\.Ed/d' | sed -e ':a' -e '/ \\e$/N; s/ \\e\n *//; ta' >manual.csv
status 0 "the table of the manual" "$BIN/graph" --mode=train -o manual.graph manual.csv
check "... has 5 operations forward and 6 backward" test "$("$BIN/graph" -O text manual.graph | awk -F '\t' '$1 == "node" && $4 == "compute" { n[$16]++ }
	END { print n["forward"] + 0, NR ? n["backward"] + n["input-gradient"] + n["weight-gradient"] : 0 }')" = "5 6"
status "2 3" "... is no plan" "$BIN/plan" manual.csv
says 'this is a table of operations' "... which plan says, too"
done_testing
