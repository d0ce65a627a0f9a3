# Messages of collectives in traces: matched, in the graph as measured, replayed, changed, folded back.
# runner: threads
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

# job NAME OPTION...: trace, merged trace and graph of a generated job in $TMP/NAME
job() {
	d=$TMP/$1
	shift
	mkdir -p "$d"
	awk -v dir="$d" "$@" -f "$SRC/tests/gen/chunks.awk" && "$BIN/trace" -q "$d"/rank*.json -o "$d/trace" &&
		"$BIN/merge" -q --report="$d/report" "$d/trace" -o "$d/merged" && "$BIN/graph" -q "$d/merged" -o "$d/graph"
}

# counts KEY: of the report of job $d
counts() {
	sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$d/report"
}

# column N GRAPH OPTION...: of the table of steps
column() {
	n=$1
	shift
	"$BIN/replay" -q -O csv --table=steps "$@" | awk -F , -v n="$n" 'NR > 1 { print $n }'
}

# ---- matched, measured, replayed ----------------------------------------------------------------
check "a job of 4 ranks, with messages" job four
check "288 sends found their receives" [ "$(counts message_matches)" = 288 ]
check "none is left" [ "$(counts unmatched_messages)" = 0 ]
check "they are no sends and receives to be paired" [ "$(counts p2p_matches)" = 0 ]
"$BIN/graph" -O json "$TMP/four/graph" >"$TMP/json"
check "graph: a send and a receive each" [ "$("$BIN/graph" -O stat "$TMP/four/graph" | awk '$1 == "send" || $1 == "recv" { n += $2 } END { print n }')" = 576 ]
column 4 "$TMP/four/graph" >"$TMP/steps"
check "the replay has the steps of the job" same "$TMP/four/truth" "$TMP/steps"
"$BIN/replay" --no-worth "$TMP/four/graph" >"$TMP/out"
check "... with nothing unexplained" sh -c "head -1 '$TMP/out' | grep -q '(+0.00 %), 4 ranks, 0.0 % unexplained'"
check "... and messages on its critical path" grep -q ' send .* send [0-9]' "$TMP/out"

# ---- what-if acts on them -----------------------------------------------------------------------
for bw in 2 0.5; do
	job "bw$bw" -v bw=$bw
	column 6 "$TMP/four/graph" --what-if="bandwidth by $bw" >"$TMP/predicted"
	check "bandwidth by $bw: within 1 % of the job that has it" alike 0.01 "$TMP/predicted" "$TMP/bw$bw/truth"
	check "... which is another" no alike 0.2 "$TMP/four/truth" "$TMP/bw$bw/truth"
done

# A send that waited for a processor waits as long on a slower network.
check "a job whose processors are busy" job busy -v busy=100000
for bw in 0.5 0.25; do
	job "busy$bw" -v busy=100000 -v bw=$bw
	column 6 "$TMP/busy/graph" --what-if="bandwidth by $bw" >"$TMP/predicted"
	check "busy, bandwidth by $bw: within 3 % of the job that has it" alike 0.03 "$TMP/predicted" "$TMP/busy$bw/truth"
done

# Each rank sends to each other rank: more ranks are no more messages one after the other.
for size in 2 4 7; do
	job "direct$size" -v direct=1 -v n=$size
	check "direct, $size ranks: the graph says so" sh -c "'$BIN/graph' -O text '$TMP/direct$size/graph' | grep '^comm' |
		awk -F '\t' '\$4 != \"direct\" { bad = 1 } END { exit bad || !NR }'"
done
check "a ring is not called so" no sh -c "'$BIN/graph' -O text '$TMP/four/graph' | grep -q direct"
for size in 2 7; do
	column 6 "$TMP/direct4/graph" --what-if="ranks $size" >"$TMP/predicted"
	check "4 to $size ranks, direct: within 3 % of the job that has them" alike 0.03 "$TMP/predicted" "$TMP/direct$size/truth"
	status 0 "... as text" "$BIN/replay" --no-worth --what-if="ranks $size" "$TMP/direct4/graph"
	holds "$TMP/out" '^assumed: all ranks are like the recorded ones, and their links do not hinder each other$' "... what is assumed"
done

# A rank that takes what it adds in a fixed order waits for some messages although others are there.
check "messages taken in a fixed order" job ordered -v direct=1 -v pieces=3 -v work=500
for bw in 4 0.25; do
	job "ordered$bw" -v direct=1 -v pieces=3 -v work=500 -v bw=$bw
	column 6 "$TMP/ordered/graph" --what-if="bandwidth by $bw" >"$TMP/predicted"
	check "... bandwidth by $bw: within 1 % of the job that has it" alike 0.01 "$TMP/predicted" "$TMP/ordered$bw/truth"
