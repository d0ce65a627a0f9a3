# plan --allow=tensor-parallel: the degree that is chosen, alone and with device and batch, against every combination by
# replay; the step of the plan against that of replay -p.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1
. "$SRC/tests/cli/transformer.sh"

job wide gpt:layers=2,heads=16,width=1024,context=128,vocab=512 8 2
job small gpt:layers=2,heads=4,width=128,context=64,vocab=512 8 2
job middle gpt:layers=3,heads=4,width=512,context=64,vocab=512 12 4
job odd gpt:layers=1,heads=6,width=768,context=128,vocab=512 8 2
job one gpt:layers=1,heads=8,width=512,context=128,vocab=512 8 1

job deep gpt:layers=2,heads=16,width=1024,context=64,vocab=512 2 8

model="-m k.model --devices=sheets --device=one"
# search ALLOW GRAPH OPTION...: the plan, and what was said, in job.plan and said
search() {
	allow=$1 graph=$2
	shift 2
	# shellcheck disable=SC2086  # words
	"$BIN/plan" -v $model --allow="$allow" -O text -o job.plan "$@" "$graph" 2>said
}
value() { sed -n "s/^$1 //p" job.plan; }
# replayed OPTION...: the step and half of its interval, ns; status 1: replay refuses
replayed() {
	# shellcheck disable=SC2086  # words
	"$BIN/replay" -q --no-worth $model -O csv --table=steps "$@" 2>/dev/null >steps.csv &&
		awk -F , 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
			NR == 2 { print $at["predicted_ns"], ($at["predicted_hi_ns"] - $at["predicted_lo_ns"]) / 2 }' steps.csv
}

# every GRAPH DEVICES BATCHES OPTION...: "degree device batch ns" of each combination that replay can make
every() {
	graph=$1 devices=$2 batches=$3
	shift 3
	for n in 1 2 4 8; do
		for d in $devices; do
			for b in $batches; do
				printf 'paceline-plan 1\n' >some.plan
				[ $n = 1 ] || echo "tensor-parallel by=$n" >>some.plan
				[ "$d" = one ] || echo "device $d" >>some.plan
				[ "$b" = 1 ] || echo "batch by=$b" >>some.plan
				[ "$n $d $b" != "1 one 1" ] || echo "scale kind=comm by=1" >>some.plan
				ns=$(replayed "$@" -p some.plan "$graph") && echo "$n $d $b $ns"
			done
		done
	done
}

# A line must make the time for a sample shorter by 2 %: first of a degree, then from degree to degree.
best='{
	t = $4 / $3; lines = ($2 != "one") + ($3 != 1); t /= 0.98 ^ lines
	if (!($1 in least) || t < least[$1]) { least[$1] = t; time[$1] = $4 / $3; what[$1] = $1 " " $2 " " $3; ns[$1] = $4 }
}
END {
	pick = 1
	for (n = 2; n <= 8; n *= 2)
		if (n in time && time[n] < 0.98 * time[pick])
			pick = n
	print what[pick], ns[pick]
}'

# compare NAME ALLOW DEVICES BATCHES OPTION...: the plan against every combination
compare() {
	name=$1 allow=$2 devices=$3 batches=$4
	shift 4
	search "$allow" "$name.graph" "$@"
	every "$name.graph" "$devices" "$batches" "$@" >table
	awk '{ v = $2; sub(/^by=/, "", v); x[$1] = v }
		END { print "tensor-parallel" in x ? x["tensor-parallel"] : 1, "device" in x ? x["device"] : "one", "batch" in x ? x["batch"] : 1 }' \
		job.plan >chosen
	awk "$best" table >should
	# a degree that may be an error of the prediction is named, and left out
	doubted=$(sed -n 's/.*tensor-parallel by=\([0-9]*\) is not proposed: .*/\1/p' said)
	if [ -n "$doubted" ] && check "$name: the doubted degree is one that would be the best" grep -q "^$doubted " should; then
		grep '^1 ' table >those
		awk "$best" those >should
	fi
	check "$name, $allow $*: the best of all combinations" awk 'NR == FNR { want = $1 " " $2 " " $3; next }
		{ print "# chosen " $0 ", best " want; exit !($0 == want) }' should chosen
	replayed "$@" -p job.plan "$name.graph" >again
	check "... its step is the one that replay predicts" awk -v plan="$(value predicted)" '
		{ print "# plan " plan ", replay " $1; exit !(plan >= $1 * 0.99999 - 2 && plan <= $1 * 1.00001 + 2) }' again
}

