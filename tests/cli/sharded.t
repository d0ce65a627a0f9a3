# Groups of sharded parameters: changes of them are predicted, and simulated with the same changes.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
not_under thread "its programs have one thread each"

# job NAME SETTINGS...: the files of a job, and its graph
job() {
	mkdir -p "$TMP/$1" && name=$1 && shift &&
		awk -v dir="$TMP/$name" "$@" -f "$SRC/tests/gen/sharded.awk" &&
		"$BIN/graph" -q -o "$TMP/$name/graph" "$TMP/$name"/rank[01].json
}
# steps COLUMN NAME OPTION...: a column of the table of steps
steps() {
	column=$1 name=$2
	shift 2
	"$BIN/replay" -q --no-worth -O csv --table=steps "$@" "$TMP/$name/graph" |
		awk -F , -v want="$column" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == want) n = i } NR > 1 { print $n }'
}

for per in 1 2 3 4 0; do
	job "per$per" -v per=$per
done
steps predicted_ns per1 --what-if "wrap layers=1" >"$TMP/got"
check "wrap as recorded changes nothing" cmp "$TMP/got" "$TMP/per1/truth"
for per in 2 3 4; do
	steps predicted_ns per1 --what-if "wrap layers=$per" >"$TMP/got"
	check "wrap layers=$per: within 0.7 % of the job that has it" alike 0.007 "$TMP/got" "$TMP/per$per/truth"
done
for change in 'wrap layers=all' 'prefetch 1'; do
	"$BIN/replay" -q --no-worth -O csv --table=steps --what-if "$change" "$TMP/per1/graph" >"$TMP/got"
	check "$change: threads may gain 0.4 less than predicted" awk -F , '
		NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ gain = $at["replayed_ns"] - $at["predicted_ns"]; few += !(gain > 0 && $at["predicted_hi_ns"] > $at["predicted_ns"] + 0.39 * gain) }
		END { exit few || NR < 2 }' "$TMP/got"
done
steps predicted_ns per2 --what-if "wrap layers=2" >"$TMP/got"
check "wrap counts the groups of the job: two times two layers" alike 0.007 "$TMP/got" "$TMP/per4/truth"
for per in 1 2 4; do
	steps predicted_ns per$per --what-if "wrap layers=all" >"$TMP/got"
	check "wrap layers=all, from $per layers a group: within 1.2 %" alike 0.012 "$TMP/got" "$TMP/per0/truth"
done
printf 'paceline-plan 1\nscale name=aten::linear by 0.5\nwrap layers=4\n' >"$TMP/both.plan"
status 0 "a plan with another line" "$BIN/replay" -q --no-worth -p "$TMP/both.plan" "$TMP/per1/graph"
printf 'paceline-plan 1\nwrap layers=2\nwrap layers=4\n' >"$TMP/twice.plan"
status 3 "groups are changed once" "$BIN/replay" -p "$TMP/twice.plan" "$TMP/per1/graph"
says "changed already" "... says why"
status 2 "wrap needs a number" "$BIN/replay" --what-if "wrap" "$TMP/per1/graph"
says "layers is missing" "... says what to write"
status 2 "wrap of another word" "$BIN/replay" --what-if "wrap layers=some" "$TMP/per1/graph"
job sizeless -v per=1 -v shapes=0
status 2 "groups without sizes" "$BIN/replay" --what-if "wrap layers=2" "$TMP/sizeless/graph"
says "record_shapes=True" "... are refused with the remedy"

