# plan: what is found, its forms, limits and signals; replay -p; what both refuse, and why.
# runner: long, threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

python=$(command -v python3 || true)

# A network whose gradients are many and small: fusing pays, up to a point.
awk 'BEGIN {
	print "layer,forward_us,backward_us,param_bytes,activation_bytes,update_ns"
	for (i = 0; i < 24; i++)
		print "l" i "," 100 + i * 7 % 50 "," 220 + i * 13 % 90 "," 40000 + i * i * 9000 "," 8000000 ",100"
}' >"$TMP/net.csv"
g=$TMP/net.graph
status 0 "a graph of a table" "$BIN/graph" -f layers --topology 4x2 -o "$g" "$TMP/net.csv"

# number KEY FILE: of a plan as text
number() {
	sed -n "s/^$1 //p" "$2"
}

# less A B: is A less than B?
less() {
	[ "$1" -lt "$2" ]
}

# ---- what is found ------------------------------------------------------------------------------
status 0 "a plan as text" "$BIN/plan" -O text "$g"
cp "$TMP/out" "$TMP/text"
check "no warning" test ! -s "$TMP/err"
check "it knows its base" sh -c "grep -q '^base net.graph' '$TMP/text' && grep -q '^replicas 8' '$TMP/text' &&
	[ \$(grep -c '^tensor ' '$TMP/text') = 24 ]"
"$GEN/kgen" -o "$TMP/job" --ranks=2 --steps=1 >"$TMP/out"
status 0 "a plan of a recording" "$BIN/plan" -q -O text "$TMP/job"
check "... knows it by its folder" grep -q '^base job/rank0' "$TMP/out"
check "tensors are fused" grep -q '^fuse-tensors "grad l[0-9]*" "grad l[0-9]*".* alone=-*[0-9]* in-plan=-*[0-9]*$' "$TMP/text"
check "the step becomes shorter" less "$(number predicted "$TMP/text")" "$(number baseline "$TMP/text")"
check "not shorter than the bound" less "$(number bound "$TMP/text")" "$(number predicted "$TMP/text")"
check "it is complete" sh -c "! grep -q ^incomplete '$TMP/text'"
for p in none ddp horovod each all best; do
	status 0 "what others do: $p" "$BIN/plan" -O text --preset $p "$g"
	check "... is no better" sh -c "[ $(number predicted "$TMP/text") -le $(number predicted "$TMP/out") ]"
done
status 0 "a budget of zero" "$BIN/plan" -O text --evaluations 0 --no-provenance "$g"
cp "$TMP/out" "$TMP/zero"
"$BIN/plan" -O text --preset best --no-provenance "$g" >"$TMP/best"
check "... is the best of the defaults" cmp -s "$TMP/zero" "$TMP/best"
status 0 "nothing may be changed" "$BIN/plan" -O text --allow order --forbid order "$g"
check "... is what was recorded" sh -c "! grep -q '^fuse' '$TMP/out' && [ $(number predicted "$TMP/out") = $(number baseline "$TMP/out") ]"
status 0 "algorithms on request" "$BIN/plan" -O text --allow algorithm "$g"
check "... and nothing else" sh -c "! grep -q '^fuse' '$TMP/out'"
status 0 "a longer search" "$BIN/plan" -O text --evaluations 2000 "$g"
check "... is no worse" sh -c "[ $(number predicted "$TMP/out") -le $(number predicted "$TMP/text") ]"
check "... and keeps to its budget" less "$(number evaluations "$TMP/out")" 2001
for n in 1 3 17 100; do
	for may in --allow=fuse-tensors --allow=precision,fuse-tensors,algorithm,partition-tensor,order --fuse-ops=*; do
		"$BIN/plan" -q -O text --any --evaluations $n "$may" "$g" >"$TMP/few" || exit
		check "at most $n simulations, $may" less "$(number evaluations "$TMP/few")" $((n + 1))
	done
done
evaluations=1500
few=
! sanitized any || { evaluations=500 && few='--evaluations 300'; } # later ones run the same code
for n in 1 2 4; do
	"$BIN/plan" -O text --no-provenance --evaluations $evaluations --seed 3 -@ $n "$g" >"$TMP/t$n"
done
check "any number of threads, the same plan" sh -c "cmp -s '$TMP/t1' '$TMP/t2' && cmp -s '$TMP/t1' '$TMP/t4'"
status 0 "progress" "$BIN/plan" -O text --progress always "$g"
says "simulations" "... on standard error"
not_under thread "its programs have one thread each"

# ---- fused operations ---------------------------------------------------------------------------
status 0 "operations are fused on request only" "$BIN/plan" -O text --fuse-share 0.9 --fuse-ops 'forward *' "$g"
check "... by name" sh -c "grep -q '^fuse-ops \"forward l[0-9]*\" \"forward l[0-9]*\".* share=0.9 alone=[0-9]* in-plan=[0-9]*$' '$TMP/out' &&
	! grep -q '^fuse-ops.*backward' '$TMP/out' && ! grep -q '^fuse-ops' '$TMP/text'"