done

rest="-v rest=60000 -v work=500"
# shellcheck disable=SC2086  # options are words
check "a job whose collectives end a while after their last message" job rest $rest -v flight=5000
for flight in 1000 100000; do
	# shellcheck disable=SC2086
	job "flight$flight" $rest -v flight=$flight
	column 6 "$TMP/rest/graph" --what-if="latency to ${flight}ns" >"$TMP/predicted"
	check "latency to $flight ns: that of the job that has it" same "$TMP/flight$flight/truth" "$TMP/predicted"
	column 6 --topology=1x4 "$TMP/rest/graph" --what-if="latency pcie to ${flight}ns" >"$TMP/predicted"
	check "... of the link that carries all messages, by its name" same "$TMP/flight$flight/truth" "$TMP/predicted"
done

column 6 "$TMP/rest/graph" --what-if="latency * by 9" >"$TMP/x"
column 6 "$TMP/rest/graph" --what-if="latency pcie by 9" >"$TMP/predicted"
check "nine times the latency of that link" same "$TMP/x" "$TMP/predicted"
status 0 "... as text" "$BIN/replay" --no-worth --what-if="latency pcie by 9" "$TMP/rest/graph"
check "... assumes nothing of ranks" no grep -q '^assumed: all ranks' "$TMP/out"
check "... which is another step" no alike 0.01 "$TMP/rest/truth" "$TMP/predicted"
status 0 "the latency of a link that carries none" "$BIN/replay" --no-worth --topology=4x1 --what-if="latency pcie by 9" "$TMP/rest/graph"
check "... changes nothing" grep -q 'predicted .* (+0.00 %, 90 % interval -1.0 to +1.0 %)' "$TMP/out"
says 'the change "latency pcie by 9" selects no operation; no communication uses that link' "... and is warned of"
status 2 "one of two links that carry messages" "$BIN/replay" --topology=2x2 --what-if="latency nic by 9" "$TMP/rest/graph"
says 'messages inside and between hosts were recorded' "... needs them folded"
status 0 "... and then" sh -c "'$BIN/graph' -q --fold-messages '$TMP/rest/graph' | '$BIN/replay' --topology=2x2 --what-if='latency nic by 9'"

# ---- folded: as if no message had been recorded -------------------------------------------------
check "the same job without messages" job none -v messages=0
"$BIN/graph" --no-provenance -O text "$TMP/none/graph" | grep -v ^provenance >"$TMP/none.text"
"$BIN/graph" -q --fold-messages "$TMP/four/merged" | "$BIN/graph" -O text - | grep -v ^provenance >"$TMP/folded.text"
check "--fold-messages of a trace gives its graph" same "$TMP/none.text" "$TMP/folded.text"
"$BIN/graph" --fold-messages "$TMP/four/graph" -o "$TMP/folded"
for g in "$TMP/none/graph" "$TMP/folded"; do
	"$BIN/graph" -O stat "$g" | awk '/^communication,/ { on = 1 } /^ranks,/ { on = 0 } on'
done >"$TMP/both"
check "--fold-messages of a graph: the same communication" awk '{ v[NR] = $0 }
	END { for (i = 1; i <= NR / 2; i++) if (v[i] != v[i + NR / 2]) exit 1; exit NR < 6 || NR % 2 }' "$TMP/both"
column 4 "$TMP/folded" >"$TMP/steps"
check "... and the same steps" same "$TMP/four/truth" "$TMP/steps"
"$BIN/replay" -q -O csv --table=steps --what-if="ranks 8" "$TMP/none/graph" >"$TMP/x"
"$BIN/replay" -q -O csv --table=steps --what-if="ranks 8" "$TMP/folded" >"$TMP/y"
check "... and the same predictions" same "$TMP/x" "$TMP/y"
"$BIN/replay" -q -O csv --table=steps --what-if="ranks 8" "$TMP/four/graph" >"$TMP/y"
check "a change of ranks folds by itself" same "$TMP/x" "$TMP/y"
check "... and changes the steps" awk -F , 'NR > 1 && $6 > $4 * 1.1 { n++ } END { exit n != 3 }' "$TMP/y"
status 0 "so does plan" "$BIN/plan" -q -O json --evaluations=50 "$TMP/four/graph"
status 0 "one step that stands for many" "$BIN/replay" --fold=mean --no-worth "$TMP/four/graph"
check "... takes their mean" sh -c "head -1 '$TMP/out' | grep -q '(+0.00 %)'"
status 0 "stragglers fold by themselves" "$BIN/replay" -q --stragglers "$TMP/four/graph"