# ---- other ways to shard ------------------------------------------------------------------------
# as LINE LIMIT WHAT WAS... -- BECOMES...: what LINE makes of a job, against the job that is so, by names and by sizes
as() {
	line=$1 limit=$2 what=$3 was=
	shift 3
	while [ "$1" != -- ]; do
		was="$was $1"
		shift
	done
	shift
	job becomes "$@"
	for named in 0 1; do
		# shellcheck disable=SC2086  # several words
		job was -v named=$named $was
		steps predicted_ns was --what-if "$line" >"$TMP/got"
		check "$line of $what, named=$named: within $limit of the job that is so" alike "$limit" "$TMP/got" "$TMP/becomes/truth"
	done
}
as "wrap layers=2" 0.007 "groups and an outermost one, all gathered again" -v per=1 -v root=again -- -v per=2 -v root=again
as "wrap layers=all" 0.012 "groups and an outermost one, all gathered again" -v per=1 -v root=again -- -v per=0 -v root=again
as "wrap layers=2" 0.01 "groups in groups" -v per=1 -v nested=1 -- -v per=1
as "wrap layers=4" 0.013 "groups without an outermost one" -v per=1 -v nested=1 -v root=none -- -v per=2 -v root=none
as "wrap layers=2" 0.007 "three microbatches" -v per=1 -v micro=3 -- -v per=2 -v micro=3
as "wrap layers=all" 0.012 "three microbatches" -v per=1 -v micro=3 -v root=again -- -v per=0 -v micro=3 -v root=again
as "wrap layers=2" 0.007 "gradients of twice the bytes" -v per=1 -v widens=2 -- -v per=2 -v widens=2
as "wrap layers=2" 0.007 "averages over copies of all shards" -v per=1 -v averages=1 -- -v per=2 -v averages=1
as "prefetch 1" 0.01 "groups and an outermost one, all gathered again" -v per=1 -v root=again -- -v per=1 -v root=again -v ahead=1
as "no-reshard" 0.002 "groups and an outermost one" -v per=1 -- -v per=1 -v keep=1
as "no-reshard" 0.002 "all groups gathered again, three microbatches" -v per=2 -v root=again -v micro=3 -- -v per=2 -v root=again -v micro=3 -v keep=1
as "no-reshard" 0.002 "groups in groups" -v per=1 -v nested=1 -- -v per=1 -v nested=1 -v keep=1
status 2 "no-reshard where parameters are kept" "$BIN/replay" --what-if no-reshard "$TMP/becomes/graph"
says "no parameters are gathered again" "... is refused with the reason"
printf 'paceline-plan 1\nno-reshard\nwrap layers=2\n' >"$TMP/kept.plan"
status 3 "groups that keep their parameters stay" "$BIN/replay" -p "$TMP/kept.plan" "$TMP/was/graph"
says "line 3: wrap: the groups are changed already" "... says why"
as "no-sync 2" 0.02 "sharded parameters" -v per=1 -v steps=4 -- -v per=1 -v steps=4 -v every=2
as "no-sync 2" 0.02 "averages over copies of all shards" -v per=1 -v steps=4 -v averages=1 -- -v per=1 -v steps=4 -v averages=1 -v every=2
as "no-sync 2" 0.045 "copies of all parameters" -v per=1 -v steps=4 -v whole=1 -v named=1 -- -v per=1 -v steps=4 -v whole=1 -v every=2
as "no-sync 2" 0.005 "two passes that synchronise" -v data=1 -v micro=2 -v moves=3 -v joined=1 -- \
	-v data=1 -v micro=2 -v moves=3 -v joined=1 -v last=1
as "bucket-mb 8" 0.05 "two passes that synchronise" -v data=1 -v micro=2 -v moves=3 -v joined=1 -- \
	-v data=1 -v micro=2 -v moves=3 -v joined=3
steps predicted_ns was --what-if "bucket-mb 8" --what-if "remove kind=comm" | awk '{ s += $1 } END { printf "%.0f\n", s }' >"$TMP/got"
"$BIN/replay" -q --no-worth -O csv --table=path --top=0 --what-if "bucket-mb 8" --what-if "remove kind=comm" "$TMP/was/graph" |
	awk -F , 'NR > 1 { s += $2 } END { printf "%.0f\n", s }' >"$TMP/want"
check "... without communication, what the model of it errs is not subtracted" alike 0.001 "$TMP/got" "$TMP/want"
"$BIN/graph" -O text "$TMP/was/graph" >"$TMP/text"
check "each gradient of both ranks travels in both passes, under the same name" [ \
	"$(awk -F '\t' '$1 == "tensor" && $7 == 0 && $9 != "-" { n[$3]++ } END { for (i in n) print n[i] }' "$TMP/text" | sort | uniq -c | xargs)" = "9 4" ]