check "... which makes the step shorter" less "$(number predicted "$TMP/out")" "$(number predicted "$TMP/text")"
check "... and the bound is theirs" sh -c "[ $(number bound "$TMP/out") -le $(number predicted "$TMP/out") ] && [ $(number bound "$TMP/out") -lt $(number bound "$TMP/text") ]"
cp "$TMP/out" "$TMP/fused.plan"
status 0 "... can be carried out" "$BIN/replay" -p "$TMP/fused.plan" -O csv --table steps "$g"
check "... as predicted" grep -q "$(number predicted "$TMP/fused.plan")" "$TMP/out"
second=$(sed -n 's/^fuse-ops "forward l[0-9]*" "\(forward l[0-9]*\)".*/\1/p' "$TMP/fused.plan" | head -n 1 | tr ' ' '?')
status 0 "a part of a fused operation takes half of its time" "$BIN/replay" --no-worth -p "$TMP/fused.plan" --what-if "scale name=$second by 0.5" "$g"
says 'selects only operations that take no time' "... which is none: a warning says so"
status 3 "another precision behind a plan that fuses" "$BIN/replay" --no-worth -p "$TMP/fused.plan" --what-if 'precision bf16' "$g"
says 'the change "precision bf16": .*put precision into the plan' "... is refused with the remedy"
# shellcheck disable=SC2086  # few is two words or none
status 0 "without a share nothing is claimed" "$BIN/plan" $few -O text --fuse-ops 'backward *' "$g"
check "... of a table of layers" sh -c "! grep -q '^fuse-ops' '$TMP/out'"
status 0 "names of common kernels" "$BIN/plan" -O text --allow fuse-ops "$g"
says "no operations that may be fused" "... are not those of a table of layers"
status 2 "a share without operations" "$BIN/plan" -O text --fuse-share 0.5 "$g"
status 2 "a share above 1" "$BIN/plan" -O text --fuse-ops default --fuse-share 1.5 "$g"
status 2 "operations of a plan" "$BIN/plan" -O text --fuse-ops default "$TMP/fused.plan"

# ---- parameter servers --------------------------------------------------------------------------
# Small gradients of 8 ranks: latency decides. Large ones: two servers carry the bytes of eight ranks.
awk 'BEGIN {
	print "layer,forward_us,backward_us,param_bytes,activation_bytes,update_ns"
	for (i = 0; i < 12; i++)
		print "l" i ",100,220," 2000 + i * 100 ",80000,100"
}' >"$TMP/small.csv"
for hosts in 8 10; do
	printf 'hosts %d ranks=1\nlink nic scope=network bandwidth=10Gbit/s latency=100us\n' $hosts >"$TMP/topology$hosts"
done
for net in small net; do
	"$BIN/graph" -f layers --topology "$TMP/topology8" -o "$TMP/$net.8" "$TMP/$net.csv"
	for hosts in 8 10; do
		status 0 "$net gradients, 8 ranks, $hosts hosts" "$BIN/plan" -O text --no-provenance \
			--allow fuse-tensors,algorithm --topology "$TMP/topology$hosts" "$TMP/$net.8"
		cp "$TMP/out" "$TMP/$net.$hosts.plan"
	done
done
awk 'BEGIN {
	print "layer,forward_us,backward_us,param_bytes,activation_bytes,update_ns"
	for (i = 0; i < 24; i++)
		print "l" i ",100,220,1152921504606846975,1000,100"
}' >"$TMP/huge.csv"
for hosts in 4 8; do
	printf 'hosts %d ranks=2\nlink nv scope=host bandwidth=1000TB/s latency=1us\nlink net scope=network bandwidth=1000TB/s latency=30us\n' \
		$hosts >"$TMP/pairs$hosts"
done
"$BIN/graph" -f layers --topology "$TMP/pairs4" -o "$TMP/huge" "$TMP/huge.csv"
status 0 "gradients of 2^60 bytes end" timeout -k 1 20 "$BIN/plan" -O text --allow=algorithm --topology "$TMP/pairs8" "$TMP/huge"
check "servers on the spare hosts" grep -q '^algorithm ps.* servers=[12] ' "$TMP/small.10.plan"
check "... make the step shorter" less "$(number predicted "$TMP/small.10.plan")" "$(number predicted "$TMP/small.8.plan")"
check "no spare hosts, no servers" sh -c "! grep -q '^algorithm ps' '$TMP/small.8.plan'"
check "none for large gradients" sh -c "! grep -q '^algorithm ps' '$TMP/net.10.plan'"
check "... whose plan stays the same" sh -c "grep -v '^evaluations' '$TMP/net.8.plan' >'$TMP/a' &&
	grep -v '^evaluations' '$TMP/net.10.plan' | cmp -s - '$TMP/a'"