# ---- a plan of changes is what the changes are --------------------------------------------------
for line in "bandwidth by 4" "latency by 3" "scale kind=comm by 0.5" "fix rank=1" "ranks 8"; do
	printf 'paceline-plan 1\n%s\n' "$line" >"$TMP/plan"
	"$BIN/replay" -q -O csv --table=steps -p "$TMP/plan" "$TMP/rest/graph" >"$TMP/x"
	"$BIN/replay" -q -O csv --table=steps --what-if="$line" "$TMP/rest/graph" >"$TMP/y"
	check "a plan of \"$line\": as --what-if" same "$TMP/x" "$TMP/y"
done
status 0 "messages that were folded" "$BIN/replay" --no-worth --what-if='ranks 8' "$TMP/rest/graph"
holds "$TMP/out" '^estimated from [0-9]* whole transfers, as the messages of the trace were folded for this change' "... are said to be"

# ---- sends alone, clocks, formats ---------------------------------------------------------------
check "a job whose receives were not recorded" job sends -v recv=0
check "its sends are kept, alone" [ "$(counts unmatched_messages)" = 288 ]
column 4 "$TMP/sends/graph" >"$TMP/steps"
check "its replay has the steps" same "$TMP/sends/truth" "$TMP/steps"
check "ranks whose clocks are 20 ms apart" job skew -v skew=20000000
column 4 "$TMP/skew/graph" >"$TMP/steps"
check "... their messages match, and the steps are right but for jitter" alike 0.02 "$TMP/steps" "$TMP/skew/truth"
check "... all of them" [ "$(counts message_matches)" = 288 ]
"$BIN/trace" -q -O chrome "$TMP/four/trace" | "$BIN/trace" -q | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/again"
column 4 "$TMP/again" >"$TMP/steps"
check "through Chrome JSON and back" same "$TMP/four/truth" "$TMP/steps"
"$BIN/graph" -O stat "$TMP/again" | grep '^send ' >"$TMP/x"
check "... messages are still messages" grep -q '^send  *288 ' "$TMP/x"
"$BIN/replay" -q --timeline="$TMP/tl" "$TMP/four/graph" >/dev/null
"$BIN/merge" -q --report="$TMP/four/report" "$TMP/tl" | "$BIN/graph" -q -o "$TMP/tl.graph"
column 4 "$TMP/tl.graph" >"$TMP/steps"
check "a timeline of it is such a trace again" same "$TMP/four/truth" "$TMP/steps"
d=$TMP/four
check "... with all its messages" [ "$(counts message_matches)" = 288 ]
"$BIN/trace" -q --rank=0-2 "$TMP/four/merged" | "$BIN/graph" -q -o "$TMP/part"
column 4 "$TMP/part" >"$TMP/steps"
check "three of the ranks, of the merged trace" alike 0.01 "$TMP/steps" "$TMP/four/truth"

# ---- which message is whose: two groups with the same numbers at once, numbers that begin anew, and sends and
# receives of their own between the same ranks
ev() { # RANK KIND NAME TID FROM DUR ARGS
	printf '{"ph":"X","pid":%d,"cat":"%s","name":"%s","tid":"%s","ts":%d,"dur":%d,"args":{%s}},\n' "$@"
}
two_groups() {
	other=$((1 - $1))
	for step in 0 1; do
		at=$((step * 1000))
		ev "$1" step "ProfilerStep#$step" main $at 900 "\"step\":$step"
		for group in a b; do
			ev "$1" collective allreduce "$group" $((at + 100)) 200 "\"Process Group Name\":\"$group\",\"Seq\":5,\"bytes\":64"
			[ $group = a ] && n=10 || n=20
			ev "$1" send "send $group" "c$group" $((at + 100 + n)) 50 "\"Process Group Name\":\"$group\",\"of\":5,\"peer\":$other,\"bytes\":$n"
			ev "$1" recv "recv $group" "c$group" $((at + 120 + n)) 60 "\"Process Group Name\":\"$group\",\"of\":5,\"peer\":$other,\"bytes\":$n"
		done
		if [ "$1" = 0 ]; then
			ev "$1" send plain p2p $((at + 400)) 50 "\"peer\":$other,\"bytes\":99"
		else
			ev "$1" recv plain p2p $((at + 400)) 60 "\"peer\":$other,\"bytes\":99"
		fi
		ev "$1" send lost ca $((at + 600)) 10 "\"Process Group Name\":\"a\",\"of\":5,\"peer\":$other"
		ev "$1" send stray ca $((at + 130)) 10 "\"Process Group Name\":\"a\",\"of\":6,\"peer\":$other"
	done
}
d=$TMP/groups
mkdir "$d"
for rank in 0 1; do
	{
		echo "{\"distributedInfo\":{\"rank\":$rank,\"world_size\":2},\"traceEvents\":["
		two_groups $rank | sed '$s/,$//'
		echo ']}'
	} >"$d/rank$rank.json"