both=tensor-parallel,device,batch
compare wide tensor-parallel one 1
check "... a degree that was chosen" grep -q '^8 ' chosen
compare wide $both "one two" "1 0.5 2 4 8"
check "no peak of memory is told for another batch" no grep -q '^peak ' job.plan
compare small tensor-parallel one 1
check "... none where all-reduces take longer than a part saves" grep -q '^1 ' chosen
compare small $both "one two" "1 0.5 2 4 8"
compare middle $both "one two" "1 0.5 2 4 8"
compare odd tensor-parallel one 1
compare one tensor-parallel,batch one "1 0.5 2 4 8"
compare wide tensor-parallel one 1 --topology=4x4:dgx-a100
compare middle tensor-parallel,device "one two" 1 --topology=16x2

# ---- buckets of the parts, the interval ----------------------------------------------------------------

search tensor-parallel,fuse-tensors,order wide.graph
check "buckets are chosen for the divided graph" grep -q '^fuse-tensors ' job.plan
check "... behind the degree" test "$(grep -En '^(tensor-parallel|fuse-tensors) ' job.plan | head -n 1 | cut -d : -f 2 | cut -d ' ' -f 1)" = tensor-parallel
replayed -p job.plan wide.graph >again
check "... with the step and the interval of replay" awk -v plan="$(value predicted)" -v half="$(value error)" '
	{ print "# plan " plan " +- " half ", replay " $0
	  exit !(plan >= $1 - 2 && plan <= $1 + 2 && half > 0.85 * $2 && half < 1.2 * $2) }' again
# without the line: the others alone
grep -v '^tensor-parallel ' job.plan >others.plan
replayed -p others.plan wide.graph >without
check "... and what leaving the line out costs" awk -v plan="$(value predicted)" -v said="$(sed -n 's/^tensor-parallel.* in-plan=//p' job.plan)" '
	{ cost = $1 - plan; print "# " said ", by replay " cost; exit !(said >= cost - 3 && said <= cost + 3) }' without
cp job.plan one.plan
search tensor-parallel,fuse-tensors,order wide.graph -@ 3
check "three threads choose the same" sh -c 'grep -v ^provenance one.plan >a && grep -v ^provenance job.plan | cmp - a'
"$BIN/plan" -q -O megatron one.plan >out 2>err
holds out '^--tensor-model-parallel-size 8$' "Megatron-LM has a setting for it"
check "... and none for buckets of parts, whose sizes the plan does not have" no grep -q '^--ddp-bucket-size' out

# ---- limits ---------------------------------------------------------------------------------------------

search tensor-parallel wide.graph --topology=1x4:dgx-a100
check "no more ranks than the topology has" grep -q '^tensor-parallel by=2 ' job.plan
check "... which is said" grep -q 'by=8: it needs 16 ranks, and the topology has 4' said
whole=$("$BIN/replay" -q --no-worth -O csv --table=memory wide.graph | awk -F , 'NR == 2 { print $2 }')
search tensor-parallel wide.graph --memory=$((whole / 3))
check "memory for a third of the job: a degree that fits" awk -v limit=$((whole / 3)) '
	$1 == "peak" { peak = $2 } $1 == "tensor-parallel" { n++ } END { print "# " peak ", " limit; exit !(n && peak > 0 && peak <= limit) }' job.plan