check "... for at most 5 % more simulations" sh -c "[ $(number evaluations "$TMP/net.10.plan") -le \
	\$(($(number evaluations "$TMP/net.8.plan") * 105 / 100)) ]"
status 0 "the plan with servers" "$BIN/replay" -p "$TMP/small.10.plan" --topology "$TMP/topology10" -O csv --table steps "$TMP/small.8"
check "... is carried out as predicted" grep -q "$(number predicted "$TMP/small.10.plan")" "$TMP/out"
# Long computation: the same servers save a share of the step that no prediction can promise.
sed 's/,100,220,/,20000,44000,/' "$TMP/small.csv" >"$TMP/slow.csv"
"$BIN/graph" -f layers --topology "$TMP/topology8" -o "$TMP/slow.8" "$TMP/slow.csv"
status 0 "servers that save little" "$BIN/plan" -O text --allow fuse-tensors,algorithm --topology "$TMP/topology10" "$TMP/slow.8"
check "... are not proposed" no grep -q '^algorithm' "$TMP/out"
says 'warning: algorithm [a-z-]* is not proposed: it would save .* of a step, and the prediction may err by' "... and the reason is said"
status 0 "servers without a topology" "$BIN/replay" -p "$TMP/small.10.plan" "$TMP/small.8"
says 'parameter servers; without --topology' "... are taken to be like ranks, which is said"
status 0 "servers without leave" "$BIN/plan" -O text --no-provenance --topology "$TMP/topology10" "$TMP/small.8"
check "... are not proposed" sh -c "! grep -q '^algorithm' '$TMP/out'"

# ---- forms --------------------------------------------------------------------------------------
status 0 "binary" "$BIN/plan" -o "$TMP/net.plan" "$g"
status 0 "binary as text" "$BIN/plan" -O text --no-provenance "$TMP/net.plan"
cp "$TMP/out" "$TMP/again"
grep -v '^provenance' "$TMP/text" >"$TMP/plain"
check "... is what was written as text" cmp -s "$TMP/plain" "$TMP/again"
status 0 "text as binary" sh -c "'$BIN/plan' --no-provenance <'$TMP/again' | '$BIN/plan' -O text --no-provenance"
check "... and back" cmp -s "$TMP/out" "$TMP/again"
for f in ddp fsdp horovod byteps deepspeed megatron xla; do
	status 0 "settings of $f" "$BIN/plan" -O $f "$TMP/net.plan"
	check "... they are those of $f" grep -q "^# $f: a plan" "$TMP/out"
done
status 0 "json" "$BIN/plan" -O json "$g"
if [ -n "$python" ]; then
	check "json: what other tools rely on" "$python" - "$TMP/out" <<-'END'
		import json, sys
		p = json.load(open(sys.argv[1]))
		assert p["schema"] == "paceline.plan/1" and p["complete"] is True
		assert p["bound_ns"] <= p["predicted_ns"] < p["baseline_ns"]
		assert p["evaluations"] > 10 and p["peak_bytes"] > 24 * 8000000 and p["model_ns"] > 0
		assert all(r["op"] == "fuse-tensors" and r["saves_in_plan_ns"] is not None for r in p["rewrites"])
		assert sum(len(r["tensors"]) for r in p["rewrites"]) <= 24
	END
else
	skip "json: what other tools rely on" "no python3"
fi

# ---- carried out --------------------------------------------------------------------------------
status 0 "replay -p" "$BIN/replay" -p "$TMP/net.plan" -O csv --table steps "$g"
want=$(number predicted "$TMP/text")
check "... predicts what the search did, on the whole graph" sh -c "grep -q '$want' '$TMP/out'"
status 0 "replay -p as text" "$BIN/replay" -p "$TMP/net.plan" "$g"
check "... the report is of the planned job" sh -c "head -1 '$TMP/out' | grep -q ', predicted ' && grep -q 'with the changes' '$TMP/out'"
status 0 "replay -p --explain" "$BIN/replay" -p "$TMP/net.plan" --explain "$g"
check "... says what each line changes" grep -q '^fuse-tensors: [0-9]* tensors (.*) are communicated as one, so ' "$TMP/out"
status 2 "--explain without a plan" "$BIN/replay" --explain "$g"
status 0 "replay -p and a change" "$BIN/replay" -p "$TMP/net.plan" --what-if 'scale kind=comm by 0.5' -O csv --table steps "$g"
check "... on top of it" sh -c "! grep -q '$want' '$TMP/out'"
status 0 "replay -p, timeline" "$BIN/replay" -p "$TMP/net.plan" --timeline "$TMP/planned.trace" -o "$TMP/report" "$g"
status 0 "... is a trace" "$BIN/trace" --check "$TMP/planned.trace"
status 2 "replay -p of two graphs" "$BIN/replay" -p "$TMP/net.plan" "$g" "$g"
status 2 "replay: two things from standard input" "$BIN/replay" -p -
status 2 "replay: a topology without a plan" "$BIN/replay" --topology 4x2 "$g"
sed 's/"grad l22"/"grad l99"/' "$TMP/again" >"$TMP/bad.plan"
status 3 "a plan of another job" "$BIN/replay" -p "$TMP/bad.plan" "$g"
line=$(grep -n '^fuse-tensors.*"grad l99"' "$TMP/bad.plan" | head -n 1 | cut -d: -f1)
column=$(sed -n "${line}s/\"grad l99\".*//p" "$TMP/bad.plan" | wc -c)
says "bad.plan: line $line, column $column: fuse-tensors: there is no tensor \"grad l99\"; did you mean \"grad l[0-9]*\"?; plan --preset none" \
	"... names the place, the nearest name and the remedy"
