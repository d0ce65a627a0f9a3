# tensor-parallel: the layers of a transformer divided among ranks, with the times of a cost model, against graphs whose
# layers were divided by hand.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
cd "$TMP" || exit 1

. "$SRC/tests/cli/transformer.sh"

gpt=gpt:layers=2,heads=4,width=128,context=64,vocab=512
job whole $gpt 8 2
r() {
	"$BIN/replay" -q --no-worth -m k.model --devices=sheets --device=one "$@"
}
# predicted ARGUMENT...: the step in us
predicted() {
	r -O csv --table=steps "$@" | awk -F , 'NR == 2 { printf "%.0f\n", $6 / 1000 }'
}
near() {
	awk -v a="$1" -v b="$2" -v limit="$3" 'BEGIN { print "# " a ", " b; e = a / b - 1; exit !(a > 0 && (e < 0 ? -e : e) <= limit) }'
}

# ---- against a graph by hand ---------------------------------------------------------------------------

# two pairs of products: wide is divided by two in `part`
for w in 256 128; do
	cat >$w.model <<END
paceline-model 1
input 64
dense 64
residual
layernorm
dense $w
gelu
dense 64
end
residual
layernorm
dense $w
gelu
dense 64
end
layernorm
dense 64
loss softmax-cross-entropy
END
	job $w "$TMP/$w.model" 96 1
done
# spent GRAPH ARGUMENT...: us of a rank in products
spent() {
	"$BIN/replay" -q --no-worth --per operator "$@" | awk '$NF == "matmul" { print $4 }'
}
model="-m k.model --devices=sheets --device=one"
spent 128.graph >hand
# shellcheck disable=SC2086  # words
spent 256.graph $model --what-if 'tensor-parallel by=2' >divided
check "products take what those of layers take that were divided by hand" alike 0.01 divided hand
spent 256.graph >whole
check "... which is less than the whole" no cmp -s hand whole

# ---- a transformer ---------------------------------------------------------------------------------------

status 0 "a job's layers are divided" r --what-if 'tensor-parallel by=2' whole.graph
holds out 'collective *0  allreduce output' "... with all-reduces of what they make"
holds out 'collective *0  allreduce gradient of input' "... and of gradients"
r -O csv --table=memory whole.graph --what-if 'fuse-ops add ln' 2>/dev/null | cut -d , -f 1-4 >before
r -O csv --table=memory whole.graph --what-if 'tensor-parallel by=2' | cut -d , -f 1-4 >after
check "a part of the parameters takes less memory" awk -F , 'NR == FNR { was[$1] = $3; next }
	FNR > 1 && !($3 > 0.45 * was[$1] && $3 < 0.6 * was[$1]) { print "# " $0, was[$1]; exit 1 }' before after
printf 'paceline-plan 1\ntensor-parallel by=2\n' >plan
check "a plan says it, too" test "$(predicted -p plan whole.graph)" = "$(predicted --what-if 'tensor-parallel by 2' whole.graph)"
"$BIN/plan" --help=tensor-parallel >help
holds help 'by=' "its help"

# ---- with other lines, which apply to what it makes ----------------------------------------------------

tp='tensor-parallel by=2'
status 0 "a job without communication, over links that are not known" r -O json --what-if "$tp" 256.graph
holds out '"links_unknown":true' "... JSON says so"
holds out '"reasons":\[.*"links of ranks that share layers are not known' "... and the trust"
holds out '"predicted_doubt_ns":[1-9]' "... and all of their time may be wrong"
status 0 "over links that are given" r -O json --topology=1x2:dgx-a100 --what-if "$tp" 256.graph
check "... nothing is said of them" no grep -qE 'links_unknown|are not known' out
job twice $gpt 16 2
check "batch: as that of a job of twice the batch" near "$(predicted --what-if "$tp" --what-if 'batch by 2' whole.graph)" \
	"$(predicted --what-if "$tp" twice.graph)" 0.03
job more $gpt 8 4
check "ranks: as that of a job of more ranks" near "$(predicted --what-if 'ranks 4' --what-if "$tp" whole.graph)" \
	"$(predicted --what-if "$tp" more.graph)" 0.03
