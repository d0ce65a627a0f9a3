# Plans carried out by run: what each rewrite says is what the trace shows, and what replay takes it to mean.
# runner: alone, threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/job.sh"

run=$BIN/run
cd "$TMP" || exit 1
TMPDIR=$TMP
export TMPDIR
tiny_job 12
cat >head.plan <<'END'
paceline-plan 1
tensor 4.bias 16
tensor 4.weight 512
tensor 2.bias 128
tensor 2.weight 6144
tensor 0.bias 192
tensor 0.weight 3072
END
for tensor in 4.bias 4.weight 2.bias 2.weight 0.bias 0.weight; do echo "fuse-tensors $tensor"; done >>head.plan

# off FILE FILE: the greatest relative difference of two columns of losses
off() {
	paste "$1" "$2" | awk '{ e = $1 / $2 - 1; if (e < 0) e = -e; if (e > most) most = e } END { print NR ? most + 0 : "none" }'
}
# obey WHAT LINE...: a job under a plan of these lines with $ranks ranks over TCP; its trace in trace.R, events of the
# last step of rank 0 in events; $options go to run
ranks=2
options=
obey() {
	what=$1
	shift
	{ cat head.plan; [ $# = 0 ] || printf '%s\n' "$@"; } >this.plan
	# shellcheck disable=SC2086  # words
	status 0 "$what" timeout 50 "$run" -n $ranks --transport=tcp -p this.plan -t trace --log=log.csv \
		--checkpoint=state $options tiny.job
	# without sums of losses and their messages
	"$BIN/trace" -O jsonl trace.0 | grep '"step":11[,}]' | awk '
		match($0, /"(seq|of)":[0-9]+/) { seq = substr($0, RSTART, RLENGTH); sub(/.*:/, "", seq) }
		/"name":"allreduce bucket/ { bucket[seq] = 1 }
		{ line[NR] = $0; of[NR] = /"kind":"(send|recv)"/ ? seq : "" }
		END { for (i = 1; i <= NR; i++) if (of[i] == "" || of[i] in bucket) print line[i] }' >events
	losses log.csv >last.losses
}
buckets() {
	sed -n 's/.*"name":"allreduce bucket \([0-9]*\)[^"]*".*"bytes":\([0-9]*\).*/\1 \2/p' events | sort -n | cut -d ' ' -f 2 | tr '\n' ' '
}
issued() { # correlations in the order of issue, less that of the step
	sed -n 's/.*"name":"issue allreduce".*"correlation":\([0-9]*\).*/\1/p' events | awk '{ printf "%d ", $1 % 65536 }'
}
sends() {
	grep -c '"kind":"send"' events
}
peers() { # to whom
	sed -n 's/.*"kind":"send".*"peer":\([0-9]*\).*/\1/p' events | sort -u | tr '\n' ' '
}

# ---- buckets, order, partition ---------------------------------------------------------------------
obey "each tensor by itself"
check "... is a bucket, in the order of readiness" [ "$(buckets)" = '16 512 128 6144 192 3072 ' ]
check "... issued so" [ "$(issued)" = '0 1 2 3 4 5 ' ]
check "... without a warning" test ! -s err
cp last.losses each.losses
cp state each.state
whole=$(sends)
obey "fuse-tensors" 'fuse-tensors 4.weight 4.bias' 'fuse-tensors 2.weight 0.bias'
check "... makes larger buckets where the last of them is ready" [ "$(buckets)" = '528 128 6336 3072 ' ]
check "... of the same bits" cmp state each.state
obey "order" 'order 0.weight 4.bias'
check "... the sizes change places" [ "$(buckets)" = '3072 512 128 6144 192 16 ' ]
check "... of the same bits" cmp state each.state
obey "partition-tensor" 'partition-tensor 2.weight 4'
check "... as many buckets" [ "$(buckets)" = '16 512 128 6144 192 3072 ' ]
check "... more messages" [ "$(sends)" -gt "$whole" ]
check "... of the same bits" cmp state each.state

# ---- algorithms ------------------------------------------------------------------------------------
ranks=4
for algorithm in ring tree halving-doubling hierarchical; do
	obey "algorithm $algorithm" "algorithm $algorithm"
	sends >"sends.$algorithm"
	peers >"peers.$algorithm"
	check "... without a warning" test ! -s err
	[ $algorithm = ring ] && cp last.losses ring.losses
	check "... the same losses" awk -v e="$(off last.losses ring.losses)" 'BEGIN { exit !(e < 1e-5) }'
done
check "a ring sends n-1 shares to its neighbour, twice" [ "$(cat sends.ring peers.ring)" = "36
1 " ]
check "halving and doubling, to those at a power of two" [ "$(cat peers.halving-doubling)" = '1 2 ' ]
check "a tree sends all at once, to each of its children" [ "$(cat sends.tree)" = 12 ]
check "of ranks on one host, the first sends to all" [ "$(cat peers.hierarchical)" = '1 2 3 ' ]
obey "an algorithm of one tensor" 'algorithm ring' 'algorithm tree 2.weight'
check "... leaves the others" [ "$(sends)" = $((30 + $(cat sends.tree) / 6)) ]
obey "a parameter server" 'algorithm ps k 2'
says 'algorithm ps' "... is not here: it is said"
ranks=2

# ---- computation -----------------------------------------------------------------------------------
obey "accumulate" 'accumulate 4'
check "... four times forward, one synchronisation" \
	sh -c '[ "$(grep -c "\"name\":\"forward 2\"" events)" = 4 ] && [ "$(grep -c "\"name\":\"issue allreduce\"" events)" = 6 ]'
check "... by microbatch" grep -q '"name":"backward 2".*"microbatch":3' events
check "... and the same losses" awk -v e="$(off last.losses each.losses)" 'BEGIN { exit !(e < 1e-5) }'
obey "recompute" 'recompute 0 1 2 3'
check "... what lies between runs again" sh -c 'grep -q "\"name\":\"recompute 0\"" events && ! grep -q "\"name\":\"recompute 4\"" events'
check "... to the same bits" cmp state each.state

# in_bf16: which operations say so
in_bf16() {
	sed -n 's/.*"name":"\([^"]*\)".*"precision":"bf16".*/\1/p' events | tr '\n' ','
}
obey "precision bf16" 'precision bf16'
check "... of all layers with products" \
	[ "$(in_bf16)" = 'forward 0,forward 2,forward 4,backward 4,backward 2,backward 0,' ]
check "... without a warning" test ! -s err
check "... gradients travel as wide as before" [ "$(buckets)" = '16 512 128 6144 192 3072 ' ]
check "... the losses are others, by what rounding explains" \
	awk -v e="$(off last.losses each.losses)" 'BEGIN { exit !(e > 1e-5 && e < 2e-2) }'
cp state half.state
cp last.losses half.losses
obey "... once more" 'precision bf16'
check "... to the same bits" cmp state half.state
options='--threads=2'
obey "... with two threads" 'precision bf16'
check "... to the same bits" cmp state half.state
options=
obey "... with another algorithm, in parts" 'precision bf16' 'algorithm ring' 'partition-tensor 2.weight 3'
check "... to the same bits, of two ranks" cmp state half.state
obey "precision and recomputation" 'precision bf16' 'recompute 0 1 2 3'
check "... again, in that precision" [ "$(in_bf16)" = 'forward 0,forward 2,forward 4,backward 4,recompute 0,backward 2,backward 0,' ]
check "... to the same bits" cmp state half.state
status 0 "precision of the job" "$run" -q -n 2 --set 'precision bf16' --checkpoint=job.state tiny.job
"$run" -q -n 2 -p this.plan --checkpoint=plan.state tiny.job >out
check "... is that of a plan" cmp job.state plan.state
"$run" -q -n 1 --set 'precision bf16' --set batch=64 --log=one.csv tiny.job >out
losses one.csv >one.losses
check "... one rank with twice the batch has the same losses" awk -v e="$(off one.losses half.losses)" 'BEGIN { exit !(e < 1e-5) }'
status 0 "... resumed" sh -c "'$run' -q -n 2 --set 'precision bf16' --set steps=5 --checkpoint=part.state tiny.job &&
	'$run' -q -n 2 --set 'precision bf16' --resume=part.state --checkpoint=rest.state tiny.job"
check "... to the same bits" cmp rest.state job.state
obey "precision of operations" 'precision bf16 "forward 2" "backward 4" optimizer' 'precision fp32 "backward 4"'
check "... the last word counts" [ "$(in_bf16)" = 'forward 2,' ]
"$BIN/merge" -q trace.0 trace.1 | "$BIN/graph" -q --fold-messages - -o graph
for wrong in 'fp16:needs a scaled loss' 'bf16 "forward 7":none of this model' 'fp8:needs a scaled loss'; do
	{ cat head.plan; echo "precision ${wrong%%:*}"; } >this.plan
	status 3 "precision ${wrong%%:*}" "$run" -n 2 -p this.plan tiny.job
	says "${wrong#*:}" "... is refused, with the reason"
done
status 2 "a precision that there is not" "$run" --set 'precision fp16' tiny.job

# ---- what is left out is said ------------------------------------------------------------------------
for left in 'precision tf32:are done in fp32' 'priority 0.weight 4.bias:none is more urgent' \
	'fuse-ops "forward 0" "forward 2":one operation' 'bandwidth * x 2:another machine'; do
	obey "${left%%:*}" "${left%%:*}"
	says "${left#*:}" "... is left out, with the reason"
	check "... in one line" [ "$(wc -l <err)" = 1 ]
	check "... and changes nothing" cmp state each.state
done

# ---- replay, and plan, take it to mean the same ------------------------------------------------------
"$run" -q -n 2 -t base tiny.job >out
"$BIN/merge" -q base.0 base.1 | "$BIN/graph" -q --fold-messages - -o graph
"$BIN/plan" -q --no-provenance --preset=none -O text graph | grep -v '^base' >none.plan
for rewrite in 'precision bf16 "forward 2"' 'precision bf16 x 1.1 "forward 2" "backward 2"' 'accumulate 2' \
	'algorithm ring' 'partition-tensor "grad 2.weight" 2' 'fuse-tensors "grad 0.weight"' \
	'partition-tensor 2.weight 2' 'fuse-tensors "grad 0.weight" 0.bias' 'algorithm ring 2.weight'; do
	{ cat none.plan; echo "$rewrite"; } >this.plan
	check "replay and run both take: $rewrite" sh -c "'$BIN/replay' -q -p this.plan graph >replayed &&
		'$run' -q -n 2 -p this.plan tiny.job >ran"
done
check "tensors are called by their parameters" grep -q '^tensor "grad 2.weight" 6144' none.plan
{ echo paceline-plan 1; echo 'fuse-tensors 2.wieght 0.bias'; } >this.plan
status 3 "a name that no tensor has" "$BIN/replay" -q -p this.plan graph
says 'no tensor "2.wieght"; did you mean "2.weight"?' "... the nearest is named, as it may be written"
status 0 "what if links were slower, in shared memory" "$BIN/replay" -q --no-worth --what-if 'latency to=1ms' graph
check "... no algorithm is assumed" no grep -q '^assumed' out
"$BIN/graph" -q -O text graph >graph.text
check "... as each collective has one" awk '$1 == "comm" { n++; bad += $4 != "direct" } END { exit bad || n < 3 }' graph.text
{ cat none.plan; echo 'priority "grad 0.weight" "grad 4.bias"'; } >this.plan
status 3 "replay, too, knows no urgency in such a trace" "$BIN/replay" -p this.plan graph
says 'none is more urgent' "... and says so"
status 0 "plan, allowed what run does" "$BIN/plan" -q -O text \
	--allow=fuse-tensors,partition-tensor,order,priority,algorithm,accumulate,recompute,precision graph
cp out search.plan
check "... expects nothing of bf16 where hosts compute, nor of priority" sh -c '! grep -Eq "^(precision|priority) " search.plan'
status 0 "... and what it writes is carried out" "$run" -n 2 -p search.plan tiny.job
check "... without a warning" test ! -s err
done_testing