printf 'paceline-plan 1\n\ntensor "grad l22" 17\naccumulate 2\n' >"$TMP/bad.plan"
status 3 "a plan of a job with other sizes" "$BIN/replay" -p "$TMP/bad.plan" "$g"
says 'bad.plan: line 3: tensor: "grad l22" has ' "... names the line"
printf 'paceline-plan 1\ntensor "grad l22" 17 estimated\ntensor x 1\naccumulate 2\n' >"$TMP/bad.plan"
status 3 "a plan of a job with other tensors" "$BIN/replay" -p "$TMP/bad.plan" "$g"
says 'bad.plan: line 3, column 8: tensor: there is no tensor "x"' "... names the line"
printf 'paceline-plan 1\npriority "grad l2" "grad l1"\n' >"$TMP/bad.plan"
status 3 "priorities where all gradients are waited for at once" "$BIN/replay" -p "$TMP/bad.plan" "$g"
says 'bad.plan: line 2: priority: every operation that waits for a gradient' "... names the line, and what it takes"
status 3 "a graph for a plan" "$BIN/replay" -p "$g" "$g"
status 3 "a topology that is too small" "$BIN/replay" -p "$TMP/net.plan" --topology 1x2 "$g"
says "name hosts for all" "... and says so"

# A line that names thousands of tensors takes time in proportion to them: each name is looked up once.
awk 'BEGIN {
	print "layer,forward_us,backward_us,param_bytes,activation_bytes,update_ns"
	for (i = 0; i < 3000; i++)
		print "l" i ",10,20,4000,80,100"
}' >"$TMP/many.csv"
"$BIN/graph" -q -f layers --topology 1x2 -o "$TMP/many.graph" "$TMP/many.csv"
awk 'BEGIN {
	printf "paceline-plan 1\nalgorithm tree"
	for (i = 0; i < 3000; i++)
		printf " \"grad l%d\"", i
	print ""
}' >"$TMP/many.plan"
"$BIN/plan" -q --preset ddp --progress always -O text "$TMP/many.graph" 2>"$TMP/progress" >"$TMP/out"
check "progress has no time before there is one" no grep -q '[0-9]\{9\}' "$TMP/progress"
status 0 "an algorithm of 3000 tensors" timeout -k 1 20 "$BIN/replay" -q --no-worth -p "$TMP/many.plan" "$TMP/many.graph"

