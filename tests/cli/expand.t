# replay --expand: collectives simulated message by message.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

printf '%s\n' layer,forward_us,backward_us,param_bytes,activation_bytes a,100,200,1000003,4096 b,10,20,0,1 \
	c,300,300,2400000,512 >"$TMP/net.csv"
cat >"$TMP/topo" <<'END'
paceline-topology 1
hosts 2 ranks 4 name h%d
link nvlink scope host bandwidth 3.3GB/s latency 7us
link nic scope network bandwidth 0.7GB/s latency 21us shared
END

# predicted GRAPH OPTION...: nanoseconds
predicted() {
	"$BIN/replay" -q -O csv --table=steps "$@" | awk -F , 'NR > 1 { print $6 }'
}

recorded() {
	"$BIN/replay" -q -O csv --table=steps "$@" | awk -F , 'NR > 1 { print $2 }'
}

# A step made from layers takes what analysis says of the algorithm; ranks are alike, so the messages take
# as long, to the nanosecond where the header of the expansion says so.
for algorithm in ring tree halving-doubling hierarchical ps; do
	for topo in 1x8 "$TMP/topo" 1x6; do
		case $topo,$algorithm in
		*/topo,ring | */topo,tree) continue ;; # unlike links: analysis is a bound
		esac
		"$BIN/graph" -f layers --algorithm="$algorithm" --topology="$topo" "$TMP/net.csv" -o "$TMP/g"
		recorded "$TMP/g" >"$TMP/x"
		predicted "$TMP/g" --expand="$algorithm" --topology="$topo" >"$TMP/y"
		check "$algorithm on ${topo##*/}: analysis, to the nanosecond" cmp "$TMP/x" "$TMP/y"
	done
done
"$BIN/graph" -f layers --algorithm=ring --topology="$TMP/topo" "$TMP/net.csv" -o "$TMP/g"
check "a ring over unlike links: no longer than analysis" \
	[ "$(predicted "$TMP/g" --expand=ring --topology="$TMP/topo")" -le "$(recorded "$TMP/g")" ]
check "a hierarchy is faster there" \
	[ "$(predicted "$TMP/g" --expand=hierarchical --topology="$TMP/topo")" -lt "$(recorded "$TMP/g")" ]
check "more servers are faster" [ "$(predicted "$TMP/g" --expand=ps --topology=1x8 --servers=8)" -lt \
	"$(predicted "$TMP/g" --expand=ps --topology=1x8)" ]
check "so are a tree's pieces if they are finer" [ "$(predicted "$TMP/g" --expand=tree --topology=1x8 --chunks=16)" -lt \
	"$(predicted "$TMP/g" --expand=tree --topology=1x8 --chunks=2)" ]
a=$(predicted "$TMP/g" --expand=ring --topology=1x8)
check "channels share the link" [ "$a" = "$(predicted "$TMP/g" --expand=ring --topology=1x8 --channels=3)" ]

# Without a topology what was recorded counts: alike ranks take as long as they did, but for rounding.
"$BIN/graph" -f layers --ranks=8 "$TMP/net.csv" -o "$TMP/g"
x=$(recorded "$TMP/g")
y=$(predicted "$TMP/g" --expand=ring)
check "as long as recorded" [ $(((x - y) * (x - y))) -le 1000000 ]

# What a plan made a tree of is not taken for a ring.
printf 'paceline-plan 1\nalgorithm tree\n' >"$TMP/tree.plan"
planned() {
	predicted "$TMP/g" -p "$TMP/tree.plan" "$@"
}
x=$(planned)
y=$(planned --expand=tree)
check "a plan's tree, as long by messages" [ $(((x - y) * (x - y))) -le 1000000 ]
printf 'paceline-plan 1\nalgorithm tree "grad a"\n' >"$TMP/some.plan"
status 0 "one of several by another algorithm" "$BIN/replay" -p "$TMP/some.plan" --expand=tree "$TMP/g"
x=$(planned --expand=tree)
y=$(predicted "$TMP/g" -p "$TMP/some.plan" --expand=tree)
check "... only the others become slower" [ $(((x - y) * (x - y))) -le 1000000 ]
"$BIN/graph" -f layers --ranks=8 --algorithm=tree "$TMP/net.csv" -o "$TMP/tree"
x=$(recorded "$TMP/tree")
y=$(predicted "$TMP/tree" --expand=tree)
check "a recorded tree is as long by messages" [ $(((x - y) * (x - y))) -le 1000000 ]

# The real job of the samples, with its stragglers.
"$BIN/trace" -q "$SRC"/samples/ddp-gloo/rank*.json.gz | "$BIN/merge" -q | "$BIN/graph" -q -o "$TMP/ddp"
status 0 "the bundled job" "$BIN/replay" --expand=ring --channels=2 --timeline="$TMP/tl" "$TMP/ddp"
check "the report says what was simulated" grep -q '^message by message: 15 collectives, 720 messages by ring' "$TMP/out"
check "... and has messages on its path" grep -q ' send .* send [0-9]>[0-9]' "$TMP/out"
check "... with hardly anything unexplained" awk 'NR == 1 { for (i = 1; i < NF; i++) if ($(i + 2) ~ /unexplained/) u = $i; exit u >= 2 }' "$TMP/out"
check "no step is longer than as a whole" awk -F , '
	NR > 1 && $6 > $4 + 1000 { bad = 1 } END { exit bad || NR < 4 }' <<END
$("$BIN/replay" -q -O csv --table=steps --expand=ring "$TMP/ddp")
END
check "the timeline has the messages" [ "$("$BIN/trace" -O csv "$TMP/tl" | grep -c ',send,send [0-9]>[0-9],')" = 720 ]
status 0 "JSON" "$BIN/replay" -O json --expand=tree "$TMP/ddp"
check "... says it too" grep -q '"expanded": *{"algorithm": *"tree", *"collectives": *15, *"messages": *90, *"left": *0}' "$TMP/out"
status 0 "a timeline is a trace" "$BIN/merge" -q "$TMP/tl" -o "$TMP/tl.merged"
"$BIN/graph" -q "$TMP/tl.merged" -o "$TMP/tl.graph"
status 0 "whose graph replays" "$BIN/replay" --no-worth "$TMP/tl.graph"
check "... and has them as messages" sh -c "'$BIN/graph' -O stat '$TMP/tl.graph' | grep -q '^send  *720 '"

# ---- what is refused ----------------------------------------------------------------------------
status 2 "an algorithm that there is not" "$BIN/replay" --expand=gossip "$TMP/ddp"
status 2 "--channels alone" "$BIN/replay" --channels=2 "$TMP/ddp"
status 2 "no channels" "$BIN/replay" --expand=ring --channels=0 "$TMP/ddp"
says '--channels' "... says so"
status 2 "two graphs" "$BIN/replay" --expand=ring "$TMP/ddp" "$TMP/g"
status 2 "with --stragglers" "$BIN/replay" --expand=ring --stragglers "$TMP/ddp"
status 3 "too small a topology" "$BIN/replay" --expand=ring --topology=1x2 "$TMP/ddp"
says 'name hosts for all of them' "... says what to do"
status 5 "more messages than fit" "$BIN/replay" --expand=ring --chunks=1000000 --channels=1000 "$TMP/ddp"
done_testing