"$BIN/plan" -q --any -o "$TMP/passes.plan" "$TMP/was/graph"
"$BIN/plan" -q -O text "$TMP/passes.plan" >"$TMP/text"
check "a plan has each gradient once" [ "$(grep -c '^tensor "grad ' "$TMP/text")" = 9 ]
status 0 "... and is applied to both passes" "$BIN/replay" -q --no-worth -p "$TMP/passes.plan" "$TMP/was/graph"
for n in 3 5; do
	job averages -v data=1 -v behind=1 -v steps=$n
	"$BIN/graph" -O text "$TMP/averages/graph" >"$TMP/text"
	check "parameters that are averaged behind the optimizer are no gradients, $n steps" [ \
		"$(awk -F '\t' '$1 == "tensor" { n++; carried += $9 != "-" } END { print (n > 0) + 0, carried }' "$TMP/text")" = "1 0" ]
done
status 2 "three passes of two" "$BIN/replay" --what-if "no-sync 3" "$TMP/was/graph"
says "3 does not divide 2" "... are refused with the reason"
status 2 "microbatches of a divided batch" "$BIN/replay" --what-if "accumulate 2" "$TMP/was/graph"
says "is divided already" "... are refused with the reason"
"$BIN/replay" -q "$TMP/was/graph" >"$TMP/report"
check "the report advises to synchronise once" grep -q "gradients synchronised in one of 2 backward passes" "$TMP/report"
as "no-sync 2" 0.04 "one pass a step" -v data=1 -v moves=3 -v joined=1 -v steps=4 -- -v data=1 -v moves=3 -v joined=1 -v steps=4 -v every=2
as "no-sync 4" 0.04 "one of two steps" -v data=1 -v moves=3 -v joined=1 -v steps=8 -v every=2 -- -v data=1 -v moves=3 -v joined=1 -v steps=8 -v every=4
for n in 2 3; do
	status 2 "no-sync $n where one of two steps synchronises" "$BIN/replay" --what-if "no-sync $n" "$TMP/was/graph"
	says "synchronised in one of 2 backward passes already" "... is refused with the reason"
done
# a recording that begins in the middle: of steps 1 to 8, 3 and 7 synchronise
job middle -v data=1 -v moves=3 -v joined=1 -v steps=9 -v every=4
"$BIN/trace" -qu --step=1-8 "$TMP/middle"/rank[01].json | "$BIN/merge" -qu | "$BIN/graph" -q -o "$TMP/middle/graph"
status 2 "no-sync as it was, out of step" "$BIN/replay" --what-if "no-sync 4" "$TMP/middle/graph"
says "synchronised in one of 4 backward passes already" "... is refused with the reason"
status 0 "half as often" "$BIN/replay" -q --no-worth -O csv --table=steps --what-if "no-sync 8" "$TMP/middle/graph"
check "... one of two stays" [ "$(awk -F , 'NR > 1 { n += $4 > $6 * 1.01 } END { print n }' "$TMP/out")" = 1 ]
"$BIN/trace" -qu --step=1-4 "$TMP/middle"/rank[01].json | "$BIN/merge" -qu | "$BIN/graph" -q -o "$TMP/middle/few"
status 2 "one step that synchronises" "$BIN/replay" --what-if "no-sync 4" "$TMP/middle/few"
says "does not show of how many" "... does not say how often others do"
as "wrap layers=2" 0.007 "copies of all parameters" -v per=1 -v whole=1 -v named=1 -- -v per=2 -v whole=1
status 2 "layers of sharded parameters" "$BIN/replay" --what-if "tensor-parallel by=2" "$TMP/per1/graph"
says "parameters are sharded" "... are not divided"
status 2 "prefetch of copies" "$BIN/replay" --what-if "prefetch 1" "$TMP/was/graph"
says "nothing gathers parameters" "... is refused with the reason"
job sizeless-named -v per=1 -v shapes=0 -v named=1
status 2 "groups with names and without sizes" "$BIN/replay" --what-if "wrap layers=2" "$TMP/sizeless-named/graph"
says "record_shapes=True" "... cannot be joined"
job ahead -v per=1 -v shapes=0 -v ahead=1
steps predicted_ns sizeless-named --what-if "prefetch 1" >"$TMP/got"
check "... and can be gathered earlier" alike 0.01 "$TMP/got" "$TMP/ahead/truth"
status 2 "no-sync without names and sizes" "$BIN/replay" --what-if "no-sync 2" "$TMP/sizeless/graph"
says "record_shapes=True" "... is refused, because nothing says what carries gradients"
job never -v per=1 -v every=9
status 2 "groups that no step reduces" "$BIN/replay" --what-if "wrap layers=2" "$TMP/never/graph"
says "nothing reduces the gradients" "... are refused with the reason"
"$BIN/replay" -q --no-worth --per=module "$TMP/sizeless-named/graph" >"$TMP/out"
for module in "(root)" layers.1 layers.8; do
	holds "$TMP/out" "$module" "time of communication by module: $module"
done
"$BIN/graph" -O text "$TMP/per1/graph" >"$TMP/text"
check "all-gathers have the size of what they bring: their parts times the ranks" awk -F '\t' '
	$1 == "comm" && $3 == "allgather" { n++; bad += $10 != 4000000 && $10 != 1000000 } END { exit bad || n != 51 }' "$TMP/text"

# ---- groups over another network ------------------------------------------------------------------
# joined NETWORK SETTINGS...: groups of two layers over it, whichever line comes first
joined() {
	network=$1
	shift
	job joined -v per=2 "$@"
	steps predicted_ns per1 --what-if "$network" --what-if "wrap layers=2" >"$TMP/got"
	check "$network, then wrap: within 0.7 % of the job that is so" alike 0.007 "$TMP/got" "$TMP/joined/truth"
	steps predicted_ns per1 --what-if "wrap layers=2" --what-if "$network" >"$TMP/got.2"
	check "... and in the other order" cmp "$TMP/got" "$TMP/got.2"
}
joined "bandwidth by 0.25" -v moves=4
joined "bandwidth by 4" -v moves=0.25
joined "latency by 4" -v latency=6000000

# ---- microbatches ---------------------------------------------------------------------------------
job reads -v data=1 -v reads=60000000
steps predicted_ns reads --what-if "accumulate 4" >"$TMP/got"
check "accumulate: the batch is read once" alike 0.02 "$TMP/got" "$TMP/reads/truth"

# ---- overlap ------------------------------------------------------------------------------------
# beside NAME PATTERN LINE: what LINE makes of the job NAME, against the job in which collectives are not waited for
beside() {
	was=$1 pattern=$2 line=$3
	shift 3
	job beside "$@" -v beside="$pattern"
	steps predicted_ns "$was" --what-if "$line" >"$TMP/got"
	check "$line: within 0.7 % of the job that does so, $was" alike 0.007 "$TMP/got" "$TMP/beside/truth"
}
job data -v data=1
beside per1 . "overlap kind=comm" -v per=1
beside per1 gather "overlap name=*all_gather*" -v per=1
beside per2 reduce "overlap name=*all_reduce*" -v per=2
beside data . "overlap kind=comm" -v data=1
steps predicted_ns data --what-if "bucket-mb 0.001" --what-if "overlap kind=comm" >"$TMP/got"
check "overlap: so do buckets that are built again, within 2 %" alike 0.02 "$TMP/got" "$TMP/beside/truth"
printf 'paceline-plan 1\noverlap kind=comm\n' >"$TMP/overlap.plan"
status 0 "what overlap says" "$BIN/replay" --no-worth --explain -p "$TMP/overlap.plan" "$TMP/per1/graph"
holds "$TMP/out" 'no setting can hide more' "... that it is a limit"
status 2 "nothing to overlap" "$BIN/replay" --what-if "overlap kind=send" "$TMP/per1/graph"
says "selects no collective" "... is refused"
status 2 "nothing to run beside" "$BIN/replay" --what-if "overlap name=*all_gather*" "$TMP/per0/graph"
says "so nothing can overlap more" "... is refused with the reason"
status 2 "overlap of everything needs a word" "$BIN/replay" --what-if "overlap" "$TMP/per1/graph"

# ---- prefetch -----------------------------------------------------------------------------------
for per in 1 2; do
	for ahead in 1 2; do
		job ahead -v per=$per -v ahead=$ahead
		steps predicted_ns per$per --what-if "prefetch $ahead" >"$TMP/got"
		check "prefetch $ahead of groups of $per: within 1 % of the job that does so" alike 0.01 "$TMP/got" "$TMP/ahead/truth"
	done
done
# the recording has no computation beside communication, so what it loses there is not known
for costs in 0 0.45; do
	job ahead -v ahead=1 -v costs=$costs
	"$BIN/replay" -q --no-worth -O csv --table=steps --what-if "prefetch 1" "$TMP/per1/graph" >"$TMP/got"
	tail -n +2 "$TMP/got" >"$TMP/got.rows"
	check "prefetch beside which computation loses $costs of its time: within the interval" sh -c "paste -d , '$TMP/ahead/truth' '$TMP/got.rows' | awk -F , '
		{ bad += !(\$1 > \$8 && \$1 < \$9) } END { exit bad || NR != 3 }'"
done
job late -v per=1 -v late=3000000
status 0 "prefetch where threads go on late behind the gather of one group" "$BIN/replay" --no-worth --what-if "prefetch 1" "$TMP/late/graph"
status 2 "prefetch of one group" "$BIN/replay" --what-if "prefetch 1" "$TMP/per0/graph"
says "there is no computation" "... is refused with the reason"
status 2 "prefetch where it is done already" "$BIN/replay" --what-if "prefetch 1" "$TMP/ahead/graph"
says "may run beside computation already" "... is refused with the reason"
status 2 "prefetch without sizes" "$BIN/replay" --what-if "prefetch 1" "$TMP/sizeless/graph"
says "record_shapes=True" "... is refused with the remedy"
"$GEN/kgen" -o "$TMP/gpu" --kind=fsdp --steps=2 --record-groups --cuda-sync >"$TMP/log"
"$BIN/graph" -q -o "$TMP/gpu.graph" "$TMP/gpu"/rank*.json
status 2 "prefetch on devices" "$BIN/replay" --what-if "prefetch 1" "$TMP/gpu.graph"

# ---- what would help ----------------------------------------------------------------------------
# advised NAME LINE: the share that the advice of LINE saves, and the ends of its interval
advised() {
	"$BIN/replay" -q -O json "$TMP/$1/graph" | tr '{' '\n' | sed -n "/\"change\": *\"$2\"/s/.*\"share\": *\([^,]*\),.*\"share_lo\": *\([^,]*\),.*\"share_hi\": *\([^,]*\),.*/\1 \2 \3/p"
}
for per in 1 2; do
	advised per$per no-reshard >"$TMP/advised"
	"$BIN/replay" -q --no-worth --what-if no-reshard "$TMP/per$per/graph" >"$TMP/out"
	check "advice of no-reshard, groups of $per: what --what-if says" awk '
		NR == FNR { saves = $1; least = $2; most = $3; n = NF; next }
		/predicted/ { gsub(/[(,)]/, ""); for (i = 1; i < NF; i++) if ($i == "predicted") at = i + 3
			exit !(n == 3 && at && same($at, saves) && same($(at + 5), most) && same($(at + 7), least)) }
		function same(x, share) { return (x + 100 * share) ^ 2 < 0.06 ^ 2 }
		END { if (!at) exit 1 }' "$TMP/advised" "$TMP/out"
done
for job in "per=1 keep=1" "per=0 root=again" "per=1 ahead=1"; do
	# shellcheck disable=SC2046,SC2086  # several words
	job kept $(printf -- '-v %s ' $job)
	status 0 "a job that has a setting already: $job" "$BIN/replay" "$TMP/kept/graph"
	holds "$TMP/out" "^would help:" "... has a report"
done
job kept -v per=1 -v keep=1
status 0 "a job that keeps its parameters" "$BIN/replay" "$TMP/kept/graph"
check "... gets no advice to do so" no grep -q 'no-reshard' "$TMP/out"

# ---- other numbers of ranks ---------------------------------------------------------------------
# gathers and reductions can have process groups of their own
for n in 4 8; do
	"$GEN/kgen" -o "$TMP/of$n" --kind=fsdp --ranks=$n --hosts=1 --intra-gbps=100 --alpha-us=100 --record-groups >"$TMP/log"
	"$BIN/graph" -q -o "$TMP/of$n.graph" "$TMP/of$n"/rank*.json
done
for by in "by 2" 8; do
	"$BIN/replay" -q --no-worth -O csv --table=steps --what-if "ranks $by" "$TMP/of4.graph" | awk -F , 'NR > 1 { print $6 }' >"$TMP/got"
	"$BIN/replay" -q --no-worth -O csv --table=steps "$TMP/of8.graph" | awk -F , 'NR > 1 { print $2 }' >"$TMP/truth"
	check "ranks $by of 4 ranks: within 1 % of the job of 8" alike 0.01 "$TMP/got" "$TMP/truth"
done
job copies -v per=1 -v averages=1 -v named=1
status 2 "more ranks of shards and copies" "$BIN/replay" --what-if "ranks by 2" "$TMP/copies/graph"
says "smaller shards or more copies" "... is refused with the reason"

# ---- plan ---------------------------------------------------------------------------------------
status 0 "plan of a sharded job" "$BIN/plan" -q -O text -o "$TMP/plan" "$TMP/per1/graph"
check "it proposes one group" grep -q '^wrap layers=all' "$TMP/plan"
check "its times are those of replay" awk -v step="$(awk '{ s += $1 } END { print s / NR }' "$TMP/per1/truth")" '
	$1 == "baseline" { n = ($2 - step) / step < 1e-6 && (step - $2) / step < 1e-6 } END { exit !n }' "$TMP/plan"
"$BIN/plan" -O fsdp "$TMP/plan" >"$TMP/settings"
check "as settings" grep -q '^fully_shard(model' "$TMP/settings"
status 0 "plan of one group" "$BIN/plan" -O text "$TMP/per0/graph"
says "all sharded parameters are one group" "... is no plan of buckets"
check "... and knows no tensors that could be in some" no grep -q '^tensor' "$TMP/out"
status 2 "one group in parts" "$BIN/replay" --what-if "wrap layers=1" "$TMP/per0/graph"
says "which cannot be divided: a recording does not say" "... is refused with the reason"
status 0 "groups that may not be joined" "$BIN/plan" -q --forbid=wrap -O text "$TMP/per1/graph"
check "... are not" sh -c "! grep -q '^wrap' '$TMP/out'"
status 0 "groups that may only be gathered earlier" "$BIN/plan" -q --allow=prefetch -O text -o "$TMP/ahead.plan" "$TMP/per1/graph"
check "... are" grep -q '^prefetch [1-4]' "$TMP/ahead.plan"
steps predicted_ns per1 -p "$TMP/ahead.plan" >"$TMP/got"
check "... by what replay predicts, computation beside the gathers is slower" awk '
	$1 == "predicted" { is = $2 } /^[0-9]+$/ { sum += $1; n++ } END { exit !(n == 3 && is / (sum / n) > 0.9999 && is / (sum / n) < 1.0001) }' "$TMP/ahead.plan" "$TMP/got"
check "... which shortens the steps" sh -c "paste '$TMP/got' '$TMP/per1/truth' | awk 'NF < 2 || \$1 > 0.9 * \$2 { bad = 1 } END { exit bad || !NR }'"
"$BIN/plan" -O fsdp "$TMP/ahead.plan" >"$TMP/settings"
check "... as settings" sh -c "grep -q '^    layer.set_modules_to_forward_prefetch(layers\[i + 1:' '$TMP/settings' &&
	! grep -qE '^fully_shard|^# not ' '$TMP/settings'"
status 0 "groups that may only be kept" "$BIN/plan" -q --allow=no-reshard -O text -o "$TMP/keep.plan" "$TMP/per1/graph"
check "... are" grep -q '^no-reshard' "$TMP/keep.plan"
"$BIN/plan" -O fsdp "$TMP/keep.plan" >"$TMP/settings"
check "... as settings" sh -c "grep -q '^options\[\"reshard_after_forward\"\] = False' '$TMP/settings' && ! grep -q '^# not ' '$TMP/settings'"
printf 'paceline-plan 1\nwrap layers=2\nprefetch 1\n' >"$TMP/pair.plan"
"$BIN/plan" -O fsdp "$TMP/pair.plan" >"$TMP/settings"
check "groups that are joined and gathered earlier are no settings" grep -q '^# not .*prefetch' "$TMP/settings"
status 0 "groups of a job with a limit of memory" "$BIN/plan" -q --memory=1T -O text "$TMP/per1/graph"
check "... stay" no grep -qE '^(wrap|prefetch)' "$TMP/out"
status 1 "without sizes the groups cannot be told" "$BIN/plan" "$TMP/sizeless/graph"
says "record_shapes=True" "... says why"

# the host of a device runs ahead: what it issues before its backward pass is gathered in the forward one
"$GEN/kgen" --kind=fsdp --record-groups --steps=3 --layers=4 -o "$TMP/device" >/dev/null
"$BIN/graph" -q -o "$TMP/device.graph" "$TMP"/device/rank*.json
status 0 "groups of a job on devices" "$BIN/replay" -q --no-worth --what-if "wrap layers=1" "$TMP/device.graph"
check "... as they are: no change" grep -q 'predicted .* (+0.00 %' "$TMP/out"
status 0 "... all in one" "$BIN/replay" -q --no-worth --what-if "wrap layers=all" "$TMP/device.graph"
check "... cannot be gathered beside computation" grep -qE 'predicted .* \(\+[1-9][0-9.]* %' "$TMP/out"

# reads NAME READER MS: a job that reads batches, and computes for 66 ms; its plan is in $TMP/out
reads() {
	mkdir -p "$TMP/$1"
	awk -v dir="$TMP/$1" -v cause=input -v n=2 -v ms="$3" -v who=-1 -v named=1 -f "$SRC/tests/gen/planted.awk"
	sed "s/_SingleProcessDataLoaderIter/$2/" "$TMP/$1/rank0.json" >"$TMP/$1/a.json"
	sed "s/_SingleProcessDataLoaderIter/$2/" "$TMP/$1/rank1.json" >"$TMP/$1/rank1.json.new"
	mv "$TMP/$1/rank1.json.new" "$TMP/$1/rank1.json"
	mv "$TMP/$1/a.json" "$TMP/$1/rank0.json"
	status 0 "plan of a job that waits for input: $1" "$BIN/plan" -q -O text "$TMP/$1"/rank0.json "$TMP/$1"/rank1.json
}
reads single _SingleProcessDataLoaderIter 100
check "it proposes two workers for 100 ms of reading" grep -q '^loader-workers 2 alone' "$TMP/out"
reads slower _SingleProcessDataLoaderIter 50
check "... one for 50 ms" grep -q '^loader-workers 1 alone' "$TMP/out"
reads several _MultiProcessingDataLoaderIter 100
check "... more, where there are some" grep -q '^loader-workers 4 was=1 alone' "$TMP/out"
cp "$TMP/out" "$TMP/loader.plan"
"$BIN/plan" -O ddp "$TMP/loader.plan" >"$TMP/settings"
check "as settings" grep -q 'num_workers=4)  # if it had 1' "$TMP/settings"
done_testing