# ---- a job that was traced ----------------------------------------------------------------------
"$BIN/trace" -q "$SRC"/samples/ddp-gloo/*.json.gz | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/gloo.graph"
# shellcheck disable=SC2086
status 0 "a traced job of three steps" "$BIN/plan" $few -O text "$TMP/gloo.graph"
says 'warning: no change is proposed: the best plan would save .* of a step ([0-9.]* %), and the prediction may err by .*; no number of steps' \
	"... gains less than the prediction may err by where threads carry communication, in however many steps"
"$GEN/kgen" -o "$TMP/two" --ranks=2 --tp=1 --jitter=30 --steps=2 --seed=5 --intra-gbps=400 --record-groups --cuda-sync
rm "$TMP/two/truth.json"
# shellcheck disable=SC2086
status 0 "two steps of devices that differ" "$BIN/plan" $few -O text "$TMP/two"
says 'may err by .*; record at least [0-9]* steps' "... gain less than they differ by, and how many would show it"
check "... so nothing is proposed" no grep -qE '^(fuse-tensors|partition-tensor|order)' "$TMP/out"
"$BIN/plan" -O ddp "$TMP/out" >"$TMP/nothing"
check "... which the settings say first" sh -c "head -n 1 '$TMP/nothing' | grep -qE '^# ddp: nothing is proposed: these are the settings as recorded, [0-9.]+ [mu]s a step$'"
"$BIN/plan" -O ddp "$TMP/text" >"$TMP/something"
check "... unless there is a plan" sh -c "head -n 1 '$TMP/something' | grep -qE '^# ddp: a plan by paceline; [0-9.]+ [mu]s a step predicted'"
check "... and nothing is gained" sh -c "[ $(number predicted "$TMP/out") = $(number baseline "$TMP/out") ]"
# shellcheck disable=SC2086
status 0 "the best plan of it" "$BIN/plan" $few --any -O text "$TMP/gloo.graph"
found=$(number model "$TMP/out")
for p in none ddp horovod each all; do
	"$BIN/plan" -O text --preset $p "$TMP/gloo.graph" >"$TMP/other"
	check "... is no worse than $p" sh -c "[ $found -le $(number model "$TMP/other") ]"
done
status 0 "... all its steps, because they differ" "$BIN/plan" --any -O text --evaluations 100 -o "$TMP/gloo.plan" "$TMP/gloo.graph"
check "... and the error of its prediction" sh -c "[ $(number error "$TMP/gloo.plan") -gt 1000000 ]"
"$BIN/replay" -p "$TMP/gloo.plan" -O json --no-worth "$TMP/gloo.graph" >"$TMP/json"
cat >"$TMP/same.awk" <<'END'
function number(key) {
	match($0, "\"" key "\":-?[0-9.e+]*")
	return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
}
{
	# its steps overlap: the plan has the mean period, and the bias is that of the steps apart
	x = number("predicted_period_mean_ns") / predicted - 1
	y = number("model_bias_ns") / number("recorded_mean_ns") - (model - predicted) / baseline
	exit !(x > -1e-3 && x < 1e-3 && y > -1e-6 && y < 1e-6 && predicted != model)
}
END
check "... replay predicts what the search did, and knows what the model errs" awk \
	-v model="$(number model "$TMP/gloo.plan")" -v predicted="$(number predicted "$TMP/gloo.plan")" \
	-v baseline="$(number baseline "$TMP/gloo.plan")" \
	-f "$TMP/same.awk" "$TMP/json"
status 0 "... as text" "$BIN/replay" -p "$TMP/gloo.plan" --no-worth "$TMP/gloo.graph"
check "... says so" grep -q "^the model is [0-9.]* % too [a-z]* for the recorded steps; the prediction is corrected for this" "$TMP/out"

# ---- steps that overlap -------------------------------------------------------------------------
"$GEN/kgen" -o "$TMP/ahead" --ranks=2 --tp=1 --jitter=15 --steps=5 --seed=3 --comm-scale=4 --gbps=100 --record-groups --cuda-sync \
	--layers=8 --no-item >/dev/null
# shellcheck disable=SC2086
"$BIN/plan" $few -q --any -O text -o "$TMP/ahead.plan" "$TMP/ahead"
"$BIN/replay" -q --no-worth -O json -p "$TMP/ahead.plan" "$TMP/ahead" >"$TMP/ahead.json"
period() { sed -n "s/.*\"$1_period_mean_ns\":\([0-9.]*\).*/\1/p" "$TMP/ahead.json"; }
check "what a plan makes of the mean period is no longer than the period" \
	sh -c "[ $(period predicted | cut -d. -f 1) -lt $(period replayed | cut -d. -f 1) ]"
check "... and the plan has the same" awk -v a="$(period predicted)" -v b="$(number predicted "$TMP/ahead.plan")" \
	'BEGIN { exit !(a > 0.999 * b && a < 1.001 * b) }'

# ---- memory -------------------------------------------------------------------------------------
peak=$(number peak "$TMP/text")
status 0 "less memory" "$BIN/plan" -O text --memory $((peak - 20000000)) "$g"
check "... is enough" sh -c "[ $(number peak "$TMP/out") -le $((peak - 20000000)) ] && grep -Eq '^(recompute|accumulate)' '$TMP/out'"
status 0 "... and few simulations" "$BIN/plan" -O text --evaluations 100 --memory $((peak - 20000000)) "$g"
check "... are enough, and no more are made" less "$(number evaluations "$TMP/out")" 101
status 1 "too few" "$BIN/plan" -O text --evaluations 10 --memory $((peak - 20000000)) "$g"
says 'the search ended before a plan fitted' "... says so"
status 1 "too little memory" "$BIN/plan" -O text -o "$TMP/none" --memory 1K "$g"
says "rank 0 needs" "... and on which rank"
check "... leaves no plan" test ! -e "$TMP/none"
status 1 "what would help is forbidden" "$BIN/plan" --memory $((peak / 2)) --forbid accumulate,recompute -o "$TMP/none" "$g"