check "... the others do not" grep -q 'by=2: no plan fits the memory' said
# the same ranks: fewer replicas, which take more samples
for topology in "" --topology=4x2:dgx-a100; do
	# shellcheck disable=SC2086  # no word, or one
	search tensor-parallel deep.graph --keep-ranks $topology
	echo "1 $(value baseline)" >table
	for n in 2 4 8; do
		printf 'paceline-plan 1\ntensor-parallel by=%s\nranks by=%s\nbatch by=%s\n' $n "$(awk -v n=$n 'BEGIN { print 1 / n }')" $n >some.plan
		# shellcheck disable=SC2086
		echo "$n $(replayed $topology -p some.plan deep.graph)"
	done >>table
	check "the same ranks $topology: the best degree" awk -v plan="$(value predicted)" '
		NR == FNR { if ($1 == "tensor-parallel") { sub(/^by=/, "", $2); chosen = $2 } next }
		NR > FNR && (!best || $2 < 0.98 * best) { best = $2; degree = $1 }
		{ print "# " $0 }
		END { exit !(chosen > 1 && chosen == degree && plan >= best * 0.99999 - 2 && plan <= best * 1.00001 + 2) }' job.plan table
	# shellcheck disable=SC2086
	replayed $topology -p job.plan deep.graph >again
	check "... and the interval is about that of replay" awk -v half="$(value error)" '{ print "# " half ", " $2; exit !(half > 0.7 * $2 && half < 1.4 * $2) }' again
done
search tensor-parallel wide.graph --keep-ranks
check "replicas that cannot be divided are left out" grep -q 'by=4: ranks: that makes 0.5 data-parallel replicas of 2$' said
check "... and those of which fewer are slower" no grep -q '^tensor-parallel' job.plan
status 2 "no other rewrite with the same ranks" "$BIN/plan" --allow=tensor-parallel,fuse-tensors --keep-ranks -O text wide.graph
says 'searches the degree alone' "... says so"
status 2 "no limit of memory" "$BIN/plan" --allow=tensor-parallel --keep-ranks --memory=1G -O text wide.graph

for n in 1 2 9 50; do
	search tensor-parallel,fuse-tensors wide.graph --evaluations=$n
	check "at most $n simulations for all degrees" test "$(value evaluations)" -le $n
done
printf 'paceline-plan 1\ntensor-parallel by=2\nprecision bf16\n' >lower.plan
# shellcheck disable=SC2086
status 0 "another precision of divided operations, by the model" "$BIN/replay" -q --no-worth $model -p lower.plan -O json wide.graph
status 1 "memory for none" "$BIN/plan" -q --allow=tensor-parallel --memory=1M -O text wide.graph

# ---- graphs that cannot be divided --------------------------------------------------------------------

job mlp mlp:64-128-32 32 1
status 0 "no transformer" "$BIN/plan" --allow=tensor-parallel -O text mlp.graph
says 'no layer is divided: .*no layer.* of a transformer' "... is said with the reason"
job three gpt:layers=1,heads=3,width=96,context=32,vocab=512 8 1
status 0 "three heads" "$BIN/plan" --allow=tensor-parallel -O text three.graph
says 'no layer is divided: an attention of 3 heads cannot be divided into 2 parts' "... cannot be divided"
"$BIN/graph" -q --operators three.job >untimed.graph
printf 'layer,forward_ns,backward_ns,param_bytes,activation_bytes\na,10000,20000,4096,4096\nb,10000,20000,4096,4096\n' >layers.csv
"$BIN/graph" -q -f layers -o layers.graph layers.csv
status 0 "a graph without sizes" "$BIN/plan" --allow=tensor-parallel -O text layers.graph
says 'no layer is divided: .*record_shapes=True' "... says how to record them"
status 0 "the rule, without a cost model" "$BIN/plan" -q --allow=tensor-parallel -O text wide.graph
holds out '^tensor-parallel by=' "... finds a degree, too"
search order wide.graph
check "nothing of it without --allow" no grep -q '^tensor-parallel' job.plan
done_testing