"$BIN/graph" -q --operators whole.job | "$BIN/predict" -q -m k.model --devices=sheets --device=two --host-us=0 -O graph -o two.graph
check "device: as that of the other device" near "$(predicted --what-if 'device two' --what-if "$tp" whole.graph)" \
	"$("$BIN/replay" -q --no-worth -m k.model --devices=sheets --device=two -O csv --table=steps --what-if "$tp" two.graph |
		awk -F , 'NR == 2 { print $6 / 1000 }')" 0.03

# ---- hosts: the group lies inside one, so replicas are apart ---------------------------------------------

# sums TOPOLOGY: ns of an all-reduce of the group
sums() {
	r --topology="$1" -O csv --table=path --what-if "$tp" whole.graph | awk -F , '/allreduce output/ { print $4 }'
}
check "inside a host the group is faster than between hosts" test "$(sums 2x2:dgx-a100)" -lt "$(sums 4x1:dgx-a100)"
"$BIN/graph" -q --operators --ranks=4 --topology=2x2:dgx-a100 whole.job |
	"$BIN/predict" -q -m k.model --devices=sheets --device=one --host-us=0 -O graph -o hosts.graph
# gradients GRAPH OPTION...: ns of the first bucket
gradients() {
	"$BIN/replay" -q --no-worth -O csv --table=path "$@" | awk -F , '/allreduce bucket 1$/ { print $4 }'
}
gradients hosts.graph >whole
gradients hosts.graph --what-if "$tp" >parts
check "the replicas of a part are on different hosts then, and share the links of these with those of the other part" \
	awk 'NR == FNR { whole = $1; next } { print "# " $1, whole; exit !($1 > whole) }' whole parts

# ---- the host: as many launches for a part -----------------------------------------------------------------
"$BIN/graph" -q --operators whole.job | "$BIN/predict" -q -m k.model --devices=sheets --device=one --host-us=1000 -O graph -o slow.graph
"$BIN/graph" -O text slow.graph | awk -F '\t' '$1 == "node" && $8 == "launch" { n++ } END { print n / 2 }' >launches
r -O csv --table=path --top=0 --what-if "$tp" whole.graph | awk -F , '/allreduce (output|gradient of input)/ { n += $3 } END { print n }' >sums
check "a host that is slower than the device: the parts take as long as the whole, and launch all-reduces" near \
	"$(r -O csv --table=steps --what-if "$tp" slow.graph | awk -F , 'NR == 2 { printf "%.0f\n", $6 / 1000 }')" "$(($(cat launches) + $(cat sums)))000" 0.01

# ---- a recorded job ---------------------------------------------------------------------------------------

sed -e 's/layers=2/layers=1/' -e 's/width=128,context=64,vocab=512/width=32,context=16,vocab=64/' -e 's/vocab=512/vocab=64/' whole.job >run.job
echo 'steps 3' >>run.job
"$BIN/run" -q -n 2 -t trace run.job >log 2>&1
"$BIN/merge" -q trace.? | "$BIN/graph" -q -o run.graph
status 0 "the trace of a job that was run" "$BIN/replay" -q --no-worth --what-if "$tp" run.graph
"$BIN/replay" -q --no-worth -O csv --table=resources --top=0 --what-if "$tp" run.graph >out # the path may be elsewhere
holds out 'tensor-parallel' "... its layers are divided"

# ---- what is refused ---------------------------------------------------------------------------------------

refused() {
	status 2 "$1: refused" "$BIN/replay" -q --no-worth --what-if "$2" "$3"
	says "$4" "... with the reason"
}
refused "more parts than heads" 'tensor-parallel by=8' whole.graph '4 heads cannot be divided into 8 parts'
refused "a third of a layer" 'tensor-parallel by=3' whole.graph 'cannot be divided'
job mlp mlp:64-128-32 32 1
refused "another network" 'tensor-parallel by=2' mlp.graph 'no layer.* of a transformer'
"$BIN/graph" -q --operators whole.job >untimed.graph
refused "no durations" 'tensor-parallel by=2' untimed.graph 'have no durations'
refused "one part" 'tensor-parallel by=1' whole.graph 'by'
done_testing