# By hand: parameters, gradients and Adam's state take 28 MB, activations 2 MB until they are used;
# the last bucket of two holds a copy of 3 MB.
printf 'layer,forward_us,backward_us,param_bytes,activation_bytes
a,100,200,1000000,500000
b,100,200,2000000,500000
c,100,200,0,500000
d,100,200,4000000,500000
' >"$TMP/four.csv"
"$BIN/graph" --topology 2x2:loopback -o "$TMP/four.graph" "$TMP/four.csv"
status 0 "memory for anything" "$BIN/plan" -O text "$TMP/four.graph"
check "... is 31 MB with two gradients as one" sh -c "[ $(number peak "$TMP/out") = 31000000 ] && [ \$(grep -c ^fuse '$TMP/out') = 1 ]"
status 0 "memory for single gradients" "$BIN/plan" -O text --memory 29000000 "$TMP/four.graph"
check "... is found without other means" sh -c "[ $(number peak "$TMP/out") = 28500000 ] && ! grep -Eq '^(fuse|accum|recomp)' '$TMP/out'"
status 1 "memory for half of an activation" "$BIN/plan" -O text --memory 28300000 "$TMP/four.graph"
says 'at "backward a"' "... which microbatches do not give: their gradients are made beside those of before"
sed 's/500000$/5000000/' "$TMP/four.csv" >"$TMP/wide.csv"
"$BIN/graph" --topology 2x2:loopback -o "$TMP/wide.graph" "$TMP/wide.csv"
status 0 "memory for half of the activations" "$BIN/plan" -O text --memory 42000000 --forbid recompute "$TMP/wide.graph"
check "... takes as few microbatches as will do" sh -c "[ $(number peak "$TMP/out") = 42000000 ] && grep -q '^accumulate 2 ' '$TMP/out'"
status 1 "memory for none" "$BIN/plan" -O text --memory 28000000 "$TMP/four.graph"
says 'at "backward a"' "... and at what"
"$BIN/graph" --ranks 1 -o "$TMP/single.graph" "$TMP/net.csv"
status 0 "one rank, all memory" "$BIN/plan" -O text "$TMP/single.graph"
peak=$(number peak "$TMP/out")
status 0 "one rank, less memory" "$BIN/plan" -O text --memory $((peak - 40000000)) --forbid accumulate "$TMP/single.graph"
check "... makes activations again" sh -c "grep -q '^recompute l' '$TMP/out' && [ $(number predicted "$TMP/out") -gt $(number baseline "$TMP/out") ]"

status 0 "... or a batch in parts" "$BIN/plan" -O text --memory $((peak - 40000000)) --forbid recompute "$TMP/single.graph"
check "... which takes no time without communication" sh -c "grep -q '^accumulate 2 ' '$TMP/out'"

# ---- pipelines ----------------------------------------------------------------------------------
awk 'BEGIN {
	print "layer,forward_us,backward_us,param_bytes,activation_bytes,output_bytes"
	for (i = 0; i < 16; i++)
		print "layers." i ",300,600,4000000,8000000,500000"
}' >"$TMP/pipe.csv"
"$BIN/graph" --program 'pipeline schedule=1f1b stages=4 microbatches=8' --ranks 8 -o "$TMP/pipe.graph" "$TMP/pipe.csv"
status 0 "a plan of a pipeline" "$BIN/plan" -O text "$TMP/pipe.graph"
check "... of two replicas" grep -q '^replicas 2$' "$TMP/out"
peak=$(number peak "$TMP/out")
status 0 "... in less memory" "$BIN/plan" -O text --memory $((peak - 60000000)) "$TMP/pipe.graph"
check "... recomputes layers, but has no other microbatches" sh -c "grep -q '^recompute' '$TMP/out' && ! grep -q '^accumulate' '$TMP/out'"
check "... which saves memory" less "$(number peak "$TMP/out")" $((peak - 60000000 + 1))
cp "$TMP/out" "$TMP/pipe.plan"
check "... says the stages of its tensors" sh -c "[ \$(grep -c '^tensor .* stage=3' '$TMP/pipe.plan') = 4 ] && [ \$(grep -c '^tensor .* stage=' '$TMP/pipe.plan') = 12 ]"
"$BIN/plan" --no-provenance -o "$TMP/pipe.bin" "$TMP/pipe.plan"
"$BIN/plan" --no-provenance -O text "$TMP/pipe.bin" >"$TMP/out"
check "... in the binary form, too" sh -c "grep -v ^provenance '$TMP/pipe.plan' | cmp - '$TMP/out'"
status 0 "... is replayed as predicted" "$BIN/replay" -p "$TMP/pipe.plan" -O csv --table steps "$TMP/pipe.graph"
check "... to the ns" grep -q "$(number predicted "$TMP/pipe.plan")" "$TMP/out"
status 0 "the memory of its ranks" "$BIN/replay" --table memory -O csv "$TMP/pipe.graph"
check "... gradients and the activations of four microbatches on the first" grep -q '^0,192000000,16000000,16000000,32000000,128000000,' "$TMP/out"
check "... of one on the last" grep -q '^7,96000000,16000000,16000000,32000000,32000000,' "$TMP/out"
printf 'paceline-plan 1\naccumulate 2\n' >"$TMP/bad.plan"
status 3 "microbatches of microbatches" "$BIN/replay" -p "$TMP/bad.plan" "$TMP/pipe.graph"
says 'line 2: accumulate: the batch of a pipeline passes in microbatches already' "... are refused"