done
"$BIN/trace" -q "$d"/rank*.json | "$BIN/merge" -q --report="$d/report" -o "$d/merged"
check "two groups of one number: 4 messages a step" [ "$(counts message_matches)" = 8 ]
check "... beside a send and its receive" [ "$(counts p2p_matches)" = 2 ]
check "messages behind the span, or of a number that there is not, belong to nobody" [ "$(counts unmatched_messages)" = 8 ]
status 0 "its graph" "$BIN/graph" -O json "$d/merged"
check "... joins what has one size" awk '{ s = s $0 } END {
	n = gsub(/"name": *"send [ab]"/, "", s); m = gsub(/"name": *"recv [ab]"/, "", s); exit n < 4 || n != m }' "$TMP/out"
"$BIN/graph" -q "$d/merged" -o "$d/graph"
"$BIN/replay" --no-worth "$d/graph" >"$TMP/out"
check "... and replays as recorded" sh -c "head -1 '$TMP/out' | grep -q '(+0.00 %)'"
"$BIN/trace" -q --kind='send|recv|step' "$d/merged" >"$d/less"
status 0 "messages whose collectives a filter took belong to nobody" "$BIN/trace" -O text "$d/less"
check "... and are no messages of another" sh -c "! grep -q 'match .*message' '$TMP/out'"

# ---- a table ------------------------------------------------------------------------------------
cat >"$TMP/table.csv" <<'END'
rank,optype,start_ts,duration,step,seq_id,number,channel,peer,bytes,group
0,forward-compute,0,10,1,0,,,,,
1,forward-compute,0,12,1,0,,,,,
0,grads-all-reduce,10,15,1,1,,,,800,g
1,grads-all-reduce,12,13,1,1,,,,800,g
0,message-send,10,5,1,0,1,0,1,400,g
1,message-recv,12,4,1,0,1,0,0,400,g
1,message-send,12,5,1,0,1,0,0,400,g
0,message-recv,10,8,1,0,1,0,1,400,g
END
status 0 "a table with messages" "$BIN/trace" -q -f optable --columns=of=number,channel=channel,peer=peer,bytes=bytes,group=group "$TMP/table.csv" -o "$TMP/table"
d=$TMP/four
"$BIN/merge" -q --report="$d/report" "$TMP/table" | "$BIN/graph" -q -o "$TMP/table.graph"
check "they match" [ "$(counts message_matches)" = 2 ]
status 0 "and replay" "$BIN/replay" --no-worth "$TMP/table.graph"
check "... as recorded" sh -c "head -1 '$TMP/out' | grep -q 'step 25.00 s, replayed 25.00 s (+0.00 %)'"

# ---- what is sent on: the same chunk, and no other ------------------------------------------------
# passed ALGORITHM: of a job of run by that algorithm, on which chunk each send of an all-reduce waits, as "CHUNK SENT"
passed() {
	printf 'paceline-job 1\nmodel mlp:784-512-10\ndata synthetic:samples=200,dims=784,classes=10\nbatch 16\nsteps 2\nalgorithm %s\n' "$1" >"$TMP/job"
	rm -f "$TMP"/t.*
	"$BIN/run" -q -n 2 --transport=tcp --link rate=10Gbit -t "$TMP/t" "$TMP/job" >"$TMP/out" 2>&1 &&
		"$BIN/merge" -q "$TMP"/t.? | "$BIN/graph" -q | "$BIN/graph" -O text | awk -F '\t' '
			$1 == "node" { kind[$2] = $5; chunk[$2] = $13; bytes[$2] = $11 }
			$1 == "edge" && $4 == "data?" && kind[$2] == "recv" && kind[$3] == "send" && bytes[$3] > 128 {
				print chunk[$2], chunk[$3]
			}'
}
passed ring >"$TMP/ring"
check "a ring passes on what it received" awk '$1 != $2 { bad = 1 } END { exit bad || NR < 8 }' "$TMP/ring"
passed direct >"$TMP/direct"
check "what goes to everybody directly is each rank's own" sh -c "[ -s '$TMP/out' ] && [ ! -s '$TMP/direct' ]"
done_testing