# ---- nothing to plan ----------------------------------------------------------------------------
"$BIN/graph" -f layers --ranks 1 -o "$TMP/one.graph" "$TMP/net.csv"
status 0 "one rank" "$BIN/plan" -O text "$TMP/one.graph"
says "nothing to plan" "... with a warning"
check "... a plan without rewrites" sh -c "! grep -q '^fuse' '$TMP/out' && [ $(number predicted "$TMP/out") = $(number baseline "$TMP/out") ]"
"$BIN/plan" -q -o "$TMP/one.plan" "$TMP/one.graph"
status 0 "... that can be replayed" "$BIN/replay" -p "$TMP/one.plan" "$TMP/one.graph"
check "the streams of a tiny job" tiny_streams "$TMP"
status 0 "no gradients" "$BIN/plan" -O text "$TMP/job.graph"
says "nothing to plan" "... with a warning"
status 0 "... nor for a step of them" "$BIN/plan" -O text --step 1 --fold none "$TMP/job.graph"

# ---- stopped ------------------------------------------------------------------------------------
if timeout --foreground -s INT --preserve-status 5 true 2>/dev/null; then
	for s in INT:130 TERM:143; do
		status "${s#*:}" "stopped by SIG${s%:*}" timeout --foreground -s "${s%:*}" --preserve-status 1 \
			"$BIN/plan" --minutes 5 -O text -o "$TMP/stopped" "$g"
		says "best plan so far" "... says so"
		check "... the plan is there" sh -c "grep -q '^incomplete' '$TMP/stopped' && grep -q '^fuse-tensors' '$TMP/stopped'"
		rm -f "$TMP/stopped"
	done
else
	skip "stopped by a signal" "no timeout(1) that preserves the status"
fi
status 0 "a limit of time" "$BIN/plan" --minutes 0.005 -O text "$g"
check "... is no worse" sh -c "[ $(number predicted "$TMP/out") -le $(number predicted "$TMP/text") ]"

# ---- what is refused ----------------------------------------------------------------------------
status 2 "two graphs" "$BIN/plan" "$g" "$g"
status 2 "a rewrite that is none" "$BIN/plan" -O text --allow fusion "$g"
says 'fuse-tensors, partition-tensor' "... and which there are"
status 2 "a negative budget" "$BIN/plan" -O text --evaluations -5 "$g"
status 2 "no memory at all" "$BIN/plan" -O text --memory 0 "$g"
status 2 "a search in a plan" "$BIN/plan" -O text --minutes 1 "$TMP/net.plan"
status 3 "a topology that is too small" "$BIN/plan" -O text --topology 1x2 "$g"
status 3 "steps that are not there" "$BIN/plan" -O text --step 77 "$g"
status 3 "neither graph nor plan" "$BIN/plan" -O text "$TMP/net.csv"
status 3 "nothing" "$BIN/plan" -O text /dev/null
status 0 "a trace" "$BIN/plan" -O text --evaluations=1 "$TMP/planned.trace"
head -c 300 "$g" >"$TMP/cut.graph"
status 3 "a graph cut short" "$BIN/plan" -O text "$TMP/cut.graph"
head -c 100 "$TMP/net.plan" >"$TMP/cut.plan"
status 3 "a plan cut short" "$BIN/plan" -O text "$TMP/cut.plan"

# ---- memory of the program ----------------------------------------------------------------------
head -n 6 "$TMP/net.csv" >"$TMP/short.csv"
"$BIN/graph" -f layers --ranks 2 -o "$TMP/short.graph" "$TMP/short.csv"
"$BIN/plan" -o "$TMP/short.plan" "$TMP/short.graph"
check "any call of plan may fail" "$SRC/tests/fault/torture" -n 120 "$BIN/plan" -O text --evaluations 20 --fuse-ops '*' --fuse-share 0.8 "$TMP/short.graph"
check "any call of replay -p may fail" "$SRC/tests/fault/torture" -n 120 "$BIN/replay" -p "$TMP/short.plan" "$TMP/short.graph"
# Three steps, each with an operation that no other has: 12, 22 and 62 ms. None stands for the others.
{
	echo 'rank,optype,start_ts,duration,step,dp_rank,stage,bytes,group'
	for r in 0 1; do
		printf '%d,backward-compute,%s,%s,%d,%d,0,0,dp\n%d,all-reduce,%s,0.001,%d,%d,0,4096,dp\n%d,special%d,%s,%s,%d,%d,0,0,dp\n' \
			$r 0 0.001 0 $r $r 0.001 0 $r $r 0 0.002 0.01 0 $r \
			$r 0.1 0.001 1 $r $r 0.101 1 $r $r 1 0.102 0.02 1 $r \
			$r 0.2 0.001 2 $r $r 0.201 2 $r $r 2 0.202 0.06 2 $r
	done
} >"$TMP/unlike.csv"
"$BIN/trace" -q --columns=bytes=bytes,group=group "$TMP/unlike.csv" | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/unlike.graph"
status 0 "steps that differ" "$BIN/plan" -v -O text "$TMP/unlike.graph"
says 'the steps differ; 3 of them are searched' "... are all searched"
check "... their mean is the base" test "$(number baseline "$TMP/out")" = 32000000

# ---- several groups of ranks with the same gradients ------------------------------------------------
"$GEN/kgen" -o "$TMP/groups" --ranks=4 --hosts=1 --tp=2 --record-groups >/dev/null
"$BIN/graph" -q -o "$TMP/groups.graph" "$TMP"/groups/rank*.json
"$BIN/plan" -q --preset=ddp --any -o "$TMP/groups.plan" "$TMP/groups.graph"
"$BIN/plan" -O text "$TMP/groups.plan" >"$TMP/text"
own=$(grep -c '^tensor.*@0"' "$TMP/text")
check "the plan has the gradients of two groups, $own each" test "$own" -gt 3 -a "$(grep -c '^tensor.*@1"' "$TMP/text")" = "$own"
for to in ddp horovod fsdp megatron; do
	"$BIN/plan" -O $to "$TMP/groups.plan" >"$TMP/settings"
	check "settings of $to are those of one group" sh -c "grep -q 'the settings of one group' '$TMP/settings' && ! grep -q '@[01]' '$TMP/settings'"
done
"$BIN/plan" -O ddp "$TMP/groups.plan" >"$TMP/settings"
check "... not of more gradients than a rank has" awk -v own="$own" '/bucket_cap_mb_list=\[/ { n = gsub(/,/, "") } END { exit !(n > 1 && n <= own + 4) }' "$TMP/settings"

# ---- what is not known stays so beside other lines ----------------------------------------------------
"$BIN/replay" -q --no-worth -O json --what-if 'bandwidth by=0.5' "$TMP/groups.graph" >"$TMP/alone.json"
"$BIN/replay" -q --no-worth -O json --what-if 'bandwidth by=0.5' --what-if 'algorithm ring' "$TMP/groups.graph" >"$TMP/beside.json"
width() {
	sed 's/[,{]/\n/g' "$1" | awk -F : '{ v[$1] = $2 } END { print (v["\"predicted_high_ns\""] - v["\"predicted_low_ns\""]) / v["\"replayed_mean_ns\""] }'
}
check "a line of the network beside another one: its interval is no narrower, $(width "$TMP/alone.json") and $(width "$TMP/beside.json")" \
	awk -v alone="$(width "$TMP/alone.json")" -v beside="$(width "$TMP/beside.json")" 'BEGIN { exit !(alone > 0 && beside > 0.9 * alone) }'
"$BIN/replay" -q --no-worth -O json --what-if 'precision fp8' "$TMP/groups.graph" >"$TMP/by.json"
"$BIN/replay" -q --no-worth -O json --what-if 'precision fp8 share=0.5' "$TMP/groups.graph" >"$TMP/said.json"
in_precision() {
	for line; do set -- "$@" --what-if "$line"; shift; done
	"$BIN/replay" -q --no-worth -O json "$@" "$TMP/groups.graph" | sed 's/[,{]/\n/g' |
		sed -n 's/^ *"predicted_mean_ns": *\([0-9.]*\).*/\1/p'
}
in_precision 'precision bf16' >"$TMP/once"
in_precision 'precision bf16' 'precision bf16' >"$TMP/twice"
in_precision 'precision fp8' >"$TMP/lower"
in_precision 'precision fp8' 'precision bf16' >"$TMP/raised"
check "a precision given twice is given once" sh -c "[ -s '$TMP/once' ] && cmp '$TMP/once' '$TMP/twice'"
check "the last of two precisions holds" awk 'FNR == 1 { v[++n] = $1 } END { exit !(n == 3 && v[2] < v[1] && v[3] / v[1] < 1.000001 && v[1] / v[3] < 1.000001) }' \
	"$TMP/once" "$TMP/lower" "$TMP/raised"
check "precision by rule errs more than a share that is given" awk -v rule="$(width "$TMP/by.json")" -v said="$(width "$TMP/said.json")" 'BEGIN { exit !(said > 0 && rule > 1.3 * said) }'
"$GEN/kgen" -o "$TMP/stages" --ranks=4 --pp=2 --tp=1 --hosts=1 --microbatches=4 --record-groups >/dev/null
"$BIN/graph" -q -o "$TMP/stages.graph" "$TMP"/stages/rank*.json
status 2 "microbatches of a recorded pipeline" "$BIN/replay" --what-if 'accumulate 2' "$TMP/stages.graph"
says 'the batch of a pipeline passes in microbatches already' "... are refused"
status 0 "a larger batch of a pipeline whose messages have one size" "$BIN/replay" --no-worth --what-if 'batch by 4' "$TMP/stages.graph"
holds "$TMP/out" '^estimated from [0-9]* whole transfers, .*of sizes that do not tell latency from bandwidth: ' "... may be wrong in their time"
printf 'paceline-plan 1\nloader-workers 8 was=4\n' >"$TMP/lw.plan"
"$BIN/plan" -O ddp "$TMP/lw.plan" >"$TMP/settings"
check "workers of a loader that had four" grep -q 'num_workers=8)  # if it had 4$' "$TMP/settings"
done_testing
